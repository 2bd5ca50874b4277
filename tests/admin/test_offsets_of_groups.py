"""The offsets in Kafka of many groups: from all offset managers at once, also while one of them is dead."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.admin.both_stores import manager_of, store_in_kafka, store_in_zookeeper
from zkconsumer.admin import Admin, TopicUnfinished
from zkconsumer.admin.offsets.kafka_offsets import offsets_partition
from zkconsumer.testing import EmbeddedCluster, Fault, KafkaCluster, load, wait_until

pytestmark = pytest.mark.real


@pytest.mark.parametrize(("group", "count", "partition"), [
    ("group1", 50, 40),
    ("polygenelubricants", 50, 0),  # its hash is -2^31, which has no absolute value
])  # fmt: skip
def test_the_partition_of_a_group_is_that_of_java(group: str, count: int, partition: int) -> None:
    assert offsets_partition(group, count) == partition


@pytest.mark.parametrize("code", [14, 16])
def test_groups_that_a_manager_refuses_are_asked_for_again(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], fresh_group: str, code: int
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 1)
    load(embedded_cluster, topic, 3)
    groups = [f"{fresh_group}-{number}" for number in range(3)]
    for group in groups:
        embedded_cluster.client.ensure_path(f"/consumers/{group}/ids")
        store_in_kafka(embedded_cluster, group, topic, {0: 2})
    fault = embedded_cluster.faults.add(Fault.error(code, "offset_fetch", topic, 0), times=2)
    with Admin(embedded_cluster.zookeeper_connect) as admin:
        assert [line.offset for line in admin.export_offsets(*groups).lines] == [2, 2, 2]
    assert embedded_cluster.faults.used(fault) == 2


@pytest.mark.parametrize("version", [pytest.param("0.8.2.2"), pytest.param("1.1.1", marks=pytest.mark.slow)])
def test_offsets_that_a_dead_manager_kept_are_unknown_and_not_gone(version: str) -> None:
    settings = {"offsets.topic.num.partitions": 4, "offsets.topic.replication.factor": 1}
    with KafkaCluster(version, brokers=2, settings=settings) as cluster:
        for topic in ("clicks", "views"):
            cluster.create_topic(topic, 1, replication=2)
            load(cluster, topic, 10)
        of_broker: dict[int, list[str]] = {0: [], 1: []}
        for number in range(12):
            manager = wait_until(lambda group=f"g{number}": manager_of(cluster, group), 30.0, "a manager").id
            of_broker[manager].append(f"g{number}")
        group, plain = of_broker[1][:2]
        for each in (group, plain):
            store_in_zookeeper(cluster, each, "clicks", {0: 1})
        store_in_kafka(cluster, group, "clicks", {0: 10})
        store_in_kafka(cluster, group, "views", {0: 4})
        with Admin(cluster.zookeeper_connect) as admin:
            monitor = admin.lag_monitor()

            def lags() -> tuple[int, int, int]:
                read = {each.group: each for each in monitor.read().groups}
                return read[group].lag, read[group].lag_unknown, read[plain].lag

            # Until the follower has the messages, the log ends before them.
            wait_until(lambda: lags() == (6, 0, 9), 30.0, "the lag of all groups", state=lags)
            cluster.kill(1)
            after = {each.group: each for each in monitor.read().groups}
            # That there was an offset of views is remembered; a new look cannot know it, and says so.
            assert [(row.topic, row.lag) for row in after[group].partitions] == [("clicks", None), ("views", None)]
            for shown in (admin.describe(group), after[group], after[plain], *admin.lag(group).groups):
                assert (shown.lag, shown.lag_unknown) == (None, len(shown.partitions))
                assert [each for each in shown.problems if each.startswith("the offsets in Kafka cannot be read: ")]
            [unread] = admin.offsets(group).unread
            assert unread.startswith("the offsets in Kafka cannot be read: ")
            assert "partitions whose offset is only in Kafka may be missing" in unread
            verified = {each.kind: each.fault for each in admin.verify(plain, least_members=0, patience_s=0).findings}
            assert verified["unknown-offsets"] is False


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.8.2.2", "1.1.1"])
def test_a_dead_manager_hides_its_own_groups_alone(version: str) -> None:
    settings = {"offsets.topic.num.partitions": 4, "offsets.topic.replication.factor": 1}
    with KafkaCluster(version, brokers=2, settings=settings) as cluster:
        cluster.create_topic("clicks", 2)
        load(cluster, "clicks", 3)
        groups = [f"g{number}" for number in range(40)]
        managers: dict[str, int] = {}
        for group in groups:
            cluster.client.ensure_path(f"/consumers/{group}/ids")
            store_in_kafka(cluster, group, "clicks", {0: 1, 1: 2})
            managers[group] = wait_until(lambda group=group: manager_of(cluster, group), 30.0, "a manager").id
        assert set(managers.values()) == {0, 1}
        with Admin(cluster.zookeeper_connect) as admin:
            assert {row.offsets_in_kafka for row in admin.groups().groups} == {True}
            assert len(admin.export_offsets().lines) == 80
            cluster.pause(1)
            try:
                started_at = time.monotonic()
                found = admin.groups()
                assert time.monotonic() - started_at < 15
            finally:
                cluster.resume(1)
            known = {row.group: row.offsets_in_kafka for row in found.groups}
            assert {group: known[group] for group in groups} == {
                group: None if managers[group] == 1 else True for group in groups
            }
            count = sum(manager == 1 for manager in managers.values())
            assert found.unknown is not None
            assert found.unknown.startswith(f"whether {count} groups of 40 have offsets in Kafka is not known: ")


@pytest.mark.parametrize("version", [pytest.param("0.8.2.2"), pytest.param("3.9.2", marks=pytest.mark.slow)])
def test_a_topic_that_stays_in_deletion_hides_the_offsets_of_its_own_partitions_alone(version: str) -> None:
    settings = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1, "delete.topic.enable": True}
    with KafkaCluster(version, brokers=2, settings=settings) as cluster:
        cluster.create_topic("clicks", 1, replication=2)
        load(cluster, "clicks", 10)
        groups = ("billing", "audit", "both")
        for group in groups:
            store_in_kafka(cluster, group, "clicks", {0: 4})
            cluster.client.ensure_path(f"/consumers/{group}/ids")
        manager = wait_until(lambda: manager_of(cluster, "billing"), 30.0, "a manager").id
        cluster.create_topic("gone", 1, replication=2)
        load(cluster, "gone", 3)
        store_in_zookeeper(cluster, "both", "gone", {0: 1})
        with Admin(cluster.zookeeper_connect) as admin:
            monitor = admin.lag_monitor()
            monitor.read()
            cluster.kill(1 - manager, expire=True)
            with pytest.raises(TopicUnfinished):
                admin.delete_topic("gone", wait_s=4)
            for shown in (admin.describe("billing"), *admin.lag("billing").groups, admin.lag_monitor().read().groups[1],
                          monitor.read().groups[1]):  # fmt: skip
                assert (shown.group, shown.lag, shown.lag_unknown, shown.problems) == ("billing", 6, 0, ())
            assert admin.offsets("billing").unread == ()
            assert admin.groups().unknown is None
            verified = admin.verify("billing", least_members=0, patience_s=0).findings
            assert "unknown-offsets" not in {finding.kind for finding in verified}
            exported = admin.export_offsets("billing", "audit")
            assert [(line.group, line.offset) for line in exported.lines] == [("billing", 4), ("audit", 4)]
            if version == "0.8.2.2":
                [problem] = exported.problems
                assert "partitions of topic 'gone', because it is being deleted or never had a leader" in problem
                [row] = [row for row in admin.offsets("both").partitions if row.topic == "gone"]
                assert any("its offset in Kafka cannot be read: brokers do not know" in each for each in row.problems)
                assert not any("Kafka" in each for row in admin.offsets("billing").partitions for each in row.problems)
            [change] = admin.set_offsets("billing", "clicks", "earliest", store="kafka").changes
            assert (change.old, change.new) == (4, 0)
            found = admin.delete_groups("audit")
            assert found.groups[0].offsets_in_kafka == 1
            assert bool([note for note in found.notes if "topic 'gone'" in note]) is (version == "0.8.2.2")
