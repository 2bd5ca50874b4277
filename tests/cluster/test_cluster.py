"""The cluster service: topics, partitions and leaders, and log ends that cost one request a leader and time."""

from __future__ import annotations

import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from rebalance.errors import UnreadableNode
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.types import Broker, TopicPartition
from tests.fetching.feeding import ScriptedBroker
from zkconsumer.cli.program import program
from zkconsumer.cluster import log_ends
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import ask_leaders
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.loads import load

CLICKS, VIEWS = f"clicks-{uuid.uuid4().hex[:8]}", f"views-{uuid.uuid4().hex[:8]}"
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture(scope="module")
def embedded(embedded_clusters: Callable[[int], EmbeddedCluster]) -> EmbeddedCluster:
    """Two brokers with a topic that is large enough to count requests."""
    running = embedded_clusters(2)
    running.create_topic(CLICKS, 400, 1)
    running.create_topic(VIEWS, 1, 2)
    load(running, CLICKS, 3, partitions=[7])
    return running


@contextmanager
def cluster_of(running: EmbeddedCluster) -> Iterator[Cluster]:
    with zookeeper_connection(running.zookeeper_connect) as port:
        yield Cluster(port, "zkconsumer-test", 5.0, security=None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """(port of the broker, time, number of partitions) of each offset request that is sent from here."""
    requests: list[tuple[int, int, int]] = []
    ask = SimpleConsumer.multi_offsets_before

    def counted(
        self: SimpleConsumer, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int = 1
    ) -> list[tuple[int, list[int]]]:
        requests.append((self.port, time_ms, len(partitions)))
        return ask(self, partitions, time_ms, max_offsets)

    monkeypatch.setattr(SimpleConsumer, "multi_offsets_before", counted)
    return requests


def test_topics_partitions_and_leaders_are_found(embedded: EmbeddedCluster) -> None:
    with cluster_of(embedded) as cluster:
        assert [broker.id for broker in cluster.brokers()] == [0, 1]
        assert {CLICKS, VIEWS} <= set(cluster.topics())
        assert cluster.partitions([VIEWS, "absent"]) == {VIEWS: (0,)}
        view = TopicPartition(VIEWS, 0)
        assert cluster.leaders([view, TopicPartition("absent", 0)])[view].id in (0, 1)


def test_a_topic_that_cannot_be_understood_is_an_error(embedded: EmbeddedCluster) -> None:
    embedded.client.create("/brokers/topics/odd", b"{")
    try:
        with cluster_of(embedded) as cluster, pytest.raises(UnreadableNode):
            cluster.partitions(["odd"])
    finally:
        embedded.client.delete("/brokers/topics/odd")


def test_log_ends_take_one_request_a_leader_and_time(
    embedded: EmbeddedCluster, asked: list[tuple[int, int, int]]
) -> None:
    names = [TopicPartition(CLICKS, number) for number in range(400)]
    with cluster_of(embedded) as cluster:
        found = cluster.log_ends(names, [EARLIEST, LATEST])
    assert list(found) == names
    assert found[TopicPartition(CLICKS, 7)] == (0, 3)
    assert set(found.values()) == {(0, 3), (0, 0)}
    ports = [embedded.port(0), embedded.port(1)]
    assert sorted(asked) == sorted((port, time_ms, 200) for port in ports for time_ms in (EARLIEST, LATEST))


@pytest.mark.parametrize(("arguments", "times"), [(["topics", CLICKS], 2), (["describe", "readers"], 1)])
def test_a_command_asks_each_leader_once_for_each_time(
    embedded: EmbeddedCluster, asked: list[tuple[int, int, int]], arguments: list[str], times: int
) -> None:
    embedded.client.ensure_path(f"/consumers/readers/offsets/{CLICKS}")
    for number in range(0, 400, 100):
        path = f"/consumers/readers/offsets/{CLICKS}/{number}"
        if embedded.client.exists(path) is None:
            embedded.client.create(path, b"0")
    shown = CliRunner().invoke(program, [*arguments, "--zookeeper", embedded.zookeeper_connect, "--json"])
    assert shown.exit_code == 0, shown.output
    assert Counter(port for port, _, _ in asked) == {embedded.port(0): times, embedded.port(1): times}


def test_a_large_leader_is_asked_in_pieces(
    embedded: EmbeddedCluster, asked: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_ends, "PARTITIONS_A_REQUEST", 90)
    names = [TopicPartition(CLICKS, number) for number in range(400)]
    with cluster_of(embedded) as cluster:
        found = cluster.log_ends(names, [LATEST])
    assert len(found) == 400
    assert Counter(size for _, _, size in asked) == {90: 4, 20: 2}


# -- errors ------------------------------------------------------------------------------------------------------------


def ask(
    leaders: dict[TopicPartition, Broker], timeout_s: float = 5.0, deadline_s: float = 10.0
) -> dict[TopicPartition, log_ends.LogOffsets]:
    return ask_leaders(leaders, [EARLIEST, LATEST], "zkconsumer-test", timeout_s, deadline_s)


def test_an_error_belongs_to_its_partition() -> None:
    with ScriptedBroker() as broker:
        broker.on_offsets = lambda _, number, time_ms: (6, []) if number == 1 else (0, [time_ms + 2])
        assert ask({P0: broker.broker, P1: broker.broker, P2: broker.broker}) == {
            P0: (0, 1), P1: "NotLeaderForPartition", P2: (0, 1),
        }  # fmt: skip


def test_a_broker_that_names_no_offset_has_none() -> None:
    with ScriptedBroker() as broker:
        broker.on_offsets = lambda _topic, _number, time_ms: (0, [] if time_ms == EARLIEST else [5])
        assert ask({P0: broker.broker}) == {P0: (None, 5)}


def test_brokers_that_hang_delay_the_caller_once() -> None:
    with ScriptedBroker() as broker, socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hanging = {TopicPartition("t", number): Broker(number, "127.0.0.1", port) for number in range(1, 9)}
        began = time.monotonic()
        found = ask({P0: broker.broker, **hanging}, timeout_s=0.5)
        assert time.monotonic() - began < 2.0
    assert found[P0] == (0, 0)
    assert {found[name] for name in hanging} == {
        f"broker {each.id}: 127.0.0.1:{port}: no answer within 0.5 s" for each in hanging.values()
    }


def test_all_answers_have_one_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = Broker(3, "127.0.0.1", silent.getsockname()[1])
        began = time.monotonic()
        found = ask({P0: broker}, timeout_s=30.0, deadline_s=0.3)
        assert time.monotonic() - began < 5.0
    assert isinstance(found[P0], str)
    assert found[P0].startswith("broker 3: ")
