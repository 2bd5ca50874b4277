"""`zkconsumer verify` on real groups, ours and Java's, sound and broken; triggered rebalances of Java members."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from rebalance.zookeeper.znodes_07 import GENERATION_08
from tests.cli.command_line import Running, run
from tests.cli.given_up import EACH, REGISTRATION, WAIT_S, given_up_member, owners
from zkconsumer.admin.groups.release import trigger_rebalance
from zkconsumer.cli.connection_options import open_zookeeper
from zkconsumer.cli.verify import verify as verify_command
from zkconsumer.testing.kafka import KafkaCluster, kafka_versions
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import WaitTimeout, wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

LATE_S = "60"  # for what has to become right on a busy machine


def verify(cluster: KafkaCluster, group: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Status and answer."""
    got = CliRunner().invoke(verify_command, [group, "--zookeeper", cluster.zookeeper_connect, "--json", *options])
    assert got.exit_code in (0, 1), (got.exception, got.stderr)
    return got.exit_code, json.loads(got.stdout)


def kinds(answer: dict[str, Any]) -> list[str]:
    return [finding["kind"] for finding in answer["findings"]]


def assert_stays_idle(member: JavaMember, attempts: int) -> None:
    """It does not try again by itself: for many times its back-off nothing happens."""
    with pytest.raises(WaitTimeout):
        wait_until(lambda: member.rebalance_attempts > attempts, 1.0, "a try that must not come")


def test_a_triggered_rebalance_brings_back_a_java_member_that_gave_up_and_nothing_else_does(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic, group, client = fresh_topic(), fresh_group, kafka_0822.client
    with given_up_member(kafka_0822, group, topic) as ann:
        attempts, registered = ann.rebalance_attempts, client.exists(ann.registration_path)

        # What is in the way is named, and nobody is woken for nothing.
        status, answer = verify(kafka_0822, group, "--patience", "1", "--trigger-rebalance", "--no-logs")
        assert (status, answer["nudged"]) == (1, [])
        assert kinds(answer) == ["persistent-owner", "unowned"]
        assert answer["findings"][0]["remedy"] == f"zkconsumer release {group} {topic} 1"
        assert f"({ann.id} is registered and owns nothing)" in answer["findings"][1]["sentence"]

        # Java members do not see it go.
        client.delete(f"/consumers/{group}/owners/{topic}/1")
        assert_stays_idle(ann, attempts)
        status, answer = verify(kafka_0822, group, "--patience", "1", "--no-logs")
        assert (status, kinds(answer), answer["wakeable"]) == (1, ["unowned", "unowned"], [ann.id])
        assert_stays_idle(ann, attempts)

        status, answer = verify(kafka_0822, group, "--patience", "1", "--trigger-rebalance", "--wait", LATE_S)
        assert (status, answer["findings"], answer["nudged"]) == (0, [], [ann.id])
        assert owners(kafka_0822, group, topic) == {"0": f"{ann.id}-0", "1": f"{ann.id}-0"}
        assert {message.partition for message in ann.wait_messages(2 * EACH)} == {0, 1}

        # Nothing of the member was touched, and nothing is left behind.
        now = client.exists(ann.registration_path)
        assert (now.czxid, now.mzxid) == (registered.czxid, registered.mzxid)
        assert client.get_children(f"/consumers/{group}/ids") == [ann.id]
        assert (ann.rebalance_attempts, ann.gave_up) == (attempts + 1, 1)


VERSIONS = [version for version in kafka_versions() if (0, 8) <= version_tuple(version) < (2,)]


@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "0.8.2.2"])
def test_a_triggered_rebalance_brings_back_java_members_of_all_versions(version: str) -> None:
    with KafkaCluster(version) as cluster, given_up_member(cluster, "group", "clicks") as ann:
        cluster.client.delete("/consumers/group/owners/clicks/1")
        status, answer = verify(cluster, "group", "--patience", "1", "--trigger-rebalance", "--wait", LATE_S)
        assert (status, answer["findings"], answer["nudged"]) == (0, [], [ann.id])
        ann.wait_messages(2 * EACH)
        assert cluster.client.get_children("/consumers/group/ids") == [ann.id]


CASES = [(version, "range") for version in VERSIONS]
CASES += [(version, "roundrobin") for version in VERSIONS if version_tuple(version) >= (0, 8, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "strategy"), CASES)
def test_filters_and_strategies_of_all_versions_are_understood(version: str, strategy: str) -> None:
    """Kafka 0.8.0 and 0.8.1 write a filter raw, 0.8.2 to 0.11 escape it once, and 1.0 and 1.1 twice."""
    with KafkaCluster(version) as cluster:
        for topic, partitions in {"clicks.eu": 5, "clicks.us": 12, "views": 3}.items():
            cluster.create_topic(topic, partitions=partitions)
        settings = {"partition.assignment.strategy": strategy}
        members = [
            JavaMember(cluster, "group", whitelist=r"clicks\.\w+", streams=2, consumer_id=name, settings=settings)
            for name in ("ann", "bob")
        ]
        try:
            for member in members:
                member.launch()
            status, answer = verify(cluster, "group", "--members", "2", "--wait", LATE_S)
            assert (status, answer["member_count"]) == (0, 2), answer
            if version_tuple(version) < (1,):
                expected = "range" if strategy == "range" else "roundrobin"
                assert (answer["partition_count"], answer["strategy"], answer["findings"]) == (17, expected, [])
            else:
                assert (answer["partition_count"], kinds(answer)) == (0, ["idle-filter", "idle-filter"])
        finally:
            for member in members:
                member.close()


