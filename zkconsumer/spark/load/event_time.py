"""The time of messages without a timestamp, taken from their values.

Before Kafka 0.10 a message has no timestamp; applications wrote the time into the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from zkconsumer.spark.load.errors import LoadRefused

__all__ = ["EventTime", "check_event_time", "event_time"]

EventTime: TypeAlias = str | Callable[[Any], Any]
"""A field, or a function that gives a column of timestamps for a frame with the columns of the source."""

_FIELD: Final = re.compile(r"[^\s.\[\]'$*]+(\.[^\s.\[\]'$*]+)*")
_FIRST_MILLISECONDS: Final = 100_000_000_000
"""Numbers from there on are milliseconds (1973-03-03), below it seconds (5138-11-16)."""
_BEHIND_9999_MS: Final = 253_402_300_800_000


def check_event_time(where: EventTime) -> None:
    """Refuse what is no field.

    Raises:
        LoadRefused: It is none.
    """
    if isinstance(where, str) and not _FIELD.fullmatch(where):
        raise LoadRefused(f"the time field {where!r} is no name of a field, or names with dots between them")


def event_time(frame: Any, where: EventTime) -> Any:
    """A column of timestamps; null where the value does not tell one.

    A field may be a number of seconds or milliseconds since 1970, or text that Spark casts to a timestamp, such as
    `2014-03-01T10:00:00Z`; text without a zone is taken as UTC. Other texts, years behind 9999 and times before 1970
    tell nothing.
    """
    from pyspark.sql import functions as f

    if not isinstance(where, str):
        return where(frame).cast("timestamp")
    steps = "".join(f"['{step}']" for step in where.split("."))
    text = f.get_json_object(f.col("value").cast("string"), f"${steps}")
    said = text.try_cast("double")
    number = f.when((said >= 0) & (said < _BEHIND_9999_MS), said)
    milliseconds = f.when(number < _FIRST_MILLISECONDS, number * 1000).otherwise(number)
    counted = f.timestamp_millis(milliseconds.cast("bigint"))
    told = f.when(said.isNotNull(), counted).otherwise(text.try_cast("timestamp"))
    return f.when((f.unix_millis(told) >= 0) & (f.unix_millis(told) < _BEHIND_9999_MS), told)
