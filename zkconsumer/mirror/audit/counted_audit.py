"""Compares the two logs of a lane whose source is of Kafka 0.7: its records are counted from the start of each run.

Offsets of Kafka 0.7 are bytes, and several records may share one: such a lane has no leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from simpleconsumer.types import Message
from zkconsumer.mirror.audit.audit_comparison import LeafSums
from zkconsumer.mirror.audit.audit_findings import MOST_NAMED, Difference, LaneAudit
from zkconsumer.mirror.compared_records import hash_of
from zkconsumer.mirror.lane_leaves import LEAF_OFFSETS
from zkconsumer.mirror.lane_runs import LaneMap

Read = Callable[[int, int], Iterator[Message]]


class CountedComparison:
    """The comparison of one lane.

    Args:
        runs: Of the lane.
        source, target: Read the logs between two offsets.
    """

    def __init__(self, runs: LaneMap, source: Read, target: Read) -> None:
        self.found = LaneAudit(runs.lane)
        self._runs = runs
        self._source = source
        self._target = target
        self._sums: list[LeafSums] = []

    def compare(self, source_bounds: tuple[int, int], target_bounds: tuple[int, int]) -> LaneAudit:
        """Return what was found between the bounds of both logs."""
        found = self.found
        earliest, latest = source_bounds
        stretches = list(self._runs.stretches(target_bounds[1]))
        for index, (run, target_end) in enumerate(stretches):
            start = max(run.target_first, target_bounds[0])
            copied = itertools.islice(self._target(start, target_end), max(0, target_end - start))
            if run.source_first < earliest:  # at which of its records the source's log starts now cannot be counted
                found.only_target += sum(1 for _ in copied)
                continue
            later = stretches[index + 1].run if index + 1 < len(stretches) else None
            theirs = itertools.islice(self._source(run.source_first, latest), run.skip, None)
            gone = min(max(0, target_bounds[0] - run.target_first), target_end - run.target_first)
            found.only_source += sum(1 for _ in itertools.islice(theirs, gone))
            for message in copied:
                origin = next(theirs, None)
                if origin is None:
                    self._note(Difference(latest, message.offset, "the source does not have it"))
                else:
                    self._compare(origin, message)
            if later is None:
                found.not_copied += sum(1 for _ in theirs)
            elif not later.skip:
                end = later.lost_first if later.lost_first >= 0 else later.source_first
                for origin in itertools.takewhile(lambda each, end=end: each.offset < end, theirs):  # type: ignore[misc]
                    self._note(Difference(origin.offset, None, "the target does not have it"))
        if not stretches:
            found.not_copied += sum(1 for _ in self._source(earliest, latest))
        found.leaves = [each.leaf(has_source=True) for each in self._sums]
        return found

    def _compare(self, origin: Message, copied: Message) -> None:
        ours, theirs = hash_of(copied), hash_of(origin)
        if not self._sums or origin.offset >= self._sums[-1].first + LEAF_OFFSETS:
            self._sums.append(LeafSums(origin.offset // LEAF_OFFSETS * LEAF_OFFSETS))
        sums = self._sums[-1]
        sums.records += 1
        sums.size_bytes += len(origin.key or b"") + len(origin.value or b"")
        sums.source.add(theirs)
        sums.target.add(ours)
        if ours == theirs:
            self.found.records += 1
        else:
            self._note(Difference(origin.offset, copied.offset, "key, value or headers differ"))

    def _note(self, difference: Difference) -> None:
        self.found.different += 1
        if len(self.found.differences) < MOST_NAMED:
            self.found.differences.append(difference)


def unproved(runs: LaneMap, target_bounds: tuple[int, int]) -> LaneAudit:
    """Return the audit of such a lane when only the target is read: nothing proves its records."""
    found = LaneAudit(runs.lane)
    for run, end in runs.stretches(target_bounds[1]):
        found.only_target += max(0, end - max(run.target_first, target_bounds[0]))
    return found
