"""Administration of offsets in Kafka with brokers of several versions: they are set, verified and deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simpleconsumer import SimpleConsumer, TopicPartition
from tests.admin.both_stores import in_kafka, in_zookeeper, manager_of, store_in_kafka, store_in_zookeeper
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.admin import Admin, DeletedGroup
from zkconsumer.testing import KafkaCluster, load, wait_until

pytestmark = pytest.mark.real


def prove(cluster: KafkaCluster, group: str, topic: str, has_delete_groups: bool) -> None:
    """Set, verify and delete offsets of a group that stores in Kafka alone, and delete the group."""
    store_in_kafka(cluster, group, topic, {0: 4, 1: 5})
    config = ConsumerConfig(
        cluster.zookeeper_connect, group, offsets_storage="kafka", dual_commit_enabled=False, auto_commit_enable=False,
        consumer_timeout_ms=5000,
    )  # fmt: skip
    with Admin(cluster.zookeeper_connect) as admin:
        admin.set_offsets(group, topic, 7)
        assert (in_zookeeper(cluster, group, topic), in_kafka(cluster, group, topic)) == ({}, {0: 7, 1: 7})
        with ConsumerConnector(config) as connector:
            [stream] = connector.create_message_streams({topic: 1})[topic]
            first = [next(stream) for _ in range(6)]
            assert sorted(each.offset for each in first) == [7, 7, 8, 8, 9, 9]
            connector.commit_offsets()
        admin.shift_offsets(group, topic, 100)
        assert in_kafka(cluster, group, topic) == {0: 10, 1: 10}
        assert admin.verify(group, least_members=0, patience_s=0).findings == ()
        [row] = [row for row in admin.groups().groups if row.group == group]
        assert (row.offsets_in_zookeeper, row.offsets_in_kafka, row.topics) == (False, True, (topic,))
        assert len(admin.delete_offsets(group, topic, [1]).changes) == 1
        assert in_kafka(cluster, group, topic) == {0: 10}
        [deleted] = admin.delete_groups(group).groups
        assert (deleted.offsets_in_kafka, deleted.expires) == (1, not has_delete_groups)
        assert in_kafka(cluster, group, topic) == {}
        assert cluster.client.exists(f"/consumers/{group}") is None


def prove_expiry(cluster: KafkaCluster, group: str, topic: str) -> None:
    """A commit of a time long ago is deleted by the broker: so are those that stand for deleted offsets."""
    manager = wait_until(lambda: manager_of(cluster, group), 30.0, "an offset manager")
    store_in_kafka(cluster, group, topic, {0: 4, 1: 5})
    with SimpleConsumer(manager.host, manager.port) as consumer:
        consumer.commit_offsets(group, {TopicPartition(topic, 1): 6}, version=1, timestamp_ms=1)
    wait_until(lambda: in_kafka(cluster, group, topic) == {0: 4}, 30.0, "the broker to delete the offset")


def test_offsets_in_kafka_082_are_administered(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 2)
    load(kafka_0822, topic, 10)
    prove(kafka_0822, fresh_group, topic, has_delete_groups=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "has_delete_groups"),
    [("0.8.2.2", False), ("0.9.0.1", False), ("0.10.2.2", False), ("1.1.1", True), ("2.8.2", True), ("3.9.2", True)],
)
def test_offsets_in_kafka_of_each_version_are_administered(version: str, has_delete_groups: bool) -> None:
    settings = {"offsets.topic.num.partitions": 4, "offsets.topic.replication.factor": 1,
                "offsets.retention.check.interval.ms": 1000}  # fmt: skip
    with KafkaCluster(version, brokers=1, settings=settings) as cluster:
        cluster.create_topic("clicks", 2)
        load(cluster, "clicks", 10)
        prove(cluster, "billing", "clicks", has_delete_groups)
        if version != "0.8.2.2":  # it looks for expired offsets every ten minutes, whatever its settings say
            prove_expiry(cluster, "expiring", "clicks")
        store_in_zookeeper(cluster, "both", "clicks", {0: 1, 1: 2})
        store_in_kafka(cluster, "both", "clicks", {0: 3})
        with Admin(cluster.zookeeper_connect) as admin:
            [finding] = admin.verify("both", least_members=0, patience_s=0).findings
            assert finding.kind == "offsets-differ"
            expected = DeletedGroup("both", 5, 2, 1, expires=not has_delete_groups)
            assert admin.delete_groups("both").groups == (expected,)
