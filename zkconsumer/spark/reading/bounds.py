"""Resolves where a query starts and ends in each partition, from the options and the ends of the logs. Rule: if an
offset that was set by number, or stored by a group, is not in the log, data is lost. It is never replaced by
another one unless `failOnDataLoss` is false, and then the omitted offsets are reported.

Pure.

Splits the offsets between the start and the end of each partition into the ranges that tasks read. Rules, and what
each prevents:
- Ranges of one partition follow each other without gap or overlap: splitting loses nothing and reads nothing twice.
- An empty range makes no task.
- Equal input gives equal output, in order: a stream that restarts makes the same plan again.

Source: org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator (behaviour of minPartitions), zkconsumer's own splits.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.time_search import AtTime
from zkconsumer.spark.errors import DataLoss, NoMessageAtTime, OptionRefused
from zkconsumer.spark.options.offsets_json import EARLIEST_OFFSET, LATEST_OFFSET
from zkconsumer.spark.options.option_table import OffsetSpec
from zkconsumer.spark.streaming.stream_offsets import ALL_OFFSETS, Spans, common
from zkconsumer_error import first_few


class LogEnds(NamedTuple):
    """The start and the end of the log of a partition, as its leader reports them.

    Attributes:
        epoch: In which it leads the partition; -1: not known (before Kafka 2.1).
    """

    earliest: int
    latest: int
    leader: Broker
    epoch: int = -1


@dataclass(frozen=True)
class Bounds:
    """Where each partition starts and ends, and the offsets that are omitted because they are lost."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    losses: tuple[DataLoss, ...] = ()


def check_named(spec: OffsetSpec, partitions: Collection[TopicPartition]) -> None:
    """Refuse offsets or times by JSON that omit a partition, or name one that is not read.

    Spark's own Kafka source does the same.

    Raises:
        OptionRefused: The text names the partitions.
    """
    if spec.kind not in ("each", "time") or spec.time_ms is not None:
        return
    missing = sorted(set(partitions) - set(spec.each))
    if missing:
        ends = "; -2 is earliest, -1 latest" if spec.kind == "each" else ""
        raise OptionRefused(spec.option, f"it omits {_names(missing)}{ends}")
    unexpected = sorted(set(spec.each) - set(partitions))
    if unexpected:
        raise OptionRefused(spec.option, f"it names {_names(unexpected)}, not among the partitions to read")


def check_times(starting: OffsetSpec, ending: OffsetSpec, partitions: Collection[TopicPartition]) -> None:
    """Refuse times at which a partition would end before it starts.

    Raises:
        OptionRefused: The text names the partition.
    """
    if starting.kind != "time" or ending.kind != "time":
        return
    starts, ends = starting.times_ms(partitions), ending.times_ms(partitions)
    for name in sorted(partitions):
        if starts[name] > ends[name]:
            raise _ends_before_its_start(ending, name, starts[name], ends[name])


def _ends_before_its_start(ending: OffsetSpec, name: TopicPartition, start: int, end: int) -> OptionRefused:
    where = f"{name.topic}/{name.partition}"
    return OptionRefused(ending.option, f"{where} ends at {end}, before it starts at {start}")


def offsets_at_times(spec: OffsetSpec, found: Mapping[TopicPartition, AtTime]) -> dict[TopicPartition, int]:
    """Return the offset at the time of each partition; the end of its log if no message is that recent.

    Args:
        spec: By time.
        found: The answers of the leaders for all its partitions.

    Raises:
        NoMessageAtTime: No message is that recent, and `spec` makes that an error.
    """
    missing = sorted(name for name, answer in found.items() if answer.offset is None)
    if missing and spec.on_no_match == "error":
        times = spec.times_ms(missing)
        shown = first_few(*[f"{name.topic}/{name.partition} ({_shown_time(times[name])})" for name in missing])
        raise NoMessageAtTime(
            f"option {spec.option}: no message is that recent in {shown}",
            remedy="with startingOffsetsByTimestampStrategy=latest such a partition starts at its end",
        )
    return {name: answer.end if answer.offset is None else answer.offset for name, answer in found.items()}


