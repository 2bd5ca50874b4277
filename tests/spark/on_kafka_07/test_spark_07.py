"""`format("zkconsumer")` on Kafka 0.7, as a table and as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka_07 import Both, entry, produce_07, send_set
from reading_07 import compressed

from zkconsumer.spark import commit_offsets, source_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.real


def table(spark: SparkSession, cluster: Both, topic: str, **options: object) -> DataFrame:
    place = {"zookeeper.connect": cluster.zookeeper_connect, "kafka.generation": "0.7", "subscribe": topic}
    return spark.read.format("zkconsumer").options(**place, **options).load()


def test_a_table_has_brokers_and_places_within_entries(spark: SparkSession, cluster: Both, topic: str) -> None:
    produce_07(cluster.port(0), topic, 1, [b"one", b"two"])
    packed = compressed([b"a", b"b", b"c"])
    send_set(cluster, topic, "1-0", entry(b"plain") + packed + packed)
    read = table(spark, cluster, topic, minPartitions=3)
    assert read.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("broker", "int"), ("entry_index", "int"),
    ]  # fmt: skip
    second = 15 + len(packed)
    rows = (
        read.selectExpr(
            "cast(value as string) as text", "partition", "offset", "broker", "entry_index", "key", "timestamp"
        )
        .orderBy("partition", "offset", "entry_index")
        .collect()
    )
    assert [tuple(row) for row in rows] == [
        ("one", 1, 0, 0, 0, None, None), ("two", 1, 13, 0, 0, None, None),
        ("plain", 65536, 0, 1, 0, None, None),
        ("a", 65536, 15, 1, 0, None, None), ("b", 65536, 15, 1, 1, None, None), ("c", 65536, 15, 1, 2, None, None),
        ("a", 65536, second, 1, 0, None, None), ("b", 65536, second, 1, 1, None, None),
        ("c", 65536, second, 1, 2, None, None),
    ]  # fmt: skip


def test_a_stream_takes_whole_entries_and_goes_on_at_its_checkpoint(
    spark: SparkSession, cluster: Both, topic: str, fresh_group: str, tmp_path: Path
) -> None:
    packed = [compressed([b"%d-%d" % (entry, n) for n in range(3)]) for entry in range(4)]
    send_set(cluster, topic, "1-1", b"".join(packed))
    place = {"zookeeper.connect": cluster.zookeeper_connect, "kafka.generation": "0.7", "subscribe": topic}
    options = {**place, "group.id": fresh_group, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    batches: list[list[str]] = []

    def keep(rows: DataFrame, number: int) -> None:
        found = rows.selectExpr("cast(value as string) as text").orderBy("text").collect()
        batches.append([row.text for row in found])

    def run() -> StreamingQuery:
        stream = spark.readStream.format("zkconsumer").options(**options).load()
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).foreachBatch(keep).start()
        assert query.awaitTermination(120)
        return query

    query = run()
    wanted = [[f"{entry}-{n}" for n in range(3)] for entry in range(4)]
    assert [batch for batch in batches if batch] == wanted
    end = sum(map(len, packed))
    assert json.loads(query.lastProgress.sources[0].endOffset)[topic] == {"0-0": 0, "0-1": 0, "1-0": 0, "1-1": end}
    assert source_metrics(query) == [
        {"minBytesBehindLatest": "0", "maxBytesBehindLatest": "0", "avgBytesBehindLatest": "0.0"}
    ]
    commit_offsets(query)
    stored = cluster.client.get(f"/consumers/{fresh_group}/offsets/{topic}/1-1")[0]
    assert stored == b"%d" % end
    produce_07(cluster.port(0), topic, 0, [b"later"])
    batches.clear()
    run()
    assert [batch for batch in batches if batch] == [["later"]]
