"""Where a query begins and ends in each partition: what was asked for, against what the logs hold.

Pure. Rule: an offset that was asked for by number, or that a group stored, and that the log does not have, is lost
data. It is never replaced by another one unless `failOnDataLoss` is false, and then what is left out is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.errors import DataLoss, OptionRefused
from zkconsumer.spark.offsets_json import EARLIEST_OFFSET, LATEST_OFFSET
from zkconsumer.spark.options import OffsetSpec

__all__ = ["Bounds", "LogEnds", "check_named", "resolve", "resolve_bounds"]

_SHOWN = 5


class LogEnds(NamedTuple):
    """Where the log of a partition begins and ends, as its leader says."""

    earliest: int
    latest: int
    leader: Broker


@dataclass(frozen=True)
class Bounds:
    """Where to begin and where to end, in each partition; and what is not there and left out."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    losses: tuple[DataLoss, ...] = ()


def check_named(spec: OffsetSpec, partitions: Collection[TopicPartition]) -> None:
    """Refuse offsets by JSON that leave a partition out, or name one that is not read; as Spark's Kafka source does.

    Raises:
        OptionRefused: Naming the partitions.
    """
    if spec.kind != "each":
        return
    missing = sorted(set(partitions) - set(spec.each))
    if missing:
        raise OptionRefused(spec.option, f"it leaves out {_names(missing)}; -2 is earliest, -1 latest")
    strangers = sorted(set(spec.each) - set(partitions))
    if strangers:
        raise OptionRefused(spec.option, f"it names {_names(strangers)}, not among the partitions to read")


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
) -> Bounds:
    """Return where a batch begins and ends in each partition.

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
        losses += loss
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