def spec_at_times(
    spec: OffsetSpec, found: Mapping[TopicPartition, AtTime], ends: Mapping[TopicPartition, LogEnds]
) -> OffsetSpec:
    """Return a spec by time as one by offsets, each of them within its log; raises as `offsets_at_times` does.

    Messages that are deleted after the question for the time, and before that for the ends of the log, are no loss:
    they were not asked for by offset.

    Args:
        found: Answers for the partitions of `ends`.
    """
    offsets = offsets_at_times(spec, found)
    within = {name: min(max(offsets[name], log.earliest), log.latest) for name, log in ends.items()}
    return OffsetSpec("found", spec.option, within)


def resolve(
    spec: OffsetSpec, ends: Mapping[TopicPartition, LogEnds], stored: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset of each partition as the options set it, whether its log has it or not.

    Args:
        ends: All partitions to read.
        stored: Offsets of the group. A partition without one starts at the earliest offset.
    """
    found: dict[TopicPartition, int] = {}
    for name, log in ends.items():
        offset = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}.get(spec.kind)
        if offset is None:
            offset = stored.get(name, EARLIEST_OFFSET) if spec.kind == "group" else spec.each[name]
        found[name] = {EARLIEST_OFFSET: log.earliest, LATEST_OFFSET: log.latest}.get(offset, offset)
    return found


def resolve_bounds(
    starting: OffsetSpec,
    ending: OffsetSpec,
    ends: Mapping[TopicPartition, LogEnds],
    stored: Mapping[TopicPartition, int],
    fail_on_data_loss: bool,
    offsets: Spans = ALL_OFFSETS,
) -> Bounds:
    """Return where a batch starts and ends in each partition.

    Args:
        offsets: The offsets that the query asks for; others cannot be lost.

    Raises:
        DataLoss: Offsets are not in the log, and `fail_on_data_loss` is set.
        OptionRefused: The JSON does not name exactly the partitions to read, or ends before it starts.
    """
    check_named(starting, ends)
    check_named(ending, ends)
    first, last = resolve(starting, ends, stored), resolve(ending, ends, stored)
    losses: list[DataLoss] = []
    for name, log in ends.items():
        if starting.kind == ending.kind == "each" and first[name] > last[name]:
            raise _ends_before_its_start(ending, name, first[name], last[name])
        loss, first[name], last[name] = _within(name, first[name], last[name], log, starting.option)
        losses += [each for each in loss if common(((each.first, each.behind),), offsets)]
    if losses and fail_on_data_loss:
        raise losses[0]
    return Bounds(first, last, tuple(losses))


def _within(name: TopicPartition, start: int, end: int, log: LogEnds, option: str) -> tuple[list[DataLoss], int, int]:
    """Return what is lost, and both offsets within the log."""
    number = name.partition
    has = f"the log has {log.earliest} to {log.latest}"
    losses: list[DataLoss] = []
    if start < log.earliest and start < end:
        losses.append(DataLoss(name.topic, number, start, min(end, log.earliest), f"{has}, {option} is {start}"))
        start = log.earliest
    if start > log.latest:
        losses.append(DataLoss(name.topic, number, log.latest, start, f"{has}, {option} is {start}"))
        start = log.latest
    if end > log.latest:
        losses.append(DataLoss(name.topic, number, max(start, log.latest), end, f"{has}, endingOffsets is {end}"))
        end = log.latest
    return losses, start, max(start, end)


def _names(partitions: list[TopicPartition]) -> str:
    return first_few(*[f"{name.topic}/{name.partition}" for name in partitions])


def _shown_time(time_ms: int) -> str:
    try:
        return f"{time_ms}, {datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError):  # after the year 9999
        return f"{time_ms}"


MAX_TASKS: Final = 100_000
"""Most tasks of one query after splitting; more would only keep the driver busy."""


@dataclass(frozen=True)
class PlannedRange:
    """The range that one task reads.

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
        raise OptionRefused(
            option, f"it would create {sum(parts)} tasks, and at most {MAX_TASKS} are possible; set a larger value"
        )
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
