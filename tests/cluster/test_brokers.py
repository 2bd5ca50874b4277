"""Who leads a partition, when brokers and ZooKeeper tell the truth and when they do not."""

from __future__ import annotations

import random
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from rebalance.errors import RebalanceError
from rebalance.lease import lease_clock
from simpleconsumer.types import Broker, TopicPartition
from tests.fetching.feeding import METADATA, ScriptedBroker
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.fetching.leader_finder import REMEMBERED_S, LeaderFinder
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

DEADLINE_S = 15.0
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Registry:
    """What stands in ZooKeeper, and what was read of it."""

    def __init__(self, *brokers: Broker) -> None:
        self.brokers = list(brokers)
        self.topics = {"t"}
        self.leaders: dict[TopicPartition, int] = {}

    def read_leaders(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {name: self.leaders[name] for name in partitions if name in self.leaders}

    def directory(self, timeout_s: float = 30.0) -> BrokerDirectory:
        return BrokerDirectory(
            "zkconsumer-test", timeout_s, lambda: list(self.brokers), self.topics.intersection, self.read_leaders,
            random.Random(1),
        )


@contextmanager
def telling(*rows: tuple[int, int]) -> Iterator[ScriptedBroker]:
    """A broker with id 0 that tells (error code, leader) of partitions 0, 1, ... of each topic."""
    with ScriptedBroker() as broker:
        broker.on_metadata = lambda topics: broker.metadata({name: dict(enumerate(rows)) for name in topics})
        yield broker


def refusing() -> Broker:
    """A broker id 7 at an address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Broker(7, "127.0.0.1", server.getsockname()[1])


# -- one round ---------------------------------------------------------------------------------------------------------


def test_the_leader_that_the_metadata_name_is_found() -> None:
    with telling((0, 0)) as broker:
        assert Registry(broker.broker).directory().leaders({P0: None}) == {P0: broker.broker}


@pytest.mark.parametrize(("code", "is_found"), [(0, True), (9, True), (5, False), (3, False), (-1, False)])
def test_only_a_dead_replica_leaves_the_leader_usable(code: int, is_found: bool) -> None:
    with telling((code, 0)) as broker:
        assert (P0 in Registry(broker.broker).directory().leaders({P0: None})) is is_found


@pytest.mark.catalogue("D2")
def test_one_partition_without_a_leader_hides_no_other() -> None:
    with telling((5, -1), (0, 0)) as broker:
        assert Registry(broker.broker).directory().leaders({P0: None, P1: None}) == {P1: broker.broker}


def test_the_state_node_is_read_where_the_metadata_name_no_leader() -> None:
    with telling((5, -1)) as broker:
        registry = Registry(broker.broker)
        registry.leaders[P0] = 0
        assert registry.directory().leaders({P0: None}) == {P0: broker.broker}


@pytest.mark.catalogue("F14")
def test_a_leader_that_denied_it_is_believed_only_if_zookeeper_names_it_too() -> None:
    with telling((0, 0)) as broker:
        other = Broker(1, "127.0.0.1", 1)
        registry = Registry(broker.broker, other)
        assert registry.directory().leaders({P0: 0}) == {}
        registry.leaders[P0] = 1
        assert registry.directory().leaders({P0: 0}) == {P0: other}
        registry.leaders[P0] = 0
        assert registry.directory().leaders({P0: 0}) == {P0: broker.broker}


def test_the_address_comes_from_zookeeper() -> None:
    with telling((0, 1)) as broker:
        old, new = Broker(1, "old.example", 1), Broker(1, "new.example", 2)
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 1)}}, [broker.broker, old])
        assert Registry(broker.broker, new).directory().leaders({P0: None}) == {P0: new}


def test_a_leader_that_is_not_registered_is_no_leader() -> None:
    with telling((0, 5)) as broker:
        assert Registry(broker.broker).directory().leaders({P0: None}) == {}


def test_a_topic_that_is_not_in_zookeeper_is_never_asked_about() -> None:
    with telling((0, 0)) as broker:
        registry = Registry(broker.broker)
        gone = TopicPartition("gone", 0)
        assert registry.directory().leaders({gone: None}) == {}
        assert broker.requests[METADATA] == 0
        assert registry.directory().leaders({gone: None, P0: None}) == {P0: broker.broker}
        assert broker.metadata_topics == [["t"]]


@pytest.mark.catalogue("F5")
def test_brokers_that_are_down_are_passed_over_and_asked_last_from_then_on() -> None:
    with telling((0, 0)) as broker:
        dead = [refusing()._replace(id=number) for number in (5, 6, 7, 8)]
        directory = Registry(broker.broker, *dead).directory()
        for _ in range(5):
            assert directory.leaders({P0: None}) == {P0: broker.broker}


@pytest.mark.catalogue("F5")
def test_a_broker_that_is_silent_costs_a_short_wait() -> None:
    # It accepts connections (the kernel does) and never answers.
    with telling((0, 0)) as broker, socket.create_server(("127.0.0.1", 0)) as silent:
        directory = Registry(Broker(1, "127.0.0.1", silent.getsockname()[1])).directory(timeout_s=0.2)
        assert directory.leaders({P0: None}) == {}
        both = Registry(broker.broker, Broker(1, "127.0.0.1", silent.getsockname()[1]))
        assert both.directory(timeout_s=0.2).leaders({P0: None}) == {P0: broker.broker}


def test_without_any_answer_the_state_nodes_say_it() -> None:
    dead = refusing()
    registry = Registry(dead)
    registry.leaders[P0] = dead.id
    assert registry.directory().leaders({P0: None, P1: None}) == {P0: dead}


# -- the thread --------------------------------------------------------------------------------------------------------


@contextmanager
def finding(
    directory: BrokerDirectory, backoff_ms: int = 20, clock: Callable[[], float] = lease_clock
) -> Iterator[tuple[LeaderFinder, dict[TopicPartition, Broker]]]:
    found: dict[TopicPartition, Broker] = {}
    finder = LeaderFinder(directory, found.__setitem__, backoff_ms, clock, uuid.uuid4().hex)
    try:
        yield finder, found
    finally:
        finder.stop()
        finder.join(DEADLINE_S)


def test_the_finder_tries_until_there_is_a_leader_and_then_sleeps() -> None:
    with telling((5, -1)) as broker, finding(Registry(broker.broker).directory()) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: broker.requests[METADATA] >= 3, DEADLINE_S, "three tries")
        assert found == {}
        assert finder.missing() == [P0]
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 0)}})
        wait_until(lambda: found == {P0: broker.broker}, DEADLINE_S, "the leader")
        assert finder.missing() == []


def test_a_partition_that_is_forgotten_is_not_looked_for() -> None:
    with telling((5, -1)) as broker, finding(Registry(broker.broker).directory()) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: broker.requests[METADATA] >= 1, DEADLINE_S, "a try")
        finder.forget(P0)
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 0), 1: (0, 0)}})
        finder.look_for(P1, is_new=True)
        wait_until(lambda: P1 in found, DEADLINE_S, "the other partition")
        assert finder.missing() == []


def test_a_new_partition_does_not_wait_for_the_back_off_of_another() -> None:
    with telling((5, -1), (0, 0)) as broker, finding(Registry(broker.broker).directory(), 60_000) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: broker.requests[METADATA] >= 1, DEADLINE_S, "a try")
        finder.look_for(P1, is_new=True)
        wait_until(lambda: P1 in found, DEADLINE_S, "the other partition")
        assert finder.missing() == [P0]


def test_an_answer_serves_the_partitions_that_are_looked_for_within_a_second() -> None:
    now = [100.0]
    with telling((0, 0), (0, 0)) as broker:
        finding_then = finding(Registry(broker.broker).directory(), clock=lambda: now[0])
        with finding_then as (finder, found):
            finder.look_for(P0, is_new=True)
            wait_until(lambda: P0 in found, DEADLINE_S, "the first partition")
            now[0] += REMEMBERED_S
            finder.look_for(P1, is_new=True)
            wait_until(lambda: P1 in found, DEADLINE_S, "the second partition")
            assert broker.requests[METADATA] == 1
            now[0] += 0.1
            found.clear()
            finder.look_for(P1, is_new=True)
            wait_until(lambda: P1 in found, DEADLINE_S, "the second partition again")
            assert broker.requests[METADATA] == 2


@pytest.mark.parametrize("denied_by", [None, 0])
def test_a_leader_that_was_lost_is_asked_for_anew(denied_by: int | None) -> None:
    with telling((0, 0)) as broker, finding(Registry(broker.broker).directory()) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: P0 in found, DEADLINE_S, "the leader")
        finder.look_for(P0, denied_by)
        wait_until(lambda: broker.requests[METADATA] >= 2, DEADLINE_S, "another question")


def test_a_partition_that_the_last_answer_does_not_name_is_asked_for() -> None:
    with telling((0, 0)) as broker, finding(Registry(broker.broker).directory(), 60_000) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: P0 in found, DEADLINE_S, "the first partition")
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 0), 1: (0, 0)}})
        finder.look_for(P1, is_new=True)
        wait_until(lambda: P1 in found, DEADLINE_S, "the partition that is new")


def test_the_finder_outlives_zookeeper_and_surprises(caplog: pytest.LogCaptureFixture) -> None:
    with telling((0, 0)) as broker:
        faults: list[Exception] = [RebalanceError("ZooKeeper is away"), RuntimeError("a surprise")]

        def read_brokers() -> list[Broker]:
            if faults:
                raise faults.pop(0)
            return [broker.broker]

        directory = BrokerDirectory("zkconsumer-test", 30.0, read_brokers, set, lambda _: {})
        with finding(directory) as (finder, found):
            finder.look_for(P0, is_new=True)
            wait_until(lambda: P0 in found, DEADLINE_S, "the leader")
    assert "ZooKeeper is away" in caplog.text
    assert "a surprise" in caplog.text


def test_a_finder_that_nobody_needs_has_no_thread() -> None:
    name = uuid.uuid4().hex
    finder = LeaderFinder(Registry().directory(), lambda *_: None, 20, lease_clock, name)
    finder.stop()
    finder.look_for(P0, is_new=True)
    finder.join(0.0)
    assert not [thread for thread in threading.enumerate() if name in thread.name]


# -- real brokers ------------------------------------------------------------------------------------------------------


def test_real_brokers_tell_their_leaders(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic, absent = fresh_topic(), fresh_topic()
    kafka_0822.create_topic(topic, 4)
    leaders = kafka_0822.wait_leaders(topic, range(4))
    registry = Registry(*(Broker(number, "127.0.0.1", kafka_0822.port(number)) for number in (0, 1)))
    registry.topics = {topic}
    wanted: dict[TopicPartition, int | None] = {TopicPartition(topic, number): None for number in range(4)}
    found = registry.directory().leaders({**wanted, TopicPartition(absent, 0): None})
    assert {partition.partition: broker.id for partition, broker in found.items()} == leaders
    assert kafka_0822.client.exists(f"/brokers/topics/{absent}") is None
