"""Partitions that an access list hides: every command names the node, and none claims that no broker leads them."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from secured import PATIENCE_S

from tests.cli.command_line import run
from zkconsumer.testing import ClosedNodes, EmbeddedCluster, load

HIDDEN = "ZooKeeper does not let this client read {} (NoAuth): the access list of {} does not name its credentials; set"
STATE = "/brokers/topics/clicks/partitions/1/state"
SOON = ("--property", "zookeeper.connection.timeout.ms=2000")
"""A member waits so long for partitions that it cannot start."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1) as running:
        running.create_topic("clicks", 2)
        running.create_topic("views", 1)
        load(running, "clicks", 10)
        stored(running, "reader")
        yield running


def stored(cluster: EmbeddedCluster, group: str) -> None:
    """Give a group the offset 4 in both partitions of `clicks`."""
    client = KazooClient(cluster.zookeeper_connect)
    client.start(PATIENCE_S)
    for partition in (0, 1):
        client.create(f"/consumers/{group}/offsets/clicks/{partition}", b"4", makepath=True)
    client.stop()
    client.close()


@pytest.fixture
def closed(cluster: EmbeddedCluster) -> Iterator[ClosedNodes]:
    with ClosedNodes(cluster.zookeeper_connect) as made:
        yield made


def command(cluster: EmbeddedCluster, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run(*arguments, "--zookeeper", cluster.zookeeper_connect, stdin=stdin)


def hidden(path: str) -> str:
    return HIDDEN.format(path, path)


def test_a_group_that_may_not_read_an_offset_ends_with_status_1(cluster: EmbeddedCluster) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    call = ["consume", "--topic", "clicks", "--group", group, "--timeout-ms", "2000", "-f", "%p", *SOON]
    stored(cluster, group)
    path = f"/consumers/{group}/offsets/clicks/1"
    with ClosedNodes(cluster.zookeeper_connect) as closed:
        closed.close(path)
        limited = command(cluster, *call, "--count", "2")
        rest = command(cluster, *call)
        nothing = command(cluster, *call)
    assert (limited.stdout, rest.stdout, nothing.stdout) == (b"00", b"0" * 4, b"")
    for ran in (limited, rest, nothing):
        assert ran.returncode == 1
        last = ran.stderr.decode().splitlines()[-1]
        assert last.startswith("zkconsumer: 1 partition was not read to the end (clicks-1: its offset cannot be read: ")
        assert hidden(path) in last
    opened = command(cluster, *call)
    assert (opened.returncode, opened.stdout) == (0, b"1" * 6)


def test_a_group_without_a_leader_to_ask_ends_with_status_1(cluster: EmbeddedCluster, closed: ClosedNodes) -> None:
    path = "/brokers/ids/0"
    closed.close(path)
    group = f"group-{uuid.uuid4().hex[:8]}"
    ran = command(cluster, "consume", "--topic", "clicks", "--group", group, "--from-beginning",
                  "--timeout-ms", "1500", "-f", "%p", *SOON)  # fmt: skip
    last = ran.stderr.decode().splitlines()[-1]
    assert ran.returncode == 1, last
    assert "clicks-1: " in last
    assert hidden(path) in last


def test_a_group_that_reads_everything_ends_with_status_0(cluster: EmbeddedCluster) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    call = ["consume", "--group", group, "--timeout-ms", "1500", "-f", "%p"]
    for topic, count in (("clicks", 20), ("clicks", 0), ("views", 0)):
        ran = command(cluster, *call, "--topic", topic, *(["--from-beginning"] if count else []))
        assert (ran.returncode, len(ran.stdout)) == (0, count), ran.stderr


def test_a_broker_that_may_not_be_read_is_named(cluster: EmbeddedCluster, closed: ClosedNodes) -> None:
    path = "/brokers/ids/0"
    why = f"its leader, broker 0, cannot be used: {hidden(path)}"
    closed.close(path)
    lag = command(cluster, "lag", "reader").stdout.decode()
    topics = command(cluster, "topics").stdout.decode()
    verified = command(cluster, "verify", "reader", "--members", "0", "--patience", "0").stdout.decode()
    stalled = command(cluster, "consume", "--topic", "clicks", "--until-end", "--stall-timeout", "2")
    produced = command(cluster, "produce", "--topic", "clicks", stdin=b"x\n")
    for shown in (lag, topics, verified, stalled.stderr.decode()):
        assert why in shown
    said = produced.stderr.decode()
    assert hidden(path) in said
    for shown in (lag, topics, verified, stalled.stderr.decode(), said):
        assert "no broker leads it" not in shown
        assert "check that Kafka runs" not in shown
    assert "check the leader of the partition" not in verified
    assert (stalled.returncode, produced.returncode) == (1, 1)


def test_topics_with_a_closed_node_are_shown_with_the_others(cluster: EmbeddedCluster, closed: ClosedNodes) -> None:
    closed.close(STATE)
    shown = command(cluster, "topics")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.decode().splitlines()
    assert [line.split()[2] for line in lines[3:6]] == ["0", "?", "0"]
    assert any(line.startswith(f"! clicks-1: its leader is not known: {hidden(STATE)}") for line in lines)
    assert command(cluster, "topics", "--check").returncode == 1
    rows = json.loads(command(cluster, "topics", "clicks", "--json").stdout)["partitions"]
    assert [(row["leader"], row["isr"], row["latest"]) for row in rows] == [(0, [0], 10), (None, None, 10)]
    assert "no broker leads it" not in command(cluster, "lag", "reader").stdout.decode()

    closed.close("/brokers/topics/clicks")
    listed = command(cluster, "topics")
    assert "views" in listed.stdout.decode()
    assert f"! {hidden('/brokers/topics/clicks')}" in listed.stdout.decode()
    named = command(cluster, "topics", "clicks")
    assert named.returncode == 1
    assert hidden("/brokers/topics/clicks") in named.stderr.decode()
