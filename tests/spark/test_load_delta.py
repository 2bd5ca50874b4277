"""`zkconsumer load --format delta`: topics of real brokers of Kafka 0.8.2.2 in a Delta table, each message once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta_jars import skip_without_delta
from loading import numbered
from producing import produce
from table_scenarios import TableScenarios

from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.writing import Shape
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

skip_without_delta()

pytestmark = pytest.mark.real

Topic = Callable[[], str]


class TestDelta(TableScenarios):
    format, named, data, metadata = "delta", "a Delta", "", "_delta_log"

    def commits(self, spark: SparkSession, folder: Path) -> list[tuple[int, str]]:
        history = spark.sql(f"DESCRIBE HISTORY '{folder}'").orderBy("version").collect()
        found = [(int(row.operationMetrics.get("numOutputRows") or 0), row.userMetadata or "") for row in history]
        return [(rows, mark.removeprefix("zkconsumer ")) for rows, mark in found if rows]

    def refuse_appends(self, spark: SparkSession, folder: Path) -> str:
        spark.sql(f"ALTER TABLE delta.`{folder}` ADD CONSTRAINT short CHECK (offset < 120)")
        return "short"

    def accept_appends(self, spark: SparkSession, folder: Path) -> None:
        spark.sql(f"ALTER TABLE delta.`{folder}` DROP CONSTRAINT short")

    def delete_rows(self, spark: SparkSession, folder: Path) -> None:
        spark.sql(f"DELETE FROM delta.`{folder}`")

    def create(self, spark: SparkSession, folder: Path, columns: str) -> None:
        spark.sql(f"CREATE TABLE delta.`{folder}` ({columns}) USING delta CLUSTER BY (topic, partition)")

    def check_layout(self, spark: SparkSession, folder: Path) -> None:
        [detail] = spark.sql(f"DESCRIBE DETAIL '{folder}'").collect()
        assert (detail.clusteringColumns, detail.partitionColumns) == (["topic", "partition"], [])

    def test_what_the_table_does_for_itself_leaves_the_load_alone(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        produce(kafka_0822, topic, 1, [(b"\xff", b"no text")])
        shape = Shape("delta", "date", text=True, compression="zstd")
        settings = replace(self.settings(kafka_0822, tmp_path, topic), shape=shape)
        report = run_load(spark, settings)
        assert (report.files, sum(each.bad for each in report.partitions)) == (1, 1)
        assert list(tmp_path.glob("topic=*/date=*/*.zstd.parquet"))
        spark.sql(f"OPTIMIZE delta.`{tmp_path}`")
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.sql(f"VACUUM delta.`{tmp_path}` RETAIN 0 HOURS")
        [bad] = (tmp_path / "_bad").glob("*.json")
        assert "the key is not UTF-8 text" in bad.read_text()
        produce(kafka_0822, topic, 1, numbered(41, 2))
        assert run_load(spark, settings).run == 2
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40), 41, 42]}

    def test_small_files_of_a_run_are_put_together_up_to_the_size(
        self, spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic, tmp_path: Path
    ) -> None:
        topic = fresh_topic()
        kafka_0822.create_topic(topic, partitions=8)
        for partition in range(8):
            produce(kafka_0822, topic, partition, numbered(0, 10))
        settings = self.settings(kafka_0822, tmp_path, topic)
        run_load(spark, replace(settings, shape=settings.shape._replace(file_bytes=128 * 1024**2)))
        assert len([*tmp_path.glob("topic=*/**/*.parquet")]) < 8
        assert self.offsets(spark, tmp_path) == {partition: [*range(10)] for partition in range(8)}
