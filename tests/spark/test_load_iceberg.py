"""`zkconsumer load --format iceberg`: topics of brokers of Kafka 0.8.2.2 in an Iceberg table, each message once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from iceberg_jars import why_not
from loading import Killed, numbered
from producing import produce
from table_scenarios import TableScenarios

from zkconsumer.spark.load import heartbeat
from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.iceberg import IcebergTable
from zkconsumer.spark.load.job import run_load, run_portions
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import Shape, settings_of_writing
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    monkeypatch.setattr(heartbeat, "DEAD_S", 0.3)


def java_table(spark: SparkSession, folder: Path) -> Any:
    tables = spark._jvm.org.apache.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())  # type: ignore[union-attr]
    return tables.load(str(folder))


def current(spark: SparkSession, folder: Path) -> list[dict[str, str]]:
    """The summaries of the snapshots that led to what is read now, the oldest first."""
    summaries = []
    snapshot = java_table(spark, folder).currentSnapshot()
    while snapshot is not None:
        summaries.append(dict(snapshot.summary()))
        parent = snapshot.parentId()
        snapshot = None if parent is None else java_table(spark, folder).snapshot(parent)
    return summaries[::-1]


class TestIceberg(TableScenarios):
    format, named, data, metadata = "iceberg", "an Iceberg", "data", "metadata"

    def commits(self, spark: SparkSession, folder: Path) -> list[tuple[int, str]]:
        return [(int(each["added-records"]), each["zkconsumer"]) for each in current(spark, folder)]

    def refuse_appends(self, spark: SparkSession, folder: Path) -> str:
        java_table(spark, folder).updateProperties().set("write.format.default", "nonsense").commit()
        return "nonsense"

    def accept_appends(self, spark: SparkSession, folder: Path) -> None:
        java_table(spark, folder).updateProperties().remove("write.format.default").commit()

    def delete_rows(self, spark: SparkSession, folder: Path) -> None:
        every_row = spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()  # type: ignore[union-attr]
        java_table(spark, folder).newDelete().deleteFromRowFilter(every_row).commit()

    def create(self, spark: SparkSession, folder: Path, columns: str) -> None:
        empty = spark.createDataFrame([], columns)
        ice = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
        schema = ice.spark.SparkSchemaUtil.convert(empty._jdf.schema())
        spec = ice.PartitionSpec.builderFor(schema).bucket("partition", 4).build()
        ice.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).create(schema, spec, str(folder))

    def check_layout(self, spark: SparkSession, folder: Path) -> None:
        assert "bucket" in java_table(spark, folder).spec().toString()

    def test_a_run_that_dies_between_its_snapshot_and_the_publication_of_that_is_written_once(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = self.settings(kafka_0822, tmp_path, topic)
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
        assert self.offsets(spark, tmp_path) == {}
        assert run_load(spark, settings).run is None
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}
        assert len([*java_table(spark, tmp_path).snapshots()]) == 1

    def test_a_second_publication_of_a_run_is_refused_by_iceberg_itself(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another load has read the snapshots before this one wrote, and has written its rows afterwards."""
        settings = self.settings(kafka_0822, tmp_path, topic)
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
            other._write(manifest, self.table(spark, tmp_path))
        assert len([*java_table(spark, tmp_path).snapshots()]) == len(known) + 1
        assert len(current(spark, tmp_path)) == 1
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}

    def test_what_the_table_does_for_itself_leaves_the_load_alone(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        produce(kafka_0822, topic, 1, [(b"\xff", b"no text")])
        shape = Shape("iceberg", "date", text=True, compression="zstd", file_bytes=2000)
        settings = replace(self.settings(kafka_0822, tmp_path, topic), shape=shape, max_messages=50)
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
        assert "the key is not UTF-8 text" in bad.read_text()
        produce(kafka_0822, topic, 1, numbered(41, 2))
        assert run_load(spark, settings).run == len(reports) + 1
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40), 41, 42]}

    def test_a_compaction_of_files_is_refused(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        run_load(spark, self.settings(kafka_0822, tmp_path, topic))
        with pytest.raises(LoadRefused, match=r"is an Iceberg table; .*rewrite_data_files merges small files"):
            [*run_compactions(spark, CompactionSettings(str(tmp_path)))]
