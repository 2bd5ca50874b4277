"""`zkconsumer load --format delta`: topics of real brokers of Kafka 0.8.2.2 in a Delta table, each message once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta_jars import skip_without_delta
from loading import counts, die_at_each_change, numbered, settings_of
from producing import produce

from zkconsumer.spark.load.errors import AppendFailed, LoadOvertaken, LoadRefused
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

skip_without_delta()

pytestmark = pytest.mark.real

Topic = Callable[[], str]


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Topic) -> str:
    """A topic of two partitions, 100 and 40 messages."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=2)
    produce(kafka_0822, name, 0, numbered(0, 100), "snappy")
    produce(kafka_0822, name, 1, numbered(0, 40))
    return name


def delta_of(cluster: KafkaCluster, folder: Path, topic: str, by: str = "date", **source: str) -> LoadSettings:
    return replace(settings_of(cluster, folder, topic, **source), shape=Shape("delta", by))


def table(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("delta").load(str(folder))


def offsets(spark: SparkSession, folder: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in table(spark, folder).orderBy("topic", "partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return found


def commits(spark: SparkSession, folder: Path) -> list[Any]:
    """The commits of the table that brought rows, the oldest first."""
    history = spark.sql(f"DESCRIBE HISTORY '{folder}'").orderBy("version").collect()
    return [row for row in history if int(row.operationMetrics.get("numOutputRows") or 0)]


def test_each_run_is_one_transaction_that_brings_what_is_new(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_topic: Topic, fresh_group: str, tmp_path: Path
) -> None:
    other = fresh_topic()
    kafka_0822.create_topic(other, partitions=1)
    produce(kafka_0822, other, 0, numbered(0, 10))
    settings = delta_of(kafka_0822, tmp_path, f"{topic},{other}", "hour", **{"group.id": fresh_group})
    first = run_load(spark, settings)
    assert (first.run, first.files, first.stored) == (1, 0, True)
    assert sum(each.messages for each in first.partitions) == 150
    rows = table(spark, tmp_path).where(f"topic = '{topic}'").orderBy("partition", "offset").collect()
    assert [(row.key, row.value) for row in rows] == [*numbered(0, 100), *numbered(0, 40)]
    assert [(field.name, field.dataType.simpleString()) for field in table(spark, tmp_path).schema] == [
        ("key", "binary"), ("value", "binary"), ("partition", "int"), ("offset", "bigint"), ("timestamp", "timestamp"),
        ("timestampType", "int"), ("topic", "string"), ("date", "date"), ("hour", "int"),
    ]  # fmt: skip
    assert (tmp_path / f"topic={topic}").is_dir()

    assert run_load(spark, settings).run is None
    produce(kafka_0822, topic, 1, numbered(40, 7), "gzip")
    second = run_load(spark, settings)
    assert (second.run, counts(second)) == (2, {1: (40, 47, 7)})
    assert [int(row.operationMetrics["numOutputRows"]) for row in commits(spark, tmp_path)] == [150, 7]
    assert commits(spark, tmp_path)[1].userMetadata.startswith("zkconsumer run 2, ")
    assert offsets(spark, tmp_path)[1] == [*range(47)]
    assert kafka_0822.client.get(f"/consumers/{fresh_group}/offsets/{topic}/1")[0] == b"47"


def test_a_run_that_dies_at_any_change_of_the_folder_costs_no_message_and_repeats_none(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = delta_of(kafka_0822, tmp_path, topic, "none")
    run_load(spark, settings)
    have = 40

    def grow() -> None:
        nonlocal have
        produce(kafka_0822, topic, 1, numbered(have, 3))
        have += 3

    def check() -> None:
        assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(have)]}

    die_at_each_change(spark, settings, monkeypatch, before_each=grow, after_each=check)


def test_rows_that_could_not_be_appended_are_so_by_the_next_load(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    settings = delta_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` ADD CONSTRAINT short CHECK (offset < 120)")
    produce(kafka_0822, topic, 0, numbered(100, 50))
    for _ in range(2):
        with pytest.raises(AppendFailed, match=r"run 2 is published, and its rows cannot be appended .*short"):
            run_load(spark, settings)
        assert offsets(spark, tmp_path)[0] == [*range(100)]
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` DROP CONSTRAINT short")
    assert run_load(spark, settings).run is None
    assert offsets(spark, tmp_path) == {0: [*range(150)], 1: [*range(40)]}


def test_of_two_loads_at_the_same_time_one_publishes_and_both_finish(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = delta_of(kafka_0822, tmp_path, topic)
    publish = History.publish

    def overtaken(history: History, manifest: Any) -> None:
        monkeypatch.setattr(History, "publish", publish)
        assert run_load(spark, settings).run == 1
        publish(history, manifest)

    monkeypatch.setattr(History, "publish", overtaken)
    with pytest.raises(LoadOvertaken, match="start it again"):
        run_load(spark, settings)
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}

    # The second run is published, and three loads finish it at the same moment.
    produce(kafka_0822, topic, 1, numbered(40, 60))
    monkeypatch.setattr(History, "finish", lambda history, manifest: None)
    run_load(spark, settings)
    monkeypatch.undo()
    failures: list[BaseException] = []

    def finish() -> None:
        try:
            run_load(spark, settings)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=finish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failures
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(100)]}
    assert len(commits(spark, tmp_path)) == 2


def test_a_new_history_in_an_old_folder_is_not_taken_for_the_old_one(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    settings = delta_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    (tmp_path / "_zkconsumer").rename(tmp_path / "_old")
    with pytest.raises(LoadRefused, match="has a Delta table with rows that no load has written"):
        run_load(spark, settings)
    spark.sql(f"DELETE FROM delta.`{tmp_path}`")
    assert run_load(spark, settings).run == 1
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}


def test_a_table_made_beforehand_keeps_its_layout(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    columns = ("key string, value string, partition int, offset bigint, timestamp timestamp, timestampType int, "
               "topic string, note string")  # fmt: skip
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` ({columns}) USING delta CLUSTER BY (topic, partition)")
    settings = replace(delta_of(kafka_0822, tmp_path, topic), shape=Shape("delta", "none", text=True))
    with pytest.raises(LoadRefused, match="no column 'date', which a load by date writes"):
        run_load(spark, replace(settings, shape=Shape("delta", "date", text=True)))
    with pytest.raises(LoadRefused, match=r"column 'key' of the Delta table in .* is string, and binary"):
        run_load(spark, replace(settings, shape=Shape("delta", "none")))
    assert run_load(spark, settings).run == 1
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}
    [detail] = spark.sql(f"DESCRIBE DETAIL '{tmp_path}'").collect()
    assert (detail.clusteringColumns, detail.partitionColumns) == (["topic", "partition"], [])


def test_what_the_table_does_for_itself_leaves_the_load_alone(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    produce(kafka_0822, topic, 1, [(b"\xff", b"no text")])
    shape = Shape("delta", "date", text=True, compression="zstd")
    settings = replace(delta_of(kafka_0822, tmp_path, topic), shape=shape)
    report = run_load(spark, settings)
    assert (report.files, sum(each.bad for each in report.partitions)) == (1, 1)
    assert list(tmp_path.glob("topic=*/date=*/*.zstd.parquet"))
    spark.sql(f"OPTIMIZE delta.`{tmp_path}`")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{tmp_path}` RETAIN 0 HOURS")
    [bad] = (tmp_path / "_bad").glob("*.json")
    assert "the key is not text in UTF-8" in bad.read_text()
    produce(kafka_0822, topic, 1, numbered(41, 2))
    assert run_load(spark, settings).run == 2
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40), 41, 42]}


