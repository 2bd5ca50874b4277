"""Finds offsets by time for messages without timestamps: from the times when the segments of a log were written. Pure.

A broker reports the last segment that was last written before some time, and the first offsets of segments. A message
counts as written at the moment when the broker wrote it. Rules, and what each prevents:
- A start is never after the first message at or after the time, and an end never before the last message before it: all
  messages that were asked for are read, with up to two more segments.
- File times may be whole seconds, and their clock is a little slow. So a start is searched two seconds before its time:
  otherwise messages of the segment before, written within the same second, would be missed.

Source: kafka.server.KafkaApis (fetchOffsetsBefore, 0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["AtTime", "refuse_seconds", "segment_end", "segment_start", "written_by_ms"]

_FILE_TIMES_MS: Final = 2000
_SECONDS_BELOW: Final = 100_000_000_000
"""Milliseconds since 1970 in March 1973: a smaller number is a time in seconds."""


class AtTime(NamedTuple):
    """The answer of a leader about a time.

    Attributes:
        offset: The first message at or after the time, or an earlier one if it is known by segment only; None if there
            is no such message.
        end: Where the log ended just before the question; later messages have higher offsets.
    """

    offset: int | None
    end: int


def refuse_seconds(stamp: str) -> None:
    """Return if a number can be milliseconds since 1970.

    Args:
        stamp: Decimal digits; 0 is allowed, and stands for all times.

    Raises:
        ValueError: It is one in seconds, as `date +%s` prints them: read as milliseconds it would mean everything.
    """
    if 0 < int(stamp) < _SECONDS_BELOW:
        from datetime import UTC, datetime

        read_as = datetime.fromtimestamp(int(stamp) / 1000, UTC).isoformat(timespec="seconds")
        raise ValueError(f"@{stamp} is {read_as}, because it counts milliseconds; for seconds since 1970 append "
                         f"three zeros: @{stamp}000")


def written_by_ms(time_ms: int, is_end: bool) -> int | None:
    """Return the time to ask for: the segment was last written by then. None for a time before 1970.

    Negative times must not be asked for, because -1 and -2 mean the ends of the log.

    Args:
        time_ms: Where to start, or to end.
    """
    written_ms = time_ms - (1 if is_end else _FILE_TIMES_MS)
    return None if written_ms < 0 else written_ms


def segment_start(written_before: Sequence[int], end: int) -> int | None:
    """Return where to start; None if the time is in the future, or the log is empty.

    Args:
        written_before: First offset of the last segment that was written by then; empty if all were written later.
        end: End of the log. A broker assigns the present time to it.
    """
    if not written_before:
        return 0  # this may be before the start of the log: no message is that old
    return None if written_before[0] >= end else written_before[0]


def segment_end(written_before: Sequence[int], starts: Sequence[int]) -> int | None:
    """Return the end of the first segment that was written at the time or later; None for the end of the log.

    Args:
        written_before: As for `segment_start`.
        starts: First offsets of all segments, in any order; the end of the log may be among them.
    """
    last = written_before[0] if written_before else -1
    later = sorted(start for start in starts if start > last)
    return later[1] if len(later) > 1 else None
