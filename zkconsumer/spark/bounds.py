"""Where a query begins and ends in each partition: what was asked for, against what the logs hold.

Pure. Rule: an offset that was asked for by number, or that a group stored, and that the log does not have, is lost
data. It is never replaced by another one unless `failOnDataLoss` is false, and then what is left out is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.errors import DataLoss, NoMessageAtTime, OptionRefused
from zkconsumer.spark.offset_spec import OffsetSpec
from zkconsumer.spark.offsets_json import EARLIEST_OFFSET, LATEST_OFFSET
from zkconsumer.spark.spans import ALL_OFFSETS, Spans, common

__all__ = [
    "AtTime",
    "Bounds",
    "LogEnds",
    "check_named",
    "check_times",
    "offsets_at_times",
    "resolve",
    "resolve_bounds",
    "spec_at_times",
]

_SHOWN = 5


class LogEnds(NamedTuple):
    """Where the log of a partition begins and ends, as its leader says."""

    earliest: int
    latest: int
    leader: Broker


class AtTime(NamedTuple):
    """What the leader of a partition says of a time.

    Attributes:
        offset: The first message at or after it, or one before that where only segments tell; None: there is none.
        end: Where the log ended just before it was asked: all that came later is behind it.
    """

    offset: int | None
    end: int


@dataclass(frozen=True)
class Bounds:
    """Where to begin and where to end, in each partition; and what is not there and left out."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    losses: tuple[DataLoss, ...] = ()


def check_named(spec: OffsetSpec, partitions: Collection[TopicPartition]) -> None:
    """Refuse offsets or times by JSON that leave a partition out, or name one that is not read.

    Spark's own Kafka source does the same.

    Raises:
        OptionRefused: Naming the partitions.
    """
    if spec.kind not in ("each", "time") or spec.time_ms is not None:
        return
    missing = sorted(set(partitions) - set(spec.each))
    if missing:
        ends = "; -2 is earliest, -1 latest" if spec.kind == "each" else ""
        raise OptionRefused(spec.option, f"it leaves out {_names(missing)}{ends}")
    unexpected = sorted(set(spec.each) - set(partitions))
    if unexpected:
        raise OptionRefused(spec.option, f"it names {_names(unexpected)}, not among the partitions to read")


def check_times(starting: OffsetSpec, ending: OffsetSpec, partitions: Collection[TopicPartition]) -> None:
    """Refuse times at which a partition would end before it begins.

    Raises:
        OptionRefused: Naming the partition.
    """
    if starting.kind != "time" or ending.kind != "time":
        return
    begins, ends = starting.times_ms(partitions), ending.times_ms(partitions)
    for name in sorted(partitions):
        if begins[name] > ends[name]:
            reason = f"{name.topic}/{name.partition} ends at {ends[name]}, before it begins at {begins[name]}"
            raise OptionRefused(ending.option, reason)


def offsets_at_times(spec: OffsetSpec, found: Mapping[TopicPartition, AtTime]) -> dict[TopicPartition, int]:
    """Return the offset at the time of each partition; the end of its log where no message is that young.

    Args:
        spec: By time.
        found: What the leaders say of all its partitions.

    Raises:
        NoMessageAtTime: No message is that young, and `spec` says that this is an error.
    """
    missing = sorted(name for name, answer in found.items() if answer.offset is None)
    if missing and spec.on_no_match == "error":
        times = spec.times_ms(missing)
        shown = ", ".join(f"{name.topic}/{name.partition} ({_shown_time(times[name])})" for name in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise NoMessageAtTime(
            f"option {spec.option}: no message is that young in {shown}{more}; with "
            "startingOffsetsByTimestampStrategy=latest such a partition begins at its end"
        )
    return {name: answer.end if answer.offset is None else answer.offset for name, answer in found.items()}


def spec_at_times(
    spec: OffsetSpec, found: Mapping[TopicPartition, AtTime], ends: Mapping[TopicPartition, LogEnds]
) -> OffsetSpec:
    """Return a spec by time as one by offsets, each of them within its log; raises as `offsets_at_times` does.

    What was deleted between the question for the time and that for the ends of the log is no loss: nobody has asked for
    that message by its number.

    Args:
        found: Answers for the partitions of `ends`.
    """
    offsets = offsets_at_times(spec, found)
    within = {name: min(max(offsets[name], log.earliest), log.latest) for name, log in ends.items()}
    return OffsetSpec("found", spec.option, within)


def resolve(
    spec: OffsetSpec, ends: Mapping[TopicPartition, LogEnds], stored: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset of each partition as it was asked for, whether its log has it or not.

    Args:
        ends: All partitions to read.
        stored: Offsets of the group, where there are any. Where there are none the group begins at the earliest.
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
    """Return where a batch begins and ends in each partition.

    Args:
        offsets: Which ones the query asks for: others are not missed.

    Raises:
        DataLoss: Offsets are not in the log, and `fail_on_data_loss` says that this must not be.
        OptionRefused: The JSON does not name just the partitions to read, or ends before it begins.
    """
    check_named(starting, ends)
    check_named(ending, ends)
    begin, finish = resolve(starting, ends, stored), resolve(ending, ends, stored)
    losses: list[DataLoss] = []
    for name, log in ends.items():
        if starting.kind == ending.kind == "each" and begin[name] > finish[name]:
            reason = f"{name.topic}/{name.partition} ends at {finish[name]}, before it begins at {begin[name]}"
            raise OptionRefused(ending.option, reason)
        loss, begin[name], finish[name] = _within(name, begin[name], finish[name], log, starting.option)
        losses += [each for each in loss if common(((each.first, each.behind),), offsets)]
    if losses and fail_on_data_loss:
        raise losses[0]
    return Bounds(begin, finish, tuple(losses))


def _within(
    name: TopicPartition, begin: int, finish: int, log: LogEnds, option: str
) -> tuple[list[DataLoss], int, int]:
    """Return what is lost, and both offsets within the log."""
    number = int(name.partition)
    has = f"the log has {log.earliest} to {log.latest}"
    losses: list[DataLoss] = []
    if begin < log.earliest and begin < finish:
        losses.append(DataLoss(name.topic, number, begin, min(finish, log.earliest), f"{has}, {option} is {begin}"))
        begin = log.earliest
    if begin > log.latest:
        losses.append(DataLoss(name.topic, number, log.latest, begin, f"{has}, {option} is {begin}"))
        begin = log.latest
    if finish > log.latest:
        losses.append(DataLoss(name.topic, number, max(begin, log.latest), finish, f"{has}, endingOffsets is {finish}"))
        finish = log.latest
    return losses, begin, max(begin, finish)


def _names(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(f"{name.topic}/{name.partition}" for name in partitions[:_SHOWN])
    return shown + (f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else "")


def _shown_time(time_ms: int) -> str:
    try:
        return f"{time_ms}, {datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError):  # beyond the year 9999
        return f"{time_ms}"
