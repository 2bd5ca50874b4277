"""The column `headers` of a Spark table, as Spark's own source names and types it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


def test_a_table_has_the_headers_of_its_messages_and_null_without_any(
    spark: SparkSession, kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str]
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    cluster, topic = kafka_clusters("3.9.2", 1), fresh_topic()
    cluster.create_topic(topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "compression.type": "zstd", "linger.ms": 50}
    )
    for number in range(100):
        headers = [("n", b"%d" % number), ("null", None), ("n", b"")] if number % 2 else None
        producer.produce(topic, b"value %d" % number, headers=headers)
    assert producer.flush(60) == 0
    reader = spark.read.format("zkconsumer").options(
        **{"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "includeHeaders": "true"}
    )
    table = reader.load()
    assert table.schema["headers"].simpleString() == "headers:array<struct<key:string,value:binary>>"
    assert table.columns[-1] == "headers"
    rows = table.orderBy("offset").select("value", "headers").collect()
    assert [bytes(row.value) for row in rows] == [b"value %d" % number for number in range(100)]
    for number, row in enumerate(rows):
        expected = [("n", b"%d" % number), ("null", None), ("n", b"")] if number % 2 else None
        assert (row.headers is None) == (expected is None)
        if expected is not None:
            assert [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers] == expected
    chosen = table.selectExpr("headers[0].key as first", "size(headers) as count").where("first is not null")
    assert {tuple(row) for row in chosen.collect()} == {("n", 3)}
    assert "headers" not in reader.option("includeHeaders", "false").load().columns
