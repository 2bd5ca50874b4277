"""The segments of a log of Kafka 0.7 as an immutable list, and how it is read, listed and shortened. Pure.

A log replaces its list as a whole, so readers need no lock. Sizes count flushed bytes.

Source: kafka.log.Log, kafka.log.LogManager, kafka.log.SegmentList (0.7.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka07 import requests as requests

LATEST: Final = -1
EARLIEST: Final = -2


class Extent(NamedTuple):
    """Where a segment is in its log, and when it was written.

    Attributes:
        start: position of its first byte.
        size_bytes: of what is flushed.
        modified_ms: time of the last write, from the file system.
    """

    start: int
    size_bytes: int
    modified_ms: int

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.start + self.size_bytes


class OutOfRange(Refusal):
    """A position before the first segment or after the last one."""

    def __init__(self, reason: str) -> None:
        super().__init__(requests.OFFSET_OUT_OF_RANGE, reason)


def find(segments: Sequence[Extent], position: int) -> int | None:
    """Return the number of the segment that holds a position; None at the end of the log.

    Raises:
        OutOfRange: the position is before the start of the log, or after its end.
    """
    if not segments[0].start <= position <= segments[-1].end:
        raise OutOfRange(f"position {position} is not within {segments[0].start} to {segments[-1].end}")
    for number, segment in enumerate(segments):
        if segment.start <= position < segment.end:
            return number
    return None


def count_expired(segments: Sequence[Extent], now_ms: int, retention_ms: int) -> int:
    """Return how many of the oldest segments are older than the retention time."""
    return _leading(now_ms - segment.modified_ms > retention_ms for segment in segments)


def count_surplus(segments: Sequence[Extent], retention_bytes: int) -> int:
    """Return how many of the oldest segments the log has beyond its retention size; a negative size keeps all."""
    surplus = sum(segment.size_bytes for segment in segments) - retention_bytes
    if retention_bytes < 0 or surplus < 0:
        return 0
    gone = []
    for segment in segments:
        surplus -= segment.size_bytes
        gone.append(surplus >= 0)
    return _leading(gone)


def _leading(answers: Iterable[bool]) -> int:
    count = 0
    for answer in answers:
        if not answer:
            break
        count += 1
    return count


def positions_before(segments: Sequence[Extent], time_ms: int, most: int, now_ms: int) -> list[int]:
    """Return starts of segments, and the end, that were written by a time, the largest first.

    Args:
        time_ms: milliseconds since 1970; LATEST or EARLIEST.
        most: how many at most.
        now_ms: the time of the end, which is listed if the last segment has data.
    """
    known = [(segment.start, segment.modified_ms) for segment in segments]
    if segments[-1].size_bytes:
        known.append((segments[-1].end, now_ms))
    if time_ms == EARLIEST:
        last = 0
    elif time_ms == LATEST:
        last = len(known) - 1
    else:
        last = max((number for number, (_, written_ms) in enumerate(known) if written_ms <= time_ms), default=-1)
    return [position for position, _ in reversed(known[: last + 1])][:most]
