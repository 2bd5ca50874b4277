"""Compares the two logs of a lane, and the target's log with the leaves that were written while it was copied. Pure.

Both logs are joined by the offsets of the source, as the runs map them. Batches that both sides store in the same way
are compared as they are stored, without decompressing. Others are decoded, and compared record by record by key, value
and headers. Times are left out, as targets may set them.

A part of a leaf proves what the source has deleted since: the hash of what was read from the source is compared with
that of what the target has now. Where both logs differ, it says which of them has changed since.

Source: docs/MIRROR.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simpleconsumer.types import Message
from zkconsumer.mirror.compared_records import hash_of
from zkconsumer.mirror.lane_leaves import DECODED, LEAF_OFFSETS, LeafPart, OrderedHash, batch_digest
from zkconsumer.mirror.lane_runs import Lane, Stretch
from zkconsumer.mirror.pieces import LogSpan

MOST_NAMED: Final = 20
_MOST_RANGES: Final = 1000


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

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.different


# -- one side ----------------------------------------------------------------------------------------------------------


class OffsetPlaces:
    """The offsets of the target, as offsets of the source. The target is read in order.

    Args:
        stretches: The runs that have records, in order.
    """

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._stretches = joined(stretches)
        self._index = 0

    def source_at(self, target_offset: int, records: int = 1) -> int | None:
        """Return where a record was read, or all of several in a row; None if no run has it."""
        stretches = self._stretches
        while self._index < len(stretches) and target_offset >= stretches[self._index].target_end:
            self._index += 1
        if self._index == len(stretches):
            return None
        stretch = stretches[self._index]
        is_within = stretch.run.target_first <= target_offset and target_offset + records <= stretch.target_end
        return stretch.run.source_at(target_offset) if is_within else None


def joined(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return stretches of which those are one between which neither side has a hole."""
    found: list[Stretch] = []
    for each in stretches:
        if found and found[-1].target_end == each.run.target_first and found[-1].source_end == each.run.source_first:
            found[-1] = Stretch(found[-1].run, each.target_end)
        else:
            found.append(each)
    return found


class SpanCursor:
    """Goes through one log by the offsets of the source.

    Args:
        spans: Of the log, in order.
        place: Returns the offset of the source of a record, or of several in a row; None for those to leave out.
        must_open: Returns whether a batch has to be decoded, given the offset of its first record in the source.

    Attributes:
        at: The offset of the next record in the source; None at the end.
        own_offset: Its offset in this log.
        whole: The batch that starts there, if it can be compared as it is stored.
    """

    def __init__(
        self,
        spans: Iterator[LogSpan],
        place: Callable[[int, int], int | None],
        must_open: Callable[[int, SpanCursor], bool] = lambda first, cursor: False,
    ) -> None:
        self._spans = spans
        self._place = place
        self._must_open = must_open
        self._messages: Iterator[Message] = iter(())
        self._digest: bytes | None = None
        self.at: int | None = -1
        self.own_offset = -1
        self.whole: LogSpan | None = None
        self.message: Message | None = None
        self.advance()

    @property
    def digest(self) -> bytes:
        """The hash of the batch as it is stored."""
        if self._digest is None:
            assert self.whole is not None
            self._digest = batch_digest(self.whole.section)
        return self._digest

    @property
    def whole_end(self) -> int:
        """The offset of the source after the batch."""
        assert self.whole is not None
        assert self.at is not None
        return self.at + self.whole.records

    def open(self) -> None:
        """Have the batch decoded."""
        if self.whole is not None:
            self._messages = self.whole.messages()
            self.whole = None
            self.advance()

    def advance(self) -> None:
        """Go to the next record, or to the next batch if one is not opened."""
        while True:
            self.whole = None
            for message in self._messages:
                at = self._place(message.offset, 1)
                if at is not None:
                    self.message, self.at, self.own_offset = message, at, message.offset
                    return
            span = next(self._spans, None)
            if span is None:
                self.message = self.at = None
                return
            if self._is_kept_whole(span):
                return
            self._messages = span.messages()

    def _is_kept_whole(self, span: LogSpan) -> bool:
        first = self._place(span.first_offset, span.records) if span.codecs else None
        if first is None:
            return False
        self.message, self._digest = None, None
        self.whole, self.at, self.own_offset = span, first, span.first_offset
        if self._must_open(first, self):
            self.whole = None
            return False
        return True


