"""Writes messages, and messages that could not be decoded, into files; defines their shape, and reads them back.

Source: docs/SPARK_LOADING.md, "Files of a load".

Takes the time of messages from their values: when something happened, and not when it was sent.

Before Kafka 0.10 a message has no timestamp at all, and applications wrote the time into the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.schema import HEADERS_COLUMN

EventTime: TypeAlias = str | Callable[[Any], Any]
"""A field, or a function that returns a column of timestamps for a frame with the columns of the source."""
_FIELD: Final = re.compile(r"[^\s.\[\]'$*]+(\.[^\s.\[\]'$*]+)*")
_FIRST_MILLISECONDS: Final = 100_000_000_000
"""Numbers from this one on are milliseconds (1973-03-03), lower ones are seconds (5138-11-16)."""
_FIRST_MICROSECONDS: Final = 1000 * _FIRST_MILLISECONDS
_FIRST_NANOSECONDS: Final = 1000 * _FIRST_MICROSECONDS
_AFTER_LAST_NANOSECOND: Final = 2.0**63
"""In the year 2262."""
_AFTER_9999_MS: Final = 253_402_300_800_000
_DATED: Final = r"^\s*[0-9]{4,6}-[0-9]"
"""Text that says at least year and month. Spark would take a time alone for a time on the current day."""


def check_event_time(where: EventTime) -> None:
    """Refuse text that is no name of a field.

    Raises:
        LoadRefused: It is none.
    """
    if isinstance(where, str) and not _FIELD.fullmatch(where):
        raise LoadRefused(f"the time field {where!r} is not the name of a field, or names separated by dots")


def event_time(frame: Any, where: EventTime) -> Any:
    """A column of timestamps; null where the value has none.

    A field may be a number of seconds, milliseconds, microseconds or nanoseconds since 1970, which its size tells, or
    text with a date that Spark casts to a timestamp, such as `2014-03-01T10:00:00Z`; text without a zone is UTC. Other
    texts, years after 9999 and times before 1970 are ignored.
    """
    from pyspark.sql import functions as f

    if not isinstance(where, str):
        return where(frame).cast("timestamp")
    steps = "".join(f"['{step}']" for step in where.split("."))
    text = f.get_json_object(f.col("value").cast("string"), f"${steps}")
    number = text.try_cast("double")
    milliseconds = (
        f.when(number < 0, None)
        .when(number < _FIRST_MILLISECONDS, number * 1000)
        .when(number < _FIRST_MICROSECONDS, number)
        .when(number < _FIRST_NANOSECONDS, number / 1000)
        .when(number < _AFTER_LAST_NANOSECOND, number / 1_000_000)
    )
    of_number = f.timestamp_millis(milliseconds.cast("bigint"))
    of_text = f.when(text.rlike(_DATED), text.try_cast("timestamp"))
    moment = f.when(number.isNotNull(), of_number).otherwise(of_text)
    return f.when((f.unix_millis(moment) >= 0) & (f.unix_millis(moment) < _AFTER_9999_MS), moment)


DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = ("parquet", "json", DELTA, ICEBERG)
PARTITIONINGS: Final = ("none", "date", "hour")
DATA_FOLDER: Final = "kind=data"
"""Below the staging folder of a run: its messages."""
UNDECODED_FOLDER: Final = "kind=bad"
"""Below the staging folder of a run: messages that could not be decoded, before `write_bad`."""
BAD_FOLDER: Final = "_bad"
"""Messages that could not be decoded. Readers ignore names that start with `_`."""
PLACES: Final = "broker int, entry_index int, next_offset bigint"
"""The columns of messages of Kafka 0.7, whose offsets are byte positions; see `zkconsumer.spark.schema`."""
HEADERS: Final = f"{HEADERS_COLUMN.name} {HEADERS_COLUMN.type}"
"""The column of headers, in loads with `includeHeaders`."""
NULL_TOPIC: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name of a directory that Spark and Hive read as null; a topic could have it."""
TEXT_MARK: Final = "topic=@text"
"""A directory without rows. `spark.read.parquet(folder)` guesses the type of `topic` by the names of all directories,
and would read topics 00123 and 123 as one number. One name that is no number makes it text. No topic has an `@`."""
_TEXT: Final = re.compile("[A-Za-z_]")
_GUESSED_WORDS: Final = ("nan", "infinity", "inf", "null", "none", "true", "false", "epoch", "now", "today", "tomorrow",
                         "yesterday")  # fmt: skip
