"""Logs in the format of Kafka 0.11: marks of transactions, batches that do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transaction_marks import add_mark

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.slow

VERSIONS = ["0.11.0.3", "1.1.1", "2.8.2", "3.9.2"]
MAGIC_1 = {"magic": 1, "version": 2}  # no time: retention would take old messages away


def marked_topic(cluster: KafkaCluster, topic: str, codec: str) -> list[int]:
    """Fill a topic with messages between marks, several marks together, and one at the end; return their offsets."""
    cluster.create_topic(topic)
    found: list[int] = []
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        for count, marks in ((5, 1), (1, 3), (7, 1), (1, 1)):
            first = broker.produce(topic, 0, [(b"key", b"value %d" % n) for n in range(count)], codec=codec, **MAGIC_1)
            found += range(first, first + count)
            for _ in range(marks):
                add_mark(cluster.port(0), topic, 0)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("version", VERSIONS)
def test_marks_of_transactions_are_passed_over(
    kafka_clusters: Callable[[str, int], KafkaCluster],
    fresh_topic: Callable[[], str],
    fresh_group: str,
    version: str,
    codec: str,
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    wanted = marked_topic(cluster, topic, codec)
    place = {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic}
    for more in ({}, {"fetch.message.max.bytes": "100"}, {"fetch.message.max.bytes": "400"}, {"minPartitions": "100"}):
        options = batch_options({**place, **more})
        found = [offset for each in plan_batch(options) for batch in read_range(each, ("offset",), options)
                 for offset in batch.column(0).to_pylist()]  # fmt: skip
        assert found == wanted, more
    # The consumer judges answers in the same way.
    config = ConsumerConfig(
        cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", fetch_message_max_bytes=100
    )
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert [next(stream).offset for _ in wanted] == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_that_do_not_fit_into_a_fetch_are_read_and_split_by_their_bytes(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic, config={"max.message.bytes": 8 * 1024 * 1024})
    values = [bytes([n]) * 50_000 for n in range(40)]
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        for first in range(0, 40, 10):
            broker.produce(topic, 0, values[first : first + 10], **MAGIC_1)
    place = {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "fetch.message.max.bytes": "1000"}
    options = batch_options({**place, "maxBytesPerPartition": "200k"})
    ranges = plan_batch(options)
    assert 5 <= len(ranges) <= 20
    found = [value for each in ranges for batch in read_range(each, ("value",), options)
             for value in batch.column(0).to_pylist()]  # fmt: skip
    assert found == values


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_is_larger_than_a_fetch_comes_whole(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic)
    sizes = [10, 100_000, 10]
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        for size in sizes:
            broker.produce(topic, 0, [b"x" * size], **MAGIC_1)
    options = batch_options({
        "zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "fetch.message.max.bytes": "1000",
        "maxMessageBytes": "50k", "onMessageError": "row",
    })  # fmt: skip
    [whole] = plan_batch(options)
    found = [row for batch in read_range(whole, ("value", "error"), options) for row in batch.to_pylist()]
    assert [(len(row["value"]), row["error"]) for row in found] == [(size, None) for size in sizes]
    config = ConsumerConfig(
        cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", fetch_message_max_bytes=1000,
        queued_max_bytes=50_000,
    )  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert [len(next(stream).value) for _ in sizes] == sizes
