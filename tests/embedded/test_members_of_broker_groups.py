"""Members of ours in groups of embedded brokers whose faults are scripted: nothing is lost, and what moves is said."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rebalance.errors import GroupRefused
from simpleconsumer.types import TopicPartition
from tests.interop.consuming import BackgroundReader
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
SESSION_MS, HEARTBEAT_MS, REBALANCE_MS = 3000, 300, 6000
GENERATIONS = ["2.8", *(pytest.param(each, marks=pytest.mark.slow) for each in ("0.9", "0.10", "1.1", "3.9", "4.3"))]
STRATEGIES = pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
SLOWER = pytest.mark.parametrize("strategy", ["range", pytest.param("cooperative-sticky", marks=pytest.mark.slow)])
FAULTS: dict[str, Callable[[str], Fault]] = {
    "loading": lambda api: Fault.error(14, api=api),
    "no coordinator": lambda api: Fault.error(15, api=api),
    "not the coordinator": lambda api: Fault.error(16, api=api),
    "lost answer": lambda api: Fault.close(api=api),
    "late": lambda api: Fault.delay(1.0, api=api),
}


@pytest.fixture(scope="module", params=GENERATIONS)
def clusters(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    settings = {"group.min.session.timeout.ms": 100}
    with EmbeddedCluster(2, generation=request.param, zookeeper=False, settings=settings) as running:
        yield running


@pytest.fixture
def cluster(clusters: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield clusters
    clusters.restore()


class Heard:
    """A listener that keeps what it was notified of."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        self.calls.append(("assigned", sorted(positions)))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(partitions)))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(partitions)))

    def all_of(self, kind: str) -> list[TopicPartition]:
        return [name for each, names in self.calls if each == kind for name in names]


class Group:
    """Members of one group that read a topic of four partitions."""

    def __init__(self, cluster: EmbeddedCluster, strategy: str) -> None:
        self.cluster = cluster
        self.strategy = strategy
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.name = f"g-{uuid.uuid4().hex[:8]}"
        self.sent = 0
        self.connectors: list[ConsumerConnector] = []
        self.readers: list[BackgroundReader] = []
        self.heard: list[Heard] = []
        cluster.create_topic(self.topic, 4, 2)

    def config(self, **settings: Any) -> ConsumerConfig:
        return ConsumerConfig(
            bootstrap_servers=self.cluster.broker_list, group_id=self.name, auto_offset_reset="smallest",
            auto_commit_interval_ms=100, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_MS, partition_assignment_strategy=self.strategy,
            offsets_channel_backoff_ms=100, **settings,
        )  # fmt: skip

    def join(self, **settings: Any) -> ConsumerConnector:
        heard = Heard()
        connector = ConsumerConnector(self.config(**settings), heard)
        self.connectors.append(connector)
        self.heard.append(heard)
        [stream] = connector.create_message_streams({self.topic: 1})[self.topic]
        self.readers.append(BackgroundReader(stream))
        return connector

    def send(self, count: int = 20) -> None:
        for number in range(count):
            value = f"{self.sent + number}".encode()
            self.cluster.produce(self.topic, [value], partition=(self.sent + number) % 4)
        self.sent += count

    def values(self) -> list[int]:
        return [int(message.value or b"-1") for reader in self.readers for message in list(reader.messages)]

    def wait_all(self) -> None:
        """Return when everything that was sent is delivered."""
        wait_until(lambda: set(self.values()) == set(range(self.sent)), PATIENCE_S, "all messages",
                   state=lambda: (sorted(set(range(self.sent)) - set(self.values())),
                                  [each.status() for each in self.connectors]))  # fmt: skip

    def wait_shared(self, *shares: int) -> None:
        """Return when the members hold these numbers of partitions, and their listeners know."""

        def held() -> list[int]:
            return sorted(len([1 for row in each.status().owned if row.state == "owned"]) for each in self.connectors)

        def reported() -> list[int]:
            return sorted(len(each.all_of("assigned")) - len(each.all_of("revoked")) for each in self.heard)

        wait_until(lambda: held() == reported() == sorted(shares), PATIENCE_S, f"shares of {shares}", state=held)


@pytest.fixture
def group(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Group]:
    strategy = request.node.callspec.params.get("strategy", "range")
    made = Group(cluster, strategy)
    yield made
    cluster.faults.clear()
    for connector in made.connectors:
        connector.shutdown(2.0)


@SLOWER
@pytest.mark.parametrize("api", ["consumer_metadata", "join_group", "sync_group", "heartbeat", "offset_fetch",
                                 "offset_commit"])  # fmt: skip
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_member_joins_through_faults_and_everything_is_delivered(
    group: Group, api: str, fault: str, strategy: str
) -> None:
    group.send()
    group.join()
    injected = group.cluster.faults.add(FAULTS[fault](api), times=2)
    group.send()
    group.join()
    group.wait_shared(2, 2)
    group.send()
    group.wait_all()
    if api in ("join_group", "sync_group", "heartbeat"):
        group.cluster.faults.wait_used(injected)
    assert not any(reader.errors for reader in group.readers)


@STRATEGIES
def test_a_coordinator_that_moves_takes_nothing_from_a_stable_group(group: Group, strategy: str) -> None:
    group.join()
    group.join()
    group.wait_shared(2, 2)
    before = [list(each.calls) for each in group.heard]
    for to_broker in (0, 1, 0, 1):
        moved = group.cluster.faults.add(Fault.move_coordinator(to_broker, api="heartbeat"))
        group.cluster.faults.wait_used(moved)
        group.send()
        group.wait_all()
    assert [each.calls for each in group.heard] == before, "nothing was given up"
    assert len(group.values()) == group.sent, "nothing was repeated"


