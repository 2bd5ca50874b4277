"""The partitions of topics of Kafka 0.7, and the generation of a cluster, read from a real ZooKeeper for reports."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from rebalance.errors import AccessRefused, UnreadableNode
from rebalance.subscription import Subscription
from rebalance.zookeeper.port.requests import ZooKeeperPort
from rebalance.zookeeper.znodes_07 import GENERATION_07, GENERATION_08, Generation, format_registration_07
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.generation import generation_of_cluster
from zkconsumer.cluster.registry import Topic07, read_partitions, read_topics_07
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.testing.zookeeper import ZooKeeperServer

TOPIC_08 = b'{"version":1,"partitions":{"0":[1]}}'
BROKER_07 = b"h-1400000000000:127.0.0.1:9"
BROKER_08 = b'{"host":"127.0.0.1","port":9,"version":1}'
REGISTRATION_07 = format_registration_07(Subscription.static({"t": 1}).to_registration(1))


class Tree:
    """A chroot of its own."""

    def __init__(self, root: KazooClient, port: ZooKeeperPort, path: str) -> None:
        self.port = port
        self._root = root
        self._path = path

    def put(self, path: str, data: bytes = b"") -> None:
        self._root.create(self._path + path, data, makepath=True)

    def hide(self, path: str) -> None:
        """Let nobody read a node any more."""
        self._root.set_acls(self._path + path, [make_acl("world", "anyone", delete=True, admin=True)])


@pytest.fixture
def tree(zookeeper: ZooKeeperServer, zookeeper_client: KazooClient) -> Iterator[Tree]:
    path = f"/{uuid.uuid4().hex}"
    zookeeper_client.ensure_path(path)
    with zookeeper_connection(zookeeper.connect + path) as port:
        yield Tree(zookeeper_client, port, path)


def found(tree: Tree, generation: Generation, *topics: str) -> dict[str, Topic07]:
    return read_topics_07(tree.port, dict.fromkeys(topics, b""), generation)


def test_partitions_are_those_of_the_brokers_in_the_order_of_text(tree: Tree) -> None:
    for broker, count in ((0, 2), (10, 1), (2, 1)):
        tree.put(f"/brokers/topics/t/{broker}", b"%d" % count)
    expected = ("0-0", "0-1", "10-0", "2-0")
    assert found(tree, GENERATION_07, "t", "missing") == {"t": Topic07(expected)}
    assert read_partitions(tree.port, ["t", "missing"]) == {"t": expected}


@pytest.mark.parametrize(("generation", "is_listed"), [(GENERATION_07, True), (GENERATION_08, False)])
def test_a_topic_without_children_is_of_the_generation_of_the_cluster(
    tree: Tree, generation: Generation, is_listed: bool
) -> None:
    tree.put("/brokers/topics/t")
    assert found(tree, generation, "t") == ({"t": Topic07(())} if is_listed else {})


def test_what_cannot_be_read_is_named_and_hides_nothing_else(tree: Tree) -> None:
    tree.put("/brokers/topics/t/0", b"2")
    tree.put("/brokers/topics/t/1", b"many")
    tree.put("/brokers/topics/t/2", b"1")
    tree.hide("/brokers/topics/t/2")
    topic = found(tree, GENERATION_07, "t")["t"]
    assert topic.partitions == ("0-0", "0-1")
    first, second = topic.problems
    assert first.startswith("/brokers/topics/t/1: not a number of partitions")
    assert "/brokers/topics/t/2" in second
    with pytest.raises((UnreadableNode, AccessRefused)):
        read_partitions(tree.port, ["t"])


def test_topics_of_08_are_left_out(tree: Tree) -> None:
    tree.put("/brokers/topics/t", TOPIC_08)
    tree.put("/brokers/topics/new/partitions/0/state")
    assert read_topics_07(tree.port, {"t": TOPIC_08, "new": b""}, GENERATION_07) == {}


@pytest.mark.parametrize(
    ("nodes", "generation"),
    [
        ({}, GENERATION_08),
        ({"/brokers/ids/0": BROKER_07}, GENERATION_07),
        ({"/brokers/ids/0": BROKER_08, "/brokers/topics/t": b""}, GENERATION_08),
        ({"/brokers/topics/t": b""}, GENERATION_07),
        ({"/brokers/topics/t": TOPIC_08}, GENERATION_08),
        ({"/brokers/ids/0": BROKER_07, "/brokers/ids/1": BROKER_08, "/brokers/topics/t": TOPIC_08}, GENERATION_08),
        ({"/brokers/ids/0": BROKER_07, "/brokers/ids/1": BROKER_08, "/brokers/topics/t/0": b"1"}, GENERATION_07),
    ],
)
def test_the_generation_of_a_cluster(tree: Tree, nodes: dict[str, bytes], generation: Generation) -> None:
    for path, data in nodes.items():
        tree.put(path, data)
    assert generation_of_cluster(tree.port, {}, 10.0) is generation


def test_without_brokers_and_topics_members_decide(tree: Tree) -> None:
    assert generation_of_cluster(tree.port, {"/consumers/g/ids/a": REGISTRATION_07}, 10.0) is GENERATION_07


def test_partitions_of_both_generations_are_asked_for_together(tree: Tree) -> None:
    """The ports of these brokers are closed: it shows who would be asked, and why the others are not."""
    tree.put("/brokers/ids/3", BROKER_07)
    tree.put("/brokers/topics/new", TOPIC_08)
    here, away, new = TopicPartition("old", "3-0"), TopicPartition("old", "4-0"), TopicPartition("new", 0)
    cluster = Cluster(tree.port, "test", 1.0, security=None)
    leaders = cluster.leaders([here, away, new])
    assert {name: broker.id for name, broker in leaders.items()} == {here: 3}
    assert cluster.why_unled([away, new]) == {away: "broker 4 is not registered", new: "no broker leads it"}


def test_a_broker_that_is_left_out_is_named_for_its_partitions(tree: Tree) -> None:
    tree.put("/brokers/ids/4", b"rubbish")
    cluster = Cluster(tree.port, "test", 1.0, security=None)
    away = TopicPartition("old", "4-0")
    assert cluster.leaders([away]) == {}
    assert cluster.why_unled([away])[away].startswith("broker 4 cannot be used: /brokers/ids/4: not JSON")