def test_the_time_that_values_tell_counts_for_the_days_of_the_table(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    def day(frame: Any) -> Any:
        from pyspark.sql import functions as f

        return f.timestamp_seconds(f.lit(1_393_632_000) + f.col("partition") * 86400)

    settings = delta_of(kafka_0822, tmp_path, topic)
    run_load(spark, replace(settings, shape=settings.shape._replace(event_time=day)))
    found = table(spark, tmp_path).groupBy("partition", "date").count().orderBy("partition").collect()
    assert [tuple(row) for row in found] == [(0, date(2014, 3, 1), 100), (1, date(2014, 3, 2), 40)]


def test_small_files_of_a_run_are_put_together_up_to_the_size(
    spark: SparkSession, kafka_0822: KafkaCluster, fresh_topic: Topic, tmp_path: Path
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=8)
    for partition in range(8):
        produce(kafka_0822, topic, partition, numbered(0, 10))
    settings = delta_of(kafka_0822, tmp_path, topic)
    run_load(spark, replace(settings, shape=settings.shape._replace(file_bytes=128 * 1024**2)))
    assert len([*tmp_path.glob("topic=*/**/*.parquet")]) < 8
    assert offsets(spark, tmp_path) == {partition: [*range(10)] for partition in range(8)}


def test_what_cannot_be_is_refused_by_name(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    settings = delta_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    with pytest.raises(LoadRefused, match="holds delta by date; what was asked for is parquet by date"):
        run_load(spark, replace(settings, shape=Shape("parquet", "date")))
    (tmp_path / "_delta_log").rename(tmp_path / "_gone")
    with pytest.raises(LoadRefused, match="had a Delta table, and has none any more"):
        run_load(spark, settings)
