"""Resolves where a query starts and ends in each partition, from the options and the ends of the logs.

Pure. Rule: if an offset that was set by number, or stored by a group, is not in the log, data is lost. It is never
replaced by another one unless `failOnDataLoss` is false, and then the omitted offsets are reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.segment_times import AtTime
from zkconsumer.spark.errors import DataLoss, NoMessageAtTime, OptionRefused
from zkconsumer.spark.options.offset_spec import OffsetSpec
from zkconsumer.spark.options.offsets_json import EARLIEST_OFFSET, LATEST_OFFSET
from zkconsumer.spark.streaming.spans import ALL_OFFSETS, Spans, common
from zkconsumer_error import first_few

__all__ = [
    "Bounds",
    "LogEnds",
    "check_named",
    "check_times",
    "offsets_at_times",
    "resolve",
    "resolve_bounds",
    "spec_at_times",
]


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


def _within(
    name: TopicPartition, start: int, end: int, log: LogEnds, option: str
) -> tuple[list[DataLoss], int, int]:
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
