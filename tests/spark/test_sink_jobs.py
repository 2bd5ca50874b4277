"""The Spark sink under other masters than the shared session's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from spark_jobs import run_job

from zkconsumer import read_topic
from zkconsumer.spark.archive import write_archive
from zkconsumer.testing import Fault
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.slow

WRITE = 'write.format("zkconsumer").mode("append").options(**%r).save()'


def numbers(cluster: EmbeddedCluster | KafkaCluster, topic: str) -> Counter[int]:
    """How often each number is in a topic."""
    return Counter(int(each.value or b"-1") for each in read_topic(cluster.zookeeper_connect, topic))


def test_a_task_that_fails_in_the_middle_is_tried_again_and_repeats_its_rows(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=2)
    options = {"zookeeper.connect": embedded_cluster.zookeeper_connect, "topic": topic}
    program = f"""
def fail_once(number):
    import time
    from pyspark import TaskContext
    if number == 39000 and TaskContext.get().attemptNumber() == 0:
        time.sleep(4)  # what came before is on its way to the brokers
        raise ValueError("in the middle")
    return str(number)
slow = spark.sparkContext.range(40000, numSlices=2).map(lambda number: (fail_once(number),)).toDF("value string")
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
slow.{WRITE % options}
print(json.dumps("done"))
"""
    assert run_job(program, "local[2,4]", tmp_path) == "done"
    found = numbers(embedded_cluster, topic)
    assert set(found) == set(range(40_000))
    assert {found[number] for number in range(20_000)} == {1}
    assert found[20_000] == 2  # the first attempt had sent it
    assert {found[number] for number in range(39_000, 40_000)} == {1}


def test_a_broker_refuses_once_too_often_and_the_next_attempt_writes(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    fault = embedded_cluster.faults.add(Fault.error(6, "produce", topic), times=3)
    options = {
        "zookeeper.connect": embedded_cluster.zookeeper_connect, "topic": topic, "message.send.max.retries": "1",
    }  # fmt: skip
    program = f"""
spark.range(1000).coalesce(1).selectExpr("string(id) as value").{WRITE % options}
print(json.dumps("done"))
"""
    assert run_job(program, "local[2,4]", tmp_path) == "done"
    assert numbers(embedded_cluster, topic) == Counter(range(1000))
    assert embedded_cluster.faults.used(fault) == 3
    assert "task 0, attempt 0: 1000 of 1000 rows" in (tmp_path / "stderr.txt").read_text(encoding="utf-8")


def test_executors_write_with_the_archive_alone(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    archive = tmp_path / "zkconsumer.zip"
    write_archive(archive)
    options = {"zookeeper.connect": kafka_0822.zookeeper_connect, "topic": topic, "compression.codec": "snappy"}
    program = f"""
spark.sparkContext.addPyFile({str(archive)!r})
from zkconsumer.spark import ZkConsumerSource
spark.dataSource.register(ZkConsumerSource)
spark.range(10000, numPartitions=4).selectExpr("string(id) as value", "string(id) as key").{WRITE % options}
def place(_):
    import zkconsumer.spark.writing.sink_writers as writing
    return [writing.__file__]
print(json.dumps(spark.sparkContext.parallelize(range(8), 8).mapPartitions(place).distinct().collect()))
"""
    places = run_job(program, "local-cluster[2,1,1024]", tmp_path, on_path=False)
    assert places
    assert all("zkconsumer.zip/zkconsumer/spark/sink_task.py" in place for place in places)
    assert numbers(kafka_0822, topic) == Counter(range(10_000))
