"""The runs of one lane, kept in the state topic: where each one starts, and why.

Rules, and which failure each prevents:
- A run is stored before its first record is sent, and a batch never crosses a run.
- A hole that may look different to another process (compaction, retention) starts a run only when all that a former
  owner of the lane may have sent has arrived or never will.
- Nothing is skipped unless the user has said so; what is skipped is a hole with its cause.
- Whoever takes a lane of transactions over stores a run: a former owner that goes on cannot store one any more, and so
  commits nothing.

Threads: the lane's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from simpleconsumer.consumer import EARLIEST, LATEST
from zkconsumer.mirror.compared_tail import compare_tail
from zkconsumer.mirror.errors import BelowRun, LaneStuck, MirrorRefused, NumberRefused, SourceLost
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, RunRecord
from zkconsumer.mirror.lane_settings import LaneFigures, LaneSettings
from zkconsumer.mirror.lanes.lane_transactions import LaneTransactions
from zkconsumer.mirror.lanes.offset_filler import OffsetFiller
from zkconsumer.mirror.pieces import CopiedBatch
from zkconsumer.mirror.run_tails import changes, described_tail, tail_start
from zkconsumer.mirror.state_log import StateLog

log = logging.getLogger(__name__)

WAIT_S: Final = 30.0
COUNTED_RECORDS: Final = 65_536
_COUNTED_BYTES: Final = 64 << 20
_COUNTED_S: Final = 30.0
"""Limits of what is counted after a start, in Kafka 0.7; while nothing comes, a run may start so often."""
_DETERMINED: Final = frozenset(
    (RunCause.START, RunCause.TRANSACTION, RunCause.COUNTED, RunCause.FORGOTTEN, RunCause.CUT)
)
"""Causes that look the same to each process that reads the source."""


class KeptRuns:
    """The runs of one lane.

    Args:
        lane: Whose runs they are.
        state: Where they are stored.
        settings: What lanes have in common.
        figures: Of the lane; say what it waits for.
        stopping: Set when the lane is to stop.
        transactions: Of the lane, if it is written in transactions.

    Attributes:
        lane: Whose runs they are.
        map: The runs, as they were last read or stored.
        settled_at: When nothing of a former owner can arrive any more, in seconds of the monotonic clock; 0 before the
            lane was taken over.
        saw_transactions: Whether the source has transactions: holes are theirs.
    """

    def __init__(
        self,
        lane: Lane,
        state: StateLog,
        settings: LaneSettings,
        figures: LaneFigures,
        stopping: threading.Event,
        transactions: LaneTransactions | None,
    ) -> None:
        self.lane = lane
        self.map = LaneMap(lane)
        self.settled_at = 0.0
        self.saw_transactions = False
        self.transactions = transactions
        self._state = state
        self._settings = settings
        self._figures = figures
        self._stopping = stopping
        self._counted_at = 0.0

    @property
    def place(self) -> str:
        """Topic and partition of the source."""
        return f"{self.lane.source.topic}/{self.lane.source.partition}"

    def refresh(self) -> LaneMap:
        """Read what was stored since, and return the runs."""
        self._state.refresh()
        self.map = self._state.map_of(self.lane)
        return self.map

    def write(self, record: RunRecord) -> bool:
        """Store one run; return whether it counts."""
        written = self._state.write([record], WAIT_S, self._stopping)
        self.map = self._state.map_of(self.lane)
        return written

    def begin(self) -> bool:
        """Store the first run of a new lane: from the start of the source's log, into an empty partition.

        Returns:
            Whether it counts, and not that of another process.
        """
        ends = self._settings.target.cluster.log_ends([self.lane.target], [EARLIEST, LATEST])[self.lane.target]
        if isinstance(ends, str):
            raise LaneStuck(self.lane.target, 0.0, ends)
        start, end = (int(each or 0) for each in ends)
        if end > start:  # also what `--preserve-offsets` has filled and nobody has described
            raise MirrorRefused(
                f"{self.lane.target.topic}/{self.lane.target.partition} has offsets {start} to {end - 1}, and this "
                "mirror has not written them",
                "copy into a topic that nobody else writes: --rename, or delete the topic",
            )
        found = self._settings.source.cluster.log_ends([self.lane.source], [EARLIEST])[self.lane.source]
        if isinstance(found, str):
            raise LaneStuck(self.lane.source, 0.0, found)
        tx = self.transactions
        producer = self._settings.new_producer_id() if tx is None else tx.new_producer()
        incarnation = self._settings.incarnations.get(self.lane.source.topic, "")
        first = int(found[0] or 0)
        target_first, gap = self._target_of(first, end)
        return self.write(RunRecord(self.lane, 1, producer, 0, first, target_first, RunCause.START, incarnation,
                                     gap=gap))  # fmt: skip

    def begin_numbers(self) -> None:
        """Store the run with which the lane goes on under a producer id: the target had none when it was begun."""
        found = self._settings.target.cluster.log_ends([self.lane.target], [LATEST])[self.lane.target]
        if isinstance(found, str):
            raise LaneStuck(self.lane.target, 0.0, found)
        end = int(found[0] or 0)
        run = self.map.at(end)
        if run is None:
            raise BelowRun(self.lane.target, self.map.runs[0].target_first, end)
        compare_tail(self._settings.source, self._settings.target, self.map, end, self._stopping)
        self.write(RunRecord(self.lane, self.map.number + 1, self._settings.new_producer_id(), 0,
                              run.source_at(end), end, RunCause.FORGOTTEN, run.incarnation))  # fmt: skip

    def declare(self, found: Sequence[CopiedBatch], target: int) -> bool:
        """Store the runs that begin with these pieces; return False if the lane goes on elsewhere."""
        new: list[RunRecord] = []
        if self.lane.is_counted and self._is_after(found[0], target):
            return False
        run, upcoming = self.map.at(target), self.map.after(target)
        assert run is not None
        last = self.map.runs[-1]
        numbering = self.map.numbering(last)
        for piece in found:
            if not new and upcoming is not None and upcoming.target_first == target:
                run, upcoming = upcoming, self.map.after(target)
            crosses = not new and upcoming is not None and upcoming.target_first < target + piece.records
            if crosses or self._needs_run(run, piece, target):
                cause = RunCause.COUNTED if self.lane.is_counted else run.cause if crosses else self._cause()
                run = RunRecord(
                    self.lane, self.map.number + 1 + len(new), last.producer, numbering.sequence_at(target),
                    piece.first_offset, target, cause, last.incarnation, piece.skip,
                )  # fmt: skip
                new.append(run)
            target += piece.records
        if not new:
            return True
        if any(each.cause not in _DETERMINED for each in new) and not self._is_settled():
            return False
        written = self._state.write(new, WAIT_S, self._stopping)
        self.map = self._state.map_of(self.lane)
        return written

    def _needs_run(self, run: RunRecord, piece: CopiedBatch, target: int) -> bool:
        """Return whether a run starts with a piece: there is a hole, or much would have to be counted after a start."""
        if not self.lane.is_counted:
            return run.source_at(target) != piece.first_offset
        counted_bytes = piece.first_offset - run.source_first
        return counted_bytes > 0 and (
            target - run.target_first >= COUNTED_RECORDS or counted_bytes >= _COUNTED_BYTES or run.skip > 0
        )

    def _is_after(self, piece: CopiedBatch, target: int) -> bool:
        """Return whether the run that starts here begins after a piece: somebody has skipped what the source lost."""
        run = self.map.after(target - 1)
        return run is not None and run.target_first == target and run.source_first > piece.first_offset

    def _cause(self) -> RunCause:
        """Return why there is a hole."""
        is_compacted = self.lane.source.topic in self._settings.compacted
        return RunCause.TRANSACTION if self.saw_transactions and not is_compacted else RunCause.COMPACTED

    def _is_settled(self) -> bool:
        """Wait until nothing of a former owner can arrive; return whether that was over before."""
        left_s = self.settled_at - time.monotonic()
        if left_s <= 0:
            return True
        self._figures.trouble = f"a hole waits {left_s:.0f} s for what a former owner of the lane may have sent"
        self._stopping.wait(left_s)
        return False  # the position is computed anew

    def count_anew(self, target: int, position: int) -> bool:
        """Store where a lane of Kafka 0.7 is while nothing comes, so that a start needs nothing that is deleted later.

        Returns:
            False: the lane goes on elsewhere.
        """
        run = self.map.at(target)
        if not self.lane.is_counted or run is None or run.target_first == target:
            return True
        if time.monotonic() - self._counted_at < _COUNTED_S:
            return True
        self._counted_at = time.monotonic()
        last = self.map.runs[-1]
        sequence = self.map.numbering(last).sequence_at(target)
        return self.write(RunRecord(self.lane, self.map.number + 1, last.producer, sequence, position, target,
                                     RunCause.COUNTED, last.incarnation))  # fmt: skip

    def renumber(self, error: NumberRefused | BelowRun) -> bool:
        """Store the run to go on with: brokers have forgotten the producer, or the log was cut off before a run.

        Returns:
            False: there is no run for the end of the log.
        """
        end = error.offset if isinstance(error, NumberRefused) else error.end
        run = self.refresh().at(end)
        if run is None:
            return False
        numbering = self.map.numbering(run)
        producer, sequence, cause = run.producer, numbering.sequence_at(end), RunCause.CUT
        if isinstance(error, NumberRefused):
            producer, sequence, cause = numbering.next_epoch(end).producer, 0, RunCause.FORGOTTEN
        log.warning("mirror: lane %s starts a new run at offset %d of the target: %s", self.lane.place, end, error)
        place = run.place_at(end)
        self.write(RunRecord(self.lane, self.map.number + 1, producer, sequence, place.offset, end, cause,
                              run.incarnation, place.skip))  # fmt: skip
        return True

    def check_incarnation(self, position: int) -> None:
        """Raise if the source is another topic of this name now.

        Raises:
            SourceLost: It is.
        """
        last, now = self.map.runs[-1], self._settings.incarnations.get(self.lane.source.topic, "")
        if last.incarnation and now and now != last.incarnation:
            reason = f"the topic was deleted and created again: it is {now} now, and {last.incarnation} was copied"
            raise SourceLost(self.place, position, None, RunCause.RECREATED.value, reason)

    def skip_lost(self, error: SourceLost, end: int) -> bool:
        """Store the run after what is lost, if the user wants it skipped; return whether the lane goes on.

        Args:
            end: Where the target's log ends.
        """
        if not self._settings.skips_losses or error.go_on_at is None:
            return False
        left_s = self.settled_at - time.monotonic()
        if left_s > 0:
            self._figures.trouble = f"{error}; this is skipped in {left_s:.0f} s"
            self._stopping.wait(left_s)
            return True
        known = self.map.number
        if self.refresh().number != known:
            return True  # another process has gone on
        last = self.map.runs[-1]
        log.warning("mirror: lane %s skips what is lost: %s", self.lane.place, error)
        sequence = self.map.numbering(last).sequence_at(end)
        target_first, gap = self._target_of(error.go_on_at, end)
        self.write(RunRecord(self.lane, known + 1, last.producer, sequence, error.go_on_at, target_first,
                              RunCause(error.cause), last.incarnation,
                              lost_first=error.position if self.lane.is_counted else -1, gap=gap))  # fmt: skip
        return True

    def log_starts(self) -> tuple[int, int] | None:
        """Return where the logs of source and target start, as an offset of the source; None if that is not known."""
        source = self._settings.source.cluster.log_ends([self.lane.source], [EARLIEST])[self.lane.source]
        target = self._settings.target.cluster.log_ends([self.lane.target], [EARLIEST])[self.lane.target]
        if isinstance(source, str) or isinstance(target, str):
            return None
        run = self.map.at(int(target[0] or 0))
        return None if run is None else (int(source[0] or 0), run.source_at(int(target[0] or 0)))

    # -- transactions --------------------------------------------------------------------------------------------------

    def after_marker(self, target: int) -> bool:
        """Store the run after the marker that is written next, at the end of the log; return whether it counts."""
        run, last = self.map.at(target), self.map.runs[-1]
        assert run is not None
        place, sequence = run.place_at(target), self.map.numbering(last).sequence_at(target)
        return self.write(RunRecord(self.lane, self.map.number + 1, last.producer, sequence, place.offset, target + 1,
                                    RunCause.MARKER, last.incarnation, place.skip, gap=1))  # fmt: skip

    def take_over(self, *, needs_epoch: bool = False) -> bool:
        """Describe what is at the end of the log, as whoever wrote it may have been killed in a transaction.

        A run is stored in any case: a former owner of the lane that goes on cannot store one any more, and so commits
        nothing.

        Returns:
            Whether the lane goes on at what is described now.
        """
        tx = self.transactions
        if tx is None:
            return True
        tx.is_open = False
        known = self.map.runs[-1].producer
        runs = self.refresh()
        producer = tx.new_producer() if needs_epoch and runs.runs[-1].producer == known else None
        end = tx.end()
        last = runs.runs[-1]
        if producer is None and last.cause is RunCause.MARKER and last.target_first - 1 == end:
            tx.commit(last.producer, end)  # the run of its marker is stored: whoever did that was about to commit
            end = tx.end()
        first = tail_start(runs, end)
        if first is None:
            return producer is None  # the log was cut off before it: `BelowRun` comes
        tail = described_tail(runs, first, tx.heads(runs.runs[first].target_first, end), end, tx.is_committed)
        if tail.is_aborted and producer is None:
            producer = tx.new_producer()
            if tx.end() != end:
                return False
        found = tail.runs
        if producer is not None:
            found[-1] = found[-1]._replace(producer=producer, first_sequence=0, cause=RunCause.ABORTED)
        written = self._state.write(changes(runs, first, found), WAIT_S, self._stopping)
        self.map = self._state.map_of(self.lane)
        return written

    # -- offsets of the source on the target ---------------------------------------------------------------------------

    def _target_of(self, source_offset: int, end: int) -> tuple[int, int]:
        """Return at which offset of the target a run starts, and how many offsets are filled before it.

        Raises:
            MirrorRefused: The log of the target has gone too far for the offset.
        """
        if not self._settings.preserves_offsets:
            return end, 0
        if end > source_offset:
            raise MirrorRefused(
                f"{self.lane.target.topic}/{self.lane.target.partition} ends at offset {end}, and its next record has "
                f"offset {source_offset} in the source",
                "copy with --preserve-offsets into a topic that was never written",
            )
        return source_offset, source_offset - end

    def leave_gap(self, target: int, position: int) -> None:
        """Store that offsets are to be filled, from the end of the log up to a position of the source."""
        last = self.map.runs[-1]
        sequence = self.map.numbering(last).sequence_at(target)
        self.write(RunRecord(self.lane, self.map.number + 1, last.producer, sequence, position, position,
                             self._cause(), last.incarnation, gap=position - target))  # fmt: skip

    def fill_gaps(self) -> bool:
        """Fill the offsets before a run, where the target's log ends there; return False if the lane is stopped."""
        name = self.lane.target
        if not self._settings.preserves_offsets:
            return True
        ends = self._settings.target.cluster.log_ends([name], [EARLIEST, LATEST])[name]
        if isinstance(ends, str):
            raise LaneStuck(name, 0.0, ends)
        start, end = (int(each or 0) for each in ends)
        run, first = self.refresh().gap_at(end), self.map.runs[0]
        if run is not None:
            self._figures.trouble = f"offsets {end} to {run.target_first - 1} of the target are filled"
            with OffsetFiller(name, self._settings.transactional_id(self.lane), self._settings.target) as filler:
                if not filler.fill(run.target_first, self._stopping.is_set):
                    return False
            self._figures.trouble = ""
        if first.gap and start < first.target_first:
            self._settings.cut(name, first.target_first)
        return True
