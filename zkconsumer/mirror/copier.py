"""Copies one lane: reads its partition of the source, and writes each record once into its partition of the target.

Rules, and which failure each prevents:
- The position is computed from the end of the target's log, over and over: nothing that is stored elsewhere can
  disagree with it, whatever is killed at which moment.
- A run is stored before its first record is sent, and a batch never crosses a run.
- A hole that may look different to another process (compaction, retention) starts a run only when all that a former
  owner of the lane may have sent has arrived or never will.
- What was copied last is compared with the source before anything is written: a source that was cut off, or is another
  topic, is found even where brokers cannot tell.
- Nothing is skipped unless the user has said so; what is skipped is a hole with its cause.

Threads: each lane has its own; `stop` from any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rebalance.errors import RebalanceError
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.dialect import BatchNotWhole
from simpleconsumer.errors import BrokenFraming, MessageError, SimpleConsumerError, VersionNotServed
from simpleconsumer.types import ProducerId
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.errors import PartitionStopped, ReadFailed
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.mirror.compared_records import Side, compare_last
from zkconsumer.mirror.errors import (
    AnotherWriter,
    BelowRun,
    LaneClosed,
    LaneStuck,
    MirrorError,
    MirrorRefused,
    NumberRefused,
    SourceLost,
)
from zkconsumer.mirror.lane import FRESH_S
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, RunRecord
from zkconsumer.mirror.lane_sender import LaneSender
from zkconsumer.mirror.lane_source import LaneSource, SourcePool
from zkconsumer.mirror.leaf_writer import LeafWriter
from zkconsumer.mirror.pieces import BatchLimits, CopiedBatch, has_transactions, pieces
from zkconsumer.mirror.state_log import StateLog
from zkconsumer_error import ZkConsumerError

log = logging.getLogger(__name__)

WAIT_S: Final = 30.0
SETTLE_S: Final = FRESH_S + 10.0
"""A process that was frozen sends nothing after a minute without an answer, and what it sent before arrives by then."""
_IDLE_S: Final = 1.0
_ANSWER_S: Final = 0.01
_BACKOFF: Final = Backoff(0.2, 10.0)
_WAITED: Final = (
    LaneStuck, SimpleConsumerError, ClusterSilent, RebalanceError, ReadFailed, PartitionStopped,
)  # fmt: skip
"""Troubles that pass: the lane goes on by itself."""
_FINAL: Final = (MessageError, BrokenFraming, BatchNotWhole, VersionNotServed)
"""Those of them that do not pass."""
_DETERMINED: Final = frozenset((RunCause.START, RunCause.TRANSACTION, RunCause.FORGOTTEN, RunCause.CUT))
"""Causes that look the same to each process that reads the source."""


@dataclass(frozen=True)
class LaneSettings:
    """What the lanes of a mirror have in common.

    Attributes:
        source, target: The two clusters.
        new_producer_id: Returns a producer id of the target.
        limits: How large batches become.
        skips_losses: Goes on after what the source has lost, instead of stopping the lane.
        incarnations: Topic of the source -> which topic of this name it is.
        forgotten_after_ms: As for `LaneMachine`.
        settle_s: See `SETTLE_S`.
        compacted: Topics of the source that are compacted.
        take_bytes: Waits until so many bytes may be copied, as the rate is limited; ends when the event is set.
    """

    source: Side
    target: Side
    new_producer_id: Callable[[], ProducerId]
    limits: BatchLimits
    skips_losses: bool
    incarnations: Mapping[str, str]
    forgotten_after_ms: int
    compacted: Collection[str]
    take_bytes: Callable[[int, threading.Event], None]
    settle_s: float = SETTLE_S


@dataclass
class LaneFigures:
    """What a lane has done since it was started, and how it is.

    Attributes:
        records, size_bytes: Copied, and stored on the target.
        whole_batches, encoded_batches: How they were copied.
        position: The next offset of the source; -1 before that is known.
        source_end: Where the source's log ends; -1 before that is known.
        is_guarded: Whether the target's brokers still know the producer, by the times of the last records.
        trouble: What delays it now, a clause.
        failure: Why it copies no further; None while it does.
    """

    records: int = 0
    size_bytes: int = 0
    whole_batches: int = 0
    encoded_batches: int = 0
    position: int = -1
    source_end: int = -1
    is_guarded: bool = True
    trouble: str = ""
    failure: ZkConsumerError | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets are to be copied; None if that is not known."""
        return max(0, self.source_end - self.position) if min(self.position, self.source_end) >= 0 else None


