"""A cluster in the middle of an upgrade from Kafka 0.9: one real broker of 0.9.0.1, and one of a later version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector, read_topic
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.producer import Producer, ProducerConfig
from zkconsumer.testing.kafka import KafkaCluster, topics
from zkconsumer.testing.kafka.topic_control import agreed_leaders
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.slow]

DEADLINE_S = 20.0
"""Less than one time-out of a request, of which an upgrade must cost none."""
VALUES = [b"%d" % number for number in range(20)]
OLD, NEW = 0, 1


class Mixed(NamedTuple):
    """The brokers of both versions; each is a cluster of the kit, and ZooKeeper makes them one."""

    old: KafkaCluster
    new: KafkaCluster

    def address(self, broker: int) -> str:
        return f"127.0.0.1:{(self.old if broker == OLD else self.new).port(broker)}"


@pytest.fixture(scope="module", params=["0.10.2.2", "2.8.2"])
def mixed(request: pytest.FixtureRequest) -> Iterator[Mixed]:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer())
        old = stack.enter_context(KafkaCluster("0.9.0.1", [OLD], zookeeper=zookeeper))
        as_old = {"inter.broker.protocol.version": "0.9.0.1", "log.message.format.version": "0.9.0.1"}
        new = stack.enter_context(KafkaCluster(request.param, [NEW], zookeeper=zookeeper, settings=as_old))
        yield Mixed(old, new)


@pytest.fixture
def topic(mixed: Mixed, fresh_topic: Callable[[], str]) -> str:
    """A topic of which each of the brokers leads a partition."""
    name = fresh_topic()
    topics.create(mixed.old.client, name, {0: [OLD], 1: [NEW]}, {})
    brokers = {**mixed.old.brokers, **mixed.new.brokers}
    wait_until(lambda: agreed_leaders(brokers, name, [0, 1], {}), DEADLINE_S, f"leaders of {name}")
    return name


def where(mixed: Mixed, way: str) -> dict[str, str]:
    if way == "zookeeper":
        return {"zookeeper.connect": mixed.old.zookeeper_connect}
    return {"bootstrap.servers": mixed.address(OLD if way == "old" else NEW)}


@pytest.mark.parametrize("way", ["new", "old", "zookeeper"])
def test_messages_go_to_and_come_from_brokers_of_both_versions(mixed: Mixed, topic: str, way: str) -> None:
    given = where(mixed, way)
    started_at = time.monotonic()
    with Producer(ProducerConfig.from_properties(given)) as producer:
        for value in VALUES:
            assert producer.send(topic, value, partition=int(value) % 2).result().topic == topic
    with read_topic(given.get("zookeeper.connect"), topic, properties=given) as reader:
        found = [(message.partition, message.value) for message in reader]
    assert time.monotonic() - started_at < DEADLINE_S
    assert sorted(found) == sorted((int(value) % 2, value) for value in VALUES)


def test_a_group_reads_from_both(mixed: Mixed, topic: str, fresh_group: str) -> None:
    given = where(mixed, "zookeeper")
    with Producer(ProducerConfig.from_properties(given)) as producer:
        for value in VALUES:
            producer.send(topic, value, partition=int(value) % 2)
    config = ConsumerConfig.from_properties({
        **given, "group.id": fresh_group, "auto.offset.reset": "smallest", "consumer.timeout.ms": "15000",
    })  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert sorted(next(stream).value for _ in VALUES) == sorted(VALUES)


def test_each_broker_is_known_as_what_it_is(mixed: Mixed) -> None:
    host, _, port = mixed.address(NEW).partition(":")
    reader = MetadataReader([(host, int(port))], "test", DEADLINE_S)
    started_at = time.monotonic()
    for _ in range(20):  # both brokers are asked
        found = {broker.id: broker.generation for broker in reader.brokers()}
        assert found == {OLD: "kafka08", NEW: "kafka011"}
    assert time.monotonic() - started_at < DEADLINE_S
