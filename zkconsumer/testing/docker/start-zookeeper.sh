#!/bin/sh
# Starts ZooKeeper. Environment: PORT, JARS_FOLDER, DATA_FOLDER; LISTEN (default: all addresses of the container),
# HEAP_MB (default 128).
set -eu
here=$(dirname "$0")
mkdir -p "$DATA_FOLDER/zookeeper"
cat > "$DATA_FOLDER/zoo.cfg" <<END
tickTime=500
clientPort=$PORT
clientPortAddress=${LISTEN:-0.0.0.0}
dataDir=$DATA_FOLDER/zookeeper
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
END
exec java "-Xmx${HEAP_MB:-128}m" -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true \
    "-Dlog4j.configuration=file:$here/log4j.properties" -Dzookeeper.jmx.log4j.disable=true \
    -cp "$JARS_FOLDER/*" org.apache.zookeeper.server.ZooKeeperServerMain "$DATA_FOLDER/zoo.cfg"
