"""Splits the offsets between the start and the end of each partition into the ranges that tasks read.

Pure. Rules, and what each prevents:
- Ranges of one partition follow each other without gap or overlap: splitting loses nothing and reads nothing twice.
- An empty range makes no task.
- Equal input gives equal output, in order: a stream that restarts makes the same plan again.

Source: org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator (behaviour of minPartitions), zkconsumer's own splits.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.streaming.spans import ALL_OFFSETS, Spans, common

__all__ = ["MAX_TASKS", "UNLIMITED", "PlannedRange", "SplitLimits", "plan_ranges"]

MAX_TASKS: Final = 100_000
"""Most tasks of one query after splitting; more would only keep the driver busy."""


@dataclass(frozen=True)
class PlannedRange:
    """What one task reads.

    Attributes:
        start: First offset.
        end: Offset after the last one.
        leader: The leader of the partition when it was planned; None if it was not asked for.
        is_last: No other range starts at its end: this task reports an error in a wrapper that lies across the end.
        table_end: Where the table ends in the partition: the error row of a wrapper that lies across it is before it.
            None for the end of this range.
        epoch: The epoch of a leader whose log reached the end of the range; -1: not known.
    """

    topic: str
    partition: int | str
    start: int
    end: int
    leader: Broker | None = None
    is_last: bool = False
    table_end: int | None = None
    epoch: int = -1

    @property
    def name(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)


class SplitLimits(NamedTuple):
    """How large tasks may be, and how many there should be at least; None for no limit."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None


UNLIMITED: Final = SplitLimits()


class _Whole(NamedTuple):
    name: TopicPartition
    start: int
    size: int


def plan_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, Broker],
    limits: SplitLimits = UNLIMITED,
    message_bytes: Mapping[TopicPartition, float] | None = None,
    offsets: Spans = ALL_OFFSETS,
) -> list[PlannedRange]:
    """Return the ranges to read, by topic, partition and offset.

    Args:
        starts, ends: Offsets of the same partitions; where the end is not above the start, nothing is read.
        message_bytes: How many bytes an offset takes in the log, about; needed for `max_bytes`.
        offsets: Which of them are read.

    Raises:
        OptionRefused: The limits come to more than `MAX_TASKS`.
    """
    read = sorted(name for name, end in ends.items() if end > starts[name])
    wholes = [
        _Whole(name, start, end - start)
        for name in read
        for start, end in common(((starts[name], ends[name]),), offsets)
    ]
    parts = [_parts(whole, limits, (message_bytes or {}).get(whole.name)) for whole in wholes]
    if sum(parts) > MAX_TASKS:
        option = "maxBytesPerPartition" if limits.max_bytes is not None else "maxRecordsPerPartition"
        raise OptionRefused(option,
            f"it would create {sum(parts)} tasks, and at most {MAX_TASKS} are possible; set a larger value")
    if limits.min_partitions is not None:
        if limits.min_partitions > MAX_TASKS:
            raise OptionRefused("minPartitions", f"{limits.min_partitions} is more than {MAX_TASKS}")
        _add_parts(wholes, parts, limits.min_partitions)
    return [
        PlannedRange(
            *whole.name,
            whole.start + whole.size * part // count, whole.start + whole.size * (part + 1) // count,
            leaders.get(whole.name),
        )
        for whole, count in zip(wholes, parts, strict=True)
        for part in range(count)
    ]  # fmt: skip


def _parts(whole: _Whole, limits: SplitLimits, message_bytes: float | None) -> int:
    """Return into how many ranges a partition must be split."""
    parts = 1
    if limits.max_records is not None:
        parts = -(-whole.size // limits.max_records)
    if limits.max_bytes is not None and message_bytes is not None:
        parts = max(parts, -(-int(whole.size * message_bytes) // limits.max_bytes))
    return min(parts, whole.size)


def _add_parts(wholes: list[_Whole], parts: list[int], least: int) -> None:
    """Split further, always where the ranges are largest, until there are enough or each holds one offset."""
    missing = min(least, sum(whole.size for whole in wholes)) - sum(parts)
    largest = [(-whole.size / count, index) for index, (whole, count) in enumerate(zip(wholes, parts, strict=True))]
    heapq.heapify(largest)
    for _ in range(missing):
        _, index = largest[0]
        parts[index] += 1
        size = wholes[index].size / parts[index] if parts[index] < wholes[index].size else 0
        heapq.heapreplace(largest, (-size, index))
