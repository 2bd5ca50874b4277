"""Loads in portions: each published by itself, and no end that moves away."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loading import counts, settings_of

from zkconsumer.spark.load import job, run_writer
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.job import run_portions
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.testing import EmbeddedCluster, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settings(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path) -> LoadSettings:
    """25 messages."""
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 25)
    return settings_of(embedded_cluster, tmp_path, topic)


def test_runs_follow_each_other_until_all_is_there(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, settings: LoadSettings
) -> None:
    reports = [*run_portions(spark, replace(settings, max_messages=10))]
    assert [counts(each) for each in reports] == [{0: (0, 10, 10)}, {0: (10, 20, 10)}, {0: (20, 25, 5)}]
    assert [(each.run, each.left) for each in reports] == [(1, 15), (2, 5), (3, 0)]
    assert [each.run for each in run_portions(spark, replace(settings, max_messages=10))] == [None]
    assert sorted(row.offset for row in spark.read.parquet(settings.folder).collect()) == [*range(25)]


def test_who_produces_faster_than_a_load_reads_does_not_keep_it_for_ever(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = str(settings.source["subscribe"])
    write_rows = run_writer.write_rows
    numbers = itertools.count(25, 20)

    def grow_and_write(*arguments: object) -> None:
        load(embedded_cluster, topic, 20, first=next(numbers))
        write_rows(*arguments)

    monkeypatch.setattr(run_writer, "write_rows", grow_and_write)
    reports = [*run_portions(spark, replace(settings, max_messages=10))]
    assert [counts(each)[0][:2] for each in reports] == [(0, 10), (10, 20), (20, 30)]


@pytest.mark.parametrize("more", [{}, {"minPartitions": "3"}], ids=["whole", "split"])
def test_a_wrapper_that_cannot_be_read_is_put_aside_by_each_run_that_it_lies_in(
    spark: SparkSession,
    embedded_cluster: EmbeddedCluster,
    fresh_topic: Callable[[], str],
    tmp_path: Path,
    more: dict[str, str],
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 3)
    load(embedded_cluster, topic, 10, first=3, codec="snappy", batch=10)
    load(embedded_cluster, topic, 3, first=13)
    embedded_cluster.log(topic, 0).corrupt(5)
    settings = replace(settings_of(embedded_cluster, tmp_path, topic, **more), max_messages=4)
    brought = [each for report in run_portions(spark, settings) for each in report.partitions]
    assert [(each.start, each.end, each.messages, each.bad) for each in brought] == [
        (0, 4, 3, 1), (4, 8, 0, 1), (8, 12, 0, 1), (12, 16, 3, 1),
    ]  # fmt: skip
    assert sorted(row.offset for row in spark.read.parquet(str(tmp_path)).collect()) == [0, 1, 2, 13, 14, 15]
    aside = [json.loads(line) for path in (tmp_path / "_bad").glob("*.json") for line in path.read_text().splitlines()]
    assert sorted(line["offset"] for line in aside) == [3, 7, 11, 12]
    assert all(f"{topic}/0 at 12" in line["reason"] for line in aside)


def test_no_run_begins_when_time_is_over(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "PORTION", 10)

    def ticks() -> Iterator[float]:
        yield from itertools.count(0.0, 60.0)

    clock = ticks()
    reports = [*run_portions(spark, settings, time_s=100, clock=lambda: next(clock))]
    assert [counts(each)[0][:2] for each in reports] == [(0, 10), (10, 20)]


def test_without_a_limit_there_is_one_run(spark: SparkSession, settings: LoadSettings) -> None:
    assert [counts(each) for each in run_portions(spark, settings)] == [{0: (0, 25, 25)}]


def test_nothing_at_a_time_is_refused(settings: LoadSettings) -> None:
    with pytest.raises(LoadRefused, match="max_messages is 0; it must be at least 1"):
        replace(settings, max_messages=0)
