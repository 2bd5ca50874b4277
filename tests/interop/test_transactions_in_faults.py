"""Transactions that are open, committed and aborted while leaders move and brokers are killed, read with both levels.

Three brokers; the logs and `__transaction_state` have three replicas. Kafka 4 has a controller of its own, and is read
without a group. librdkafka writes, and says at the end what each level has to deliver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from consuming import BackgroundReader, member, stored
from transaction_load import TransactionLoad

from simpleconsumer.types import Message
from zkconsumer import ConsumerTimeout, KafkaStream, read_topic
from zkconsumer.connector import ConsumerConnector
from zkconsumer.testing.kafka import KafkaCluster, probe
from zkconsumer.testing.waiting import wait_until

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.real

WAIT_S = 120.0
PARTITIONS = 3
COMMITTED, EVERYTHING = "read_committed", "read_uncommitted"
BROKERS = {
    "min.insync.replicas": 2, "unclean.leader.election.enable": False, "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3, "transaction.state.log.min.isr": 2,
}  # fmt: skip
IN_ZOOKEEPER = {"zookeeper.session.timeout.ms": 6000}
COURSES = {
    "short": ("move", "kill"),
    "long": ("kill", "move", "kill coordinator", "move", "kill", "stop", "kill coordinator"),
}
Row = tuple[int, bytes | None]


class Got(NamedTuple):
    """A message, as far as it is compared."""

    partition: int | str
    offset: int
    value: bytes | None


def got(message: Message) -> Got:
    return Got(message.partition, message.offset, message.value)


def is_kraft(version: str) -> bool:
    return version.startswith("4.")


class Readers:
    """All that read the topic at once, and what each of them got, by partition."""

    def __init__(self, cluster: KafkaCluster, topic: str, group: str, stack: ExitStack) -> None:
        self.cluster, self.topic, self.group = cluster, topic, group
        self.brokers = ",".join(f"127.0.0.1:{cluster.port(each)}" for each in cluster.brokers)
        self.found: dict[tuple[str, str], list[Got]] = {}
        self._errors: list[BaseException] = []
        self._members: list[BackgroundReader] = []
        self._stack = stack
        for level in (COMMITTED, EVERYTHING):
            self._read_without_group(level)
            if cluster.has_zookeeper:
                for name in ("a", "b"):
                    self.join(level, name)
        if cluster.has_zookeeper:
            self._read_batches()

    def join(self, level: str, name: str) -> ConsumerConnector:
        """Have one more member of the group of a level."""
        found = self.found.setdefault(("group", level), [])
        settings = {"isolation_level": level, "zookeeper_session_timeout_ms": 30_000, "refresh_leader_backoff_ms": 50}
        connector = self._stack.enter_context(member(self.cluster, self.group_of(level), name, **settings))
        streams = connector.create_message_streams({self.topic: 1})[self.topic]
        self._members.append(BackgroundReader(*streams, handle=lambda message: found.append(got(message))))
        return connector

    def _read_batches(self) -> None:
        """A group of its own takes what is committed in batches of columns."""
        found = self.found.setdefault(("batches", COMMITTED), [])
        settings = {"isolation_level": COMMITTED, "zookeeper_session_timeout_ms": 30_000}
        connector = self._stack.enter_context(member(self.cluster, f"{self.group}-batches", "a", **settings))
        [stream] = connector.create_message_streams({self.topic: 1})[self.topic]

        def run() -> None:
            while True:
                try:
                    found.extend(rows_of_batches(stream))
                    return  # the connector was shut down
                except ConsumerTimeout:
                    continue

        self._run_in_background(run)

    def _run_in_background(self, run: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - top of the thread: the test looks at it
                self._errors.append(error)

        threading.Thread(target=guarded, daemon=True).start()

    def group_of(self, level: str) -> str:
        return f"{self.group}-{level}"

    def _read_without_group(self, level: str) -> None:
        found = self.found.setdefault(("topic", level), [])
        properties = {"bootstrap.servers": self.brokers, "isolation.level": level, "refresh.leader.backoff.ms": 50}
        reader = self._stack.enter_context(
            read_topic(None, self.topic, until=None, properties=properties, stall_timeout_s=WAIT_S)
        )

        self._run_in_background(lambda: found.extend(map(got, reader)))

    @property
    def errors(self) -> list[BaseException]:
        """What was raised by any of them."""
        return [*self._errors, *(error for each in self._members for error in each.errors)]

    def of(self, kind: str, level: str) -> dict[int, list[Row]]:
        """What readers of a kind got, by partition, in the order of delivery."""
        return by_partition(list(self.found[kind, level]))

    def check(self, level: str, expected: dict[int, list[Row]]) -> None:
        """Return when readers of a level have got exactly what is expected."""
        count = sum(map(len, expected.values()))
        for kind in {kind for kind, each in self.found if each == level}:
            self._wait(self.found[kind, level], count, f"{count} messages by {kind} with {level}")
            assert not self.errors, self.errors
            assert self.of(kind, level) == expected, (kind, level)

    def _wait(self, found: list[Got], count: int, what: str) -> None:
        wait_until(lambda: len(found) >= count or self.errors, WAIT_S, what, state=lambda: len(found))


def rows_of_batches(stream: KafkaStream) -> Iterator[Got]:
    for batch in stream.batches(columns=("offset", "value")):
        offsets, values = (column.to_pylist() for column in batch.record_batch.columns)
        yield from (Got(batch.partition, *row) for row in zip(offsets, values, strict=True))


def by_partition(rows: Any) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
    for partition, *rest in rows:
        found[partition].append(tuple(rest))  # type: ignore[arg-type]
    return found


def read_by_confluent(brokers: str, topic: str, level: str) -> dict[int, list[Row]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers, "group.id": topic, "enable.partition.eof": True, "enable.auto.commit": False,
         "isolation.level": level, "auto.offset.reset": "earliest"}
    )  # fmt: skip
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended: set[int] = set()
        rows = []
        while len(ended) < PARTITIONS:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is None:
                rows.append((message.partition(), message.offset(), message.value()))
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return by_partition(rows)
    finally:
        consumer.close()


def wait_in_sync(cluster: KafkaCluster, *topics: str) -> None:
    """Return when every replica of these topics is in sync, by the word of every broker."""

    def sizes() -> set[int]:
        known = [probe.partitions_known(cluster.port(each), topic)
                 for each in cluster.brokers for topic in topics]  # fmt: skip
        return {len(answer.isr) for partitions in known for answer in partitions.values()} | {
            0 for partitions in known if not partitions
        }

    wait_until(lambda: sizes() == {3}, WAIT_S, f"all replicas of {topics} to be in sync", state=sizes)


def fail(cluster: KafkaCluster, topic: str, event: str, number: int, grow: Callable[[int], None]) -> None:
    """One event: `move` leaders, `kill` or `stop` a leader, or kill the coordinator of transactions."""
    log, partition = topic, number % PARTITIONS
    if event == "move":
        for each in range(PARTITIONS):
            leader = cluster.leader(topic, each)
            assert leader is not None
            cluster.move_leader(topic, each, (leader + 1) % 3)
            grow(20)
        return
    if event.endswith("coordinator"):
        log, partition = "__transaction_state", 0
    hit = cluster.leader(log, partition)
    assert hit is not None
    if event == "stop":
        cluster.stop(hit)
    else:
        cluster.kill(hit)
    wait_until(lambda: cluster.leader(log, partition) not in (None, -1, hit), WAIT_S, f"another leader of {log}")
    grow(50)
    cluster.start(hit)
    wait_in_sync(cluster, topic, "__transaction_state")


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[str], KafkaCluster]]:
    """Gives three running brokers of a version."""
    with ExitStack() as stack:
        running: dict[str, KafkaCluster] = {}

        def cluster(version: str) -> KafkaCluster:
            if version not in running:
                stack.close()  # there is only so much room
                running.clear()
                settings = BROKERS if is_kraft(version) else {**BROKERS, **IN_ZOOKEEPER}
                running[version] = stack.enter_context(KafkaCluster(version, 3, settings=settings))
            return running[version]

        yield cluster


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("version", "course"),
    [("3.9.2", "short"), *(pytest.param(each, "long", marks=SLOW) for each in ("1.1.1", "2.8.2", "3.9.2", "4.3.1"))],
)
def test_nothing_committed_is_lost_and_nothing_aborted_is_delivered_while_brokers_fail(
    clusters: Callable[[str], KafkaCluster], fresh_topic: Callable[[], str], fresh_group: str, version: str, course: str
) -> None:
    cluster, topic = clusters(version), fresh_topic()
    cluster.create_topic(topic, PARTITIONS, replication=3)
    with ExitStack() as stack:
        readers = Readers(cluster, topic, fresh_group, stack)
        load = stack.enter_context(TransactionLoad(readers.brokers, topic, PARTITIONS))
        load.grow(50)
        wait_in_sync(cluster, topic, "__transaction_state")
        for number, event in enumerate(COURSES[course]):
            with load.held() as opened:
                fail(cluster, topic, event, number, load.grow)
                early = set(opened)
                for (kind, level), found in readers.found.items():
                    if level == COMMITTED:
                        assert early.isdisjoint({each.value for each in list(found)}), (kind, event)
            if cluster.has_zookeeper:
                with readers.join(COMMITTED, f"c{number}"):  # partitions are handed over, too
                    load.grow(100)
        load.stop()
        expected = {level: read_by_confluent(readers.brokers, topic, level) for level in (COMMITTED, EVERYTHING)}
        check_account(load, expected)
        for level, rows in expected.items():
            readers.check(level, rows)
    if cluster.has_zookeeper:
        for level, rows in expected.items():
            offsets = [stored(cluster, readers.group_of(level), topic, partition) for partition in rows]
            assert all(int(offset or 0) > rows[at][-1][0] for at, offset in enumerate(offsets)), offsets


def check_account(load: TransactionLoad, expected: dict[str, dict[int, list[Row]]]) -> None:
    """What librdkafka reads is what brokers acknowledged to its producers, once each, in the order of each writer."""
    wanted = {COMMITTED: load.kept, EVERYTHING: load.kept | load.aborted}
    for level, partitions in expected.items():
        for rows in partitions.values():
            values = [value or b"" for _, value in rows]
            for writer in (b"short", b"long", b"plain"):
                numbers = [int(value.split()[1]) for value in values if value.startswith(writer)]
                assert numbers == sorted(set(numbers)), (level, writer)
        found = [value for rows in partitions.values() for _, value in rows]
        assert set(found) - load.unsure == wanted[level], level
    assert len(load.aborted) > 20
