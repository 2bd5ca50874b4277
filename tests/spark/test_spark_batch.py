"""`spark.read.format("zkconsumer")` on real brokers of Kafka 0.8.2.2."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Topic = Callable[[], str]


def read(spark: SparkSession, cluster: KafkaCluster, topic: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("zkconsumer").option("zookeeper.connect", cluster.zookeeper_connect)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    return reader.options(**options).load()


def produce(
    cluster: KafkaCluster, topic: str, partition: int, messages: list[tuple[bytes | None, bytes | None]],
    codec: str = "none",
) -> None:
    leader = cluster.leader(topic, partition)
    assert leader is not None
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
        broker.produce(topic, partition, messages, codec=codec)


def test_a_batch_is_what_was_produced_byte_for_byte(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=4)
    sent: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for partition, codec in enumerate(("none", "gzip", "snappy", "none")):
        every_byte = bytes(range(256))
        sent[partition] = [
            (None if n % 3 == 0 else b"key %d" % n, None if n % 7 == 0 else every_byte[: n % 256] * (n % 5))
            for n in range(1000)
        ]
        for first in range(0, 1000, 250):
            produce(kafka_0822, topic, partition, sent[partition][first : first + 250], codec)
    table = read(spark, kafka_0822, topic)
    assert table.count() == 4000
    rows = table.collect()
    for partition, messages in sent.items():
        found = sorted((row for row in rows if row.partition == partition), key=lambda row: row.offset)
        assert [(row.key, row.value) for row in found] == messages
        assert [row.offset for row in found] == list(range(1000))
    assert {(row.topic, row.timestamp, row.timestampType) for row in rows} == {(topic, None, -1)}
