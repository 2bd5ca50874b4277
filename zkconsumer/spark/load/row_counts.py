"""Counts the rows of a run in each partition, by reading its files back with Spark.

Source: docs/SPARK_LOADING.md, "Each message once".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_, xor
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import OffsetSpan, OffsetSums, PartitionCounts
from zkconsumer.spark.load.entry_sums import LIGHT_MASK, EntrySums
from zkconsumer.spark.load.load_state import LastMessage
from zkconsumer.spark.load.writing import DATA_FOLDER, Shape, read_back, settings_of_writing
from zkconsumer.spark.options.partition_names import column_value, partition_of_column

__all__ = ["count_from", "count_rows"]

_LOW_HALF: Final = 0xFFFFFFFF


def count_rows(
    spark: Any, url: str, shape: Shape, asked: Mapping[TopicPartition, OffsetSpan],
    starts: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, PartitionCounts]:
    """What the files below `url` contain of each partition.

    Count, ends, sum and exclusive or of the offsets show whether each offset is there once. Only where they do not, the
    different offsets are counted, which needs a shuffle of all rows. On Kafka 0.7 the sums of `entry_sums` show it.

    Args:
        starts: only on Kafka 0.7: offsets of these partitions before theirs are not counted.
    """
    with settings_of_writing(spark):
        rows = read_back(spark, url, shape)
        if rows is None:
            return {}
        if shape.has_places:
            return _counted_entries(rows, starts)
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


def _counted_entries(rows: Any, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionCounts]:
    """Figures of each partition of Kafka 0.7, from which `EntrySums.fault` finds out what is missing."""
    from pyspark.sql import functions as f

    for name, first in starts.items():
        is_there = (f.col("topic") == name.topic) & (f.col("partition") == column_value(name.partition))
        rows = rows.where(~is_there | (f.col("offset") >= first))
    index, is_last = f.col("entry_index").cast("bigint"), f.col("next_offset") > f.col("offset")
    start, end = (f.crc32(f.col(name).cast("string").cast("binary")) for name in ("offset", "next_offset"))
    count, light = index + 1, start.bitwiseAND(LIGHT_MASK)
    squares = f.expr("cast(entry_index as bigint) * (entry_index + 1) * (2 * entry_index + 1) div 6")
    is_data = f.col("kind") == DATA_FOLDER.partition("=")[2]
    # The first message of the last entry: that is the one which can be fetched again by its offset.
    place = f.when(is_data, f.struct("offset", -index))
    length = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))

    def of_entries(amount: Any) -> Any:
        return f.coalesce(f.sum(f.when(is_last, amount)), f.lit(0))

    grouped = rows.groupBy("topic", "partition").agg(
        f.count(f.lit(1)).alias("rows"), f.min("offset").alias("first"), f.max("offset").alias("last"),
        f.count_if(is_data).alias("messages"), f.coalesce(f.sum(f.when(is_data, length)), f.lit(0)).alias("bytes"),
        of_entries(f.col("next_offset") - f.col("offset")).alias("covered"),
        of_entries(start).alias("starts"), of_entries(end).alias("ends"), of_entries(count).alias("expected"),
        f.sum(start).alias("weighed"), of_entries(start * count).alias("expected_weight"),
        f.try_sum(light * index).alias("indexes"),
        f.try_sum(f.when(is_last, light * f.shiftright(index * count, 1))).alias("expected_indexes"),
        f.try_sum(index * index).alias("squares"),
        f.try_sum(f.when(is_last, squares)).alias("expected_squares"),
        f.max(place).alias("place"),
        f.max_by(f.crc32("key"), place).alias("key_crc"), f.max_by(f.crc32("value"), place).alias("value_crc"),
    )  # fmt: skip
    found: dict[TopicPartition, PartitionCounts] = {}
    for row in grouped.collect():
        name = TopicPartition(row["topic"], partition_of_column(row["partition"]))
        last = None if row["place"] is None else LastMessage(row["place"]["offset"], row["key_crc"], row["value_crc"])
        sums = EntrySums(*(row[each] for each in EntrySums._fields))
        found[name] = PartitionCounts(row["rows"], 0, row["first"], row["last"], row["messages"], row["bytes"], last,
                                      sums)  # fmt: skip
    return found


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
