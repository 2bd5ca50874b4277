"""Every command with each node of a cluster closed to it: unaffected, or a sentence that names the node and the remedy.

A node is closed in three ways: it may not be read or written, it may only be read, it may only be written. A command
whose output differs from that of an open cluster has to name the node; so a group is never shown as empty because it
was hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from closed_to_others import MODES, problem_of, without_times
from every_command import LINE, SERVICES, arguments_of, every_command, run_one
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE
from secured import PATIENCE_S

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.cli.program import program
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer

GROUP = {
    "": b"",
    "/ids": b"",
    "/ids/group_member": b'{"version":1,"subscription":{"topic":1},"pattern":"static","timestamp":"1"}',
    "/offsets": b"",
    "/offsets/topic": b"",
    "/offsets/topic/0": b"1",
    "/offsets/topic/1": b"2",
    "/owners": b"",
    "/owners/topic": b"",
    "/owners/topic/0": b"group_member-0",
}
NODES = (
    "/brokers/ids", "/brokers/ids/0", "/brokers/topics", "/brokers/topics/topic",
    "/brokers/topics/topic/partitions/0/state", "/consumers", *(f"/consumers/group{path}" for path in GROUP),
)  # fmt: skip
ELSEWHERE = {"load", "topics delete", *SERVICES}
"""Commands that are tested with Spark, and those of test_changes_and_closed_nodes.py that need a walk of their own."""
AS_PROCESSES = {"consume", "produce"}
"""Commands that need a standard output or input of the system."""
WITHOUT_GROUPS = {"produce", "topics list", "topics create", "topics delete", "topics grow", "topics set", "topics cut",
                  "topics producers", "acls list", "acls create", "acls delete", "acls plan"}  # fmt: skip
"""Commands that read no node below /consumers."""
WITHOUT_MEMBERS = {"groups delete", "offsets delete"}
"""Commands that refuse a group with members."""
FORCED = {"offsets set", "offsets import"}
"""Commands that refuse to work on a group with members unless they are forced."""


@dataclass
class Tree:
    """A cluster whose nodes can be closed.

    Attributes:
        connect: With the chroot.
        client: Inside the chroot; may do everything.
    """

    connect: str
    client: KazooClient
    _made: list[str] = field(default_factory=list)
    _closed: list[str] = field(default_factory=list)

    def renew(self, with_member: bool = True) -> None:
        """Make the group as it was, and open all nodes: a few requests, as this is done before each call."""
        for path in self._closed:
            with suppress(NoNodeError):
                self.client.retry(self.client.set_acls, path, OPEN_ACL_UNSAFE)
        self._closed.clear()
        self._delete_groups()
        creation = self.client.transaction()
        for path, data in GROUP.items():
            ephemeral = "group_member" in path or path.endswith("owners/topic/0")
            if with_member or not ephemeral:
                creation.create(f"/consumers/group{path}", data, ephemeral=ephemeral)
                self._made.append(f"/consumers/group{path}")
        assert creation.commit() == self._made

    def _delete_groups(self) -> None:
        deletion = self.client.transaction()
        for path in reversed(self._made):
            deletion.delete(path)
        self._made.clear()
        if set(deletion.commit()) != {True} or self.client.get_children("/consumers"):
            for name in self.client.get_children("/consumers"):  # a command has created or deleted nodes
                self.client.delete(f"/consumers/{name}", recursive=True)

    def close(self, path: str, mode: list[ACL]) -> None:
        self.client.set_acls(path, mode)
        self._closed.append(path)


@pytest.fixture(scope="module", params=["zk-3.9", pytest.param("zk-3.4.14", marks=pytest.mark.slow)])
def tree(request: pytest.FixtureRequest) -> Iterator[Tree]:
    with (
        ZooKeeperServer(version=request.param) as server,
        EmbeddedCluster(zookeeper=server, chroot="/kafka") as cluster,
    ):
        cluster.create_topic("topic", partitions=2)
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            for partition in (0, 1):
                broker.produce("topic", partition, [b"x"] * 3)
        client = KazooClient(f"{server.connect}/kafka", auth_data=[("digest", "owner:owner-secret")])
        client.start(timeout=PATIENCE_S)
        client.ensure_path("/consumers")
        yield Tree(f"{server.connect}/kafka", client)
        client.stop()
        client.close()


def run(name: str, tree: Tree, *options: str) -> tuple[int, str, str]:
    if name in AS_PROCESSES:
        ran = run_one(name, "--zookeeper", tree.connect, *options)
        return ran.returncode, ran.stdout, ran.stderr
    arguments = [*arguments_of(name), *(["--force"] if name in FORCED else [])]
    result = CliRunner().invoke(
        program, [*arguments, "--zookeeper", tree.connect, *options], input=LINE, prog_name="zkconsumer"
    )
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.slow] if each == "consume" else [])
        for each in every_command()
        if each not in ELSEWHERE
    ],
)
def test_a_closed_node_is_named_or_makes_no_difference(tree: Tree, name: str) -> None:
    with_member = name not in WITHOUT_MEMBERS
    tree.renew(with_member)
    status, printed, said = run(name, tree)
    assert "bug in zkconsumer" not in said, said
    wrong = []
    for path in NODES:
        if name in WITHOUT_GROUPS and path.startswith("/consumers"):
            continue
        for mode, acl in MODES.items():
            tree.renew(with_member)
            if not tree.client.exists(path):
                continue
            tree.close(path, acl)
            found = run(name, tree)
            if problem := problem_of(path, found, (status, printed)):
                wrong.append(f"{path} {mode}: {problem}\n  {found}")
    tree.renew()
    assert not wrong, f"open: {(status, printed, said)}\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", [each for each in every_command() if each not in ELSEWHERE])
def test_with_credentials_closed_nodes_make_no_difference(tree: Tree, name: str, tmp_path: Path) -> None:
    config = tmp_path / "consumer.properties"
    config.touch(mode=0o600)
    config.write_text("zookeeper.auth=digest:owner:owner-secret\n")
    with_member = name not in WITHOUT_MEMBERS
    tree.renew(with_member)
    status, printed, _ = run(name, tree)
    tree.renew(with_member)
    for path in NODES:
        if tree.client.exists(path):
            tree.close(path, MODES["closed"])
    found = run(name, tree, "--config", str(config))
    tree.renew()
    assert (found[0], without_times(found[1])) == (status, without_times(printed)), found
    assert "NoAuth" not in found[1] + found[2]