def test_without_answers_to_heartbeats_delivery_stops_and_goes_on_and_nothing_is_given_up(group: Group) -> None:
    connector = group.join()
    group.send()
    group.wait_all()
    before = list(group.heard[0].calls)
    group.cluster.faults.add(Fault.stall(60.0, api="heartbeat"), times=None)  # they arrive, and nobody hears of it
    limit_s = SESSION_MS / 1000 * 2 / 3
    wait_until(lambda: (connector.status().lease_age_s or 0.0) > limit_s, PATIENCE_S, "a lease that is over")
    seen = len(group.values())
    group.send()
    status = connector.status()
    assert (status.lease_age_s or 0.0) > limit_s
    assert (len(group.values()), status.state, len(status.owned)) == (seen, "stable", 4)
    group.cluster.faults.clear()
    group.wait_all()
    assert group.heard[0].calls == before, "nothing was given up"
    assert len(group.values()) == group.sent


@pytest.mark.parametrize("code", [22, 25])
@pytest.mark.parametrize("api", ["heartbeat", "offset_commit"])
def test_a_member_that_was_thrown_out_loses_everything_says_so_and_joins_again(
    group: Group, code: int, api: str
) -> None:
    group.join()
    group.send()
    group.wait_all()
    wait_until(lambda: group.heard[0].calls, PATIENCE_S, "an assignment")
    group.cluster.faults.add(Fault.error(code, api=api))
    group.send(4)  # something to commit
    wait_until(lambda: len(group.heard[0].all_of("lost")) == 4, PATIENCE_S, "the loss of all partitions")
    wait_until(lambda: len(group.heard[0].all_of("assigned")) == 8, PATIENCE_S, "another assignment",
               state=lambda: group.heard[0].calls)  # fmt: skip
    group.send()
    group.wait_all()


def test_a_group_that_may_not_be_joined_says_why(group: Group) -> None:
    group.cluster.faults.add(Fault.error(30, api="join_group"), times=None)
    with pytest.raises(GroupRefused, match="the coordinator denies access to the group"):
        group.join()


def test_the_session_time_out_that_a_coordinator_does_not_allow_is_named(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, "range")
    config = ConsumerConfig(bootstrap_servers=cluster.broker_list, group_id=group.name, session_timeout_ms=50,
                            heartbeat_interval_ms=10)  # fmt: skip
    with pytest.raises(GroupRefused, match=r"session\.timeout\.ms is 50.*group\.min\.session\.timeout\.ms"):
        ConsumerConnector(config).create_message_streams({group.topic: 1})


@STRATEGIES
def test_a_coordinator_that_dies_is_replaced_and_nothing_is_repeated(group: Group, strategy: str) -> None:
    group.join()
    group.join()
    group.wait_shared(2, 2)
    group.send()
    group.wait_all()
    dead = group.cluster.faults.add(Fault.kill(api="heartbeat"))
    group.cluster.faults.wait_used(dead)
    group.send()
    group.wait_all()
    assert len(group.values()) == group.sent


def test_a_shutdown_while_the_coordinator_does_not_answer_ends_in_time_and_names_what_is_not_stored(
    group: Group,
) -> None:
    connector = group.join()
    group.send()
    group.wait_all()
    group.cluster.faults.add(Fault.stall(60.0), times=None)
    unstored = connector.shutdown(1.0)
    assert all(name.topic == group.topic for name in unstored)


def lines_with(text: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Wait for a line of the log."""
    return wait_until(lambda: [each for each in caplog.messages if text in each], PATIENCE_S, "a line of the log")


def test_a_commit_that_fails_for_one_reason_is_one_line_of_the_log_however_many_partitions_it_has(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.join()
    group.send()
    group.wait_all()
    caplog.clear()
    fault = group.cluster.faults.add(Fault.error(28, api="offset_commit"), times=2)
    group.cluster.faults.wait_used(fault, 2)
    lines = lines_with("is not committed: ", caplog)
    assert len(lines) <= 2, "one for each request"
    for line in lines:
        assert all(f"{group.topic}-{number}" in line for number in range(4)), line


def test_offsets_that_cannot_be_read_for_one_reason_are_one_line_of_the_log(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.cluster.faults.add(Fault.error(29, api="offset_fetch"), times=None)
    joining = threading.Thread(target=group.join, kwargs={"offsets_channel_socket_timeout_ms": 300}, daemon=True)
    joining.start()
    [line] = lines_with("cannot be read from Kafka: ", caplog)
    assert all(f"{group.topic}-{number}" in line for number in range(4)), line
    group.cluster.faults.clear()
    joining.join(PATIENCE_S)
    group.send()
    group.wait_all()


def test_a_fetch_that_fails_for_one_reason_is_one_line_of_the_log_for_each_broker(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.join()
    group.send()
    group.wait_all()
    caplog.clear()
    group.cluster.faults.add(Fault.error(-1, api="fetch"), times=None)
    wait_until(lambda: len({line.split(" on broker ")[1][0] for line in caplog.messages if " on broker " in line}) == 2,
               PATIENCE_S, "a line about each of the brokers")  # fmt: skip
    group.cluster.faults.clear()
    lines = lines_with(" on broker ", caplog)
    assert len(lines) == 2, lines
    assert all(any(f"{group.topic}/{number}" in line for line in lines) for number in range(4)), lines
