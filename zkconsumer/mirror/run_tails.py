"""Describes the end of a lane whose batches belong to transactions: which records are where, by its batch heads. Pure.

The sequence number of a record says which record of the source it is. So whoever has ended a transaction, and when, the
heads of the batches tell the runs.

Rules, and which failure each prevents:
- A marker takes an offset of the log and no number: the next record starts a run.
- The records of a transaction that was aborted count as not copied: readers of committed messages do not get them.
- A batch of another producer is found and named, and never described as the lane's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from simpleconsumer.dialect import BatchHead
from zkconsumer.mirror.errors import AnotherWriter
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, RunRecord
from zkconsumer.mirror.lanes.lane_events import SEQUENCES

_IS_CONTROL: Final = 32


class DescribedTail(NamedTuple):
    """The runs at the end of a lane.

    Attributes:
        runs: From the first run of the tail on; the last one starts at the end of the log. Their numbers are not set.
        is_aborted: Whether a transaction was aborted: the epoch of the producer is a later one then.
    """

    runs: list[RunRecord]
    is_aborted: bool


@dataclass
class _Stretch:
    """Records at consecutive offsets of the target, with consecutive numbers.

    Attributes:
        first: The offset of the first record.
        count: How many records that count come before it in the tail.
        end: The offset after the last record.
        cause: Why it starts.
    """

    first: int
    count: int
    end: int
    cause: RunCause


def tail_start(runs: LaneMap, end: int) -> int | None:
    """Return the index of the run from which on the end of a log is described; None if the log ends before the runs.

    It is the start of the last transaction whose marker is known to be there, or the one before.
    """
    starts = [index for index, run in enumerate(runs.runs) if run.target_first <= end and _is_start(runs, index)]
    if not starts:
        return None
    last = starts[-1]
    # The run of a marker is stored before it; that of a new epoch afterwards.
    is_doubtful = len(starts) > 1 and runs.runs[last].producer == runs.runs[last - 1].producer
    return starts[-2] if is_doubtful else last


def _is_start(runs: LaneMap, index: int) -> bool:
    """Return whether no transaction was open before a run."""
    run = runs.runs[index]
    return not index or run.gap > 0 or run.producer != runs.runs[index - 1].producer


def described_tail(
    runs: LaneMap, first: int, heads: Sequence[BatchHead], end: int, is_committed: Callable[[int, int], bool]
) -> DescribedTail:
    """Return the runs that the heads of batches tell.

    Args:
        runs: As they are known, which may be wrong about markers.
        first: `tail_start`.
        heads: Of all batches from there to the end of the log.
        end: Of the log.
        is_committed: Whether the transaction with a record at the first offset was committed by the marker at the
            second.

    Raises:
        AnotherWriter: A batch is not of the lane's producer, or not the next one.
    """
    known = runs.runs[first:]
    start = known[0]
    stretches = [_Stretch(start.target_first, 0, start.target_first, start.cause)]
    open_at, count, cause, is_aborted = 0, 0, RunCause.MARKER, False  # `open_at`: what counts before the transaction
    for head in heads:
        if head.producer_id != start.producer.producer_id:
            raise _foreign(runs.lane, head, start, count)
        if head.attributes & _IS_CONTROL:
            cause = RunCause.MARKER
            if count > open_at and not is_committed(_first_of(stretches, open_at), head.base_offset):
                stretches = [each for each in stretches if each.count < open_at] or stretches[:1]
                stretches[-1].end = stretches[-1].first + open_at - stretches[-1].count
                count, cause, is_aborted = open_at, RunCause.ABORTED, True
            open_at = count
            continue
        if is_aborted or head.base_sequence != (start.first_sequence + count) % SEQUENCES:
            raise _foreign(runs.lane, head, start, count)
        if stretches[-1].end != head.base_offset:
            stretches.append(_Stretch(head.base_offset, count, head.base_offset, cause))
        stretches[-1].end += head.records
        count += head.records
    if stretches[-1].end != end:
        stretches.append(_Stretch(end, count, end, cause))
    return DescribedTail(list(_runs_of(known, stretches, end)), is_aborted)


def changes(runs: LaneMap, first: int, found: Sequence[RunRecord]) -> list[RunRecord]:
    """Return what is stored so that a lane has these runs from an index on: at least the last one, once more.

    Each one replaces those at or after its start, so the one before the first that differs is stored again, too.
    """
    known = runs.runs[first:]
    alike = 0
    while alike < min(len(known), len(found)) and _is_alike(known[alike], found[alike]):
        alike += 1
    kept = min(alike, len(found) - 1)
    if alike < len(known) and kept == alike:
        kept = max(0, kept - 1)
    return [run._replace(number=runs.number + 1 + index) for index, run in enumerate(found[kept:])]


def _is_alike(known: RunRecord, found: RunRecord) -> bool:
    """Return whether two runs map the same offsets, whatever their causes."""
    return known._replace(cause=found.cause, lost_first=found.lost_first, number=0) == found


def _first_of(stretches: Sequence[_Stretch], count: int) -> int:
    """Return the offset of the record before which so many count."""
    stretch = next(each for each in reversed(stretches) if each.count <= count)
    return stretch.first + count - stretch.count


def _runs_of(known: Sequence[RunRecord], stretches: Sequence[_Stretch], end: int) -> Iterator[RunRecord]:
    """Yield the runs of stretches, with a new run wherever the known ones say that the source has a hole."""
    start = known[0]
    counts = [(run.first_sequence - start.first_sequence) % SEQUENCES for run in known]
    before_end = start.target_first
    last = start
    for index, stretch in enumerate(stretches):
        last = start
        if index:
            last = _run(known, counts, stretch.count, stretch.first, stretch.cause)
            last = last._replace(gap=stretch.first - before_end)
        yield last._replace(number=0)
        before_end = stretch.end
        for run, count in zip(known, counts, strict=True):
            target = stretch.first + count - stretch.count
            if stretch.first < target < stretch.end and run.place_at(run.target_first) != last.place_at(
                last.target_first + target - stretch.first
            ):  # fmt: skip
                last = _run(known, counts, count, target, run.cause)
                yield last
    if last.target_first != end:
        count = stretches[-1].count + end - stretches[-1].first
        yield _run(known, counts, count, end, RunCause.TAKEN)


def _run(
    known: Sequence[RunRecord], counts: Sequence[int], count: int, target: int, cause: RunCause
) -> RunRecord:  # fmt: skip
    """Return a run that starts with the record before which so many count."""
    index = max(index for index, each in enumerate(counts) if each <= count)
    place = known[index].place_at(known[index].target_first + count - counts[index])
    sequence = (known[0].first_sequence + count) % SEQUENCES
    return known[0]._replace(
        number=0, first_sequence=sequence, source_first=place.offset, skip=place.skip, target_first=target, cause=cause,
        gap=0, lost_first=-1,
    )  # fmt: skip


def _foreign(lane: Lane, head: BatchHead, start: RunRecord, count: int) -> AnotherWriter:
    expected = f"producer {start.producer.producer_id} at sequence {(start.first_sequence + count) % SEQUENCES}"
    found = f"a batch of producer {head.producer_id} at offset {head.base_offset} with sequence {head.base_sequence}"
    return AnotherWriter(lane.target, expected, found)
