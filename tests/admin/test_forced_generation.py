"""`kafka.generation` in administration and in commands that join no group: forced, and `auto`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.cli.command_line import run
from zkconsumer.admin import Admin
from zkconsumer.admin.values import TopicRefused
from zkconsumer.errors import ConfigError
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.topic_reader.topic_reader import read_topic

pytestmark = pytest.mark.real

OF_07 = b"127.0.0.1-1400000000000:127.0.0.1:9"
OF_08 = b'{"jmx_port":-1,"timestamp":"1","host":"127.0.0.1","version":1,"port":9}'
OTHER = {"0.7": "0.8", "0.8": "0.7"}


class Tree:
    """A chroot of its own.

    Attributes:
        hosts: Its address.
    """

    def __init__(self, client: KazooClient, hosts: str) -> None:
        self.hosts = hosts
        self._client = client
        client.create("/consumers/g/offsets/clicks/0-1", b"5", makepath=True)

    def register(self, broker: int, data: bytes) -> None:
        self._client.create(f"/brokers/ids/{broker}", data, makepath=True)

    def admin(self, generation: str) -> Admin:
        return Admin(self.hosts, properties={"kafka.generation": generation})


@pytest.fixture
def tree(zookeeper: ZooKeeperServer) -> Iterator[Tree]:
    path = f"/{uuid.uuid4().hex}"
    root = KazooClient(zookeeper.connect)
    root.start()
    root.ensure_path(path)
    root.chroot = path
    try:
        yield Tree(root, zookeeper.connect + path)
    finally:
        root.stop()
        root.close()


@pytest.mark.parametrize(("generation", "is_07"), [("0.7", True), ("0.8", False), ("auto", False)])
def test_in_an_empty_tree_the_setting_decides(tree: Tree, generation: str, is_07: bool) -> None:
    with tree.admin(generation) as admin:
        assert admin.describe("g").lag_unit == ("bytes" if is_07 else "messages")
        assert admin.lag("g").lag_unit == ("bytes" if is_07 else "messages")
        with pytest.raises(TopicRefused, match="a broker creates a topic" if is_07 else "broker"):
            admin.create_topic("clicks")


@pytest.mark.parametrize(("generation", "data"), [("0.7", OF_07), ("0.8", OF_08)])
def test_the_setting_may_name_what_the_brokers_are(tree: Tree, generation: str, data: bytes) -> None:
    tree.register(3, data)
    for named in (generation, "auto"):
        with tree.admin(named) as admin:
            assert admin.describe("g").lag_unit == ("bytes" if generation == "0.7" else "messages")


@pytest.mark.parametrize(("generation", "data"), [("0.7", OF_08), ("0.8", OF_07)])
def test_brokers_of_the_other_generation_are_named_with_the_remedy(
    tree: Tree, generation: str, data: bytes, tmp_path: Path
) -> None:
    tree.register(3, data)
    shown = "0.8 or later" if generation == "0.7" else "0.7"
    sentence = (
        f"must be {OTHER[generation]} or left out, because broker 3 is registered in the format of Kafka {shown}; "
        "for another cluster, give its chroot in zookeeper.connect"
    )
    with pytest.raises(ConfigError) as refused:
        tree.admin(generation)
    assert str(refused.value) == f"kafka.generation is {generation!r}; it {sentence}"
    with pytest.raises(ConfigError, match="because broker 3 is registered"):
        read_topic(tree.hosts, "clicks", properties={"kafka.generation": generation})
    file = tmp_path / "consumer.properties"
    file.write_text(f"# a comment\nkafka.generation={generation}\n")
    for command in (
        ["topics"],
        ["describe", "g"],
        ["offsets", "get", "g"],
        ["lag", "g"],
        ["verify", "g"],
        ["groups"],
        ["produce", "--topic", "clicks"],
        ["consume", "--topic", "clicks", "--until-end"],
        ["release", "g", "clicks", "0-1"],
    ):
        done = run(*command, "--zookeeper", tree.hosts, "--config", str(file), stdin=b"x\n")
        assert done.returncode == (2 if command[0] == "verify" else 1), command
        error = done.stderr.decode()
        assert error.count("\n") == 1, error
        assert f"kafka.generation is {generation!r} ({file}, line 2); it {sentence}" in error, command


def test_where_brokers_of_both_are_registered_the_setting_chooses(tree: Tree) -> None:
    tree.register(3, OF_07)
    tree.register(4, OF_08)
    for generation, unit in (("0.7", "bytes"), ("0.8", "messages")):
        with tree.admin(generation) as admin:
            assert admin.describe("g").lag_unit == unit
    with tree.admin("auto") as admin:  # what is wrong is shown, and nothing is refused
        assert admin.describe("g").lag_unit == "messages"
