"""Counts the rows of a run in each partition, by reading its files back with Spark.

Source: docs/SPARK_LOADING.md, "Each message once".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_, xor
from typing import Any, Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import OffsetSpan, OffsetSums, PartitionCounts
from zkconsumer.spark.load.load_state import LastMessage
from zkconsumer.spark.load.writing import DATA_FOLDER, Shape, read_back, settings_of_writing

__all__ = ["count_from", "count_rows"]

_LOW_HALF: Final = 0xFFFFFFFF


def count_rows(
    spark: Any, url: str, shape: Shape, asked: Mapping[TopicPartition, OffsetSpan]
) -> dict[TopicPartition, PartitionCounts]:
    """What the files below `url` contain of each partition.

    Count, ends, sum and exclusive or of the offsets show whether each offset is there once. Only where they do not, the
    different offsets are counted, which needs a shuffle of all rows.
    """
    with settings_of_writing(spark):
        rows = read_back(spark, url, shape)
        if rows is None:
            return {}
        counted = {place: _Counts.of(some) for place, some in _counted(rows).items()}
        doubtful = [place for place, counts in counted.items()
                    if place not in asked or counts.sums != OffsetSums.of(asked[place])]  # fmt: skip
        distinct = _count_distinct(rows, {place.topic for place in doubtful})
    return {
        place: PartitionCounts(
            sums.rows, distinct.get(place, sums.rows), sums.first, sums.last, messages, size_bytes, last
        )
        for place, (sums, messages, size_bytes, last) in counted.items()
    }


class _Counts(NamedTuple):
    """The counts of one partition. Only the sums include the side output."""

    sums: OffsetSums
    messages: int
    bytes: int
    last_message: LastMessage | None

    @classmethod
    def of(cls, kinds: list[Any]) -> _Counts:
        """From the rows of `_counted`, one for each kind of file that the partition has."""
        wide = any(row["low"] is None or row["high"] is None for row in kinds)  # -1 equals no expected total
        total = -1 if wide else sum((row["high"] << 32) + row["low"] for row in kinds)
        sums = OffsetSums(
            sum(row["rows"] for row in kinds), min(row["first"] for row in kinds), max(row["last"] for row in kinds),
            total, reduce(xor, (row["xor"] for row in kinds)),
        )  # fmt: skip
        for row in kinds:
            if f"kind={row['kind']}" == DATA_FOLDER:
                return cls(sums, row["rows"], row["bytes"], LastMessage(row["last"], row["key_crc"], row["value_crc"]))
        return cls(sums, 0, 0, None)


def _counted(rows: Any) -> dict[TopicPartition, list[Any]]:
    """Figures of each partition, in a row for each kind of file."""
    from pyspark.sql import functions as f

    length = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
    grouped = rows.groupBy("topic", "partition", "kind").agg(
        f.count(f.lit(1)).alias("rows"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        # In two halves, because a sum of decimals takes four times as long; null if even the halves overflow.
        f.try_sum(f.col("offset").bitwiseAND(_LOW_HALF)).alias("low"),
        f.try_sum(f.shiftright("offset", 32)).alias("high"),
        f.bit_xor("offset").alias("xor"),
        f.sum(length).alias("bytes"),
        f.max_by(f.crc32("key"), "offset").alias("key_crc"),
        f.max_by(f.crc32("value"), "offset").alias("value_crc"),
    )
    found: dict[TopicPartition, list[Any]] = {}
    for row in grouped.collect():
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row)
    return found


def count_from(
    spark: Any, url: str, shape: Shape, starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """How many different offsets, from `starts` on, the files below `url` contain of each partition."""
    from pyspark.sql import functions as f

    if not starts:
        return {}
    with settings_of_writing(spark):
        rows = read_back(spark, url, shape)
        if rows is None:
            return {}
        places = [f.lit(False)]
        places += [(f.col("topic") == name.topic) & (f.col("partition") == int(name.partition))
                   & (f.col("offset") >= start) for name, start in starts.items()]  # fmt: skip
        counted = rows.where(reduce(or_, places)).groupBy("topic", "partition")
        found = counted.agg(f.count_distinct("offset").alias("distinct")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["distinct"] for row in found}


def _count_distinct(rows: Any, topics: Iterable[str]) -> dict[TopicPartition, int]:
    from pyspark.sql import functions as f

    wanted = sorted(topics)
    if not wanted:
        return {}
    some = rows.where(f.col("topic").isin(wanted)).groupBy("topic", "partition")
    found = some.agg(f.count_distinct("offset").alias("distinct")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["distinct"] for row in found}
