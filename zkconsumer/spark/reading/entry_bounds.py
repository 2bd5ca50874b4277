"""Moves the starts and ends of tasks to the starts of entries, where offsets are byte positions (Kafka 0.7).

Rules, and which failure each prevents:
- An offset that an option names by number, and that is within an entry, is refused with both ends of the entry: whoever
  set it has counted from another place, or for another log.
- One that a group has stored is moved to the start of the entry: its messages are read again, and none is lost.
- A place at which a partition is only split is moved to the end of the entry around it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby, pairwise

from simpleconsumer.dialect import dialect_of
from simpleconsumer.dialect_types import PositionIs
from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.offset_spec import OffsetSpec
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.bounds import Bounds, LogEnds
from zkconsumer.spark.reading.entry_positions import EntryPositions
from zkconsumer.spark.reading.planning import PlannedRange

__all__ = ["at_entries", "cut_at_entries", "entry_positions"]

log = logging.getLogger(__name__)


def entry_positions(options: SourceOptions) -> EntryPositions:
    """Return what finds the starts of entries, with the limits of the options."""
    return EntryPositions(options.config, options.max_message_bytes)


def at_entries(
    options: SourceOptions,
    bounds: Bounds,
    starting: OffsetSpec,
    ending: OffsetSpec,
    ends: Mapping[TopicPartition, LogEnds],
) -> Bounds:
    """Return the bounds with each start and end at an entry; the same where offsets count messages.

    Raises:
        OptionRefused: An option names a position within an entry.
        PlanningFailed: A broker does not answer, or no entry is found.
    """
    starts, lasts = dict(bounds.starts), dict(bounds.ends)
    entries = entry_positions(options)
    for spec, positions in ((starting, starts), (ending, lasts)):
        if spec.kind not in ("each", "group"):
            continue  # the ends of logs and the starts of segments
        for name, log_ends in ends.items():
            if dialect_of(log_ends.leader).has_byte_positions and starts[name] < lasts[name]:
                positions[name] = _at_entry(entries, spec, name, positions[name], log_ends)
    return replace(bounds, starts=starts, ends=lasts)


def _at_entry(
    entries: EntryPositions, spec: OffsetSpec, name: TopicPartition, position: int, log_ends: LogEnds
) -> int:
    if position in (log_ends.earliest, log_ends.latest):
        return position
    found = entries.around(name, log_ends.leader, position)
    if found.position_is is PositionIs.BOUNDARY:
        return position
    place = f"{name.topic}/{name.partition}: position {position} is inside the entry from {found.start} to {found.end}"
    if spec.kind == "each":
        raise OptionRefused(spec.option, f"{place}; {found.start} and {found.end} are possible")
    log.warning("%s; reading starts at %d instead of the group's offset, so messages may be read "
                "again", place, found.start)
    return found.start


def cut_at_entries(options: SourceOptions, ranges: list[PlannedRange]) -> list[PlannedRange]:
    """Return the ranges of tasks with all cuts at starts of entries; each partition starts and ends where it did.

    A partition without a leader is not split, as nobody can say where its entries start.

    Args:
        ranges: By partition and offset, without gaps within a partition.

    Raises:
        PlanningFailed: A broker does not answer, or no entry is found.
    """
    entries = entry_positions(options)
    found: list[PlannedRange] = []
    for name, group in groupby(ranges, key=lambda each: each.name):
        parts = list(group)
        first, end = parts[0], parts[-1].end
        cuts: list[int] = []
        if first.leader is not None and len(parts) > 1:
            cuts = entries.cuts(name, first.leader, first.start, end, [each.start for each in parts[1:]])
        found += [replace(first, start=start, end=until) for start, until in pairwise([first.start, *cuts, end])]
    return found
