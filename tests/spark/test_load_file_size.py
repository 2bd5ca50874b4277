"""`zkconsumer load --file-size`: about how large a file may become, looked at on disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from loading import counts, settings_of
from producing import produce

from zkconsumer.cli.program import program
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape
from zkconsumer.testing import EmbeddedCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES, VALUE_BYTES = 400, 1000
FILE_BYTES = 64 * 1024


@pytest.fixture
def settings(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path) -> LoadSettings:
    """400 messages of 1000 bytes that no codec makes smaller."""
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    dice = random.Random(1)
    for _ in range(4):
        produce(embedded_cluster, topic, 0, [(None, dice.randbytes(VALUE_BYTES)) for _ in range(MESSAGES // 4)])
    return settings_of(embedded_cluster, tmp_path / "lake", topic)


def sizes(settings: LoadSettings) -> list[int]:
    return [path.stat().st_size for path in Path(settings.folder).glob("topic=*/**/*.parquet")]


def test_files_are_about_as_large_as_was_asked_for(spark: SparkSession, settings: LoadSettings) -> None:
    report = run_load(spark, replace(settings, shape=Shape("parquet", "date", file_bytes=FILE_BYTES)))
    assert (report.files, counts(report)) == (len(sizes(settings)), {0: (0, MESSAGES, MESSAGES)})
    assert len(sizes(settings)) == 7  # 400 messages of 1026 bytes in the log
    assert all(0.8 * FILE_BYTES < size < 1.1 * FILE_BYTES for size in sizes(settings))
    rows = spark.read.parquet(settings.folder).select("offset").collect()
    assert sorted(row.offset for row in rows) == [*range(MESSAGES)]


def test_without_a_size_a_partition_of_a_topic_makes_one_file(spark: SparkSession, settings: LoadSettings) -> None:
    run_load(spark, settings)
    assert len(sizes(settings)) == 1


def test_two_sizes_and_none_at_all_are_refused(settings: LoadSettings) -> None:
    source = {**settings.source, "maxBytesPerPartition": "1g"}
    with pytest.raises(OptionRefused, match="maxBytesPerPartition: the file size sets it already"):
        replace(settings, shape=Shape("parquet", "date", file_bytes=1), source=source)
    with pytest.raises(LoadRefused, match="the file size is 0 bytes; it must be at least 1"):
        replace(settings, shape=Shape("parquet", "date", file_bytes=0))


@pytest.mark.parametrize(("given", "means"), [("128MB", 128 * 1024**2), ("64k", 65536), ("1g", 1024**3)])
def test_the_command_takes_sizes_with_units(
    given: str, means: int, monkeypatch: pytest.MonkeyPatch, embedded_cluster: EmbeddedCluster
) -> None:
    asked: list[LoadSettings] = []

    def run(spark: Any, settings: LoadSettings, *rest: Any) -> list[Any]:
        asked.append(settings)
        return []

    monkeypatch.setattr("zkconsumer.spark.load.job.run_portions", run)
    monkeypatch.setattr("zkconsumer.spark.load.session.spark_session", lambda *arguments: _Nothing())
    zookeeper = embedded_cluster.zookeeper_connect
    command = ["load", "--zookeeper", zookeeper, "--topic", "clicks", "--to", "/lake", "--file-size", given]
    result = CliRunner().invoke(program, command)
    assert (result.exit_code, [each.shape.file_bytes for each in asked]) == (0, [means])


class _Nothing:
    """A block in which no session is started."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


@pytest.mark.parametrize("given", ["0", "-1", "12 pounds", "many"])
def test_what_is_no_size_is_refused(given: str) -> None:
    command = ["load", "--zookeeper", "zk1:2181", "--topic", "clicks", "--to", "/lake", "--file-size", given]
    result = CliRunner().invoke(program, command)
    assert result.exit_code == 2
    assert f"'{given}' is not a number of bytes such as 1048576 or 512m" in result.output
