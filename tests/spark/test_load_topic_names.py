"""Topics with names that a reader may take for numbers, dates or nothing are read with their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from zkconsumer.spark.load import run_writer
from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.lake import read_published
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape, is_surely_text
from zkconsumer.testing import EmbeddedCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = ("00123", "123", "01")
OTHERS = ("99999999999999999999", "1e5", "1.5", "5.", ".5", "-5", "1d", "1f", "0x1p3", "NaN", "Infinity", "2014-03-01")
WORDS = ("null", "true", "now", "epoch", "inf")
TEXTS = ("clicks", "e5", "d1", "a.5", "_5", "x2014-03-01", "nan-clicks", "L")


def settings_of(cluster: EmbeddedCluster, folder: Path, topics: Iterable[str], shape: Shape) -> LoadSettings:
    return LoadSettings({"bootstrap.servers": cluster.broker_list, "subscribe": ",".join(topics)}, str(folder), shape)


def produce(cluster: EmbeddedCluster, topics: Iterable[str], text: str) -> None:
    for topic in topics:
        cluster.produce(topic, [f"{text} {topic}".encode()], partition=0)


@pytest.fixture
def cluster() -> Iterable[EmbeddedCluster]:
    with EmbeddedCluster(1, zookeeper=False) as made:
        yield made


def test_a_folder_is_read_with_the_names_also_one_that_an_earlier_release_began(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in NUMBERS:
        cluster.create_topic(topic, partitions=1)
    settings = settings_of(cluster, tmp_path, NUMBERS, Shape("parquet", "date", text=True))
    produce(cluster, NUMBERS, "first of")
    with monkeypatch.context() as earlier:
        earlier.setattr(run_writer, "is_surely_text", lambda topic: True)
        run_load(spark, settings)
    assert dict(spark.read.parquet(str(tmp_path)).dtypes)["topic"] == "int", "what this is about"
    produce(cluster, NUMBERS, "second of")
    run_load(spark, settings)
    wanted = sorted((topic, f"{text} of {topic}") for topic in NUMBERS for text in ("first", "second"))

    def assert_names() -> None:
        frame = spark.read.parquet(str(tmp_path))
        assert {"topic": "string", "date": "date"}.items() <= dict(frame.dtypes).items()
        assert sorted((row.topic, row.value) for row in frame.collect()) == wanted
        assert [row.value for row in frame.where("topic = '00123' and value like 'first%'").collect()] == [
            "first of 00123"
        ]
        assert sorted((row.topic, row.value) for row in read_published(spark, str(tmp_path)).collect()) == wanted

    assert_names()
    [report] = run_compactions(spark, CompactionSettings(str(tmp_path)))
    assert report.files_after == len(NUMBERS)
    assert_names()
    assert run_load(spark, settings).run is None


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_names_that_look_like_numbers_or_dates_in_directories_by_the_hour(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, file_format: str
) -> None:
    names = ("2014-03-01", "2014-03-02") if file_format == "json" else ("100000.0", "1e5")
    for topic in names:
        cluster.create_topic(topic, partitions=1)
    produce(cluster, names, "one of")
    run_load(spark, settings_of(cluster, tmp_path, names, Shape(file_format, "hour", text=True)))
    frame = spark.read.format(file_format).load(str(tmp_path))
    assert {"topic": "string", "date": "date", "hour": "int"}.items() <= dict(frame.dtypes).items()
    assert sorted((row.topic, row.value) for row in frame.collect()) == [(name, f"one of {name}") for name in names]


def test_names_that_are_surely_text_are_text_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    assert not [name for name in (*NUMBERS, *OTHERS, *WORDS) if is_surely_text(name)]
    assert all(map(is_surely_text, TEXTS))
    for name in TEXTS:
        place = tmp_path / name / f"topic={name}"
        place.mkdir(parents=True)
        (place / "one.json").write_text('{"value": 1}')
        assert dict(spark.read.json(str(tmp_path / name)).dtypes)["topic"] == "string", name


def test_a_topic_with_the_name_of_null_is_refused(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = "__HIVE_DEFAULT_PARTITION__"
    cluster.create_topic(topic, partitions=1)
    produce(cluster, [topic], "one of")
    settings = settings_of(cluster, tmp_path, [topic], Shape("parquet", "date"))
    with pytest.raises(LoadRefused, match=f"a topic is named {topic}, and readers treat a directory of this name"):
        run_load(spark, settings)
    cluster.create_topic("clicks", partitions=1)
    produce(cluster, ["clicks"], "one of")
    pattern = {"bootstrap.servers": cluster.broker_list, "subscribePattern": ".*", "blacklist": topic}
    assert run_load(spark, replace(settings, source=pattern)).run == 1
    assert not list(tmp_path.glob("topic=@text")), "clicks is no number"
