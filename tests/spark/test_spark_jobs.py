"""The batch source under other masters than the shared session's, and on brokers that die, or are newer."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from spark_jobs import run_job

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.spark.archive import write_archive
from zkconsumer.spark.errors import DataLoss
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.testing import Fault, load
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.slow

READ = 'spark.read.format("zkconsumer").options(**%r).load()'
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_a_task_that_fails_is_tried_again_and_gives_each_row_once(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=2)
    load(embedded_cluster, topic, 2000)
    fault = embedded_cluster.faults.add(Fault.error(29, "fetch", topic, 1), times=2)
    options = {
        "zookeeper.connect": embedded_cluster.zookeeper_connect, "subscribe": topic, "fetch.message.max.bytes": "4000",
        "maxBytesPerPartition": "off",
    }  # fmt: skip
    program = f"""
table = {READ % options}
print(json.dumps(sorted(tuple(row) for row in table.select("partition", "offset").collect())))
"""
    found = run_job(program, "local[2,4]", tmp_path)
    assert found == [[partition, offset] for partition in (0, 1) for offset in range(2000)]
    assert embedded_cluster.faults.used(fault) == 2


def test_executors_read_with_the_archive_alone(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    load(kafka_0822, topic, 1000, codec="snappy")
    archive = tmp_path / "zkconsumer.zip"
    write_archive(archive)
    options = {"zookeeper.connect": kafka_0822.zookeeper_connect, "subscribe": topic, "minPartitions": "4"}
    program = f"""
spark.sparkContext.addPyFile({str(archive)!r})
from zkconsumer.spark import ZkConsumerSource
spark.dataSource.register(ZkConsumerSource)
table = {READ % options}
def place(_):
    import zkconsumer.spark.reading.record_batches as reading
    return [reading.__file__]
places = spark.sparkContext.parallelize(range(8), 8).mapPartitions(place).distinct().collect()
print(json.dumps([table.count(), table.select("partition", "offset").distinct().count(), places]))
"""
    rows, distinct, places = run_job(program, "local-cluster[2,1,1024]", tmp_path, on_path=False)
    assert (rows, distinct) == (2000, 2000)
    assert places
    assert all("zkconsumer.zip/zkconsumer/spark/record_batches.py" in place for place in places)


def test_a_leader_that_is_killed_while_a_task_reads_costs_no_message(fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with KafkaCluster("0.8.2.2", brokers=2) as cluster:
        cluster.create_topic(topic, assignment={0: [0, 1]})
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            for first in range(0, 20_000, 500):
                broker.produce(topic, 0, [b"%d" % n for n in range(first, first + 500)], acks=-1)
        options = batch_options(
            {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "fetch.message.max.bytes": "20000"}
        )
        [whole] = plan_batch(options)
        found: list[bytes] = []
        for number, batch in enumerate(read_range(whole, COLUMNS, options)):
            found += [row["value"] for row in batch.to_pylist()]
            if number == 3:
                cluster.kill(0)
        assert found == [b"%d" % n for n in range(20_000)]


def test_messages_of_ten_megabytes(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    size = 10 * 1024 * 1024
    kafka_0822.create_topic(topic, config={"max.message.bytes": 2 * size})
    leader = kafka_0822.leader(topic, 0)
    assert leader is not None
    values = [bytes([n]) * size for n in range(4)]
    with SimpleConsumer("127.0.0.1", kafka_0822.port(leader)) as broker:
        for value in values:
            broker.produce(topic, 0, [value])
    options = batch_options({"zookeeper.connect": kafka_0822.zookeeper_connect, "subscribe": topic})
    [whole] = plan_batch(options)
    assert [row for batch in read_range(whole, ("value",), options) for row in batch.column(0).to_pylist()] == values


@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1", "3.9.2"])
def test_newer_brokers_bring_timestamps(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic, config={"retention.ms": -1})
    leader = cluster.leader(topic, 0)
    assert leader is not None
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
        for codec in ("none", "gzip"):
            broker.produce(topic, 0, [(b"key", b"value")] * 5, codec=codec, magic=1, timestamp_ms=1_400_000_000_123,
                           version=2)  # fmt: skip
    options = batch_options({"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "minPartitions": "3"})
    rows = [row for each in plan_batch(options) for batch in read_range(each, COLUMNS, options)
            for row in batch.to_pylist()]  # fmt: skip
    assert [row["offset"] for row in rows] == list(range(10))
    assert {(row["key"], row["value"], row["timestampType"]) for row in rows} == {(b"key", b"value", 0)}
    assert {row["timestamp"].timestamp() for row in rows} == {1_400_000_000.123}


def test_a_topic_that_is_deleted_behind_the_plan(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 1000)
    place = {"zookeeper.connect": kafka_0822.zookeeper_connect, "subscribe": topic}
    [whole] = plan_batch(batch_options(place))
    kafka_0822.delete_topic(topic)
    with pytest.raises(DataLoss, match=f"topic '{topic}' no longer exists"):
        list(read_range(whole, COLUMNS, batch_options(place)))
    assert list(read_range(whole, COLUMNS, batch_options({**place, "failOnDataLoss": "false"}))) == []
    assert kafka_0822.client.exists(f"/brokers/topics/{topic}") is None


READ_AND_MEASURE = """
import resource, sys
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.record_batches import read_range
options = batch_options({"zookeeper.connect": sys.argv[1], "subscribe": sys.argv[2], "maxBytesPerPartition": "off"})
[whole] = plan_batch(options)
rows = peak = 0
for number, batch in enumerate(read_range(whole, ("key", "value", "offset"), options)):
    rows += batch.num_rows
    del batch
    if number == 5:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) // 1024)
"""


def test_a_topic_streams_through_bounded_memory(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    with SimpleConsumer("127.0.0.1", embedded_cluster.port(0)) as broker:
        for _ in range(300):
            broker.produce(topic, 0, [b"x" * 1000] * 900)
    done = subprocess.run(
        [sys.executable, "-c", READ_AND_MEASURE, embedded_cluster.zookeeper_connect, topic],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, more_mib = map(int, done.stdout.split())
    assert rows == 270_000
    assert more_mib < 64, "the memory of a task grows with its range"


def test_a_stream_by_time_logs_its_lag_on_the_driver_when_that_is_wanted(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    cluster, topic = kafka_clusters("0.10.2.2", 1), fresh_topic()
    cluster.create_topic(topic)
    hour_ms, now_ms = 3_600_000, int(time.time() * 1000)
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        for hours in range(10, 0, -1):
            broker.produce(topic, 0, [b"message"], magic=1, version=2, timestamp_ms=now_ms - hours * hour_ms)
    options = {
        "zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "maxOffsetsPerTrigger": "4",
        "startingTimestamp": str(now_ms - 6 * hour_ms), "logLevel": "info",
    }  # fmt: skip
    program = f"""
rows = spark.readStream.format("zkconsumer").options(**{options!r}).load()
writer = rows.writeStream.format("parquet").option("path", "rows").option("checkpointLocation", "checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
print(json.dumps(sorted(row.offset for row in spark.read.parquet("rows").collect())))
"""
    assert run_job(program, "local[2]", tmp_path) == [4, 5, 6, 7, 8, 9]
    said = (tmp_path / "stderr.txt").read_text(encoding="utf-8")
    line = r"INFO zkconsumer\.spark\.stream_driver: lag after this batch: minOffsetsBehindLatest=(\d+) "
    lags = re.findall(line, said)
    assert lags == ["2", "0"]
