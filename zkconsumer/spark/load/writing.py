"""What Spark does in a run: it writes the messages and what could not be decoded, and reads back what it has written.

Source: docs/SPARK.md, "What a load leaves behind".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import Found, OffsetSpan, OffsetSums
from zkconsumer.spark.load.event_time import EventTime, event_time
from zkconsumer.spark.load.standing import Tail

__all__ = [
    "BAD_FOLDER", "DATA_FOLDER", "DELTA", "FORMATS", "ICEBERG", "PARTITIONINGS", "Shape", "count_from", "count_rows",
    "rows_of_files", "settings_of_writing", "write_rows",
]  # fmt: skip

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = ("parquet", "json", DELTA, ICEBERG)
PARTITIONINGS: Final = ("none", "date", "hour")
DATA_FOLDER: Final = "kind=data"
"""Where a run writes its messages, below its own folder."""
BAD_FOLDER: Final = "_bad"
"""Where messages go that could not be decoded; readers pass over names that begin so."""
_LOW_HALF = 0xFFFFFFFF
_OPEN_FILES = 64
"""Files that one task writes side by side. With more it sorts its rows first, which takes longer than writing them."""
_SETTINGS = {
    "spark.sql.maxConcurrentOutputFileWriters": str(_OPEN_FILES),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


class Shape(NamedTuple):
    """How the files look, or the table.

    Attributes:
        format: one of FORMATS.
        partition_by: one of PARTITIONINGS, by the time of a message, or `event_time`, or the time of the run.
        text: keys and values are text in UTF-8; others are bad.
        compression: a name that Spark knows for the format, or None for its default.
        event_time: where to find the time of messages that carry none: a field of a value in JSON (`ts`, `head.ts`), or
            a function of the rows' columns that gives a column of timestamps; see `zkconsumer.spark.load.event_time`.
        file_bytes: about how many bytes of a log one file may hold, or None for what one task reads.
    """

    format: str
    partition_by: str
    text: bool = False
    compression: str | None = None
    event_time: EventTime | None = None
    file_bytes: int | None = None

    @property
    def is_table(self) -> bool:
        """True for a table of Delta or Iceberg, whose files are its own affair."""
        return self.format in (DELTA, ICEBERG)

    @property
    def file_format(self) -> str:
        """Of the files that a run writes before it is published; one of Spark's formats."""
        return "parquet" if self.is_table else self.format


