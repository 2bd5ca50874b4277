"""What a load into a table must do, whatever the format of the table: tests that Delta and Iceberg share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from loading import counts, die_at_each_change, numbered, settings_of
from producing import produce

from zkconsumer.spark.load.failures import AppendFailed, LoadOvertaken, LoadRefused
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Topic = Callable[[], str]


class TableScenarios(ABC):
    """Tests of loads into one kind of table; `topic` has two partitions with 100 and 40 messages.

    Attributes:
        format: of the table, as Spark names it.
        named: the same in messages, with an article.
        data: where the files of the table are.
        metadata: the folder without which there is no table.
    """

    format: ClassVar[str]
    named: ClassVar[str]
    data: ClassVar[str]
    metadata: ClassVar[str]

    @abstractmethod
    def commits(self, spark: SparkSession, folder: Path) -> list[tuple[int, str]]:
        """Rows and mark of each transaction that added rows, the oldest first."""

    @abstractmethod
    def refuse_appends(self, spark: SparkSession, folder: Path) -> str:
        """Make the table refuse rows from offset 120 on; return a word of the error."""

    @abstractmethod
    def accept_appends(self, spark: SparkSession, folder: Path) -> None:
        """Undo that."""

    @abstractmethod
    def delete_rows(self, spark: SparkSession, folder: Path) -> None:
        """Delete all rows of the table."""

    @abstractmethod
    def create(self, spark: SparkSession, folder: Path, columns: str) -> None:
        """Create an empty table with a layout of its own."""

    @abstractmethod
    def check_layout(self, spark: SparkSession, folder: Path) -> None:
        """Check that the table has that layout."""

    @pytest.fixture
    def topic(self, kafka_0822: KafkaCluster, fresh_topic: Topic) -> str:
        name = fresh_topic()
        kafka_0822.create_topic(name, partitions=2)
        produce(kafka_0822, name, 0, numbered(0, 100), "snappy")
        produce(kafka_0822, name, 1, numbered(0, 40))
        return name

    def settings(
        self, cluster: KafkaCluster, folder: Path, topic: str, by: str = "date", **source: str
    ) -> LoadSettings:
        return replace(settings_of(cluster, folder, topic, **source), shape=Shape(self.format, by))

    def table(self, spark: SparkSession, folder: Path) -> DataFrame:
        return spark.read.format(self.format).load(str(folder))

    def offsets(self, spark: SparkSession, folder: Path) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in self.table(spark, folder).orderBy("topic", "partition", "offset").collect():
            found.setdefault(row.partition, []).append(row.offset)
        return found

    def test_headers_are_a_column_of_the_table(
        self,
        spark: SparkSession,
        kafka_clusters: Callable[[str, int], KafkaCluster],
        fresh_topic: Topic,
        tmp_path: Path,
    ) -> None:
        from transactions import Log  # which needs confluent-kafka

        log = Log(kafka_clusters("3.9.2", 1), fresh_topic())
        settings = self.settings(log.cluster, tmp_path, log.topic, includeHeaders="true")
        many = [("n", b"1"), ("empty", b""), ("null", None), ("n", b"\xff")]
        for values in ((b"none",), (b"many",)):
            log.plain(*values, headers=None if values == (b"none",) else many)
            run_load(spark, settings)
        table = self.table(spark, tmp_path)
        assert dict(table.dtypes)["headers"] == "array<struct<key:string,value:binary>>"
        first, second = [row.headers for row in table.orderBy("offset").collect()]
        assert first is None
        assert [(each.key, each.value) for each in second] == many
        with pytest.raises(LoadRefused, match="was started with headers"):
            run_load(spark, self.settings(log.cluster, tmp_path, log.topic))
        self.create(spark, tmp_path / "other", "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp "
                    "TIMESTAMP, timestampType INT, topic STRING, date DATE")  # fmt: skip
        with pytest.raises(LoadRefused, match="has no column 'headers'"):
            run_load(spark, replace(settings, folder=str(tmp_path / "other")))

    def test_each_run_is_one_transaction_that_brings_what_is_new(
        self,
        spark: SparkSession,
        kafka_0822: KafkaCluster,
        topic: str,
        fresh_topic: Topic,
        fresh_group: str,
        tmp_path: Path,
    ) -> None:
        other = fresh_topic()
        kafka_0822.create_topic(other, partitions=1)
        produce(kafka_0822, other, 0, numbered(0, 10))
        settings = self.settings(kafka_0822, tmp_path, f"{topic},{other}", "hour", **{"group.id": fresh_group})
        first = run_load(spark, settings)
        assert (first.run, first.files, first.stored) == (1, 0, True)
        assert sum(each.messages for each in first.partitions) == 150
        rows = self.table(spark, tmp_path).where(f"topic = '{topic}'").orderBy("partition", "offset").collect()
        assert [(row.key, row.value) for row in rows] == [*numbered(0, 100), *numbered(0, 40)]
        assert [(field.name, field.dataType.simpleString()) for field in self.table(spark, tmp_path).schema] == [
            ("key", "binary"), ("value", "binary"), ("partition", "int"), ("offset", "bigint"),
            ("timestamp", "timestamp"), ("timestampType", "int"), ("topic", "string"), ("date", "date"),
            ("hour", "int"),
        ]  # fmt: skip
        assert (tmp_path / self.data / f"topic={topic}").is_dir()

        assert run_load(spark, settings).run is None
        produce(kafka_0822, topic, 1, numbered(40, 7), "gzip")
        second = run_load(spark, settings)
        assert (second.run, counts(second)) == (2, {1: (40, 47, 7)})
        commits = self.commits(spark, tmp_path)
        assert [rows for rows, _ in commits] == [150, 7]
        assert commits[1][1].startswith("run 2, ")
        assert self.offsets(spark, tmp_path)[1] == [*range(47)]
        assert kafka_0822.client.get(f"/consumers/{fresh_group}/offsets/{topic}/1")[0] == b"47"

    def test_a_run_that_dies_at_any_change_of_the_folder_costs_no_message_and_repeats_none(
        self,
        spark: SparkSession,
        kafka_0822: KafkaCluster,
        topic: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        settings = self.settings(kafka_0822, tmp_path, topic, "none")
        run_load(spark, settings)
        have = 40

        def grow() -> None:
            nonlocal have
            produce(kafka_0822, topic, 1, numbered(have, 3))
            have += 3

        def check() -> None:
            assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(have)]}

        die_at_each_change(spark, settings, monkeypatch, before_each=grow, after_each=check)

    def test_rows_that_could_not_be_appended_are_so_by_the_next_load(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        settings = self.settings(kafka_0822, tmp_path, topic)
        run_load(spark, settings)
        reason = self.refuse_appends(spark, tmp_path)
        produce(kafka_0822, topic, 0, numbered(100, 50))
        for _ in range(2):
            with pytest.raises(AppendFailed, match=rf"run 2 is published, but its rows cannot be appended .*{reason}"):
                run_load(spark, settings)
            assert self.offsets(spark, tmp_path)[0] == [*range(100)]
        self.accept_appends(spark, tmp_path)
        assert run_load(spark, settings).run is None
        assert self.offsets(spark, tmp_path) == {0: [*range(150)], 1: [*range(40)]}

    def test_of_two_loads_at_the_same_time_one_publishes_and_both_finish(
        self,
        spark: SparkSession,
        kafka_0822: KafkaCluster,
        topic: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        settings = self.settings(kafka_0822, tmp_path, topic)
        publish = History.publish

        def overtaken(history: History, manifest: Any) -> None:
            monkeypatch.setattr(History, "publish", publish)
            assert run_load(spark, settings).run == 1
            publish(history, manifest)

        monkeypatch.setattr(History, "publish", overtaken)
        with pytest.raises(LoadOvertaken, match="start it again"):
            run_load(spark, settings)
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}

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
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(100)]}
        assert len(self.commits(spark, tmp_path)) == 2

    def test_a_new_history_in_an_old_folder_is_not_taken_for_the_old_one(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        settings = self.settings(kafka_0822, tmp_path, topic)
        run_load(spark, settings)
        (tmp_path / "_zkconsumer").rename(tmp_path / "_old")
        with pytest.raises(LoadRefused, match=f"has {self.named} table with rows that no load has written"):
            run_load(spark, settings)
        self.delete_rows(spark, tmp_path)
        assert run_load(spark, settings).run == 1
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}

    def test_a_table_made_beforehand_keeps_its_layout(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        columns = ("key string, value string, partition int, offset bigint, timestamp timestamp, timestampType int, "
                   "topic string, note string")  # fmt: skip
        self.create(spark, tmp_path, columns)
        settings = replace(self.settings(kafka_0822, tmp_path, topic), shape=Shape(self.format, "none", text=True))
        with pytest.raises(LoadRefused, match="no column 'date', which a load by date writes"):
            run_load(spark, replace(settings, shape=Shape(self.format, "date", text=True)))
        with pytest.raises(LoadRefused, match=r"column 'key' of the \w+ table in .* is string, but binary"):
            run_load(spark, replace(settings, shape=Shape(self.format, "none")))
        assert run_load(spark, settings).run == 1
        assert self.offsets(spark, tmp_path) == {0: [*range(100)], 1: [*range(40)]}
        self.check_layout(spark, tmp_path)

    def test_the_time_that_values_tell_counts_for_the_days_of_the_table(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        def day(frame: Any) -> Any:
            from pyspark.sql import functions as f

            return f.timestamp_seconds(f.lit(1_393_632_000) + f.col("partition") * 86400)

        settings = self.settings(kafka_0822, tmp_path, topic)
        run_load(spark, replace(settings, shape=settings.shape._replace(event_time=day)))
        found = self.table(spark, tmp_path).groupBy("partition", "date").count().orderBy("partition").collect()
        assert [tuple(row) for row in found] == [(0, date(2014, 3, 1), 100), (1, date(2014, 3, 2), 40)]

    def test_another_format_and_a_lost_table_are_refused(
        self, spark: SparkSession, kafka_0822: KafkaCluster, topic: str, tmp_path: Path
    ) -> None:
        settings = self.settings(kafka_0822, tmp_path, topic)
        run_load(spark, settings)
        with pytest.raises(
            LoadRefused, match=f"has {self.format} by date, but parquet by date was requested; use another"
        ):
            run_load(spark, replace(settings, shape=Shape("parquet", "date")))
        (tmp_path / self.metadata).rename(tmp_path / "_gone")
        with pytest.raises(LoadRefused, match=f"no longer has {self.named} table"):
            run_load(spark, settings)
