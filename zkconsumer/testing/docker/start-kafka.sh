#!/bin/sh
# Starts a broker of Kafka 0.8. Environment: BROKER_ID, PORT, ZOOKEEPER, ADVERTISED_HOST, JARS_FOLDER, DATA_FOLDER;
# LISTEN (default: all addresses of the container), HEAP_MB (default 256), SETTINGS (more lines of server.properties,
# which overrule those here).
set -eu
here=$(dirname "$0")
mkdir -p "$DATA_FOLDER/log-$BROKER_ID"
# Clients and the other brokers are told ADVERTISED_HOST:PORT, so PORT is the same inside and outside.
cat > "$DATA_FOLDER/server-$BROKER_ID.properties" <<END
broker.id=$BROKER_ID
host.name=${LISTEN:-0.0.0.0}
port=$PORT
advertised.host.name=$ADVERTISED_HOST
advertised.port=$PORT
log.dirs=$DATA_FOLDER/log-$BROKER_ID
zookeeper.connect=$ZOOKEEPER
zookeeper.session.timeout.ms=6000
num.partitions=2
default.replication.factor=1
auto.create.topics.enable=true
delete.topic.enable=true
controlled.shutdown.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
num.network.threads=1
num.io.threads=2
log.cleaner.enable=false
log.cleaner.dedupe.buffer.size=2097152
${SETTINGS:-}
END
exec java "-Xmx${HEAP_MB:-256}m" -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true \
    --add-opens=java.base/java.lang=ALL-UNNAMED "-Dlog4j.configuration=file:$here/log4j.properties" \
    -cp "$JARS_FOLDER/*" kafka.Kafka "$DATA_FOLDER/server-$BROKER_ID.properties"
