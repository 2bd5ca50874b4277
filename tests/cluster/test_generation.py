"""Which generation a cluster and a group are of, from the nodes of a real ZooKeeper."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from rebalance.errors import GroupRefused
from rebalance.subscription import Subscription
from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.znodes_07 import GENERATION_07, GENERATION_08, Generation
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.testing.zookeeper import ZooKeeperServer

BROKER_07 = b"h-1400000000000:h:9092"
BROKER_08 = json.dumps({"host": "h", "port": 9092, "version": 1}).encode()


class World:
    """A chroot of its own, and what a member that starts there finds out."""

    def __init__(self, zookeeper: ZooKeeperServer) -> None:
        self.connect = f"{zookeeper.connect}/{uuid4().hex}"
        self.client = KazooClient(zookeeper.connect)
        self.client.start()
        self.client.chroot = "/" + self.connect.partition("/")[2]
        self.client.ensure_path("/")
        self.port = KazooPort(self.connect, 10.0)
        connected = threading.Event()
        self.port.start(lambda change: connected.set())
        assert connected.wait(20)
        self.cluster = Cluster(self.port, "test", 1.0, security=None)

    def put(self, path: str, data: bytes = b"") -> None:
        self.client.create(path, data, makepath=True)

    def register(self, name: str, generation: Generation) -> None:
        subscription = Subscription.static({"t": 1})
        self.put(f"/consumers/g/ids/{name}", generation.format_registration(subscription.to_registration(1)))

    def found(self, forced: str = "auto") -> Generation:
        return self.cluster.reader.find_generation("g", forced)

    def refusal(self, forced: str = "auto") -> str:
        with pytest.raises(GroupRefused) as raised:
            self.found(forced)
        return str(raised.value)


@pytest.fixture
def world(zookeeper: ZooKeeperServer) -> Iterator[World]:
    made = World(zookeeper)
    yield made
    made.port.close(2.0)
    made.client.stop()
    made.client.close()


@pytest.mark.parametrize(("data", "generation"), [(BROKER_07, GENERATION_07), (BROKER_08, GENERATION_08)])
def test_brokers_decide(world: World, data: bytes, generation: Generation) -> None:
    world.put("/brokers/ids/0", data)
    assert world.found() is generation
    assert world.found(generation.name) is generation


@pytest.mark.parametrize(("data", "forced", "other"), [(BROKER_07, "0.8", "0.7"), (BROKER_08, "0.7", "0.8 or later")])
def test_brokers_of_another_generation_than_the_setting_says_are_refused(
    world: World, data: bytes, forced: str, other: str
) -> None:
    world.put("/brokers/ids/3", data)
    said = f"kafka.generation is {forced}, but broker 3 is registered in the format of Kafka {other};"
    assert said in world.refusal(forced)


def test_brokers_of_both_generations_need_the_setting(world: World) -> None:
    world.put("/brokers/ids/0", BROKER_07)
    world.put("/brokers/ids/1", BROKER_08)
    assert "set kafka.generation to 0.7 or 0.8" in world.refusal()
    assert world.found("0.7") is GENERATION_07
    assert world.found("0.8") is GENERATION_08


def test_without_brokers_topics_decide(world: World) -> None:
    world.put("/brokers/topics/t")
    assert world.found() is GENERATION_07
    world.put("/brokers/topics/a", b'{"version":1,"partitions":{"0":[0]}}')
    assert world.found() is GENERATION_08


def test_without_topics_the_members_of_the_group_decide(world: World) -> None:
    world.register("one", GENERATION_07)
    assert world.found() is GENERATION_07


def test_an_empty_cluster_counts_as_0_8_and_the_setting_says_otherwise(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer"):
        assert world.found() is GENERATION_08
    assert "no broker is registered under /brokers/ids; waiting for a broker" in caplog.text
    assert world.found("0.7") is GENERATION_07


@pytest.mark.parametrize(
    ("broker", "member", "theirs"),
    [(BROKER_07, GENERATION_08, "0.8 or later"), (BROKER_08, GENERATION_07, "0.7")],
)
def test_a_group_with_a_member_of_the_other_generation_is_refused(
    world: World, broker: bytes, member: Generation, theirs: str
) -> None:
    world.put("/brokers/ids/0", broker)
    world.register("g_foreign", member)
    sentence = world.refusal()
    assert f"its member g_foreign is registered in the format of Kafka {theirs}," in sentence
    assert "use another group.id, or stop that member" in sentence
    assert "/consumers/g/ids/g_foreign" in sentence


def test_a_registration_that_nobody_can_read_refuses_nothing(world: World) -> None:
    world.put("/brokers/ids/0", BROKER_07)
    world.put("/consumers/g/ids/odd", b"\xff")
    assert world.found() is GENERATION_07


def test_partitions_and_brokers_of_both_generations_are_read(world: World) -> None:
    world.put("/brokers/ids/0", BROKER_07)
    world.put("/brokers/ids/\u00b2", BROKER_07)  # `isdigit` is true of it
    world.put("/brokers/topics/old")
    world.put("/brokers/topics/old/0", b"2")
    world.put("/brokers/topics/old/10", b"1")
    world.put("/brokers/topics/old/\u00b2", b"1")
    world.put("/brokers/topics/gone")
    world.put("/brokers/topics/new", b'{"version":1,"partitions":{"1":[0],"0":[0]}}')
    assert world.cluster.partitions(["old", "gone", "new", "none"]) == {
        "old": ("0-0", "0-1", "10-0"), "gone": (), "new": (0, 1),
    }  # fmt: skip
    [broker] = world.cluster.brokers()
    assert (broker.id, broker.host, broker.port, broker.generation) == (0, "h", 9092, "kafka07")
