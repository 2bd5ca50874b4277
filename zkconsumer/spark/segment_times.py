"""Offsets by time where messages carry none: from the times at which the segments of a log were last written. Pure.

A broker names the last segment that was last written by some time, and where segments begin. A message counts as of the
moment at which the broker wrote it. Rules, and what each prevents:
- A start is never behind the first message at or after the time, an end never before the last message before it: what
  was asked for is read as a whole, with up to a segment or two more.
- File times may be whole seconds, and the clock that they come from is a little slow. A start is looked for two seconds
  before its time: otherwise messages of the segment before, written within the same second, would be missed.

Source: kafka.server.KafkaApis (fetchOffsetsBefore, 0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["segment_end", "segment_start", "written_by_ms"]

_FILE_TIMES_MS: Final = 2000


def written_by_ms(time_ms: int, is_end: bool) -> int | None:
    """Return the time by which the segment to ask for was last written; None: before 1970, and so none was.

    Negative times are not asked for: -1 and -2 mean the ends of the log.

    Args:
        time_ms: Where to begin, or to end.
    """
    written_ms = time_ms - (1 if is_end else _FILE_TIMES_MS)
    return None if written_ms < 0 else written_ms


def segment_start(written_before: Sequence[int], end: int) -> int | None:
    """Return where to begin; None when the time is in the future, or the log is empty.

    Args:
        written_before: Begin of the last segment that was written by then; none, when all were written later.
        end: Of the log. A broker gives it the present as its time.
    """
    if not written_before:
        return 0  # before the log begins, perhaps: nothing is that old
    return None if written_before[0] >= end else written_before[0]


def segment_end(written_before: Sequence[int], begins: Sequence[int]) -> int | None:
    """Return where to end: behind the first segment that was written at the time or later. None: at the end of the log.

    Args:
        written_before: As for `segment_start`.
        begins: Of all segments, in any order; the end of the log may be among them.
    """
    last = written_before[0] if written_before else -1
    later = sorted(begin for begin in begins if begin > last)
    return later[1] if len(later) > 1 else None
