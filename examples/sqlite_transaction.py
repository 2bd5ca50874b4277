"""Messages into SQLite, each exactly once: rows and offsets are written in one transaction.

    zkconsumer cluster up --topic clicks:4       # says where its ZooKeeper is
    python examples/sqlite_transaction.py --zookeeper 127.0.0.1:2181 --group store --topic clicks --database clicks.db

All members of the group write to one database, and it alone says what comes next. ZooKeeper's offset, where reading
begins, follows the transaction. If it is behind (the process died in between), what the database has is passed over.
If it is ahead (the database came out of a backup), it is put back and the group is joined anew.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress
from queue import SimpleQueue
from types import SimpleNamespace

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
    """Write messages and the offsets behind them in one transaction; pass over what is there already."""
    with database:
        for each in batch:
            if database.execute(ADVANCE, (each.topic, each.partition, each.next_offset)).rowcount:
                row = (each.topic, each.partition, each.offset, each.value)
                database.execute("INSERT INTO messages VALUES (?, ?, ?, ?)", row)


def consume(config: ConsumerConfig, topic: str, database: sqlite3.Connection) -> None:
    """Store messages; return when ZooKeeper had to be put back."""
    assigned: SimpleQueue[dict[TopicPartition, int]] = SimpleQueue()
    listener = SimpleNamespace(on_partitions_assigned=assigned.put)  # called before anything of them is delivered
    with ConsumerConnector(config, listener) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        while True:
            batch: list[Message] = []
            due = time.monotonic() + BATCH_MS / 1000
            with suppress(ConsumerTimeout):
                while len(batch) < BATCH and time.monotonic() < due:
                    batch.append(next(stream))
            while not assigned.empty():
                begins = assigned.get()
                stored = {name: offset for name in begins for (offset,) in database.execute(NEXT, name)}
                if ahead := {name: offset for name, offset in stored.items() if offset < begins[name]}:
                    connector.commit_offsets(ahead)
                    return  # without the batch: it may begin behind a gap
            if batch:
                store(database, batch)
                with suppress(CommitFailed):  # then ZooKeeper is behind, which does no harm
                    connector.commit_offsets()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a topic to SQLite, each message once.")
    parser.add_argument("--zookeeper", required=True, help="host:port,host:port/chroot")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--database", required=True, help="a file")
    options = parser.parse_args()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit())  # at any line: the next start sees to the rest

    settings = {"auto_offset_reset": "smallest", "auto_commit_enable": False, "consumer_timeout_ms": BATCH_MS}
    config = ConsumerConfig(options.zookeeper, options.group, **settings)
    with closing(sqlite3.connect(options.database, timeout=30)) as database:
        database.executescript(TABLES)
        while True:
            consume(config, options.topic, database)


if __name__ == "__main__":
    main()
