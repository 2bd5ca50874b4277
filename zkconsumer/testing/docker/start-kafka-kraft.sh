#!/bin/sh
# Starts a broker of Kafka 4 that is its own controller, without ZooKeeper. Environment: PORT, ADVERTISED_HOST,
# JARS_FOLDER, DATA_FOLDER; NODE_ID (default 0), CONTROLLER_PORT (default 9093, inside alone), LISTEN (default: all
# addresses of the container), HEAP_MB (default 256), SETTINGS (more lines of server.properties, which overrule those
# here).
set -eu
node=${NODE_ID:-0}
controller=127.0.0.1:${CONTROLLER_PORT:-9093}
mkdir -p "$DATA_FOLDER"
cat > "$DATA_FOLDER/server-$node.properties" <<END
process.roles=broker,controller
node.id=$node
controller.quorum.voters=$node@$controller
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners=PLAINTEXT://${LISTEN:-0.0.0.0}:$PORT,CONTROLLER://$controller
advertised.listeners=PLAINTEXT://$ADVERTISED_HOST:$PORT
log.dirs=$DATA_FOLDER/log-$node
num.partitions=2
default.replication.factor=1
auto.create.topics.enable=true
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
num.network.threads=1
num.io.threads=2
log.cleaner.dedupe.buffer.size=2097152
${SETTINGS:-}
END
set -- java "-Xmx${HEAP_MB:-256}m" -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$JARS_FOLDER/*"
if [ ! -e "$DATA_FOLDER/log-$node/meta.properties" ]; then
    "$@" kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c "$DATA_FOLDER/server-$node.properties"
fi
exec "$@" kafka.Kafka "$DATA_FOLDER/server-$node.properties"