# -- leaves ------------------------------------------------------------------------------------------------------------


class _Verdict(enum.Enum):
    EQUAL = 1
    DIFFERENT = 2
    MISSING = 3
    OTHER_BATCHES = 4


@dataclass
class _PartCheck:
    """A part, and what the target has of it so far."""

    part: LeafPart
    target_first: int
    records: int = 0
    reached: int = 0
    codecs: int = 0
    is_broken: bool = False
    hash: OrderedHash = field(default_factory=OrderedHash)
    pending: list[AuditRange] = field(default_factory=list)
    differences: list[int] = field(default_factory=list)
    lacks: int = 0
    differs: int = 0

    def __post_init__(self) -> None:
        self.reached = self.part.first

    def verdict(self) -> _Verdict:
        part = self.part
        if self.records < part.records:
            return _Verdict.MISSING
        if part.codecs != DECODED and (self.is_broken or self.reached != part.end or self.codecs != part.codecs):
            return _Verdict.OTHER_BATCHES
        return _Verdict.EQUAL if self.hash.hexdigest() == part.digest else _Verdict.DIFFERENT


class LeafChecks:
    """Compares the target with parts of leaves.

    Args:
        parts: They do not overlap, and are in order. Each with the offset of its first record in the target.
        finished: Called with each part after its last record.
    """

    def __init__(
        self, parts: Sequence[tuple[LeafPart, int]], finished: Callable[[_PartCheck], None]
    ) -> None:  # fmt: skip
        self._checks = [_PartCheck(*each) for each in parts]
        self._index = 0
        self._finished = finished

    def at(self, offset: int) -> _PartCheck | None:
        """Return the part to which an offset of the source belongs; the offsets rise."""
        checks = self._checks
        while self._index < len(checks) and checks[self._index].part.end <= offset:
            self._index += 1
            self._finished(checks[self._index - 1])
        if self._index == len(checks) or checks[self._index].part.first > offset:
            return None
        return checks[self._index]

    def end(self) -> None:
        """The log is at its end."""
        while self._index < len(self._checks):
            self._index += 1
            self._finished(self._checks[self._index - 1])

    def must_open(self, first: int, cursor: SpanCursor) -> bool:
        """Take a batch of the target; return whether its records are needed one by one."""
        assert cursor.whole is not None
        check, end = self.at(first), first + cursor.whole.records
        following = self._checks[self._index] if self._index < len(self._checks) else None
        if check is None:
            if following is None or following.part.first >= end:
                return False
            following.is_broken = True
            return True
        if check.part.codecs == DECODED:
            return True
        if end > check.part.end or first != check.reached:
            check.is_broken = True
            return True
        check.reached = end
        check.codecs |= cursor.whole.codecs
        check.hash.add(cursor.digest)
        return False


# -- both sides --------------------------------------------------------------------------------------------------------


@dataclass
class _LeafSums:
    first: int
    records: int = 0
    size_bytes: int = 0
    source: OrderedHash = field(default_factory=OrderedHash)
    target: OrderedHash = field(default_factory=OrderedHash)


class SourceLog(NamedTuple):
    """What is known of the log of the source.

    Attributes:
        start, end: Its bounds when the comparison was started.
        start_now: Returns where it starts now.
        compacts: Whether records are removed by compaction.
    """

    start: int
    end: int
    start_now: Callable[[], int]
    compacts: bool