class LaneCopier:
    """Copies one lane until it is stopped, on a thread of its own.

    Args:
        lane: What is copied.
        state: Where its runs are.
        pool: Fetches the source.
        settings: What lanes have in common.

    Attributes:
        lane: What is copied.
        figures: What was done.
    """

    def __init__(self, lane: Lane, state: StateLog, pool: SourcePool, settings: LaneSettings) -> None:
        self.lane = lane
        self.figures = LaneFigures()
        self._state = state
        self._settings = settings
        self._source = LaneSource(pool, lane.source)
        self._stopping = threading.Event()
        self._sender: LaneSender | None = None
        self._runs = LaneMap(lane)
        self._settled_at = 0.0
        self._saw_transactions = False
        self._lost_at = 0
        is_compacted = lane.source.topic in settings.compacted
        self._leaves = LeafWriter(lane, state, self._log_starts, is_on=not is_compacted)
        self._thread = threading.Thread(target=self._run, name=f"lane-{lane.place}", daemon=True)

    def start(self) -> None:
        """Start to copy."""
        self._thread.start()

    def stop(self) -> None:
        """Copy no further; waits for nothing. What was sent and not answered may be stored."""
        self._stopping.set()
        self._source.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end after `stop`; return whether it has."""
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def close(self) -> None:
        """End a request that is under way, after `stop`; what was sent and not answered may be stored."""
        sender = self._sender
        if sender is not None:
            sender.close()

    @property
    def _place(self) -> str:
        return f"{self.lane.source.topic}/{self.lane.source.partition}"

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set() and self.figures.failure is None:
            done_before = self.figures.records
            try:
                self._copy()
                failures = 0
            except Exception as error:  # noqa: BLE001 - each kind has its reaction there
                failures = 1 if self.figures.records > done_before else failures + 1
                self._react(error, failures)
        self._leaves.end()

    def _react(self, error: Exception, failures: int) -> None:
        """Mend what has ended the copying, wait, or stop the lane."""
        fault: Exception = error
        try:
            if self._is_mended(error):
                return
        except Exception as later:  # noqa: BLE001 - judged like the first one
            fault = later
        if isinstance(fault, LaneClosed):
            return
        if isinstance(fault, _WAITED) and not isinstance(fault, _FINAL):
            self.figures.trouble = str(fault)
            log.warning("mirror: lane %s waits: %s", self.lane.place, fault)
            self._stopping.wait(_BACKOFF.wait_s(failures - 1))
            return
        if not isinstance(fault, ZkConsumerError):  # a bug; the other lanes go on, and this one says so
            log.error("mirror: lane %s has ended by a fault", self.lane.place, exc_info=fault)
            fault = MirrorError(f"{self.lane.place} ended by a bug: {type(fault).__name__}: {fault}")
        self.figures.failure = fault
        self._source.stop()
        log.error("mirror: lane %s is stopped: %s", self.lane.place, fault)

    def _is_mended(self, error: Exception) -> bool:
        """Store the run with which the lane goes on, where one helps; return whether it does."""
        if isinstance(error, (NumberRefused, BelowRun)):
            return self._renumber(error)
        if isinstance(error, SourceLost):
            return self._may_skip(error)
        if isinstance(error, AnotherWriter):  # maybe another process of this mirror, with a later epoch
            known = self._runs.number
            return self._read_runs().number > known
        return False

    def _read_runs(self) -> LaneMap:
        self._state.refresh()
        self._runs = self._state.map_of(self.lane)
        return self._runs

    def _copy(self) -> None:
        """Copy until the lane goes on at another position, or is stopped."""
        if not self._read_runs().runs:
            if not self._begin():
                return
            self._settled_at = time.monotonic()
        elif not self._settled_at:
            self._settled_at = time.monotonic() + self._settings.settle_s
        last = self._runs.runs[-1]
        with self._new_sender(last) as sender:
            self._sender = sender
            try:
                while not self._stopping.is_set():
                    target = sender.position(WAIT_S)
                    # The end first, and then the runs: a run is stored before its records, so none is missed.
                    if self._read_runs().runs[-1].producer != last.producer:
                        return
                    self._follow(sender, target)
                self._leaves.acknowledge(sender.flush(WAIT_S))
            finally:
                self._sender = None
                self._source.stop()

    def _follow(self, sender: LaneSender, target: int) -> None:
        """Copy in order, until the lane goes on elsewhere."""
        run = self._runs.at(target)
        if run is None:
            raise BelowRun(self.lane.target, self._runs.runs[0].target_first, target)
        self.figures.trouble = ""
        self._lost_at = target
        position = run.source_at(target)
        self._check_incarnation(position)
        compare_last(self._place, self._settings.source, self._settings.target, self._runs, target)
        self._source.start(position)
        self._leaves.restart()
        self._saw_transactions = False
        self.figures.position = position
        while not self._stopping.is_set():
            try:
                chunk = self._source.next_chunk(_IDLE_S if sender.is_settled else _ANSWER_S)
            except SourceLost:
                if sender.flush(WAIT_S) != target:
                    return
                self._lost_at = target
                raise
            self._check_incarnation(position)
            if chunk is None:
                if sender.flush(WAIT_S) != target:
                    return
                self._note(sender, position)
                continue
            self._note(sender, None)
            moved = self._send_chunk(sender, chunk, target, position)
            if moved is None:
                return
            target = moved
            if chunk.error is not None:
                sender.flush(WAIT_S)
                raise chunk.error
            position = max(position, chunk.next_offset)
            self._source.done(chunk)

    def _note(self, sender: LaneSender, position: int | None) -> None:
        """Take note of how far the lane is.

        Args:
            position: The next offset of the source, if all before it is stored; None while some is under way.
        """
        figures, stored = self.figures, sender.stored
        run = None if stored is None else self._runs.at(stored)
        if position is not None:
            figures.position = position
        elif run is not None and stored is not None:
            figures.position = max(figures.position, run.source_at(stored))
        self._leaves.acknowledge(stored)
        figures.source_end = self._source.end
        figures.is_guarded = sender.is_guarded
        figures.trouble = self._source.trouble

    def _send_chunk(self, sender: LaneSender, chunk: Chunk, target: int, position: int) -> int | None:
        """Send what is in a chunk; return the position after it, None if the lane goes on elsewhere."""
        if chunk.dialect is None:
            return target
        self._saw_transactions = self._saw_transactions or has_transactions(chunk)
        hashes = self._leaves.takes(chunk.dialect)
        limits = self._settings.limits._replace(takes_zstd=sender.takes_zstd, hashes=hashes)
        found: list[CopiedBatch] = []
        error: MessageError | BrokenFraming | None = None
        try:
            found.extend(pieces(chunk, self.lane.source, position, limits, int(time.time() * 1000)))
        except (MessageError, BrokenFraming) as fault:  # after what comes before it was copied
            error = fault
        if found and not self._declare(found, target):
            return None
        for piece in found:
            self._settings.take_bytes(len(piece.data), self._stopping)
            if self._stopping.is_set():
                return None
            if not sender.send(piece.data, self.lane.source, target, WAIT_S):
                return None
            if hashes:
                self._leaves.sent(piece, target)
            target += piece.records
            self._count(piece)
        if error is not None:
            sender.flush(WAIT_S)
            raise error
        return target

    def _count(self, piece: CopiedBatch) -> None:
        figures = self.figures
        figures.records += piece.records
        figures.size_bytes += len(piece.data)
        figures.whole_batches += piece.is_whole
        figures.encoded_batches += not piece.is_whole

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _declare(self, found: Sequence[CopiedBatch], target: int) -> bool:
        """Store the runs that begin with these pieces; return False if the lane goes on elsewhere."""
        new: list[RunRecord] = []
        run, upcoming = self._runs.at(target), self._runs.after(target)
        assert run is not None
        last = self._runs.runs[-1]
        numbering = self._runs.numbering(last)
        for piece in found:
            if not new and upcoming is not None and upcoming.target_first == target:
                run, upcoming = upcoming, self._runs.after(target)
            crosses = not new and upcoming is not None and upcoming.target_first < target + piece.records
            if crosses or run.source_at(target) != piece.first_offset:
                run = RunRecord(
                    self.lane, self._runs.number + 1 + len(new), last.producer, numbering.sequence_at(target),
                    piece.first_offset, target, run.cause if crosses else self._cause(), last.incarnation,
                )  # fmt: skip
                new.append(run)
            target += piece.records
        if not new:
            return True
        if any(each.cause not in _DETERMINED for each in new) and not self._is_settled():
            return False
        written = self._state.write(new, WAIT_S, self._stopping)
        self._runs = self._state.map_of(self.lane)
        return written

    def _cause(self) -> RunCause:
        """Return why there is a hole."""
        is_compacted = self.lane.source.topic in self._settings.compacted
        return RunCause.TRANSACTION if self._saw_transactions and not is_compacted else RunCause.COMPACTED

    def _is_settled(self) -> bool:
        """Wait until nothing of a former owner can arrive; return whether that was over before."""
        left_s = self._settled_at - time.monotonic()
        if left_s <= 0:
            return True
        self.figures.trouble = f"a hole waits {left_s:.0f} s for what a former owner of the lane may have sent"
        self._stopping.wait(left_s)
        return False  # the position is computed anew

    def _begin(self) -> bool:
        """Store the first run of a new lane: from the start of the source's log, into an empty partition.

        Returns:
            Whether it counts, and not that of another process.
        """
        ends = self._settings.target.cluster.log_ends([self.lane.target], [EARLIEST, LATEST])[self.lane.target]
        if isinstance(ends, str):
            raise LaneStuck(self.lane.target, 0.0, ends)
        start, end = (int(each or 0) for each in ends)
        if end > start:
            raise MirrorRefused(
                f"{self.lane.target.topic}/{self.lane.target.partition} has offsets {start} to {end - 1}, and this "
                "mirror has not written them",
                "copy into a topic that nobody else writes: --rename, or delete the topic",
            )
        found = self._settings.source.cluster.log_ends([self.lane.source], [EARLIEST])[self.lane.source]
        if isinstance(found, str):
            raise LaneStuck(self.lane.source, 0.0, found)
        producer = self._settings.new_producer_id()
        incarnation = self._settings.incarnations.get(self.lane.source.topic, "")
        first = int(found[0] or 0)
        first_run = RunRecord(self.lane, 1, producer, 0, first, end, RunCause.START, incarnation)
        return self._write(first_run)

    def _write(self, record: RunRecord) -> bool:
        """Store one run; return whether it counts."""
        written = self._state.write([record], WAIT_S, self._stopping)
        self._runs = self._state.map_of(self.lane)
        return written

    def _renumber(self, error: NumberRefused | BelowRun) -> bool:
        """Store the run to go on with: brokers have forgotten the producer, or the log was cut off before a run.

        Returns:
            False: there is no run for the end of the log.
        """
        end = error.offset if isinstance(error, NumberRefused) else error.end
        run = self._read_runs().at(end)
        if run is None:
            return False
        numbering = self._runs.numbering(run)
        producer, sequence, cause = run.producer, numbering.sequence_at(end), RunCause.CUT
        if isinstance(error, NumberRefused):
            producer, sequence, cause = numbering.next_epoch(end).producer, 0, RunCause.FORGOTTEN
        log.warning("mirror: lane %s starts a new run at offset %d of the target: %s", self.lane.place, end, error)
        self._write(RunRecord(self.lane, self._runs.number + 1, producer, sequence, run.source_at(end), end, cause,
                              run.incarnation))  # fmt: skip
        return True

    def _log_starts(self) -> tuple[int, int] | None:
        """Return where the logs of source and target start, as an offset of the source; None if that is not known."""
        source = self._settings.source.cluster.log_ends([self.lane.source], [EARLIEST])[self.lane.source]
        target = self._settings.target.cluster.log_ends([self.lane.target], [EARLIEST])[self.lane.target]
        if isinstance(source, str) or isinstance(target, str):
            return None
        run = self._runs.at(int(target[0] or 0))
        return None if run is None else (int(source[0] or 0), run.source_at(int(target[0] or 0)))

    def _new_sender(self, last: RunRecord) -> LaneSender:
        settings = self._settings
        return LaneSender(
            self.lane.target, self._runs.numbering(last), settings.target.cluster.leaders, settings.target.connect,
            follows_others=True, forgotten_after_ms=settings.forgotten_after_ms,
        )  # fmt: skip

    # -- what the source has lost --------------------------------------------------------------------------------------

    def _check_incarnation(self, position: int) -> None:
        last, now = self._runs.runs[-1], self._settings.incarnations.get(self.lane.source.topic, "")
        if last.incarnation and now and now != last.incarnation:
            reason = f"the topic was deleted and created again: it is {now} now, and {last.incarnation} was copied"
            raise SourceLost(self._place, position, None, RunCause.RECREATED.value, reason)

    def _may_skip(self, error: SourceLost) -> bool:
        """Store the run after what is lost, if the user wants it skipped."""
        if not self._settings.skips_losses or error.go_on_at is None:
            return False
        left_s = self._settled_at - time.monotonic()
        if left_s > 0:
            self.figures.trouble = f"{error}; this is skipped in {left_s:.0f} s"
            self._stopping.wait(left_s)
            return True
        known, end = self._runs.number, self._lost_at
        if self._read_runs().number != known:
            return True  # another process has gone on
        last = self._runs.runs[-1]
        log.warning("mirror: lane %s skips what is lost: %s", self.lane.place, error)
        sequence = self._runs.numbering(last).sequence_at(end)
        self._write(RunRecord(self.lane, known + 1, last.producer, sequence, error.go_on_at, end,
                              RunCause(error.cause), last.incarnation))  # fmt: skip
        return True
