"""poll_batches: the same records as poll, as batches of Arrow, with the same rules for positions and commits."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from polling import PATIENCE_S, VERSIONS, consumer_of, offsets, poll_until, stored

from simpleconsumer.types import TopicPartition
from zkconsumer import KafkaConsumer, MessageBatch
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """Two partitions with a hundred records each."""
    name = fresh_topic()
    cluster.create_topic(name, 2)
    load(cluster, name, 60)
    load(cluster, name, 40, first=60, codec="gzip")
    return name


def batches_until(consumer: KafkaConsumer, count: int, max_records: int | None = None) -> list[MessageBatch]:
    found: list[MessageBatch] = []

    def come() -> bool:
        polled = consumer.poll_batches(100, max_records)
        assert max_records is None or sum(map(len, polled)) <= max_records
        found.extend(polled)
        return sum(map(len, found)) >= count

    wait_until(come, PATIENCE_S, f"{count} records", interval_s=0.0, state=lambda: found)
    return found


def rows(batches: Collection[MessageBatch]) -> list[tuple[str, int | str, int, bytes]]:
    return sorted(
        (batch.topic, batch.partition, row["offset"], row["value"])
        for batch in batches for row in batch.record_batch.to_pylist()
    )  # fmt: skip


@pytest.mark.parametrize("most", [None, 7, 1])
def test_batches_have_the_records_of_poll(
    cluster: KafkaCluster, topic: str, fresh_group: str, most: int | None
) -> None:
    with consumer_of(cluster, f"{fresh_group}-1", topic) as consumer:
        records = poll_until(consumer, 200)
    with consumer_of(cluster, f"{fresh_group}-2", topic) as consumer:
        batches = batches_until(consumer, 200, most)
        assert {name: consumer.position(name) for name in consumer.assignment()} == {
            TopicPartition(topic, 0): 100, TopicPartition(topic, 1): 100,
        }  # fmt: skip
    assert rows(batches) == sorted((each.topic, each.partition, each.offset, each.value) for each in records)
    assert rows(batches)[0] == (topic, 0, 0, b"0:0")


def test_a_batch_is_done_when_the_next_poll_is_called(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    """Batches and records may take turns."""
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumer_of(cluster, fresh_group, topic, max_poll_records=30, enable_auto_commit=False) as consumer:
        batches_until(consumer, 1, 10)
        consumer.pause(one)
        consumer.seek(zero, 0)
        [batch] = batches_until(consumer, 10, 10)
        assert (batch.offset, batch.next_offset, len(batch)) == (0, 10, 10)
        assert consumer.position(zero) == 10
        assert offsets(poll_until(consumer, 30)) == list(range(10, 40))
        [batch] = batches_until(consumer, 10, 10)
        assert (batch.offset, batch.next_offset) == (40, 50)
        consumer.commit_sync()
        assert stored(cluster, fresh_group, zero) == {zero: 50}


def test_what_a_block_that_fails_had_as_a_batch_comes_again(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    def work() -> None:
        with consumer_of(cluster, fresh_group, topic) as consumer:
            batches_until(consumer, 20, 20)
            raise RuntimeError("of the application")

    with pytest.raises(RuntimeError, match="of the application"):
        work()
    with consumer_of(cluster, fresh_group, topic) as consumer:
        assert len(rows(batches_until(consumer, 200))) == 200


def test_batches_have_the_columns_that_were_asked_for(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    with consumer_of(cluster, fresh_group, topic) as consumer:
        found = wait_until(lambda: consumer.poll_batches(100, 5, ["value"]), PATIENCE_S, "a batch")
        assert [batch.record_batch.schema.names for batch in found] == [["value"]]
        with pytest.raises(ValueError, match="wrong"):
            wait_until(lambda: consumer.poll_batches(100, 5, ["wrong"]), PATIENCE_S, "a refusal")
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll_batches(0, 0)