class LaneComparison:
    """The comparison of one lane.

    Args:
        lane: The lane.
        stretches: The runs that have records.
        parts: Of leaves; those that cannot be found on the target are left out.
        source: The log of the source; None if only the target is read.
        target_start: Where the log of the target starts.
        target_start_now: Returns where it starts now.
    """

    def __init__(
        self,
        lane: Lane,
        stretches: Sequence[Stretch],
        parts: Sequence[LeafPart],
        source: SourceLog | None,
        target_start: int,
        target_start_now: Callable[[], int],
    ) -> None:
        self.found = LaneAudit(lane)
        self._stretches = joined(stretches)
        self._source = source
        self._target_start = target_start
        self._target_start_now = target_start_now
        self._checks = LeafChecks(self._placed(parts), self._part_finished)
        self._sums: list[_LeafSums] = []
        self._left_out = 0

    def _placed(self, parts: Sequence[LeafPart]) -> list[tuple[LeafPart, int]]:
        """Return the parts that the target has, with their first offsets there."""
        found, index = [], 0
        for part in parts:
            while index < len(self._stretches) and self._stretches[index].source_end <= part.first:
                index += 1
            if index == len(self._stretches):
                break
            run, end = self._stretches[index].run, self._stretches[index].source_end
            target_first = target_offset(self._stretches[index], part.first)
            if run.source_first <= part.first and part.end <= end and target_first >= self._target_start:
                found.append((part, target_first))
        return found

    def compare(self, source: Iterator[LogSpan], target: Iterator[LogSpan]) -> LaneAudit:
        """Return what was found.

        Args:
            source: The log of the source, from its start to its end; nothing if only the target is read.
            target: The log of the target.
        """
        theirs = SpanCursor(source, lambda offset, _: offset)
        ours = SpanCursor(target, OffsetPlaces(self._stretches).source_at, self._checks.must_open)
        while theirs.at is not None or ours.at is not None:
            if ours.at is None or (theirs.at is not None and theirs.at < ours.at):
                self._only_source(theirs, ours.at)
            elif theirs.at is None or ours.at < theirs.at:
                self._only_target(ours, theirs.at)
            elif not self._are_same_batch(theirs, ours):
                self._compare_records(theirs, ours)
        self._checks.end()
        self.found.leaves = [self._leaf(each) for each in self._sums]
        self.found.ranges.sort(key=lambda each: each.first)
        self.found.ranges = _merged(self.found.ranges)
        return self.found

    # -- records of both sides -----------------------------------------------------------------------------------------

    def _are_same_batch(self, theirs: SpanCursor, ours: SpanCursor) -> bool:
        """Compare two batches as they are stored; return False if that does not prove that they are equal."""
        a, b = theirs.whole, ours.whole
        if a is None or b is None:
            return False
        if a.records != b.records or a.codecs != b.codecs:
            return False
        if bytes(a.section) != bytes(b.section):  # views are compared item by item, which takes ten times as long
            return False
        assert ours.at is not None
        sums = self._sums_at(ours.at)
        sums.records += b.records
        sums.size_bytes += len(b.section)
        sums.source.add(ours.digest)
        sums.target.add(ours.digest)
        self._count_whole(ours)
        self.found.records += b.records
        self._name(RangeState.EQUAL, ours.at, b.records, ours.own_offset)
        ours.advance()
        theirs.advance()
        return True

    def _compare_records(self, theirs: SpanCursor, ours: SpanCursor) -> None:
        theirs.open()
        ours.open()
        origin, copied, at = theirs.message, ours.message, ours.at
        if origin is None or copied is None or at is None or theirs.at != at:
            return  # what was opened had no record there
        our_hash = hash_of(copied)
        is_equal = (origin.key, origin.value, origin.headers) == (copied.key, copied.value, copied.headers)
        sums = self._sums_at(at)
        sums.records += 1
        sums.size_bytes += len(origin.key or b"") + len(origin.value or b"")
        sums.source.add(our_hash if is_equal else hash_of(origin))
        sums.target.add(our_hash)
        self._count_record(at, our_hash)
        if is_equal:
            self.found.records += 1
            self._name(RangeState.EQUAL, at, 1, copied.offset)
        else:
            self._differs(at, copied.offset, "key, value or headers differ")
        theirs.advance()
        ours.advance()

    # -- records of one side -------------------------------------------------------------------------------------------

    def _only_source(self, theirs: SpanCursor, ours_at: int | None) -> None:
        at, stretches = theirs.at, self._stretches
        assert at is not None
        is_whole = theirs.whole is not None and (ours_at is None or theirs.whole_end <= ours_at)
        end = theirs.whole_end if is_whole else at + 1
        if not stretches or at >= stretches[-1].source_end or end <= stretches[0].run.source_first:
            if not is_whole:
                theirs.open()
            self.found.not_copied += end - at if is_whole else 1
            theirs.advance()
            return
        if theirs.whole is not None:
            theirs.open()
            return
        self._lacks(at)
        theirs.advance()

    def _lacks(self, at: int) -> None:
        of_stretch = [each for each in self._stretches if each.run.source_first <= at < each.source_end]
        compacts = self._source is not None and self._source.compacts
        if of_stretch and (compacts or self._is_deleted_on_target(target_offset(of_stretch[-1], at))):
            self.found.only_source += 1
            return
        check = self._checks.at(at)
        if check is not None:
            check.lacks += 1
        self._differs(at, None, "the target does not have it")

    def _is_deleted_on_target(self, offset: int) -> bool:
        if offset < self._target_start:
            return True
        return self.found.different < MOST_NAMED and offset < self._target_start_now()

    def _only_target(self, ours: SpanCursor, theirs_at: int | None) -> None:
        at, source = ours.at, self._source
        assert at is not None
        whole = ours.whole
        if whole is not None:
            end, is_before = ours.whole_end, theirs_at is None or ours.whole_end <= theirs_at
            if not is_before or (source is not None and not self._is_deleted(source, end - 1)):
                ours.open()
                return
            if source is None:
                self._sum_of_target(at, whole.records, len(whole.section), ours.digest)
            self._count_whole(ours)
            self._unproved(at, whole.records, ours.own_offset)
            ours.advance()
            return
        assert ours.message is not None
        digest = hash_of(ours.message)
        if source is None:
            size_bytes = len(ours.message.key or b"") + len(ours.message.value or b"")
            self._sum_of_target(at, 1, size_bytes, digest)
        self._count_record(at, digest)
        # Maybe deleted while it was read. After some real differences that does not matter, and costs a request each.
        if source is None or self._is_deleted(source, at) or self._is_deleted_now(source, at):
            self._unproved(at, 1, ours.own_offset)
        else:
            self._differs(at, ours.own_offset, "the source does not have it")
        ours.advance()

    def _is_deleted_now(self, source: SourceLog, at: int) -> bool:
        return self.found.different < MOST_NAMED and at < source.start_now()

    @staticmethod
    def _is_deleted(source: SourceLog, at: int) -> bool:
        return at < source.start or (source.compacts and at < source.end)

    def _unproved(self, at: int, records: int, own_offset: int) -> None:
        """Take note of records that the source does not have; a leaf may prove them."""
        unproved = AuditRange(RangeState.UNPROVED, at, at + records, own_offset, records)
        check = self._checks.at(at)
        if check is None:
            self.found.only_target += records
            self._add_range(unproved)
        else:
            _append(check.pending, unproved)

    def _sum_of_target(self, at: int, records: int, size_bytes: int, digest: bytes) -> None:
        sums = self._sums_at(at)
        sums.records += records
        sums.size_bytes += size_bytes
        sums.target.add(digest)

    # -- leaves --------------------------------------------------------------------------------------------------------

    def _count_whole(self, ours: SpanCursor) -> None:
        assert ours.at is not None
        assert ours.whole is not None
        check = self._checks.at(ours.at)
        if check is not None:
            check.records += ours.whole.records

    def _count_record(self, at: int, digest: bytes) -> None:
        check = self._checks.at(at)
        if check is not None:
            check.records += 1
            if check.part.codecs == DECODED:
                check.hash.add(digest)

    def _part_finished(self, check: _PartCheck) -> None:
        found, part, verdict = self.found, check.part, check.verdict()
        pending = sum(each.records for each in check.pending)
        state = RangeState.UNPROVED
        text = f"records {part.first} to {part.end - 1} of the source"
        if verdict is _Verdict.EQUAL:
            state = RangeState.PROVED
            found.by_leaves += pending
            self._explain(check, "the target has what was copied, and the source has changed since")
        elif verdict is _Verdict.DIFFERENT:
            state = RangeState.DIFFERENT
            self._explain(check, "the target has changed since it was copied")
            if pending:
                found.different += pending
                self._note(Difference(part.first, check.target_first, f"{text} are not what was copied"))
            elif not check.differs:
                found.different += 1
                self._note(Difference(part.first, check.target_first, f"{text} have changed since on both sides"))
        else:
            found.only_target += pending
            missing = part.records - check.records - check.lacks
            if verdict is _Verdict.MISSING and missing > 0 and not self._is_deleted_on_target(check.target_first):
                found.different += missing
                self._note(Difference(part.first, check.target_first, f"{text}: the target lacks {missing} of them"))
        for each in check.pending:
            self._add_range(each._replace(state=state))

    def _explain(self, check: _PartCheck, why: str) -> None:
        for index in check.differences:
            noted = self.found.differences[index]
            self.found.differences[index] = noted._replace(what=f"{noted.what}: {why}")

    # -- what is noted -------------------------------------------------------------------------------------------------

    def _differs(self, at: int, own_offset: int | None, what: str) -> None:
        self.found.different += 1
        check = self._checks.at(at)
        if check is not None:
            check.differs += 1
        if self._note(Difference(at, own_offset, what)) and check is not None and own_offset is not None:
            check.differences.append(len(self.found.differences) - 1)
        self._name(RangeState.DIFFERENT, at, 1, own_offset)

    def _note(self, difference: Difference) -> bool:
        if len(self.found.differences) >= MOST_NAMED:
            return False
        self.found.differences.append(difference)
        return True

    def _name(self, state: RangeState, at: int, records: int, own_offset: int | None) -> None:
        self._add_range(AuditRange(state, at, at + records, own_offset, records))

    def _add_range(self, added: AuditRange) -> None:
        if len(self.found.ranges) < _MOST_RANGES or _continues(self.found.ranges[-1], added):
            _append(self.found.ranges, added)

    def _sums_at(self, at: int) -> _LeafSums:
        first = at // LEAF_OFFSETS * LEAF_OFFSETS
        if not self._sums or self._sums[-1].first != first:
            self._sums.append(_LeafSums(first))
        return self._sums[-1]

    def _leaf(self, sums: _LeafSums) -> Leaf:
        source = None if self._source is None else sums.source.hexdigest()
        return Leaf(sums.first, sums.records, sums.size_bytes, source, sums.target.hexdigest())


def target_offset(stretch: Stretch, source_offset: int) -> int:
    """Return where in the target a record of a stretch is."""
    return stretch.run.target_first + source_offset - stretch.run.source_first


def _continues(before: AuditRange, after: AuditRange) -> bool:
    if before.state is not after.state:
        return False
    if before.target_first is None or after.target_first is None:
        return before.target_first is after.target_first and before.end == after.first
    return before.target_first + before.records == after.target_first


def _append(ranges: list[AuditRange], added: AuditRange) -> None:
    """Add a range; it continues the one before where no record of the target is between them."""
    if ranges and _continues(ranges[-1], added):
        ranges[-1] = ranges[-1]._replace(end=added.end, records=ranges[-1].records + added.records)
    else:
        ranges.append(added)


def _merged(ranges: Sequence[AuditRange]) -> list[AuditRange]:
    found: list[AuditRange] = []
    for each in ranges:
        _append(found, each)
    return found
