"""Offsets in Kafka of topics that are deleted: what brokers do with them, and what administration says about it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from simpleconsumer import SimpleConsumer, TopicPartition
from simpleconsumer.errors import BrokerError
from tests.admin.both_stores import in_kafka, manager_of, store_in_kafka
from zkconsumer.admin import Admin, NotFound
from zkconsumer.cli.program import program
from zkconsumer.testing import KafkaCluster, wait_until

pytestmark = pytest.mark.real

UNKNOWN = 3
"""UnknownTopicOrPartition."""


def answer(ask: Callable[[], object]) -> int:
    """The error code of a request, 0 if it was served."""
    try:
        ask()
    except BrokerError as error:
        return error.code
    return 0


def stored(cluster: KafkaCluster, group: str, topic: str) -> dict[int, int]:
    """The offsets that count, as soon as the broker knows the partitions."""
    found: dict[int, int] = {}

    def is_known() -> bool:
        return answer(lambda: found.update(in_kafka(cluster, group, topic))) == 0

    wait_until(is_known, 30.0, "the broker to know the topic")
    return found


def delete_topic(cluster: KafkaCluster, topic: str) -> None:
    cluster.delete_topic(topic)
    time.sleep(1.0)  # a broker hears of it by a request of the controller


def prove_facts(cluster: KafkaCluster, group: str, topic: str, fetched: int, taken: int) -> None:
    """Delete a topic, ask for offsets of it and commit -1, and create it again.

    Args:
        fetched: The error code of the question for its offsets.
        taken: That of a commit.
    """
    cluster.create_topic(topic, 2)
    store_in_kafka(cluster, group, topic, {0: 7, 1: 8})
    delete_topic(cluster, topic)
    manager = manager_of(cluster, group)
    assert manager is not None
    first = TopicPartition(topic, 0)
    with SimpleConsumer(manager.host, manager.port) as broker:
        assert answer(lambda: broker.fetch_offsets(group, [first], version=1)) == fetched
        assert answer(lambda: broker.commit_offsets(group, {first: -1}, version=1, timestamp_ms=1)) == taken
    cluster.create_topic(topic, 2)
    assert stored(cluster, group, topic) == ({1: 8} if taken == 0 else {0: 7, 1: 8})


def prove_administration(cluster: KafkaCluster, group: str, topic: str, other: str) -> None:
    """What administration says about a group whose only offset is one of a deleted topic, and how it gets rid of it."""
    cluster.create_topic(topic, 2)
    cluster.create_topic(other, 2)
    cluster.client.ensure_path(f"/consumers/{group}/ids")
    store_in_kafka(cluster, group, topic, {0: 7})
    with Admin(cluster.zookeeper_connect) as admin:
        [said] = admin.delete_topic(topic, dry_run=True).warnings
        assert said.startswith(f"1 group has offsets of it in Kafka ({group}); brokers before Kafka 0.10.2 keep them")
        store_in_kafka(cluster, group, other, {0: 3})
        admin.delete_topic(topic)
        with pytest.raises(NotFound, match="has no offset for topic") as of_topic:
            admin.delete_offsets(group, topic)
        assert f"of topic {topic!r}, which does not exist, are not found" in of_topic.value.remedy
        arguments = ["offsets", "delete", group, "--zookeeper", cluster.zookeeper_connect]
        deleted = CliRunner().invoke(program, arguments)
        assert deleted.exit_code == 0, deleted.stderr
        assert f"note: group {group!r}: brokers before Kafka 0.10.2 keep offsets of topics that" in deleted.stderr
        assert stored(cluster, group, other) == {}
        store_in_kafka(cluster, group, other, {0: 3})
        [note] = admin.delete_groups(group).notes
        assert note.startswith(
            f"group {group!r}: brokers before Kafka 0.10.2 keep offsets of topics that no longer exist"
        )
        for call in (lambda: admin.delete_groups(group), lambda: admin.delete_offsets(group)):
            with pytest.raises(NotFound, match="does not exist in ZooKeeper") as nothing:
                call()
            assert "offsets in Kafka of topics that no longer exist are not found" in nothing.value.remedy
        cluster.create_topic(topic, 2)
        assert stored(cluster, group, topic) == {0: 7}, "as the remedy says, they can be deleted now"
        assert len(admin.delete_offsets(group, topic).changes) == 1
        assert stored(cluster, group, topic) == {}


def test_offsets_of_deleted_topics_082(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    prove_facts(kafka_0822, f"{fresh_group}-facts", fresh_topic(), UNKNOWN, 0)
    prove_administration(kafka_0822, fresh_group, fresh_topic(), fresh_topic())


@pytest.mark.slow
def test_offsets_of_deleted_topics_09() -> None:
    settings = {"offsets.topic.num.partitions": 4, "offsets.topic.replication.factor": 1}
    with KafkaCluster("0.9.0.1", brokers=1, settings=settings) as cluster:
        prove_facts(cluster, "facts", "old", 0, UNKNOWN)
        prove_administration(cluster, "billing", "clicks", "other")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1", "2.8.2"])
def test_brokers_that_delete_offsets_with_their_topic(version: str) -> None:
    settings = {"offsets.topic.num.partitions": 4, "offsets.topic.replication.factor": 1}
    with KafkaCluster(version, brokers=1, settings=settings) as cluster:
        for topic in ("clicks", "other"):
            cluster.create_topic(topic, 2)
            store_in_kafka(cluster, "billing", topic, {0: 7})
        cluster.client.ensure_path("/consumers/billing/ids")
        with Admin(cluster.zookeeper_connect) as admin:
            assert admin.delete_topic("clicks").warnings == ()
            wait_until(lambda: stored(cluster, "billing", "other") == {0: 7}, 30.0, "the offset of the other topic")
            cluster.create_topic("clicks", 2)
            assert stored(cluster, "billing", "clicks") == {}
            assert admin.delete_offsets("billing").notes == ()
