"""Messages into SQLite, each exactly once: rows and offsets are written in one transaction.

    zkconsumer cluster up --zookeeper-port 2181 --topic clicks:4
    python examples/sqlite_transaction.py --zookeeper 127.0.0.1:2181 --group store --topic clicks --database clicks.db

All members of the group write to one database. It alone decides where reading starts: at the offsets that are stored
in it. ZooKeeper's offsets follow the transactions, for tools that show the lag.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress

from zkconsumer import CommitFailed, ConsumerConfig, ConsumerConnector, ConsumerTimeout, Message, TopicPartition

BATCH, BATCH_MS = 1000, 100  # so many messages in one transaction, or what came in this time
TABLES = """
CREATE TABLE IF NOT EXISTS messages (topic TEXT, partition INTEGER, offset INTEGER, value BLOB);
CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition));
"""
NEXT = "SELECT next FROM offsets WHERE topic = ? AND partition = ?"
ADVANCE = """
INSERT INTO offsets VALUES (?, ?, ?)
ON CONFLICT (topic, partition) DO UPDATE SET next = excluded.next WHERE offsets.next < excluded.next
"""


def store(database: sqlite3.Connection, batch: list[Message]) -> None:
    """Write messages and the offsets after them in one transaction.

    Rows that are there already are skipped: another member may have started before this one wrote its last batch.
    """
    with database:
        for each in batch:
            if database.execute(ADVANCE, (each.topic, each.partition, each.next_offset)).rowcount:
                row = (each.topic, each.partition, each.offset, each.value)
                database.execute("INSERT INTO messages VALUES (?, ?, ?, ?)", row)


class Database:
    """Returns the start offsets. Called on the connector's own thread, so with a connection of its own each time."""

    def __init__(self, path: str) -> None:
        self.path = path

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as database:
                return {each: offset for each in positions for (offset,) in database.execute(NEXT, each)}
        except sqlite3.Error as error:
            print(f"{self.path} does not say where to begin: {error}", file=sys.stderr)
            return dict.fromkeys(positions)  # None refuses: the stream raises PartitionStopped


def consume(config: ConsumerConfig, topic: str, path: str, database: sqlite3.Connection) -> None:
    with ConsumerConnector(config, Database(path)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        while True:
            batch: list[Message] = []
            due = time.monotonic() + BATCH_MS / 1000
            with suppress(ConsumerTimeout):
                while len(batch) < BATCH and time.monotonic() < due:
                    batch.append(next(stream))
            store(database, batch)
            with suppress(CommitFailed):  # then the offset in ZooKeeper is older, which does no harm
                connector.commit_offsets()  # without news nothing is written


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a topic to SQLite, each message once.")
    parser.add_argument("--zookeeper", required=True, help="host:port,host:port/chroot")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--database", required=True, help="a file")
    options = parser.parse_args()

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `&` in a script has it: Ctrl-C is for others
            signal.signal(number, lambda number, frame: sys.exit())  # at any line: the next start sees to the rest

    config = ConsumerConfig(options.zookeeper, options.group, auto_offset_reset="smallest", auto_commit_enable=False,
                            consumer_timeout_ms=BATCH_MS)  # fmt: skip
    with closing(sqlite3.connect(options.database, timeout=30)) as database:
        database.executescript(TABLES)
        consume(config, options.topic, options.database, database)


if __name__ == "__main__":
    main()
