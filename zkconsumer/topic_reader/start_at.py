"""Where reading starts: at an end of the log, an offset, a number of messages before the end, or a time.

Pure. Rule: an offset that was named is never replaced by another one. If the log does not have it, that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias

from rebalance.zookeeper.znodes_07 import is_partition
from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.cluster.time_search import refuse_seconds
from zkconsumer.errors import ReadFailed

StartAt: TypeAlias = Literal["earliest", "latest"] | int | datetime | Mapping[int | str, int]
"""`earliest`, `latest`, an offset, a negative number to count back from the end, a time, or partition -> offset."""

_WORDS: Final[Mapping[str, Literal["earliest", "latest"]]] = {
    "earliest": "earliest", "smallest": "earliest", "beginning": "earliest",
    "latest": "latest", "largest": "latest", "end": "latest",
}  # fmt: skip
"""The words of newer Kafka, of Kafka 0.8 and of kcat."""
_ALLOWED: Final = (
    "'earliest', 'latest', an offset, a negative number to count back from the end, a datetime with a time zone, "
    "or a mapping of partitions to offsets"
)


def check_start(start: object) -> StartAt:
    """Return a start that was checked.

    Raises:
        TypeError: It is of none of the types.
        ValueError: Its value is not possible.
    """
    if isinstance(start, str):
        if start == "earliest":
            return "earliest"
        if start == "latest":
            return "latest"
        raise ValueError(f"start is {start!r}; it must be {_ALLOWED}")
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError(f"start is {start!r}, without a time zone; use for example datetime.now(timezone.utc)")
        if start.timestamp() < 0:
            raise ValueError(f"start is {start!r}; it must be 1970 or later")
        return start
    if isinstance(start, int) and not isinstance(start, bool):
        if abs(start) > MAX_INT64:
            raise ValueError(f"start is {start}; offsets are at most {MAX_INT64}")
        return start
    if isinstance(start, Mapping):
        for partition, offset in start.items():
            if not is_partition(partition) or not _is_offset(offset):
                raise ValueError(f"start has {partition!r}: {offset!r}; it must map partitions to offsets from 0 on")
        return dict(start)
    raise TypeError(f"start is {start!r}; it must be {_ALLOWED}")


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT64


def parse_start(text: str) -> StartAt:
    """Return the start that a command line names: a word, a number, or `@` and a time.

    Raises:
        ValueError: It is none of these; the text says what is wrong.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("@"):
        return _time(text)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(
            f"{text!r} is not earliest, latest, an offset, -N (N offsets before the end), or @ and a time such as "
            "@2014-03-01T12:00:00Z"
        )
    if int(digits) > MAX_INT64:
        raise ValueError(f"{text} is not an offset: the largest offset is {MAX_INT64}")
    if text.startswith("-") and not int(digits):
        return "latest"
    return int(text)


def _time(text: str) -> datetime:
    stamp = text[1:]
    if stamp.isascii() and stamp.isdigit():
        refuse_seconds(stamp)
    try:
        if stamp.isascii() and stamp.isdigit():
            return datetime.fromtimestamp(int(stamp) / 1000).astimezone()
        found = datetime.fromisoformat(stamp)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not @ and a time: ISO 8601 with a time zone (@2014-03-01T12:00:00Z), or milliseconds since "
            "1970 (@1393675200000)"
        ) from None
    if found.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; append Z for UTC, or an offset such as +01:00")
    if found.timestamp() < 0:
        raise ValueError(f"{text!r} is before 1970")
    return found


def time_of(start: StartAt) -> int | None:
    """Return the time of a start by time, in milliseconds since 1970; None for any other start."""
    return int(start.timestamp() * 1000) if isinstance(start, datetime) else None


def is_exact(start: StartAt) -> bool:
    """Return whether offsets were named, and not a place in the log that moves when old messages are deleted."""
    return isinstance(start, Mapping) or (isinstance(start, int) and start >= 0)


def start_offset(
    start: StartAt, name: TopicPartition, earliest: int, latest: int, at_time: int | None, *,
    read_committed: bool = False,
) -> int:  # fmt: skip
    """Return the offset at which reading of a partition starts.

    Args:
        earliest: Start of its log.
        latest: End of its log.
        at_time: The first offset at or after the time, if `start` is a time; None if there is no message that recent.
        read_committed: The log counts up to its first open transaction.

    Raises:
        ReadFailed: The offset that was named is not in the log.
    """
    if start == "earliest":
        return earliest
    if start == "latest":
        return latest
    if isinstance(start, datetime):
        return latest if at_time is None else min(max(at_time, earliest), latest)
    if isinstance(start, int) and start < 0:
        return max(earliest, latest + start)
    offset = start[name.partition] if isinstance(start, Mapping) else start
    if not isinstance(offset, int) or not earliest <= offset <= latest:
        end = f"{latest} up to its first open transaction, where read_committed ends" if read_committed else latest
        raise ReadFailed(
            f"{name.topic}/{name.partition}: offset {offset} is not in the log, which has {earliest} to {end}",
            f"start at earliest, at latest, or at an offset from {earliest} to {latest}",
        )
    return offset
