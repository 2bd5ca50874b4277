"""Our own consumer group on embedded brokers: the connector cannot tell them from Java's."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from simpleconsumer import SimpleConsumer
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, KafkaStream
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

PATIENCE_S = 40.0
PARTITIONS = 4


GENERATIONS = ["0.8", "2.8", *(pytest.param(each, marks=pytest.mark.slow) for each in ("0.9", "0.10", "0.11", "3.9"))]


@pytest.fixture(params=GENERATIONS)
def cluster(zookeeper: ZooKeeperServer, request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    settings = {"zookeeper.session.timeout.ms": 1000}
    chroot = f"/group-{uuid.uuid4().hex[:10]}"
    where = {"generation": request.param, "zookeeper": zookeeper, "chroot": chroot}
    with EmbeddedCluster(2, settings=settings, **where) as running:
        running.create_topic("t", PARTITIONS)
        yield running


class Member:
    """A connector with one stream, read on a thread of its own."""

    def __init__(self, cluster: EmbeddedCluster, name: str) -> None:
        config = ConsumerConfig(
            cluster.zookeeper_connect, "g", consumer_id=name, auto_offset_reset="smallest", consumer_timeout_ms=100,
            rebalance_quiet_ms=20, auto_commit_interval_ms=500, refresh_leader_backoff_ms=100,
        )  # fmt: skip
        self.connector = ConsumerConnector(config)
        self.messages: list[Any] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._stream: KafkaStream = self.connector.create_message_streams({"t": 1})["t"][0]
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                for message in self._stream:
                    self.messages.append(message)
                return
            except ConsumerTimeout:
                continue

    def partitions(self) -> int:
        return len(self.connector.status().owned)

    def close(self) -> None:
        self.connector.shutdown()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def members(cluster: EmbeddedCluster) -> Iterator[list[Member]]:
    """Two members that share the partitions evenly."""
    group = [Member(cluster, "first"), Member(cluster, "second")]
    try:
        wait_until(lambda: [m.partitions() for m in group] == [2, 2], PATIENCE_S, "an even share")
        yield group
    finally:
        for member in group:
            member.close()


def produce(cluster: EmbeddedCluster, tag: str, count: int) -> Counter[str]:
    sent: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        values = [f"{tag}-{partition}-{n}" for n in range(count)]
        with SimpleConsumer("127.0.0.1", cluster.port(cluster.leader("t", partition) or 0)) as producer:
            producer.produce("t", partition, [value.encode() for value in values], codec="gzip")
        sent.update(values)
    return sent


def received(members: list[Member]) -> Counter[str]:
    return Counter(message.value.decode() for member in members for message in list(member.messages))


def wait_received(members: list[Member], expected: Counter[str]) -> None:
    wait_until(
        lambda: not expected - received(members), PATIENCE_S, f"{expected.total()} messages",
        state=lambda: (expected - received(members)).total(),
    )  # fmt: skip


def test_two_members_share_two_brokers_and_read_everything_once(
    cluster: EmbeddedCluster, members: list[Member]
) -> None:
    sent = produce(cluster, "all", 100)
    wait_received(members, sent)
    assert received(members) == sent
    assert [len(member.messages) for member in members] == [200, 200]


def test_a_group_follows_moved_leaders(cluster: EmbeddedCluster, members: list[Member]) -> None:
    sent = produce(cluster, "before", 20)
    wait_received(members, sent)
    for partition in range(PARTITIONS):
        cluster.move_leader("t", partition, 1 - (cluster.leader("t", partition) or 0))
    sent += produce(cluster, "after", 20)
    wait_received(members, sent)
    assert received(members) == sent


def test_a_group_outlives_a_broker_that_is_killed_and_returns(cluster: EmbeddedCluster, members: list[Member]) -> None:
    sent = produce(cluster, "before", 20)
    wait_received(members, sent)
    cluster.kill(1)
    cluster.start(1)
    sent += produce(cluster, "after", 20)
    wait_received(members, sent)
    assert received(members) == sent


@pytest.mark.parametrize(
    "fault",
    [Fault.error(6, api="fetch", topic="t", partition=0), Fault.error(-1, api="fetch", topic="t", partition=0),
     Fault.error(74, api="fetch", topic="t", partition=0), Fault.error(75, api="fetch", topic="t", partition=0),
     Fault.error(56, api="fetch", topic="t", partition=0), Fault.stall(0.3, api="fetch", after_bytes=30),
     Fault.close(api="fetch"), Fault.close(api="fetch", after_bytes=30), Fault.garbage(b"\xff" * 40, api="fetch"),
     Fault.wrong_correlation_id(api="fetch")],
    ids=lambda fault: f"{fault.kind} {fault.code or ''}".strip(),
)  # fmt: skip
def test_passing_faults_cost_nothing(cluster: EmbeddedCluster, members: list[Member], fault: Fault) -> None:
    cluster.faults.add(fault, times=3)
    sent = produce(cluster, "all", 50)
    wait_received(members, sent)
    cluster.faults.wait_used(fault, times=3, timeout_s=PATIENCE_S)
    sent += produce(cluster, "more", 50)
    wait_received(members, sent)
    assert received(members) == sent
