"""`zkconsumer load --format iceberg`: topics of brokers of Kafka 0.8.2.2 in an Iceberg table, each message once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from iceberg_jars import why_not
from loading import Killed, counts, die_at_each_change, numbered, settings_of
from producing import produce

from zkconsumer.spark.load import heartbeat
from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
from zkconsumer.spark.load.errors import AppendFailed, LoadOvertaken, LoadRefused
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.iceberg import IcebergTable
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.portions import run_portions
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import Shape, settings_of_writing
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

pytestmark = pytest.mark.real

Topic = Callable[[], str]


@pytest.fixture(autouse=True)
def time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    monkeypatch.setattr(heartbeat, "DEAD_S", 0.3)


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Topic) -> str:
    """A topic of two partitions, 100 and 40 messages."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=2)
    produce(kafka_0822, name, 0, numbered(0, 100), "snappy")
    produce(kafka_0822, name, 1, numbered(0, 40))
    return name


def iceberg_of(cluster: KafkaCluster, folder: Path, topic: str, by: str = "date", **source: str) -> LoadSettings:
    return replace(settings_of(cluster, folder, topic, **source), shape=Shape("iceberg", by))


def table(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("iceberg").load(str(folder))


def offsets(spark: SparkSession, folder: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in table(spark, folder).orderBy("topic", "partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return found


def java_table(spark: SparkSession, folder: Path) -> Any:
    tables = spark._jvm.org.apache.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())  # type: ignore[union-attr]
    return tables.load(str(folder))


def current(spark: SparkSession, folder: Path) -> list[dict[str, str]]:
    """What the snapshots say of themselves that led to what is read now, the oldest first."""
    summaries = []
    snapshot = java_table(spark, folder).currentSnapshot()
    while snapshot is not None:
        summaries.append(dict(snapshot.summary()))
        parent = snapshot.parentId()
        snapshot = None if parent is None else java_table(spark, folder).snapshot(parent)
    return summaries[::-1]


def test_each_run_is_one_snapshot_that_brings_what_is_new(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, fresh_topic: Topic, fresh_group: str, tmp_path: Path
) -> None:
    other = fresh_topic()
    kafka_0822.create_topic(other, partitions=1)
    produce(kafka_0822, other, 0, numbered(0, 10))
    settings = iceberg_of(kafka_0822, tmp_path, f"{topic},{other}", "hour", **{"group.id": fresh_group})
    first = run_load(spark, settings)
    assert (first.run, first.files, first.stored) == (1, 0, True)
    assert sum(each.messages for each in first.partitions) == 150
    rows = table(spark, tmp_path).where(f"topic = '{topic}'").orderBy("partition", "offset").collect()
    assert [(row.key, row.value) for row in rows] == [*numbered(0, 100), *numbered(0, 40)]
    assert [(field.name, field.dataType.simpleString()) for field in table(spark, tmp_path).schema] == [
        ("key", "binary"), ("value", "binary"), ("partition", "int"), ("offset", "bigint"), ("timestamp", "timestamp"),
        ("timestampType", "int"), ("topic", "string"), ("date", "date"), ("hour", "int"),
    ]  # fmt: skip
    assert (tmp_path / "data" / f"topic={topic}").is_dir()

    assert run_load(spark, settings).run is None
    produce(kafka_0822, topic, 1, numbered(40, 7), "gzip")
    second = run_load(spark, settings)
    assert (second.run, counts(second)) == (2, {1: (40, 47, 7)})
    assert [each["added-records"] for each in current(spark, tmp_path)] == ["150", "7"]
    assert current(spark, tmp_path)[1]["zkconsumer"].startswith("run 2, ")
    assert offsets(spark, tmp_path)[1] == [*range(47)]
    assert kafka_0822.client.get(f"/consumers/{fresh_group}/offsets/{topic}/1")[0] == b"47"


def test_a_run_that_dies_at_any_change_of_the_folder_costs_no_message_and_repeats_none(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = iceberg_of(kafka_0822, tmp_path, topic, "none")
    run_load(spark, settings)
    have = 40

    def grow() -> None:
        nonlocal have
        produce(kafka_0822, topic, 1, numbered(have, 3))
        have += 3

    def check() -> None:
        assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(have)]}

    die_at_each_change(spark, settings, monkeypatch, before_each=grow, after_each=check)


def test_a_run_that_dies_between_its_snapshot_and_the_publication_of_that_is_written_once(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = iceberg_of(kafka_0822, tmp_path, topic)
    load_table = IcebergTable._load
    looks: list[int] = []

    def dies(self: IcebergTable) -> Any:
        found = load_table(self)
        looks.append(len([*found.snapshots()]))
        if looks[-1]:
            raise Killed
        return found

    with monkeypatch.context() as patched:
        patched.setattr(IcebergTable, "_load", dies)
        with pytest.raises(Killed):
            run_load(spark, settings)
    assert offsets(spark, tmp_path) == {}
    assert run_load(spark, settings).run is None
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}
    assert len([*java_table(spark, tmp_path).snapshots()]) == 1


def test_rows_that_could_not_be_appended_are_so_by_the_next_load(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    settings = iceberg_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    java_table(spark, tmp_path).updateProperties().set("write.format.default", "nonsense").commit()
    produce(kafka_0822, topic, 0, numbered(100, 50))
    for _ in range(2):
        with pytest.raises(AppendFailed, match=r"run 2 is published, .* appended to the Iceberg table .*nonsense"):
            run_load(spark, settings)
        assert offsets(spark, tmp_path)[0] == [*range(100)]
    java_table(spark, tmp_path).updateProperties().remove("write.format.default").commit()
    assert run_load(spark, settings).run is None
    assert offsets(spark, tmp_path) == {0: [*range(150)], 1: [*range(40)]}


def test_of_two_loads_at_the_same_time_one_publishes_and_both_finish(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = iceberg_of(kafka_0822, tmp_path, topic)
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
    with monkeypatch.context() as patched:
        patched.setattr(History, "finish", lambda history, manifest: None)
        run_load(spark, settings)
    failures: list[BaseException] = []

    def finish() -> None:
        try:
            run_load(spark, settings)
        except BaseException as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [threading.Thread(target=finish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failures
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(100)]}
    assert len(current(spark, tmp_path)) == 2


def test_a_second_publication_of_a_run_is_refused_by_iceberg_itself(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another load has looked before this one had written, and has written its rows behind it."""
    settings = iceberg_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    storage = Storage(spark, str(tmp_path))
    manifest = History(storage).last()
    assert manifest is not None
    summaries = IcebergTable._summaries
    known = {snapshot.snapshotId() for snapshot in java_table(spark, tmp_path).snapshots()}
    monkeypatch.setattr(IcebergTable, "_summaries", lambda self: {
        number: summary for number, summary in summaries(self).items() if number not in known
    })  # fmt: skip
    other = IcebergTable(spark, storage, settings.shape)
    with settings_of_writing(spark, other._settings(manifest)):
        other._write(manifest, table(spark, tmp_path))
    assert len([*java_table(spark, tmp_path).snapshots()]) == len(known) + 1
    assert len(current(spark, tmp_path)) == 1
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}


def test_a_new_history_in_an_old_folder_is_not_taken_for_the_old_one(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    settings = iceberg_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    (tmp_path / "_zkconsumer").rename(tmp_path / "_old")
    with pytest.raises(LoadRefused, match="has an Iceberg table with rows that no load has written"):
        run_load(spark, settings)
    alive_rows = spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()  # type: ignore[union-attr]
    java_table(spark, tmp_path).newDelete().deleteFromRowFilter(alive_rows).commit()
    assert run_load(spark, settings).run == 1
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}


def test_a_table_made_beforehand_keeps_its_layout_and_is_made_to_stage(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    columns = ("key string, value string, partition int, offset bigint, timestamp timestamp, timestampType int, "
               "topic string, note string")  # fmt: skip
    empty = spark.createDataFrame([], columns)
    ice = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    schema = ice.spark.SparkSchemaUtil.convert(empty._jdf.schema())
    spec = ice.PartitionSpec.builderFor(schema).bucket("partition", 4).build()
    ice.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).create(schema, spec, str(tmp_path))
    settings = replace(iceberg_of(kafka_0822, tmp_path, topic), shape=Shape("iceberg", "none", text=True))
    with pytest.raises(LoadRefused, match="no column 'date', which a load by date writes"):
        run_load(spark, replace(settings, shape=Shape("iceberg", "date", text=True)))
    with pytest.raises(LoadRefused, match=r"column 'key' of the Iceberg table in .* is string, and binary"):
        run_load(spark, replace(settings, shape=Shape("iceberg", "none")))
    assert run_load(spark, settings).run == 1
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}
    assert "bucket" in java_table(spark, tmp_path).spec().toString()


def test_what_the_table_does_for_itself_leaves_the_load_alone(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    produce(kafka_0822, topic, 1, [(b"\xff", b"no text")])
    shape = Shape("iceberg", "date", text=True, compression="zstd", file_bytes=2000)
    settings = replace(iceberg_of(kafka_0822, tmp_path, topic), shape=shape, max_messages=50)
    reports = [*run_portions(spark, settings)]
    assert sum(each.bad for report in reports for each in report.partitions) == 1
    before = len([*tmp_path.glob("data/topic=*/date=*/*.parquet")])
    assert before >= len(reports) > 2
    java = spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get()  # type: ignore[union-attr]
    java.rewriteDataFiles(java_table(spark, tmp_path)).option("rewrite-all", "true").execute()
    assert int(current(spark, tmp_path)[-1]["total-data-files"]) < before
    orphans = java.deleteOrphanFiles(java_table(spark, tmp_path))
    assert [*orphans.olderThan(2**60).execute().orphanFileLocations()] == []
    [bad] = (tmp_path / "_bad").glob("*.json")
    assert "the key is not text in UTF-8" in bad.read_text()
    produce(kafka_0822, topic, 1, numbered(41, 2))
    assert run_load(spark, settings).run == len(reports) + 1
    assert offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40), 41, 42]}


def test_the_time_that_values_tell_counts_for_the_days_of_the_table(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    def day(frame: Any) -> Any:
        from pyspark.sql import functions as f

        return f.timestamp_seconds(f.lit(1_393_632_000) + f.col("partition") * 86400)

    settings = iceberg_of(kafka_0822, tmp_path, topic)
    run_load(spark, replace(settings, shape=settings.shape._replace(event_time=day)))
    found = table(spark, tmp_path).groupBy("partition", "date").count().orderBy("partition").collect()
    assert [tuple(row) for row in found] == [(0, date(2014, 3, 1), 100), (1, date(2014, 3, 2), 40)]


def test_what_cannot_be_is_refused_by_name(
    spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    settings = iceberg_of(kafka_0822, tmp_path, topic)
    run_load(spark, settings)
    with pytest.raises(LoadRefused, match="holds iceberg by date; what was asked for is parquet by date"):
        run_load(spark, replace(settings, shape=Shape("parquet", "date")))
    with pytest.raises(LoadRefused, match=r"is an Iceberg table, .*rewrite_data_files merges small files"):
        [*run_compactions(spark, CompactionSettings(str(tmp_path)))]
    (tmp_path / "metadata").rename(tmp_path / "_gone")
    with pytest.raises(LoadRefused, match="had an Iceberg table, and has none any more"):
        run_load(spark, settings)
