"""`zkconsumer describe` on groups of ours, of Java members, and on trees that are wrong."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.cli.command_line import TIMEOUT_S, Running, run
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until


@pytest.fixture
def topic(kafka_0822: KafkaCluster) -> str:
    """A topic of two partitions with three messages in each."""
    name = f"cli-{uuid.uuid4().hex[:10]}"
    kafka_0822.create_topic(name, 2)
    lines = b"".join(b"%d\n" % number for number in range(6))
    assert run("produce", "--zookeeper", kafka_0822.zookeeper_connect, "--topic", name, stdin=lines).returncode == 0
    return name


def describe(cluster: KafkaCluster, group: str) -> dict[str, Any]:
    got = run("describe", group, "--zookeeper", cluster.zookeeper_connect, "--json")
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)  # type: ignore[no-any-return]


def test_a_group_of_ours(kafka_0822: KafkaCluster, topic: str, fresh_group: str) -> None:
    with Running("consume", "--zookeeper", kafka_0822.zookeeper_connect, "--whitelist", topic, "--group", fresh_group,
                 "--from-beginning", "--property", "consumer.id=ann",
                 "--property", "auto.commit.interval.ms=100") as consumer:  # fmt: skip
        consumer.wait_lines(6)
        wait_until(lambda: describe(kafka_0822, fresh_group)["lag"] == 0, TIMEOUT_S, "the commit")
        found = describe(kafka_0822, fresh_group)
        assert found["members"] == [
            {"consumer_id": f"{fresh_group}_ann", "pattern": "white_list", "subscription": {topic: 1}, "problem": None}
        ]
        assert [(row["partition"], row["offset"], row["log_end"], row["owner"]) for row in found["partitions"]] == [
            (0, 3, 3, f"{fresh_group}_ann-0"), (1, 3, 3, f"{fresh_group}_ann-0"),
        ]  # fmt: skip
        assert found["problems"] == []


def test_a_group_of_java_members_is_called_sound(kafka_0822: KafkaCluster, topic: str, fresh_group: str) -> None:
    with JavaMember(kafka_0822, fresh_group, topics={topic: 2}, consumer_id="java") as member:
        member.wait_messages(6)

        def settled() -> bool:
            found = describe(kafka_0822, fresh_group)
            return found["lag"] == 0 and found["lag_unknown"] == 0 and not found["problems"]

        wait_until(settled, TIMEOUT_S, "the Java member", state=lambda: describe(kafka_0822, fresh_group))
        got = run("describe", fresh_group, "--zookeeper", kafka_0822.zookeeper_connect, "--check")
        assert got.returncode == 0
        text = got.stdout.decode()
        assert text.startswith(f"Group {fresh_group}: 1 member, 2 partitions of 1 topic\n")
        assert f"{fresh_group}_java-0\n" in text
        assert f"{fresh_group}_java-1\n" in text
        assert text.endswith("Total lag: 0\nEach partition of each subscribed topic is owned by a registered thread.\n")


def test_what_is_wrong_is_marked_and_checked(kafka_0822: KafkaCluster, topic: str, fresh_group: str) -> None:
    client, root = kafka_0822.client, f"/consumers/{fresh_group}"
    client.create(f"{root}/ids/{fresh_group}_left", b"garbage", makepath=True)
    client.create(
        f"{root}/ids/{fresh_group}_ann",
        b'{"version":1,"subscription":{"%b":1},"pattern":"static","timestamp":"1"}' % topic.encode(),
    )
    client.create(f"{root}/owners/{topic}/1", b"somebody-0", makepath=True)
    client.create(f"{root}/offsets/{topic}/1", b"2", makepath=True)
    got = run("describe", fresh_group, "--zookeeper", kafka_0822.zookeeper_connect, "--check")
    assert got.returncode == 1
    text = got.stdout.decode()
    rows = [line.split() for line in text.splitlines() if line.startswith(topic)]
    assert rows == [[topic, "0", "-", "3", "-", "none", "!"], [topic, "1", "2", "3", "1", "somebody-0", "!"]]
    assert f"! {topic}-0: orphaned" in text
    assert f"! {topic}-1: its owner 'somebody-0' is not a thread of a registered member" in text
    assert f"! {fresh_group}_left: registration cannot be read: {root}/ids/{fresh_group}_left" in text
    assert "Total lag: 1, unknown for 1 partition\n" in text


def test_a_group_that_does_not_exist_is_status_1(kafka_0822: KafkaCluster, fresh_group: str) -> None:
    kafka_0822.client.ensure_path(f"/consumers/{fresh_group}")
    got = run("describe", fresh_group + "x", "--zookeeper", kafka_0822.zookeeper_connect)
    assert (got.returncode, got.stdout) == (1, b"")
    assert got.stderr.decode() == (
        f"zkconsumer: group {fresh_group + 'x'!r} does not exist in ZooKeeper at {kafka_0822.zookeeper_connect}; "
        f"did you mean {fresh_group!r}?\n"
    )
