"""Compares the two logs of a lane, and the target's log with the leaves that were written while it was copied. Pure.

Both logs are joined by the offsets of the source, as the runs map them. Batches that both sides store in the same way
are compared as they are stored, without decompressing. Others are decoded, and compared record by record by key, value
and headers. Times are left out, as targets may set them.

A part of a leaf proves what the source has deleted since: the hash of what was read from the source is compared with
that of what the target has now. Where both logs differ, it says which of them has changed since.

Source: docs/MIRROR.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkconsumer.mirror.audit.audit_cursor import LeafChecks, OffsetPlaces, PartCheck, SpanCursor, Verdict, joined
from zkconsumer.mirror.audit.audit_findings import MOST_NAMED, Difference, LaneAudit, Leaf, RangeList, RangeState
from zkconsumer.mirror.compared_records import hash_of
from zkconsumer.mirror.lane_leaves import DECODED, LEAF_OFFSETS, LeafPart, OrderedHash
from zkconsumer.mirror.lane_runs import Lane, LaneMap, Stretch
from zkconsumer.mirror.pieces import LogSpan

_MOST_RANGES: Final = 1000


# -- both sides --------------------------------------------------------------------------------------------------------


@dataclass
class LeafSums:
    """What is computed of a leaf; see `Leaf`."""

    first: int
    records: int = 0
    size_bytes: int = 0
    source: OrderedHash = field(default_factory=OrderedHash)
    target: OrderedHash = field(default_factory=OrderedHash)

    def leaf(self, *, has_source: bool) -> Leaf:
        """Return the leaf."""
        source = self.source.hexdigest() if has_source else None
        return Leaf(self.first, self.records, self.size_bytes, source, self.target.hexdigest())


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
        self._sums: list[LeafSums] = []
        self._ranges = RangeList(_MOST_RANGES)

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

    def note_lost(self, first: int, end: int, target_end: int) -> None:
        """Take note of records that the target has acknowledged, and has no more; a mirror copies them again if it can.

        Args:
            first, end: See `lost_tail`.
            target_end: Where the log of the target ends.
        """
        if self._source is not None:
            end = min(end, self._source.start)  # the others are still to be copied
        if first < end:
            self.found.different += end - first
            what = f"records {first} to {end - 1} of the source were copied, and the target's log ends at {target_end}"
            self._note(Difference(first, None, what))
            self._name(RangeState.DIFFERENT, first, end - first, None)

    def compare(self, source: Iterator[LogSpan], target: Iterator[LogSpan]) -> LaneAudit:
        """Return what was found.

        Args:
            source: The log of the source, from its start to its end; nothing if only the target is read.
            target: The log of the target.
        """
        theirs = SpanCursor(source, lambda offset, _: offset)
        ours = SpanCursor(target, OffsetPlaces(self._stretches).source_at)
        while theirs.at is not None or ours.at is not None:
            if ours.at is None or (theirs.at is not None and theirs.at < ours.at):
                self._only_source(theirs, ours.at)
            elif self._checks.must_open(ours):  # not before: the source may have more of the part before
                ours.open()
            elif theirs.at is None or ours.at < theirs.at:
                self._only_target(ours, theirs.at)
            elif not self._are_same_batch(theirs, ours):
                self._compare_records(theirs, ours)
        self._checks.end()
        self.found.leaves = [each.leaf(has_source=self._source is not None) for each in self._sums]
        ranges = RangeList(_MOST_RANGES)  # what a leaf has proved was added after the leaf
        for each in sorted(self._ranges.ranges(), key=lambda each: each.first):
            ranges.add(*each)
        self.found.ranges = ranges.ranges()
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
        check = self._checks.at(at)
        if check is None:
            self.found.only_target += records
            self._name(RangeState.UNPROVED, at, records, own_offset)
        else:
            check.pending_records += records
            check.pending.add(RangeState.UNPROVED, at, at + records, own_offset, records)

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

    def _part_finished(self, check: PartCheck) -> None:
        found, part, verdict = self.found, check.part, check.verdict()
        pending = check.pending_records
        state = RangeState.UNPROVED
        text = f"records {part.first} to {part.end - 1} of the source"
        if verdict is Verdict.EQUAL:
            state = RangeState.PROVED
            found.by_leaves += pending
            self._explain(check, "the target has what was copied, and the source has changed since")
        elif verdict is Verdict.DIFFERENT:
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
            if verdict is Verdict.MISSING and missing > 0 and not self._is_deleted_on_target(check.target_first):
                found.different += missing
                self._note(Difference(part.first, check.target_first, f"{text}: the target lacks {missing} of them"))
        for each in check.pending.ranges():
            self._ranges.add(state, *each[1:])

    def _explain(self, check: PartCheck, why: str) -> None:
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
        self._ranges.add(state, at, at + records, own_offset, records)

    def _sums_at(self, at: int) -> LeafSums:
        if not self._sums or at >= self._sums[-1].first + LEAF_OFFSETS:
            self._sums.append(LeafSums(at // LEAF_OFFSETS * LEAF_OFFSETS))
        return self._sums[-1]


def target_offset(stretch: Stretch, source_offset: int) -> int:
    """Return where in the target a record of a stretch is."""
    return stretch.run.target_first + source_offset - stretch.run.source_first


def lost_tail(runs: LaneMap, parts: Sequence[LeafPart], target_end: int) -> tuple[int, int] | None:
    """Return first offset and end of what leaves have after the end of the target's log, by the offsets of the source.

    The target has acknowledged these records. An unclean election may have cut them off, or the topic was made anew.
    """
    first: int | None = None
    end = 0
    firsts = [run.source_first for run in runs.runs]
    for part in parts:
        index = bisect_right(firsts, part.first) - 1
        if index < 0:
            continue
        run = runs.runs[index]
        part_end = run.target_first + part.end - run.source_first
        following = runs.runs[index + 1] if index + 1 < len(runs.runs) else None
        is_of_run = following is None or part_end <= following.target_first - following.gap
        if is_of_run and part_end > target_end:
            lost = max(part.first, run.source_at(target_end))
            first = lost if first is None else min(first, lost)
            end = max(end, part.end)
    return None if first is None else (first, end)
