"""A run counts what it has written by sums over the offsets, whatever their size."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load import run_writer
from zkconsumer.spark.load.audit import OffsetSpan
from zkconsumer.spark.load.run_writer import count_rows
from zkconsumer.spark.load.writing import Shape, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("start", [0, 2**32 - 5, 2**45 + 1, 2**62])
def test_offsets_of_any_size_are_counted_without_comparing_them_one_by_one(
    spark: SparkSession, tmp_path: Path, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, url, place = Shape("parquet", "none"), str(tmp_path / "run"), TopicPartition("clicks", 0)
    columns = ["id AS offset", "0 AS partition", "'clicks' AS topic", "CAST(NULL AS binary) AS key",
               "CAST(id AS string) AS value", "CAST(NULL AS timestamp) AS timestamp", "0 AS timestampType",
               "CAST(NULL AS string) AS error"]  # fmt: skip
    frame = spark.range(start, start + 10).selectExpr(*columns)
    write_rows(spark, frame.withColumn("value", frame["value"].cast("binary")), url, shape, datetime.now(UTC))
    compared: list[str] = []
    monkeypatch.setattr(run_writer, "_count_distinct", lambda rows, topics: compared.extend(topics) or {})
    found = count_rows(spark, url, shape, {place: OffsetSpan(start, start + 10)})[place]
    assert (found.rows, found.first, found.last, compared) == (10, start, start + 9, [])
    count_rows(spark, url, shape, {place: OffsetSpan(start, start + 11)})
    assert compared == ["clicks"]
