"""Lookups of leaders when brokers and ZooKeeper report the truth, and when they do not."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from simpleconsumer.types import Broker, TopicPartition
from tests.cluster.leader_registry import P0, P1, Registry, refusing, reporting
from tests.fetching.feeding import METADATA
from zkconsumer.testing.kafka import KafkaCluster


def test_the_leader_that_the_metadata_name_is_found() -> None:
    with reporting((0, 0)) as broker:
        assert Registry(broker.broker).directory().leaders({P0: None}) == {P0: broker.broker}


@pytest.mark.parametrize(("code", "is_found"), [(0, True), (9, True), (5, False), (3, False), (-1, False)])
def test_only_a_dead_replica_leaves_the_leader_usable(code: int, is_found: bool) -> None:
    with reporting((code, 0)) as broker:
        assert (P0 in Registry(broker.broker).directory().leaders({P0: None})) is is_found


@pytest.mark.catalogue("D2")
def test_one_partition_without_a_leader_hides_no_other() -> None:
    with reporting((5, -1), (0, 0)) as broker:
        assert Registry(broker.broker).directory().leaders({P0: None, P1: None}) == {P1: broker.broker}


def test_the_state_node_is_read_where_the_metadata_name_no_leader() -> None:
    with reporting((5, -1)) as broker:
        registry = Registry(broker.broker)
        registry.leaders[P0] = 0
        assert registry.directory().leaders({P0: None}) == {P0: broker.broker}


@pytest.mark.catalogue("F14")
def test_a_leader_that_denied_it_is_believed_only_if_zookeeper_names_it_too() -> None:
    with reporting((0, 0)) as broker:
        other = Broker(1, "127.0.0.1", 1)
        registry = Registry(broker.broker, other)
        assert registry.directory().leaders({P0: 0}) == {}
        registry.leaders[P0] = 1
        assert registry.directory().leaders({P0: 0}) == {P0: other}
        registry.leaders[P0] = 0
        assert registry.directory().leaders({P0: 0}) == {P0: broker.broker}


def test_the_address_comes_from_zookeeper() -> None:
    with reporting((0, 1)) as broker:
        old, new = Broker(1, "old.example", 1), Broker(1, "new.example", 2)
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 1)}}, [broker.broker, old])
        assert Registry(broker.broker, new).directory().leaders({P0: None}) == {P0: new}


def test_a_leader_that_is_not_registered_is_no_leader() -> None:
    with reporting((0, 5)) as broker:
        assert Registry(broker.broker).directory().leaders({P0: None}) == {}


def test_a_topic_that_is_not_in_zookeeper_is_never_asked_about() -> None:
    with reporting((0, 0)) as broker:
        registry = Registry(broker.broker)
        gone = TopicPartition("gone", 0)
        assert registry.directory().leaders({gone: None}) == {}
        assert broker.requests[METADATA] == 0
        assert registry.directory().leaders({gone: None, P0: None}) == {P0: broker.broker}
        assert broker.metadata_topics == [["t"]]


@pytest.mark.catalogue("F5")
def test_brokers_that_are_down_are_skipped_and_asked_last_from_then_on() -> None:
    with reporting((0, 0)) as broker:
        dead = [refusing()._replace(id=number) for number in (5, 6, 7, 8)]
        directory = Registry(broker.broker, *dead).directory()
        for _ in range(5):
            assert directory.leaders({P0: None}) == {P0: broker.broker}


@pytest.mark.catalogue("F5")
def test_a_broker_that_is_silent_costs_a_short_wait() -> None:
    # It accepts connections (the kernel does) and never answers.
    with reporting((0, 0)) as broker, socket.create_server(("127.0.0.1", 0)) as silent:
        directory = Registry(Broker(1, "127.0.0.1", silent.getsockname()[1])).directory(timeout_s=0.2)
        assert directory.leaders({P0: None}) == {}
        both = Registry(broker.broker, Broker(1, "127.0.0.1", silent.getsockname()[1]))
        assert both.directory(timeout_s=0.2).leaders({P0: None}) == {P0: broker.broker}


def test_without_any_answer_the_state_nodes_count() -> None:
    dead = refusing()
    registry = Registry(dead)
    registry.leaders[P0] = dead.id
    assert registry.directory().leaders({P0: None, P1: None}) == {P0: dead}


# -- real brokers ------------------------------------------------------------------------------------------------------


def test_real_brokers_report_their_leaders(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic, absent = fresh_topic(), fresh_topic()
    kafka_0822.create_topic(topic, 4)
    leaders = kafka_0822.wait_leaders(topic, range(4))
    registry = Registry(*(Broker(number, "127.0.0.1", kafka_0822.port(number)) for number in (0, 1)))
    registry.topics = {topic}
    wanted: dict[TopicPartition, int | None] = {TopicPartition(topic, number): None for number in range(4)}
    found = registry.directory().leaders({**wanted, TopicPartition(absent, 0): None})
    assert {partition.partition: broker.id for partition, broker in found.items()} == leaders
    assert kafka_0822.client.exists(f"/brokers/topics/{absent}") is None
