"""Offsets of a group that a transaction is about to commit: like Java members, nobody goes on from those before."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.testing import load
from zkconsumer.testing.kafka import KafkaCluster

pytest.importorskip("confluent_kafka")

import confluent_kafka
from broker_groups import Running, wait_read
from polling import address_of, consumer_of, offsets, poll_until

pytestmark = pytest.mark.real
PATIENCE_S = 30.0


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("2.8.2", marks=pytest.mark.slow),
                                        pytest.param("3.9.2", marks=pytest.mark.slow)])  # fmt: skip
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


class PendingOffset:
    """A transaction of librdkafka that has sent an offset of a group, and is open."""

    def __init__(self, cluster: KafkaCluster, group: str, topic: str, offset: int) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": address_of(cluster), "transactional.id": f"of-{group}"}
        )
        self._producer.init_transactions(PATIENCE_S)
        self._producer.begin_transaction()
        settings = {"bootstrap.servers": address_of(cluster), "group.id": group}
        member = confluent_kafka.Consumer(settings)
        self._producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(topic, 0, offset)], member.consumer_group_metadata(), PATIENCE_S
        )
        member.close()

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)


@pytest.mark.parametrize(("end", "start"), [("commit", 5), ("abort", 2)])
def test_a_member_starts_when_the_transaction_has_ended(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, end: str, start: int
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    load(cluster, topic, 10)
    with consumer_of(cluster, fresh_group, enable_auto_commit=False) as before:
        before.assign([TopicPartition(topic, 0)])
        before.commit_sync({TopicPartition(topic, 0): 2})
    pending = PendingOffset(cluster, fresh_group, topic, 5)
    with consumer_of(cluster, fresh_group, topic, enable_auto_commit=False) as consumer:
        assert not consumer.poll(3000)
        getattr(pending, end)()
        assert offsets(poll_until(consumer, 10 - start)) == list(range(start, 10))


def test_so_does_a_stream(cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    load(cluster, topic, 10)
    pending = PendingOffset(cluster, fresh_group, topic, 5)
    pending.commit()
    again = PendingOffset(cluster, fresh_group, topic, 7)
    later = threading.Timer(1.0, again.commit)  # the creation of streams waits for their positions
    later.start()
    with Running(cluster, fresh_group, topic) as member:
        later.join()
        wait_read([member], 3)
        assert [each.offset for each in member.reader.messages] == [7, 8, 9]
