"""A process that hosts an embedded broker until it is killed: `python broker_process.py FOLDER PARTITIONS`.

Prints its port. Segments are small, and every message is flushed before it is acknowledged.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from zkconsumer.testing.embedded.cluster import EmbeddedCluster

SETTINGS = {"log.segment.bytes": 20_000, "log.flush.interval.messages": 1, "log.index.interval.bytes": 512}
TOPIC = "t"


def main() -> None:
    with EmbeddedCluster(1, zookeeper=False, settings=SETTINGS, folder=Path(sys.argv[1])) as cluster:
        cluster.create_topic(TOPIC, int(sys.argv[2]))
        print(cluster.port(0), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
