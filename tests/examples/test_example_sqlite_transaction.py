"""`examples/sqlite_transaction.py`: each message stands in the table exactly once, whatever the process dies of."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from tests.examples.example_process import PATIENCE_S, Example, members, stored
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.history import Event
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import SteadyLoad, load
from zkconsumer.testing.waiting import wait_until

NAME = "sqlite_transaction.py"
DIES_BEFORE_COMMIT = Path(__file__).with_name("dies_before_commit.py")
PARTITIONS = 4
Row = tuple[int, int, str]


class Database:
    """The file that the example writes, seen from outside."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            return database.execute(statement).fetchall()

    def rows(self) -> list[Row]:
        """Partition, offset and value of all messages in the order in which they were written."""
        if not self.run("SELECT * FROM sqlite_master WHERE name = 'messages'"):
            return []
        rows = self.run("SELECT partition, offset, value FROM messages ORDER BY rowid")
        return [(partition, offset, value.decode()) for partition, offset, value in rows]

    def wait_rows(self, count: int) -> list[Row]:
        """All messages, once there are so many."""
        wait_until(lambda: len(self.rows()) >= count, PATIENCE_S, f"{count} rows", state=lambda: len(self.rows()))
        return self.rows()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "clicks.db")


def expected(sent: Iterable[Event]) -> list[Row]:
    return sorted((each.partition, each.offset, each.id) for each in sent)


def in_order(rows: list[Row]) -> bool:
    """Whether the offsets of each partition only rise."""
    return sorted(rows, key=lambda row: row[0]) == sorted(rows, key=lambda row: row[:2])


class Group:
    """The examples of a group: which process is which member."""

    def __init__(self, cluster: Any, start: Callable[..., Example], **settings: Any) -> None:
        self.running: dict[str, Example] = {}
        self._cluster = cluster
        self._start = start
        self._settings = {"zookeeper": cluster.zookeeper_connect, **settings}
        self._group: str = settings["group"]

    def join(self) -> None:
        """Start one; returns when it is a member."""
        example = self._start(NAME, **self._settings)
        example.wait_for(lambda: set(members(self._cluster, self._group)) - set(self.running), "a new member")
        [name] = set(members(self._cluster, self._group)) - set(self.running)
        self.running[name] = example

    def kill_oldest(self) -> None:
        """SIGKILL, and the end of the session, for which nobody then has to wait."""
        name = next(iter(self.running))
        self.running[name].process.kill()
        end_session_of(self._cluster, self._group, name)
        del self.running[name]

    def end_oldest(self) -> None:
        """SIGTERM, after which the member is gone and the status 0."""
        name = next(iter(self.running))
        assert self.running.pop(name).end() == 0
        assert name not in members(self._cluster, self._group)


def end_session_of(cluster: Any, group: str, name: str) -> None:
    """End the session of a member that is dead, if it has not ended by itself."""
    with suppress(NoNodeError):
        cluster.zookeeper.end_session(cluster.client.get(f"/consumers/{group}/ids/{name}")[1].ephemeralOwner)


def test_a_death_between_transaction_and_commit_repeats_nothing(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, start: Callable[..., Example],
    database: Database,
) -> None:  # fmt: skip
    topic = fresh_topic()
    kafka_0822.create_topic(topic, PARTITIONS)
    sent = load(kafka_0822, topic, 500)  # two batches at least
    settings = {
        "zookeeper": kafka_0822.zookeeper_connect, "group": fresh_group, "topic": topic, "database": database.path,
    }  # fmt: skip
    dying = start(NAME, program=DIES_BEFORE_COMMIT, **settings)
    assert dying.process.wait(PATIENCE_S) == -signal.SIGKILL, dying.errors()
    first, committed = database.rows(), sum(stored(kafka_0822, fresh_group, topic).values())
    assert 0 < committed < len(first) <= len(sent)
    for dead in members(kafka_0822, fresh_group):
        end_session_of(kafka_0822, fresh_group, dead)
    second = start(NAME, **settings)
    second.wait_for(
        lambda: stored(kafka_0822, fresh_group, topic) == dict.fromkeys(range(PARTITIONS), 500), "the last commit"
    )
    assert second.end() == 0
    assert database.rows()[: len(first)] == first
    assert in_order(database.rows())
    assert sorted(database.rows()) == expected(sent)


def test_members_that_die_and_leave_under_load_write_each_message_once(
    small_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str, start: Callable[..., Example],
    database: Database,
) -> None:  # fmt: skip
    topic = fresh_topic()
    small_cluster.create_topic(topic, PARTITIONS)
    group = Group(small_cluster, start, group=fresh_group, topic=topic, database=database.path)
    with SteadyLoad(small_cluster, [topic], PARTITIONS, rate_per_s=500) as steady:
        group.join()
        for step in (group.kill_oldest, group.end_oldest, group.kill_oldest):
            group.join()
            database.wait_rows(len(database.rows()) + 200)
            step()
            database.wait_rows(len(database.rows()) + 200)
        steady.stop()
    assert sorted(database.wait_rows(len(steady.acked))) == expected(steady.acked)
    group.end_oldest()
    assert sorted(database.rows()) == expected(steady.acked)
    assert in_order(database.rows())


def test_a_database_out_of_a_backup_gets_what_it_misses(
    small_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str, start: Callable[..., Example],
    database: Database,
) -> None:  # fmt: skip
    topic = fresh_topic()
    small_cluster.create_topic(topic, 2)
    sent = load(small_cluster, topic, 20)
    settings = {
        "zookeeper": small_cluster.zookeeper_connect, "group": fresh_group, "topic": topic, "database": database.path,
    }  # fmt: skip

    def wait_end(example: Example) -> None:
        done = {0: 20, 1: 20}
        example.wait_for(
            lambda: len(database.rows()) == len(sent) and stored(small_cluster, fresh_group, topic) == done, "the end"
        )
        assert example.end() == 0

    wait_end(start(NAME, **settings))
    database.run("DELETE FROM messages WHERE partition = 0 AND offset >= 7")
    database.run("UPDATE offsets SET next = 7 WHERE partition = 0")
    wait_end(start(NAME, **settings))
    assert sorted(database.rows()) == expected(sent)