"""Words that some reader may take for a number, a date or nothing."""
_OPEN_FILES = 64
"""Files that one task writes at once. With more, it sorts its rows first, which takes longer than writing them."""
_SETTINGS = {
    "spark.sql.maxConcurrentOutputFileWriters": str(_OPEN_FILES),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


class Shape(NamedTuple):
    """Format and layout of the files, or of the table.

    Attributes:
        format: one of FORMATS.
        partition_by: one of PARTITIONINGS; by `event_time`, otherwise by the time of a message, otherwise by that of
            the run.
        text: keys and values are text in UTF-8; others count as undecodable.
        compression: a name that Spark knows for the format, or None for its default.
        event_time: where messages say when something happened: a field of a value in JSON (`ts`, `head.ts`), or
            a function of the rows that returns a column of timestamps; see `zkconsumer.spark.load.writing`.
        file_bytes: about how many bytes of a log one file may contain, or None for what one task reads.
        has_places: the messages are of Kafka 0.7, and have the columns of `PLACES`.
        has_headers: the rows have the column `HEADERS`.
    """

    format: str
    partition_by: str
    text: bool = False
    compression: str | None = None
    event_time: EventTime | None = None
    file_bytes: int | None = None
    has_places: bool = False
    has_headers: bool = False

    @property
    def is_table(self) -> bool:
        """True for a table of Delta or Iceberg, which manages its own files."""
        return self.format in (DELTA, ICEBERG)

    @property
    def file_format(self) -> str:
        """Format of the files that a run writes before it is published; one of Spark's formats."""
        return "parquet" if self.is_table else self.format


@contextmanager
def settings_of_writing(spark: Any, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Change settings of the session during the block; the session may belong to the user's program.

    Args:
        more: settings in addition to the ones that all writing needs.
    """
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
    """The columns in the files of messages, without columns that are directories."""
    kind = "string" if shape.text else "binary"
    more = _more_columns(shape)
    return f"key {kind}, value {kind}, partition int, offset bigint, timestamp timestamp, timestampType int{more}"


def _more_columns(shape: Shape) -> str:
    """The columns that not every load has."""
    return (f", {PLACES}" if shape.has_places else "") + (f", {HEADERS}" if shape.has_headers else "")


def write_rows(spark: Any, frame: Any, url: str, shape: Shape, started: datetime) -> None:
    """Write a frame below `url`: `kind=data/topic=.../` the messages, `kind=bad/` what could not be decoded.

    Args:
        frame: with the columns of the source, and `error`, which is null for messages.
        started: the time of messages that carry none and tell none, UTC.
    """
    with settings_of_writing(spark):
        by = ["kind", "topic", *(["date"] if shape.partition_by != "none" else []),
              *(["hour"] if shape.partition_by == "hour" else [])]  # fmt: skip
        writer = _shaped(frame, shape, started).write.partitionBy(*by).format(shape.file_format)
        if shape.compression is not None:
            writer = writer.option("compression", shape.compression)
        writer.save(url)


def is_surely_text(topic: str) -> bool:
    """Return whether every reader that guesses the types of directories takes the name of a topic for text.

    >>> is_surely_text("clicks"), is_surely_text("00123"), is_surely_text("1e5"), is_surely_text("NaN")
    (True, False, False, False)
    """
    return _TEXT.match(topic) is not None and topic.lower() not in _GUESSED_WORDS


def write_text_mark(spark: Any, url: str, shape: Shape, started: datetime) -> None:
    """Write a file without rows below `url`, for a topic with a name that nobody can take for a number."""
    levels = {"none": "", "date": f"/date={started:%Y-%m-%d}", "hour": f"/date={started:%Y-%m-%d}/hour=00"}
    place = f"{url}/{DATA_FOLDER}/{TEXT_MARK}{levels[shape.partition_by]}"
    rows = spark.createDataFrame([], rows_of_files(shape))
    with settings_of_writing(spark):
        rows.coalesce(1).write.format(shape.file_format).save(place)


def _shaped(frame: Any, shape: Shape, started: datetime) -> Any:
    """The rows as they are written. The value of a bad row is JSON with reason, key and value."""
    from pyspark.sql import functions as f

    error = f.col("error")
    if shape.text:
        for name in ("value", "key"):
            wrong = f.col(name).isNotNull() & ~f.is_valid_utf8(f.col(name))
            error = f.coalesce(error, f.when(wrong, f.lit(f"the {name} is not UTF-8 text")))
    own = [] if shape.event_time is None else [event_time(frame, shape.event_time)]
    moment = f.coalesce(*own, f.col("timestamp"), f.lit(started.isoformat()).cast("timestamp"))
    whole = f.to_json(f.struct(f.col("reason"), f.base64("key").alias("key"), f.base64("value").alias("value")))
    kind = "string" if shape.text else "binary"
    rows = frame.withColumn("reason", error)
    is_bad = f.col("reason").isNotNull()
    columns = [
        f.when(~is_bad, f.col("key")).cast(kind).alias("key"),
        f.when(is_bad, whole.cast(kind)).otherwise(f.col("value").cast(kind)).alias("value"),
        "partition", "offset", "timestamp", "timestampType", *_more_names(shape),
        f.when(is_bad, f.lit("bad")).otherwise(f.lit("data")).alias("kind"),
        "topic",
        moment.cast("date").alias("date"),
        f.lpad(f.hour(moment).cast("string"), 2, "0").alias("hour"),
    ]  # fmt: skip
    left_out = {"none": ("date", "hour"), "date": ("hour",), "hour": ()}[shape.partition_by]
    return rows.select(*columns).drop(*left_out)


def _more_names(shape: Shape) -> list[str]:
    places = [each.split()[0] for each in PLACES.split(", ")] if shape.has_places else []
    return [*places, HEADERS_COLUMN.name] if shape.has_headers else places


def read_back(spark: Any, url: str, shape: Shape) -> Any:
    """Return the rows of the files below `url`, or None when there are none."""
    from pyspark.errors import AnalysisException

    kind = "string" if shape.text else "binary"
    schema = f"key {kind}, value {kind}, partition int, offset bigint, kind string, topic string"
    schema += _more_columns(shape)
    try:
        return spark.read.format(shape.file_format).schema(schema).option("mode", "FAILFAST").load(url)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def write_bad(spark: Any, url: str, shape: Shape) -> None:
    """Write the side output below `url`: a line of JSON for each message that could not be decoded."""
    from pyspark.sql import functions as f

    with settings_of_writing(spark):
        bad = read_back(spark, f"{url}/{UNDECODED_FOLDER}", shape)
        if bad is None:
            return
        known = f.from_json(f.col("value").cast("string"), "reason string, key string, value string")
        place = ("topic", "partition", "offset", *_more_names(shape))
        rows = bad.select(*place, known.alias("known"))
        rows.select(*place, "known.*").write.json(f"{url}/{BAD_FOLDER}")
