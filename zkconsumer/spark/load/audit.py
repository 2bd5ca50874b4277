"""Audits a run: it must have written every planned offset once, and no other one. Pure.

The files of the run are read back and counted. Nothing is published before the counts agree with the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.entry_sums import EntrySums
from zkconsumer.spark.load.errors import AuditFailed
from zkconsumer.spark.load.load_state import LastMessage
from zkconsumer.spark.load.manifest import LoadedPartition
from zkconsumer_error import first_few

__all__ = ["PartitionCounts", "OffsetSpan", "OffsetSums", "audit", "incomplete"]


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
    """What the files contain of one partition.

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
    """The partitions with missing offsets, without those that may have gaps."""
    return [place for place, span in sorted(asked.items()) if place.topic not in may_miss
            and (place not in found or not found[place].has_all(span))]


def audit(
    asked: Mapping[TopicPartition, OffsetSpan],
    found: Mapping[TopicPartition, PartitionCounts],
    may_miss: Collection[str],
    deleted: Collection[TopicPartition] = (),
) -> tuple[LoadedPartition, ...]:
    """What was loaded of each partition, in their order.

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
        return (f"{missing} of the offsets {span.start} to {span.end - 1} are missing; if the log is compacted or "
                "has transactions, it has gaps: load it with `--gaps allow`")
    return ""