def test_a_sound_group_of_ours_is_fine_and_no_rebalance_is_triggered(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic, client = fresh_topic(), kafka_0822.client
    kafka_0822.create_topic(topic, 2)
    # Whoever deploys starts to wait before the group is there.
    waiting = ("verify", fresh_group, "--zookeeper", kafka_0822.zookeeper_connect, "--members", "1", "--wait", "25")
    with (
        Running(*waiting) as verifying,
        Running("consume", "--zookeeper", kafka_0822.zookeeper_connect, "--topic", topic, "--group", fresh_group),
    ):
        assert verifying.wait() == 0, verifying.errors()
        assert verifying.lines() == [
            f"Group {fresh_group}: 1 member, 2 partitions subscribed, assigned by range",
            "Each partition of each subscribed topic is owned by the registered thread to which it is assigned.",
        ]
        before = client.exists(f"/consumers/{fresh_group}/ids").cversion
        assert verify(kafka_0822, fresh_group, "--nudge", "--strategy", "roundrobin") == (0, {
            "group": fresh_group, "member_count": 1, "partition_count": 2, "strategy": "roundrobin", "findings": [],
            "wakeable": [], "fine": True, "nudged": [],
        })  # fmt: skip
        assert client.exists(f"/consumers/{fresh_group}/ids").cversion == before


@pytest.mark.catalogue("D5")
def test_what_is_wrong_is_named_with_where_and_what_would_mend_it(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic, client, root = fresh_topic(), kafka_0822.client, f"/consumers/{fresh_group}"
    kafka_0822.create_topic(topic, 2)
    client.create(f"{root}/ids/{fresh_group}_ann", (REGISTRATION % topic).encode(), ephemeral=True, makepath=True)
    client.create(f"{root}/owners/{topic}/0", f"{fresh_group}_ann-0".encode(), ephemeral=True, makepath=True)
    client.create(f"{root}/owners/{topic}/1", b"old-0", makepath=True)
    client.create(f"{root}/offsets/{topic}/0", b"7", makepath=True)
    client.create(f"{root}/offsets/gone/0", b"7", makepath=True)
    got = run("verify", fresh_group, "--zookeeper", kafka_0822.zookeeper_connect)
    assert got.returncode == 1
    assert got.stdout.decode().splitlines() == [
        f"Group {fresh_group}: 1 member, 2 partitions subscribed, assigned by range",
        f"! {topic}-1 is owned by 'old-0' through a persistent node, which never expires",
        f"    at:  {root}/owners/{topic}/1",
        f"    fix: zkconsumer release {fresh_group} {topic} 1",
        f"! {topic}-0: its stored offset 7 is 7 beyond the end of its log",
        f"    at:  {root}/offsets/{topic}/0",
        f"    fix: zkconsumer offsets set {fresh_group} --topic {topic} --partition 0 --to earliest --force, or the "
        "next owner starts where auto.offset.reset says",
        f"- gone-0: an offset is stored, but the partition does not exist ({root}/offsets/gone/0)",
    ]
    _, answer = verify(kafka_0822, fresh_group, "--no-logs")
    assert kinds(answer) == ["persistent-owner", "stale-offset"]


def test_a_group_that_cannot_be_read_is_status_2(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    got = CliRunner().invoke(verify_command, [fresh_group, "--zookeeper", zookeeper.connect])
    assert (got.exit_code, got.stdout) == (2, "")
    assert got.stderr.startswith(f"zkconsumer: group {fresh_group!r} does not exist in ZooKeeper at ")
    got = CliRunner().invoke(verify_command, [fresh_group, "--zookeeper", f"{zookeeper.connect}/elsewhere"])
    assert (got.exit_code, got.stdout) == (2, "")
    assert "the chroot '/elsewhere' does not exist" in got.stderr


def test_a_triggered_rebalance_reaches_watchers_of_the_members_and_no_reader(
    zookeeper: ZooKeeperServer, fresh_group: str
) -> None:
    """On the newest ZooKeeper; the Java members of the tests above run on that of Kafka 0.8.2."""
    ids = f"/consumers/{fresh_group}/ids"
    client = KazooClient(zookeeper.connect)
    client.start()
    try:
        client.create(f"{ids}/{fresh_group}_ann", makepath=True)
        heard: list[object] = []
        client.get_children(ids, watch=heard.append)
        before = client.exists(ids)
        with open_zookeeper(zookeeper.connect) as port:
            trigger_rebalance(port, fresh_group, GENERATION_08)
        wait_until(lambda: heard, WAIT_S, "the watch")
        names, after = client.get_children(ids, include_data=True)
        assert names == [f"{fresh_group}_ann"]
        assert after.cversion == before.cversion + 2
    finally:
        client.stop()
        client.close()
