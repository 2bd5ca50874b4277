"""A group of Kafka 0.7 as it is read from a real ZooKeeper: brokers of a topic come and go, and are watched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from reading import Reading, closed_to_readers, join

from rebalance.errors import Kafka08Node
from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData
from rebalance.zookeeper.znodes_07 import GENERATION_07, GENERATION_08
from zkconsumer.testing.zookeeper import ZooKeeperServer


@pytest.fixture(autouse=True)
def list_of_members(client: KazooClient, fresh_group: str) -> None:
    client.ensure_path(znodes.ids_path(fresh_group))


@pytest.fixture
def topic(fresh_topic: Callable[[], str]) -> str:
    return fresh_topic()


@pytest.fixture
def reading(zookeeper: ZooKeeperServer, fresh_group: str, topic: str) -> Iterator[Reading]:
    made = Reading(zookeeper.connect, fresh_group, Subscription.static({topic: 1}), generation=GENERATION_07)
    yield made
    made.asker.close()


def register(client: KazooClient, topic: str, broker: int, partitions: bytes) -> None:
    client.create(f"{znodes.topic_path(topic)}/{broker}", partitions, ephemeral=True, makepath=True)


def test_partitions_are_those_of_the_brokers_below_the_topic(client: KazooClient, reading: Reading, topic: str) -> None:
    register(client, topic, 10, b"1")
    register(client, topic, 2, b"2")
    join(client, reading.group, "other", Subscription.white_list("t.*", 3), GENERATION_07)
    snapshot = reading.read()
    assert snapshot.topics[topic].partitions == ("10-0", "2-0", "2-1")
    assert snapshot.topics[topic].incarnation == 0
    assert snapshot.members["other"] == Subscription.white_list("t.*", 3)
    assert reading.asked == Counter({GetChildren: 2, GetData: 3})
    reading.read()
    assert reading.asked == Counter({GetChildren: 1})  # the list of members alone


def test_a_broker_that_comes_or_goes_is_noticed(client: KazooClient, reading: Reading, topic: str) -> None:
    register(client, topic, 0, b"1")
    reading.read()
    register(client, topic, 1, b"2")
    reading.changed(znodes.topic_path(topic))
    assert reading.read().topics[topic].partitions == ("0-0", "1-0", "1-1")
    client.delete(f"{znodes.topic_path(topic)}/0")
    reading.changed(znodes.topic_path(topic))
    assert reading.read().topics[topic].partitions == ("1-0", "1-1")
    client.delete(f"{znodes.topic_path(topic)}/1")
    reading.changed(znodes.topic_path(topic))
    assert reading.read().topics[topic].partitions == ()


def test_a_broker_that_comes_back_with_more_partitions_is_noticed(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    register(client, topic, 0, b"1")
    reading.read()
    client.delete(f"{znodes.topic_path(topic)}/0")
    register(client, topic, 0, b"3")
    reading.changed(znodes.topic_path(topic))
    assert reading.read().topics[topic].partitions == ("0-0", "0-1", "0-2")


def test_a_number_that_an_operator_writes_is_noticed(client: KazooClient, reading: Reading, topic: str) -> None:
    register(client, topic, 0, b"1")
    register(client, topic, 1, b"2")
    reading.read()
    for number in (b"1", b"3"):
        client.set(f"{znodes.topic_path(topic)}/1", number)
        reading.changed(znodes.topic_path(topic))
        names = [f"1-{each}" for each in range(int(number))]
        assert reading.read().topics[topic].partitions == ("0-0", *names)


def test_a_topic_that_is_not_there_is_waited_for(client: KazooClient, reading: Reading, topic: str) -> None:
    assert topic not in reading.read().topics
    assert reading.asked == Counter({GetChildren: 2, Exists: 1})
    register(client, topic, 0, b"1")
    reading.changed(znodes.topic_path(topic))
    assert reading.read().topics[topic].partitions == ("0-0",)


def test_a_number_that_is_none_counts_as_no_partitions_of_that_broker(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    register(client, topic, 0, b"many")
    register(client, topic, 1, b"1")
    assert reading.read().topics[topic].partitions == ("1-0",)


@pytest.mark.parametrize("name", ["\u00b2", "x", "-1", "007", "9" * 20, "9" * 5000])
def test_a_child_that_is_no_broker_has_no_partitions(
    client: KazooClient, reading: Reading, topic: str, name: str
) -> None:
    register(client, topic, 0, b"2")
    client.create(f"{znodes.topic_path(topic)}/{name}", b"1")
    assert reading.read().topics[topic].partitions == ("0-0", "0-1")


def test_a_broker_node_that_may_not_be_read_makes_the_topic_unknown(
    client: KazooClient, reading: Reading, topic: str
) -> None:
    register(client, topic, 0, b"1")
    path = f"{znodes.topic_path(topic)}/0"
    with closed_to_readers(client, path):
        snapshot = reading.read()
    assert topic not in snapshot.topics
    assert snapshot.refused_topics[topic].path == path


def test_a_member_of_kafka_0_8_is_named(client: KazooClient, reading: Reading, topic: str) -> None:
    join(client, reading.group, "newer", Subscription.static({topic: 1}), GENERATION_08)
    assert "Kafka 0.8 or later" in reading.read().unreadable["newer"]
    with pytest.raises(Kafka08Node):
        GENERATION_07.parse_registration(client.get(znodes.registration_path(reading.group, "newer"))[0], "/p")
