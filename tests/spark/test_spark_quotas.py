"""Whole Spark jobs under the quotas of real brokers: a batch, a stream and a load have every row once.

The quotas are so small that brokers throttle for longer than a range may make no progress (`pollTimeoutMs`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from client_quotas import set_quota
from spark_jobs import reads_streams

from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.slow]
COUNT = 600


@pytest.fixture(scope="module", params=["1.1.1", "3.9.2", "4.3.1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param) as started:
        started.create_topic("t", partitions=2)
        for number in range(0, COUNT, 20):
            values = [b"%04d" % each + b"x" * 996 for each in range(number, number + 20)]
            started.produce("t", values, partition=number // 20 % 2)
        yield started


def options_of(cluster: KafkaCluster, **limits: float) -> dict[str, str]:
    """The options of a job whose client id has a quota of its own."""
    client_id = f"job-{time.monotonic_ns()}"
    set_quota(cluster, client_id, **limits)
    time.sleep(2)  # brokers learn of quotas by themselves
    return {
        "kafka.bootstrap.servers": cluster.broker_list, "subscribe": "t", "startingOffsets": "earliest",
        "client.id": client_id, "kafkaConsumer.pollTimeoutMs": "8000",
    }  # fmt: skip


def numbers(rows: list[object]) -> list[int]:
    return sorted(int(bytes(row.value)[:4]) for row in rows)  # type: ignore[attr-defined]


LIMITS = [{"consumer_byte_rate": 40_000.0}, {"request_percentage": 1.0}]


@pytest.mark.parametrize("limits", LIMITS, ids=["bytes", "requests"])
def test_a_batch(cluster: KafkaCluster, spark: SparkSession, limits: dict[str, float]) -> None:
    rows = spark.read.format("zkconsumer").options(**options_of(cluster, **limits)).load().select("value").collect()
    assert numbers(rows) == list(range(COUNT))


@reads_streams
@pytest.mark.parametrize("limits", LIMITS, ids=["bytes", "requests"])
def test_a_stream(cluster: KafkaCluster, spark: SparkSession, tmp_path: Path, limits: dict[str, float]) -> None:
    rows = spark.readStream.format("zkconsumer").options(**options_of(cluster, **limits)).load()
    writer = rows.select("value").writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "kept"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"))
    assert query.awaitTermination(240)
    assert numbers(spark.read.parquet(str(tmp_path / "rows")).collect()) == list(range(COUNT))


@pytest.mark.parametrize("limits", LIMITS, ids=["bytes", "requests"])
def test_a_load(cluster: KafkaCluster, spark: SparkSession, tmp_path: Path, limits: dict[str, float]) -> None:
    given = options_of(cluster, **limits)
    del given["startingOffsets"]
    report = run_load(spark, LoadSettings(given, str(tmp_path)))
    assert not report.lost
    assert numbers(spark.read.parquet(str(tmp_path)).collect()) == list(range(COUNT))
