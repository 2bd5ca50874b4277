"""Takes the time of messages from their values: when something happened, and not when it was sent.

Before Kafka 0.10 a message has no timestamp at all, and applications wrote the time into the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from zkconsumer.spark.load.errors import LoadRefused

__all__ = ["EventTime", "check_event_time", "event_time"]

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
"""Text that says at least year and month. Of a time alone Spark would make one of today."""


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
