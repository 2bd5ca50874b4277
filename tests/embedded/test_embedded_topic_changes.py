"""Embedded brokers change topics as other programs ask them: the administration of librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from zkconsumer.testing import EmbeddedCluster

WAIT_S = 20.0


@pytest.fixture(scope="module", params=["1.1", "2.8", "4.3"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, generation=request.param, zookeeper=False) as started:
        yield started


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.broker_list, "log_level": 0})


def test_topics_come_grow_and_go(cluster: EmbeddedCluster, admin: AdminClient, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    admin.create_topics([NewTopic(topic, 2, 2, config={"retention.ms": "1000"})])[topic].result(WAIT_S)
    entry = cluster.registry.topics()[topic]
    assert (sorted(entry.assignment), entry.config) == ([0, 1], {"retention.ms": "1000"})
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    assert sorted(cluster.registry.topics()[topic].assignment) == [0, 1, 2]
    admin.delete_topics([topic])[topic].result(WAIT_S)
    assert topic not in cluster.registry.topics()


def test_settings_are_described_and_changed(
    cluster: EmbeddedCluster, admin: AdminClient, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, config={"segment.bytes": 5000})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert (described["segment.bytes"].value, described["cleanup.policy"].value) == ("5000", "delete")
    if cluster.version.startswith("1."):
        return  # librdkafka's AlterConfigs replaces all settings, which the requests of `zkconsumer` test
    entry = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(WAIT_S)
    assert cluster.registry.topics()[topic].config == {"segment.bytes": "5000", "max.message.bytes": "2000"}


def test_records_are_deleted_below_an_offset(
    cluster: EmbeddedCluster, admin: AdminClient, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    cluster.produce(topic, [b"a", b"b", b"c"], partition=0)
    place = TopicPartition(topic, 0, 2)
    assert admin.delete_records([place])[place].result(WAIT_S).low_watermark == 2
    assert (cluster.log(topic, 0).start_offset, cluster.log(topic, 0).end_offset) == (2, 3)
