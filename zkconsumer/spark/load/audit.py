"""Audits a run: it must have written every planned offset once, and no other one. Pure.

The files of the run are read back and counted. Nothing is published before the counts agree with the plan.

Sums over the rows of a partition of Kafka 0.7 that show whether each message is there once.

How many messages lie between two byte positions is not known beforehand. But each entry ends where the next one starts,
and the rows have both places. So the entries of a span are there once, all of them, if and only if their starts and
their ends are the same positions, but for the start and the end of the span: then they form one chain from one to the
other. Sums of checksums of the positions show that without comparing them one by one. The last message of a compressed
entry says how many there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.failures import AuditFailed
from zkconsumer.spark.load.manifest import LastMessage, LoadedPartition
from zkconsumer_error import first_few

LIGHT_MASK: Final = 0xFFFF


class EntrySums(NamedTuple):
    """Sums over the rows of one partition, and over those rows that are the last ones of their entries.

    Attributes:
        covered: bytes of all entries.
        starts, ends: of the checksums of the entries' starts and ends.
        expected: how many messages the entries have, as their last messages say.
        weighed, expected_weight: of the checksums of the starts, once for each row; and as it should be.
        indexes, expected_indexes: of the numbers within entries, each times `light` of its entry's start, None if they
            are too large; and as it should be. Without that factor, rows that are missing and others that are there
            twice cancel each other out more often.
        squares, expected_squares: of their squares, None if they are too large; and as it should be.
    """

    covered: int
    starts: int
    ends: int
    expected: int
    weighed: int
    expected_weight: int
    indexes: int | None
    expected_indexes: int | None
    squares: int | None
    expected_squares: int | None

    def fault(self, start: int, end: int, rows: int) -> str:
        """Return what is wrong with the rows of a span that is not empty, a clause; empty if nothing is.

        Args:
            start, end: The span that should be there.
            rows: How many there are.
        """
        if self.covered != end - start:
            return (
                f"entries of {self.covered} bytes were written, positions {start} to {end} have {end - start} "
                "(entries without any message are loaded with `--gaps allow`)"
            )
        if self.ends - self.starts != checksum(end) - checksum(start):
            return f"the entries from position {start} to {end} were not written exactly once each"
        is_whole = (self.weighed, self.indexes, self.squares) == (
            self.expected_weight, self.expected_indexes, self.expected_squares
        )  # fmt: skip
        if rows != self.expected or not is_whole:
            return f"{rows} messages were written, but not exactly the {self.expected} of their entries"
        return ""


def light(crc: int) -> int:
    """Return the part of a checksum by which numbers are multiplied: products of more bits would be too large."""
    return crc & LIGHT_MASK


def checksum(position: int) -> int:
    """Return the checksum of a position: that of Spark's `crc32(cast(position as string))`.

    >>> checksum(42)
    841265288
    """
    return zlib.crc32(b"%d" % position)


class OffsetSpan(NamedTuple):
    """The offsets from `start` up to, and without, `end`."""

    start: int
    end: int


class OffsetSums(NamedTuple):
    """Sums over the offsets of a span, to check that each is there once without comparing them one by one.

    If one offset is missing and another one is there twice, the total differs. If several are, and their totals are
    equal, the exclusive or differs, unless the offsets were chosen to defeat it.
    """

    rows: int
    first: int
    last: int
    total: int
    xor: int

    @classmethod
    def of(cls, span: OffsetSpan) -> OffsetSums:
        """The sums of a span that is not empty.

        >>> OffsetSums.of(OffsetSpan(2, 5))
        OffsetSums(rows=3, first=2, last=4, total=9, xor=5)
        """
        count, last = span.end - span.start, span.end - 1
        return cls(count, span.start, last, count * (span.start + last) // 2, _xor_to(last) ^ _xor_to(span.start - 1))


class PartitionCounts(NamedTuple):
    """The content of the files for one partition.

    Attributes:
        rows: how many rows, those of the side output included.
        distinct: how many different offsets they have.
        first, last: the lowest and the highest offset.
        messages: how many rows without those of the side output.
        bytes: of the keys and values of these messages.
        last_message: the last message outside of the side output; `None` without any.
        entries: on Kafka 0.7, where `distinct` is not known and 0.
    """

    rows: int
    distinct: int
    first: int
    last: int
    messages: int
    bytes: int
    last_message: LastMessage | None = None
    entries: EntrySums | None = None

    def has_all(self, span: OffsetSpan) -> bool:
        """Whether nothing of a span is missing."""
        if self.entries is None:
            return self.distinct >= span.end - span.start
        return not self.entries.fault(span.start, span.end, self.rows)

    def missing(self, span: OffsetSpan) -> int:
        """How many offsets of a span are missing, on Kafka 0.7 bytes of its log."""
        return span.end - span.start - (self.distinct if self.entries is None else self.entries.covered)


def incomplete(
    asked: Mapping[TopicPartition, OffsetSpan],
    found: Mapping[TopicPartition, PartitionCounts],
    may_miss: Collection[str],
) -> list[TopicPartition]:
    """The partitions with missing offsets, without partitions that may have gaps."""
    return [
        place
        for place, span in sorted(asked.items())
        if place.topic not in may_miss and (place not in found or not found[place].has_all(span))
    ]


def audit(
    asked: Mapping[TopicPartition, OffsetSpan],
    found: Mapping[TopicPartition, PartitionCounts],
    may_miss: Collection[str],
    deleted: Collection[TopicPartition] = (),
) -> tuple[LoadedPartition, ...]:
    """The loaded range of each partition, in their order.

    Args:
        asked: the planned offsets.
        found: what the files contain, without the partitions of which they contain nothing.
        may_miss: topics whose logs may have gaps: compacted ones. Partitions with messages in the side output may have
            gaps, too.
        deleted: partitions whose first messages were deleted while they were read, and that have all the others.

    Raises:
        AuditFailed: the files have rows that were not planned, or an offset twice, or lack one that must be there.
    """
    wrong = [f"{place.topic}/{place.partition}: {found[place].rows} rows that were not requested"
             for place in sorted(found.keys() - asked.keys())]  # fmt: skip
    loaded = []
    for place, span in sorted(asked.items()):
        rows = found.get(place, PartitionCounts(0, 0, span.start, span.start, 0, 0))
        # A wrapper that cannot be read is one row, with the offset of its last message.
        fault = _fault(span, rows, place.topic in may_miss or place in deleted or rows.rows > rows.messages)
        if fault:
            wrong.append(f"{place.topic}/{place.partition}: {fault}")
        loaded.append(
            LoadedPartition(*place, span.start, span.end, rows.messages, rows.bytes, rows.rows - rows.messages,
                            rows.missing(span))
        )  # fmt: skip
    if wrong:
        raise AuditFailed(f"nothing was published: {first_few(*wrong, between='; ', rest='; and {} more')}")
    return tuple(loaded)


def _xor_to(last: int) -> int:
    """The exclusive or of all numbers from 0 to `last`; 0 for -1."""
    return (last, 1, last + 1, 0)[last % 4]


def _fault(span: OffsetSpan, rows: PartitionCounts, may_miss: bool) -> str:
    if rows.rows and not span.start <= rows.first <= rows.last < span.end:
        return f"offsets {rows.first} to {rows.last} were written, {span.start} to {span.end - 1} were requested"
    if rows.entries is not None:
        return "" if may_miss else rows.entries.fault(span.start, span.end, rows.rows)
    if rows.rows != rows.distinct:
        return f"{rows.rows} rows with {rows.distinct} different offsets"
    missing = span.end - span.start - rows.distinct
    if missing and not may_miss:
        return (
            f"{missing} of the offsets {span.start} to {span.end - 1} are missing; if the log is compacted or "
            "has transactions, it has gaps: load it with `--gaps allow`"
        )
    return ""
