"""Directories by the time in the values of messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loading import settings_of

from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.writing import Shape, event_time, settings_of_writing
from zkconsumer.testing import EmbeddedCluster, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARCH = "2014-03-01T10:30:00Z"


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("ts", {"ts": 1393669800}, MARCH),
        ("ts", {"ts": 1393669800.25}, MARCH),
        ("ts", {"ts": 1393669800000}, MARCH),
        ("ts", {"ts": "1393669800000"}, MARCH),
        ("ts", {"ts": MARCH}, MARCH),
        ("ts", {"ts": "2014-03-01 12:30:00+02:00"}, MARCH),
        ("ts", {"ts": "2014-03-01 10:30:00"}, MARCH),
        ("head.sent_at", {"head": {"sent_at": 1393669800}}, MARCH),
        ("ts", {"ts": 0}, "1970-01-01T00:00:00Z"),
        ("ts", {"ts": None}, None),
        ("ts", {"ts": "yesterday"}, None),
        ("ts", {"ts": -5}, None),
        ("ts", {"ts": 1393669800_000_000}, MARCH),
        ("ts", {"ts": "1393669800000000"}, MARCH),
        ("ts", {"ts": 1393669800_000_000_000}, MARCH),
        ("ts", {"ts": "2014-03-01T10:30:00.123456789Z"}, MARCH),
        ("ts", {"ts": "2014-03-01"}, "2014-03-01T00:00:00Z"),
        ("ts", {"ts": "10:30:00"}, None),
        ("ts", {"ts": "T10:30:00"}, None),
        ("ts", {"ts": 10**19}, None),
        ("ts", {"ts": 10**30}, None),
        ("ts", {"ts": "NaN"}, None),
        ("ts", {"ts": "1905-03-01T10:00:00Z"}, None),
        ("ts", {"ts": {"s": 1}}, None),
        ("ts", {"TS": 1393669800}, None),
        ("ts", [], None),
    ],
)
def test_what_a_value_tells(spark: SparkSession, field: str, value: Any, told: str | None) -> None:
    assert _told(spark, json.dumps(value).encode(), field) == told


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff\xfe", b"17"])
def test_what_is_no_json_tells_nothing(spark: SparkSession, value: bytes | None) -> None:
    assert _told(spark, value, "ts") is None


def _told(spark: SparkSession, value: bytes | None, field: str) -> str | None:
    frame = spark.createDataFrame([(value,)], "value binary")
    with settings_of_writing(spark):
        [row] = (
            frame.select(event_time(frame, field).alias("at"))
            .selectExpr("date_format(at, \"yyyy-MM-dd'T'HH:mm:ssX\") AS at")
            .collect()
        )
    return None if row.at is None else str(row.at)


def test_it_counts_before_the_time_of_the_message(
    spark: SparkSession,
    embedded_clusters: Callable[[int, str], EmbeddedCluster],
    fresh_topic: Callable[[], str],
    tmp_path: Path,
) -> None:
    """From Kafka 0.10 on each message has a time: when it was sent, or appended."""
    cluster, topic = embedded_clusters(1, "2.8"), fresh_topic()
    cluster.create_topic(topic, partitions=1)
    cluster.produce(topic, [b'{"ts": 1393669800}', b"{}"], partition=0)
    settings = settings_of(cluster, tmp_path, topic)
    run_load(spark, replace(settings, shape=Shape("parquet", "date", event_time="ts")))
    rows = spark.read.parquet(str(tmp_path)).orderBy("offset").collect()
    assert [row.date == row.timestamp.date() for row in rows] == [False, True]
    assert rows[0].date.isoformat() == "2014-03-01"


def test_files_lie_by_it_and_the_rest_by_the_time_of_the_run(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    values = [b'{"ts": 1393669800}', b'{"ts": "2014-03-02T00:00:00Z"}', b"{}"]
    load(embedded_cluster, topic, 3, value=lambda partition, n: values[n])
    settings = settings_of(embedded_cluster, tmp_path, topic)
    report = run_load(spark, replace(settings, shape=Shape("parquet", "hour", event_time="ts")))
    assert [each.messages for each in report.partitions] == [3]
    found = {path.name for path in (tmp_path / f"topic={topic}").glob("date=2014*")}
    assert found == {"date=2014-03-01", "date=2014-03-02"}
    assert [path.name for path in (tmp_path / f"topic={topic}" / "date=2014-03-01").iterdir()] == ["hour=10"]
    assert len([*(tmp_path / f"topic={topic}").iterdir()]) == 3


def test_a_function_of_the_rows_may_tell_it(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 2, value=lambda partition, n: b"2014-03-0%d;x" % (n + 1))

    def first_field(rows: Any) -> Any:
        from pyspark.sql import functions as f

        return f.split_part(rows["value"].cast("string"), f.lit(";"), f.lit(1))

    settings = settings_of(embedded_cluster, tmp_path, topic)
    run_load(spark, replace(settings, shape=Shape("parquet", "date", event_time=first_field)))
    found = sorted(path.name for path in (tmp_path / f"topic={topic}").iterdir())
    assert found == ["date=2014-03-01", "date=2014-03-02"]


@pytest.mark.parametrize("field", ["", "a..b", "$.a", "a[0]", "it's"])
def test_what_is_no_field_is_refused(embedded_cluster: EmbeddedCluster, tmp_path: Path, field: str) -> None:
    settings = settings_of(embedded_cluster, tmp_path, "clicks")
    with pytest.raises(LoadRefused, match="is not the name of a field"):
        replace(settings, shape=Shape("parquet", "date", event_time=field))
