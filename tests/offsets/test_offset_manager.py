"""The connection to the offset manager: stores and reads the offsets of a group in Kafka, wherever the manager is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from simpleconsumer import SimpleConsumer, TopicPartition
from simpleconsumer.types import Broker
from zkconsumer.cluster.registry import ClusterReader
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetAnswer, OffsetManager
from zkconsumer.testing import EmbeddedCluster, Fault, KafkaCluster
from zkconsumer.testing.cluster import Cluster

SETTINGS = ChannelSettings("test", backoff_s=0.1, timeout_s=2.0, max_retries=40)
OFFSETS_TOPIC = "__consumer_offsets"


def soon(seconds: float = 30.0) -> float:
    return time.monotonic() + seconds


@contextmanager
def manager_of(cluster: Cluster, group: str, settings: ChannelSettings = SETTINGS) -> Iterator[OffsetManager]:
    with zookeeper_connection(cluster.zookeeper_connect, 10.0) as port:
        manager = OffsetManager(group, ClusterReader(port, 10.0).brokers, settings)
        try:
            yield manager
        finally:
            manager.close()


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def always() -> None:
    """No refusal: the commit may be sent."""


@pytest.fixture
def group(fresh_group: str) -> str:
    return fresh_group


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    kafka_0822.create_topic(name, 3, 1)
    return name


def test_offsets_are_stored_in_kafka_and_read_back(kafka_0822: KafkaCluster, topic: str, group: str) -> None:
    first, second, third = partitions_of(topic, 3)
    with manager_of(kafka_0822, group) as manager:
        assert manager.fetch([first, second, third], soon()) == OffsetAnswer(dict.fromkeys((first, second, third)), {})
        assert manager.commit({first: 7, second: 0}, always, soon()) == {}
        assert manager.fetch([first, second, third], soon()).offsets == {first: 7, second: 0, third: None}
        assert manager.commit({first: 3}, always, soon()) == {}
        assert manager.fetch([first], soon()).offsets == {first: 3}
    assert kafka_0822.client.exists(f"/consumers/{group}") is None


@pytest.mark.parametrize(("code", "name"), [(12, "OffsetMetadataTooLarge"), (3, "UnknownTopicOrPartition")])
def test_a_refused_partition_keeps_no_other_from_being_stored(
    code: int, name: str, group: str, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2)
    first, second = partitions_of(topic, 2)
    settings = ChannelSettings("test", backoff_s=0.05, timeout_s=2.0, max_retries=2)
    fault = Fault.error(code, "offset_commit", topic, 1)
    with manager_of(embedded_cluster, group, settings) as manager:
        embedded_cluster.faults.add(fault, times=1 if code == 12 else 3)
        failed = manager.commit({first: 5, second: 6}, always, soon())
        assert list(failed) == [second]
        assert f"{topic}/1: {name} (code {code})" in failed[second]
        assert manager.fetch([first, second], soon()).offsets == {first: 5, second: None}


def test_nothing_is_sent_once_the_fence_is_over(kafka_0822: KafkaCluster, topic: str, group: str) -> None:
    first = TopicPartition(topic, 0)
    with manager_of(kafka_0822, group) as manager:
        assert manager.commit({first: 5}, lambda: "over", soon()) == {first: "over"}
        assert manager.fetch([first], soon()).offsets == {first: None}


def test_a_closed_manager_answers_at_once(kafka_0822: KafkaCluster, topic: str, group: str) -> None:
    first = TopicPartition(topic, 0)
    with manager_of(kafka_0822, group) as manager:
        manager.close()
        started = time.monotonic()
        assert manager.fetch([first], soon()).unknown == {first: "the consumer has shut down"}
        assert manager.commit({first: 1}, always, soon()) == {first: "the consumer has shut down"}
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("gone", ["moved", "stopped", "killed"])
def test_another_broker_becomes_the_offset_manager(gone: str, group: str, fresh_topic: Callable[[], str]) -> None:
    with EmbeddedCluster(2) as cluster:
        name = fresh_topic()
        cluster.create_topic(name, 1)
        first = TopicPartition(name, 0)
        with manager_of(cluster, group) as manager:
            assert manager.commit({first: 1}, always, soon()) == {}
            was = cluster.leader(OFFSETS_TOPIC, 0)
            assert was is not None
            if gone == "moved":
                cluster.move_leader(OFFSETS_TOPIC, 0, 1 - was)
            elif gone == "stopped":
                cluster.stop(was)
                cluster.start(was)
            else:
                cluster.kill(was, expire=True)
                cluster.start(was)
            assert manager.commit({first: 2}, always, soon()) == {}
            assert manager.fetch([first], soon()).offsets == {first: 2}


@pytest.mark.parametrize("code", [14, 15, 16, -1])
def test_errors_that_pass_are_waited_for(code: int, group: str, fresh_topic: Callable[[], str]) -> None:
    with EmbeddedCluster(1) as cluster:
        name = fresh_topic()
        cluster.create_topic(name, 2)
        first, second = partitions_of(name, 2)
        with manager_of(cluster, group) as manager:
            assert manager.commit({first: 1}, always, soon()) == {}
            cluster.faults.add(Fault.error(code, "offset_commit", name, 0), times=2)
            failed = manager.commit({first: 4, second: 5}, always, soon())
            if code == -1:
                assert list(failed) == [first]
            else:
                assert failed == {}
            cluster.faults.add(Fault.error(code, "offset_fetch", name, 0), times=2)
            expected = {first: 1 if code == -1 else 4, second: 5}
            assert manager.fetch([first, second], soon()) == OffsetAnswer(expected, {})


def test_an_error_that_stays_keeps_no_other_partition_from_being_read_and_ends_at_the_deadline(
    group: str, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 3)
    first, second, third = partitions_of(topic, 3)
    with manager_of(embedded_cluster, group) as manager:
        assert manager.commit({first: 1, third: 3}, always, soon()) == {}
        embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
        started = time.monotonic()
        try:
            answer = manager.fetch([first, second, third], soon(1.0))
        finally:
            embedded_cluster.faults.clear()
        assert time.monotonic() - started < 10
        assert answer.offsets == {second: None, third: 3}
        assert list(answer.unknown) == [first]
        assert "OffsetsLoadInProgress (code 14)" in answer.unknown[first]


def test_without_a_manager_the_deadline_ends_the_wait_and_the_reason_is_named(group: str) -> None:
    name = TopicPartition("t", 0)
    dead = Broker(4, "127.0.0.1", 1)
    manager = OffsetManager(group, lambda: [dead], SETTINGS)
    answer = manager.fetch([name], soon(0.5))
    assert answer.offsets == {}
    assert "broker 4 does not report its offset manager: 127.0.0.1:1" in answer.unknown[name]
    failed = manager.commit({name: 3}, always, soon(0.5))
    assert "broker 4 does not report its offset manager" in failed[name]


def test_brokers_that_are_registered_too_late_to_be_asked_are_not_called_missing(group: str) -> None:
    name = TopicPartition("t", 0)
    manager = OffsetManager(group, lambda: [Broker(4, "127.0.0.1", 1)], SETTINGS)
    answer = manager.fetch([name], time.monotonic() - 1)
    assert answer.unknown == {name: "no broker was asked in time for its offset manager"}


def test_a_look_up_that_takes_long_leaves_later_calls_their_time(
    group: str, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 1)
    first = TopicPartition(topic, 0)
    with manager_of(embedded_cluster, group) as manager:
        assert manager.commit({first: 1}, always, soon()) == {}
    with manager_of(embedded_cluster, group) as manager:
        embedded_cluster.faults.add(Fault.delay(0.8, "consumer_metadata"))
        manager.fetch([first], soon(1.0))
        embedded_cluster.faults.add(Fault.delay(0.8, "offset_commit", topic))
        assert manager.commit({first: 2}, always, soon(1.5)) == {}


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2"])
def test_every_version_stores_what_it_is_sent(version: str, group: str) -> None:
    with KafkaCluster(version, brokers=1) as cluster:
        cluster.create_topic("t", 2, 1)
        first, second = partitions_of("t", 2)
        with manager_of(cluster, group) as manager:
            assert manager.commit({first: 2**40, second: 0}, always, soon()) == {}
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
            rows = consumer.fetch_offsets(group, [first, second], version=1)
            assert [rows[name].offset for name in (first, second)] == [2**40, 0]
