"""What the audit of a mirror has found, of one lane. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkconsumer.mirror.lane_runs import Lane

MOST_NAMED: Final = 20


class RangeState(enum.Enum):
    """What is known of a range of offsets."""

    EQUAL = "equal"
    PROVED = "equal_by_leaf"
    DIFFERENT = "different"
    UNPROVED = "not_proved"


class AuditRange(NamedTuple):
    """A range of the target of which the same is known.

    Attributes:
        state: What is known.
        first, end: Offsets of the source.
        target_first: The first offset in the target; None if it is not there.
        records: How many records it has.
    """

    state: RangeState
    first: int
    end: int
    target_first: int | None
    records: int


class RangeList:
    """Ranges in the order in which they are found. A range continues the one before if no record is between them.

    Args:
        most: How many ranges are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: list[AuditRange] = []
        self._state: RangeState | None = None
        self._first = self._end = self._records = 0
        self._target_first: int | None = None
        self._target_end: int | None = None

    def add(self, state: RangeState, first: int, end: int, target_first: int | None, records: int) -> None:
        """Add a range; see `AuditRange`."""
        continues = state is self._state and target_first == self._target_end
        if continues and (target_first is not None or first == self._end):
            self._end = end
            self._records += records
        else:
            self._close()
            self._state, self._first, self._end, self._records = state, first, end, records
            self._target_first = target_first
        self._target_end = None if target_first is None else target_first + records

    def _close(self) -> None:
        if self._state is not None and len(self._found) < self._most:
            self._found.append(
                AuditRange(self._state, self._first, self._end, self._target_first, self._records)
            )  # fmt: skip

    def ranges(self) -> list[AuditRange]:
        """Return what was found."""
        self._close()
        self._state = None
        return self._found


class Difference(NamedTuple):
    """A record that is not the same on both sides, or a range with such records.

    Attributes:
        source_offset: Where it is, or belongs, in the source.
        target_offset: Where it is in the target; None if it is not there.
        what: What is different, a clause.
    """

    source_offset: int
    target_offset: int | None
    what: str


class Leaf(NamedTuple):
    """The records at 65,536 offsets of the source, on both sides.

    Attributes:
        first: The first offset.
        records: How many records both sides have; the target alone, if only that was read.
        size_bytes: Their bytes: as stored where both sides store them in the same way, else those of keys and values.
        source_hash: The ordered hash of the source's records; None if only the target was read.
        target_hash: The ordered hash of the target's records.
    """

    first: int
    records: int
    size_bytes: int
    source_hash: str | None
    target_hash: str


class HourCount(NamedTuple):
    """How many records have a time in one hour.

    Attributes:
        start_ms: When the hour starts, in milliseconds since 1970; None for records without a time.
        source, target: How many records each side has.
    """

    start_ms: int | None
    source: int
    target: int


@dataclass
class LaneAudit:
    """What the comparison of one lane has found.

    Attributes:
        lane: What was compared.
        records: How many are equal on both sides.
        by_leaves: How many the source has deleted since, or were not read there, and are what was copied.
        only_target: Records of the target that the source has deleted since, or were not read there; nothing proves
            them.
        only_source: Records that the target has deleted since; nothing proves them.
        not_copied: Records of the source after the position: they are still to be copied.
        different: How many records differ.
        differences: The first 20 records that differ.
        leaves: By the offsets of the source.
        ranges: What is known of which offsets; the first 1,000.
        hours: The records of both logs by their own times, if that was asked for.
        is_guarded: As of `LaneProgress`.
    """

    lane: Lane
    records: int = 0
    by_leaves: int = 0
    only_target: int = 0
    only_source: int = 0
    not_copied: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    ranges: list[AuditRange] = field(default_factory=list)
    hours: list[HourCount] = field(default_factory=list)
    is_guarded: bool | None = None

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.different