@contextmanager
def settings_of_writing(spark: Any, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Settings of the session, and more of them, for the time of the block: it may be somebody else's."""
    wanted = {**_SETTINGS, **more}
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def rows_of_files(shape: Shape) -> str:
    """The columns that the files of messages have, without those that are directories."""
    kind = "string" if shape.text else "binary"
    return f"key {kind}, value {kind}, partition int, offset bigint, timestamp timestamp, timestampType int"


def write_rows(spark: Any, frame: Any, url: str, shape: Shape, began: datetime) -> None:
    """Write a frame below `url`: `kind=data/topic=.../` the messages, `_bad/` what could not be decoded.

    Args:
        frame: with the columns of the source, and `error`, which is null for messages.
        began: the time of messages that carry none, UTC.
    """
    with settings_of_writing(spark):
        by = ["kind", "topic", *(["date"] if shape.partition_by != "none" else []),
              *(["hour"] if shape.partition_by == "hour" else [])]  # fmt: skip
        writer = _shaped(frame, shape, began).write.partitionBy(*by).format(shape.file_format)
        if shape.compression is not None:
            writer = writer.option("compression", shape.compression)
        writer.save(url)
        _write_bad(spark, url, shape)


def _shaped(frame: Any, shape: Shape, began: datetime) -> Any:
    """The rows as they are written: what is bad has all that is known of it in its value, as JSON."""
    from pyspark.sql import functions as f

    error = f.col("error")
    if shape.text:
        for name in ("value", "key"):
            wrong = f.col(name).isNotNull() & ~f.is_valid_utf8(f.col(name))
            error = f.coalesce(error, f.when(wrong, f.lit(f"the {name} is not text in UTF-8")))
    own = [] if shape.event_time is None else [event_time(frame, shape.event_time)]
    moment = f.coalesce(f.col("timestamp"), *own, f.lit(began.isoformat()).cast("timestamp"))
    whole = f.to_json(f.struct(f.col("reason"), f.base64("key").alias("key"), f.base64("value").alias("value")))
    kind = "string" if shape.text else "binary"
    rows = frame.withColumn("reason", error)
    is_bad = f.col("reason").isNotNull()
    columns = [
        f.when(~is_bad, f.col("key")).cast(kind).alias("key"),
        f.when(is_bad, whole.cast(kind)).otherwise(f.col("value").cast(kind)).alias("value"),
        "partition", "offset", "timestamp", "timestampType",
        f.when(is_bad, f.lit("bad")).otherwise(f.lit("data")).alias("kind"),
        "topic",
        f.date_format(moment, "yyyy-MM-dd").alias("date"),
        f.date_format(moment, "HH").alias("hour"),
    ]  # fmt: skip
    left_out = {"none": ("date", "hour"), "date": ("hour",), "hour": ()}[shape.partition_by]
    return rows.select(*columns).drop(*left_out)


def _written(spark: Any, url: str, shape: Shape) -> Any:
    """What stands below `url`, read back; `None` when that is nothing."""
    from pyspark.errors import AnalysisException

    kind = "string" if shape.text else "binary"
    schema = f"key {kind}, value {kind}, partition int, offset bigint, kind string, topic string"
    try:
        return spark.read.format(shape.file_format).schema(schema).option("mode", "FAILFAST").load(url)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _write_bad(spark: Any, url: str, shape: Shape) -> None:
    """The side output: a line of JSON for each message that could not be decoded."""
    from pyspark.sql import functions as f

    bad = _written(spark, f"{url}/kind=bad", shape)
    if bad is None:
        return
    known = f.from_json(f.col("value").cast("string"), "reason string, key string, value string")
    rows = bad.select("topic", "partition", "offset", known.alias("known"))
    rows.select("topic", "partition", "offset", "known.*").write.json(f"{url}/{BAD_FOLDER}")


def count_rows(
    spark: Any, url: str, shape: Shape, asked: Mapping[TopicPartition, OffsetSpan]
) -> dict[TopicPartition, Found]:
    """What the files below `url` hold of each partition.

    Count, ends, sum and exclusive or of the offsets say whether each offset is there once; where they do not,
    the different ones are counted, which takes a shuffle of them all.
    """
    from pyspark.sql import functions as f

    with settings_of_writing(spark):
        rows = _written(spark, url, shape)
        if rows is None:
            return {}
        is_message = f.col("kind") == "data"
        place = f.when(is_message, f.col("offset"))
        length = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
        grouped = rows.groupBy("topic", "partition").agg(
            f.count(f.lit(1)).alias("rows"),
            f.min("offset").alias("first"),
            f.max("offset").alias("last"),
            # In two halves, as a sum of decimals takes four times as long; null where even these are too large.
            f.try_sum(f.col("offset").bitwiseAND(_LOW_HALF)).alias("low"),
            f.try_sum(f.shiftright("offset", 32)).alias("high"),
            f.bit_xor("offset").alias("xor"),
            f.sum(f.when(is_message, 1).otherwise(0)).alias("messages"),
            f.sum(f.when(is_message, length).otherwise(0)).alias("bytes"),
            f.max(place).alias("tail"),
            f.max_by(f.crc32("key"), place).alias("key_crc"),
            f.max_by(f.crc32("value"), place).alias("value_crc"),
        )
        counted = {TopicPartition(row["topic"], row["partition"]): row for row in grouped.collect()}
        doubtful = [place for place, row in counted.items() if place not in asked or not _is_whole(asked[place], row)]
        distinct = _count_distinct(rows, {place.topic for place in doubtful})
    return {
        place: Found(row["rows"], distinct.get(place, row["rows"]), row["first"], row["last"], row["messages"],
                     row["bytes"], None if row["tail"] is None else Tail(row["tail"], row["key_crc"], row["value_crc"]))
        for place, row in counted.items()
    }  # fmt: skip


def count_from(
    spark: Any, url: str, shape: Shape, begins: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """How many different offsets from its begin on the files below `url` hold of each partition."""
    from pyspark.sql import functions as f

    if not begins:
        return {}
    with settings_of_writing(spark):
        rows = _written(spark, url, shape)
        if rows is None:
            return {}
        places = [f.lit(False)]
        places += [(f.col("topic") == name.topic) & (f.col("partition") == int(name.partition))
                   & (f.col("offset") >= begin) for name, begin in begins.items()]  # fmt: skip
        counted = rows.where(reduce(or_, places)).groupBy("topic", "partition")
        found = counted.agg(f.count_distinct("offset").alias("distinct")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["distinct"] for row in found}


def _is_whole(span: OffsetSpan, row: Any) -> bool:
    if row["low"] is None or row["high"] is None:
        return False
    total = (row["high"] << 32) + row["low"]
    return OffsetSums(row["rows"], row["first"], row["last"], total, row["xor"]) == OffsetSums.of(span)


def _count_distinct(rows: Any, topics: Iterable[str]) -> dict[TopicPartition, int]:
    from pyspark.sql import functions as f

    wanted = sorted(topics)
    if not wanted:
        return {}
    some = rows.where(f.col("topic").isin(wanted)).groupBy("topic", "partition")
    found = some.agg(f.count_distinct("offset").alias("distinct")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["distinct"] for row in found}
