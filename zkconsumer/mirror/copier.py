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
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rebalance.errors import RebalanceError
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.dialect import BatchNotWhole
from simpleconsumer.errors import BrokenFraming, MessageError, SimpleConsumerError, VersionNotServed
from simpleconsumer.types import NO_ID, ProducerId, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.errors import PartitionStopped, ReadFailed
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.mirror.compared_records import Side, compare_last
from zkconsumer.mirror.compared_tail import compare_tail
from zkconsumer.mirror.errors import (
    AnotherWriter,
    BatchRefused,
    BelowRun,
    HeadersRefused,
    LaneClosed,
    LaneStopped,
    LaneStuck,
    LaterEpoch,
    MirrorError,
    MirrorRefused,
    Misplaced,
    NumberRefused,
    SourceLost,
    TransactionLost,
)
from zkconsumer.mirror.lane import FRESH_S
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, RunRecord
from zkconsumer.mirror.lane_sender import LaneSender
from zkconsumer.mirror.lane_source import LaneSource, SourcePool
from zkconsumer.mirror.lane_transactions import LOST_CODES, LaneTransactions
from zkconsumer.mirror.leaf_writer import LeafWriter
from zkconsumer.mirror.offset_filler import OffsetFiller
from zkconsumer.mirror.pieces import BatchLimits, CopiedBatch, EntryPieces, has_transactions, limits_of, pieces
from zkconsumer.mirror.plain_sender import PlainSender
from zkconsumer.mirror.refused_records import refused_record
from zkconsumer.mirror.run_tails import changes, described_tail, tail_start
from zkconsumer.mirror.state_log import StateLog
from zkconsumer.mirror.topic_settings import settings_in_force
from zkconsumer_error import ZkConsumerError

log = logging.getLogger(__name__)

WAIT_S: Final = 30.0
SETTLE_S: Final = FRESH_S + 10.0
"""A process that was frozen sends nothing after a minute without an answer, and what it sent before arrives by then."""
COUNTED_RECORDS: Final = 65_536
_COUNTED_BYTES: Final = 64 << 20
_COUNTED_S: Final = 30.0
"""Limits of what is counted after a start, in Kafka 0.7; while nothing comes, a run may start so often."""
_IDLE_S: Final = 1.0
_ANSWER_S: Final = 0.01
_BACKOFF: Final = Backoff(0.2, 10.0)
_WAITED: Final = (
    LaneStuck, SimpleConsumerError, ClusterSilent, RebalanceError, ReadFailed, PartitionStopped,
)  # fmt: skip
"""Troubles that pass: the lane goes on by itself."""
_OF_TRANSACTIONS: Final = (AnotherWriter, Misplaced, NumberRefused, TransactionLost)
_NEVER_MS: Final = 1 << 60
_FINAL: Final = (MessageError, BrokenFraming, BatchNotWhole, VersionNotServed)
"""Those of them that do not pass."""
_DETERMINED: Final = frozenset(
    (RunCause.START, RunCause.TRANSACTION, RunCause.COUNTED, RunCause.FORGOTTEN, RunCause.CUT)
)
"""Causes that look the same to each process that reads the source."""


def _no_id(lane: Lane) -> str:
    raise LookupError(f"lane {lane.place} has no transactional id")


def _cuts_nothing(name: TopicPartition, offset: int) -> None:
    """Leave the start of a log where it is."""


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
        has_numbers: Whether the target keeps sequence numbers, as Kafka 0.11 and later do.
        compacted: Topics of the source that are compacted.
        transactional_id: Returns the one of a lane.
        preserves_offsets: Records get the offsets of the source; otherwise the next ones of the target.
        pins_producers: Batches belong to transactions.
        cut: Has the log of a partition of the target start at an offset.
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
    transactional_id: Callable[[Lane], str] = _no_id
    preserves_offsets: bool = False
    pins_producers: bool = False
    cut: Callable[[TopicPartition, int], None] = _cuts_nothing
    settle_s: float = SETTLE_S
    has_numbers: bool = True


def lag_in_ms(lag: int | None, oldest_ms: int, now_s: float) -> int | None:
    """Return how old the oldest record is that is not copied yet, in milliseconds.

    Args:
        lag: How many offsets are to be copied; None if that is not known.
        oldest_ms: The time of that record; -1 if it has none, or is not known.
        now_s: Seconds since 1970.

    Returns:
        0 only if nothing is to be copied: a record with a time of the future is 1 ms old. None: not known.
    """
    if not lag:
        return lag
    return None if oldest_ms < 0 else max(1, int(now_s * 1000) - oldest_ms)


@dataclass
class LaneFigures:
    """What a lane has done since it was started, and how it is.

    Attributes:
        records, size_bytes: Copied, and stored on the target.
        whole_batches, encoded_batches: How they were copied.
        position: The next offset of the source; -1 before that is known.
        source_end: Where the source's log ends; -1 before that is known.
        oldest_ms: The time of the first record in hand that is not stored, or of the last batch that was, if none is in
            hand; -1 if it has none.
        is_guarded: Whether the target's brokers still know the producer, by the times of the last records.
        waits: How often an error has delayed it.
        trouble: What delays it now, a clause.
        failure: Why it copies no further; None while it does.
    """

    records: int = 0
    size_bytes: int = 0
    whole_batches: int = 0
    encoded_batches: int = 0
    position: int = -1
    source_end: int = -1
    oldest_ms: int = -1
    is_guarded: bool = True
    waits: int = 0
    trouble: str = ""
    failure: ZkConsumerError | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets are to be copied; None if that is not known."""
        return max(0, self.source_end - self.position) if min(self.position, self.source_end) >= 0 else None

    @property
    def lag_ms(self) -> int | None:
        """How old the oldest record is that is not copied, at most; 0 only without a lag, None if it is not known."""
        return lag_in_ms(self.lag, self.oldest_ms, time.time())


class LaneCopier:
    """Copies one lane until it is stopped, on a thread of its own.

    Args:
        lane: What is copied.
        state: Where its runs are.
        pool: Fetches the source.
        settings: What lanes have in common.
        leased_until: As for `LaneSender`.

    Attributes:
        lane: What is copied.
        figures: What was done.
    """

    def __init__(
        self, lane: Lane, state: StateLog, pool: SourcePool, settings: LaneSettings, leased_until: Callable[[], float]
    ) -> None:  # fmt: skip
        self._leased_until = leased_until
        self.lane = lane
        self.figures = LaneFigures()
        self._state = state
        self._settings = settings
        self._source = LaneSource(pool, lane.source)
        self._stopping = threading.Event()
        self._sender: LaneSender | PlainSender | None = None
        self._runs = LaneMap(lane)
        self._settled_at = 0.0
        self._limits = settings.limits
        self._saw_transactions = False
        self._lost_at = 0
        is_compacted = lane.source.topic in settings.compacted
        self._leaves = LeafWriter(lane, state, self._log_starts, is_on=not is_compacted)
        self._entries = EntryPieces(0)
        self._counted_at = 0.0
        self._transactions: LaneTransactions | None = None
        if settings.pins_producers:
            self._transactions = LaneTransactions(lane.target, settings.transactional_id(lane), settings.target)
        self._resume: tuple[int, int] | None = None
        self._in_hand: deque[tuple[int, int]] = deque()  # the end of each batch in the source, and its time
        self._thread = threading.Thread(target=self._run, name=f"lane-{lane.place}", daemon=True)

    def start(self) -> None:
        """Start to copy."""
        self._thread.start()

    def stop(self) -> None:
        """Copy no further; waits for nothing. What was sent and not answered may be stored."""
        self._stopping.set()
        self._source.wake()

    def refuse(self, failure: ZkConsumerError) -> None:
        """Copy no further, for good: something outside of the lane speaks against it. The first reason counts."""
        if self.figures.failure is None:
            log.error("mirror: lane %s is stopped: %s", self.lane.place, failure)
            self.figures.failure = failure
            self.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end after `stop`; return whether it has."""
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def close(self) -> None:
        """End a request that is under way, after `stop`; what was sent and not answered may be stored."""
        sender = self._sender
        if sender is not None:
            sender.close()
        if self._transactions is not None:
            self._transactions.close()

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
        self._resume = None
        self._source.stop()
        try:
            if self._is_mended(error):
                if failures > 1:  # what was mended did not help; maybe others have to notice something first
                    self._stopping.wait(_BACKOFF.wait_s(failures - 2))
                return
        except Exception as later:  # noqa: BLE001 - judged like the first one
            fault = later
        if isinstance(fault, LaneClosed):
            return
        if isinstance(fault, _WAITED) and not isinstance(fault, _FINAL):
            self.figures.trouble = str(fault)
            self.figures.waits += 1
            log.warning("mirror: lane %s waits: %s", self.lane.place, fault)
            self._stopping.wait(_BACKOFF.wait_s(failures - 1))
            return
        if not isinstance(fault, ZkConsumerError):  # a bug; the other lanes go on, and this one says so
            log.error("mirror: lane %s has ended by a fault", self.lane.place, exc_info=fault)
            fault = MirrorError(f"{self.lane.place} ended by a bug: {type(fault).__name__}: {fault}")
        if self.figures.failure is None:  # `refuse` may have been first
            self.figures.failure = fault
        self._source.stop()
        log.error("mirror: lane %s is stopped: %s", self.lane.place, fault)

    def _is_mended(self, error: Exception) -> bool:
        """Store the run with which the lane goes on, where one helps; return whether it does."""
        is_refused = isinstance(error, BatchRefused) and error.code in LOST_CODES
        if self._transactions is not None and (is_refused or isinstance(error, _OF_TRANSACTIONS)):
            return self._take_over(needs_epoch=isinstance(error, (TransactionLost, NumberRefused, LaterEpoch)))
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
        if self._resume is None and not (self._fill_gaps() and self._take_over()):
            return
        last = self._runs.runs[-1]
        if self._settings.has_numbers and last.producer == NO_ID:  # the target's brokers were upgraded
            self._begin_numbers()
            return
        numbering = self._runs.numbering(last)
        self._limits = limits_of(
            self._settings.limits, settings_in_force(self._settings.target, self.lane.target.topic)
        )
        with self._new_sender(last) as sender:
            self._sender = sender
            try:
                while not self._stopping.is_set():
                    target = sender.position(WAIT_S)
                    # The end first, and then the runs: a run is stored before its records, so none is missed.
                    self._read_runs()
                    if self._runs.numbering(self._runs.runs[-1]) != numbering:
                        return
                    self._follow(sender, target)
                stored = sender.flush(WAIT_S)
                self._acknowledge(stored)
                if self._transactions is not None and self._transactions.is_open:
                    self._commit(sender, stored, -1)
            except BatchRefused as error:
                raise self._refusal(error, sender) from error
            finally:
                self._sender = None
                if self._resume is None:
                    self._source.stop()

    def _refusal(self, error: BatchRefused, sender: LaneSender | PlainSender) -> LaneStopped:
        """Return the error with the record of the source that the target refuses, as far as that can be told."""
        if error.offset is None or self.lane.is_counted or not isinstance(sender, LaneSender):
            return error
        data, run = sender.held_data(error.offset), self._runs.at(error.offset)
        if data is None or run is None:
            return error
        settings = settings_in_force(self._settings.target, self.lane.target.topic)
        return refused_record(self.lane, run.source_at(error.offset), error, data, settings)

    def _follow(self, sender: LaneSender | PlainSender, target: int) -> None:
        """Copy in order, until the lane goes on elsewhere."""
        run = self._runs.at(target)
        if run is None:
            raise BelowRun(self.lane.target, self._runs.runs[0].target_first, target)
        self.figures.trouble = ""
        self._lost_at = target
        position, skip = run.place_at(target)
        self._check_incarnation(position)
        if self._resume is not None and self._resume[0] == target:
            position = self._resume[1]
        else:
            if self._settings.has_numbers:
                compare_last(self._place, self._settings.source, self._settings.target, self._runs, target)
            else:
                compare_tail(self._settings.source, self._settings.target, self._runs, target, self._stopping)
            self._source.start(position)
            self._entries = EntryPieces(skip)
            self.figures.position = position
        self._resume = None
        self._leaves.restart()
        self._saw_transactions = False
        self._in_hand.clear()
        while not self._stopping.is_set():
            try:
                chunk = self._source.next_chunk(_IDLE_S if sender.is_settled else _ANSWER_S)
            except SourceLost as error:
                if sender.flush(WAIT_S) != target:
                    return
                self._lost_at = target
                if self._entries.left:  # which of what is left was copied cannot be counted any more
                    raise SourceLost(self._place, position, None, error.cause, error.reason) from error
                raise
            self._check_incarnation(position)
            if chunk is None:
                if sender.flush(WAIT_S) != target:
                    return
                if self._has_gap(sender, target, position):
                    return
                if self._transactions is not None and self._transactions.is_open:
                    if self._transactions.is_due:
                        self._commit(sender, target, position)
                        return
                    continue
                self._note(sender, position)
                if not self._count_anew(target, position):
                    return
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
            if self._transactions is not None and self._transactions.is_due:
                self._commit(sender, target, position)
                return

    def _note(self, sender: LaneSender | PlainSender, position: int | None) -> None:
        """Take note of how far the lane is.

        Args:
            position: The next offset of the source, if all before it is stored; None while some is under way.
        """
        figures, stored = self.figures, sender.stored
        run = None if stored is None else self._runs.at(stored)
        if position is not None:
            figures.position = position
        elif run is not None and stored is not None and not self.lane.is_counted:
            figures.position = max(figures.position, run.source_at(stored))
        while self._in_hand and self._in_hand[0][0] <= figures.position:
            figures.oldest_ms = self._in_hand.popleft()[1]
        if self._in_hand:
            figures.oldest_ms = self._in_hand[0][1]
        self._acknowledge(stored)
        figures.source_end = self._source.end
        figures.is_guarded = sender.is_guarded
        figures.trouble = self._source.trouble

    def _acknowledge(self, stored: int | None) -> None:
        """Write leaves of what is stored; nothing is before its transaction is committed."""
        if self._transactions is None or not self._transactions.is_open:
            self._leaves.acknowledge(stored)

    def _send_chunk(self, sender: LaneSender | PlainSender, chunk: Chunk, target: int, position: int) -> int | None:
        """Send what is in a chunk; return the position after it, None if the lane goes on elsewhere."""
        if chunk.dialect is None:
            return target
        self._saw_transactions = self._saw_transactions or has_transactions(chunk)
        hashes = self._leaves.takes(chunk.dialect)
        limits = self._limits._replace(takes_zstd=sender.takes_zstd, magic=sender.magic, hashes=hashes)
        found: list[CopiedBatch] = []
        error: MessageError | BrokenFraming | HeadersRefused | None = None
        try:
            cut = self._entries.of if self.lane.is_counted else pieces
            found.extend(cut(chunk, self.lane.source, position, limits, int(time.time() * 1000)))
        except (MessageError, BrokenFraming, HeadersRefused) as fault:  # after what comes before it was copied
            error = fault
        kept = _without_hole(found, target) if self._settings.preserves_offsets else found
        if kept and not self._declare(kept, target):
            return None
        if not self.lane.is_counted:
            self._in_hand.extend((piece.first_offset + piece.records, piece.time_ms) for piece in kept)
        for piece in kept:
            self._note(sender, None)
            self._settings.take_bytes(len(piece.data), self._stopping)
            if self._stopping.is_set():
                return None
            if self._transactions is not None:
                self._transactions.open(self._runs.runs[-1].producer)
                self._transactions.count(len(piece.data))
            if not self._is_taken(sender, piece, target):
                return None
            if hashes:
                self._leaves.sent(piece, target)
            target += piece.records
            self._count(piece)
        if len(kept) < len(found):
            self._has_gap(sender, target, found[len(kept)].first_offset)
            return None
        if error is not None:
            sender.flush(WAIT_S)
            raise error
        return target

    def _is_taken(self, sender: LaneSender | PlainSender, piece: CopiedBatch, target: int) -> bool:
        if isinstance(sender, PlainSender):
            return sender.send(piece.data, piece.records, target, WAIT_S)
        return sender.send(piece.data, self.lane.source, target, WAIT_S)

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
        if self.lane.is_counted and self._is_after(found[0], target):
            return False
        run, upcoming = self._runs.at(target), self._runs.after(target)
        assert run is not None
        last = self._runs.runs[-1]
        numbering = self._runs.numbering(last)
        for piece in found:
            if not new and upcoming is not None and upcoming.target_first == target:
                run, upcoming = upcoming, self._runs.after(target)
            crosses = not new and upcoming is not None and upcoming.target_first < target + piece.records
            if crosses or self._needs_run(run, piece, target):
                cause = RunCause.COUNTED if self.lane.is_counted else run.cause if crosses else self._cause()
                run = RunRecord(
                    self.lane, self._runs.number + 1 + len(new), last.producer, numbering.sequence_at(target),
                    piece.first_offset, target, cause, last.incarnation, piece.skip,
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
        run = self._runs.after(target - 1)
        return run is not None and run.target_first == target and run.source_first > piece.first_offset

    def _count_anew(self, target: int, position: int) -> bool:
        """Store where a lane of Kafka 0.7 is while nothing comes, so that a start needs nothing that is deleted later.

        Returns:
            False: the lane goes on elsewhere.
        """
        run = self._runs.at(target)
        if not self.lane.is_counted or self._entries.left or run is None or run.target_first == target:
            return True
        if time.monotonic() - self._counted_at < _COUNTED_S:
            return True
        self._counted_at = time.monotonic()
        last = self._runs.runs[-1]
        sequence = self._runs.numbering(last).sequence_at(target)
        return self._write(RunRecord(self.lane, self._runs.number + 1, last.producer, sequence, position, target,
                                     RunCause.COUNTED, last.incarnation))  # fmt: skip

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
        if end > start:  # also what `--preserve-offsets` has filled and nobody has described
            raise MirrorRefused(
                f"{self.lane.target.topic}/{self.lane.target.partition} has offsets {start} to {end - 1}, and this "
                "mirror has not written them",
                "copy into a topic that nobody else writes: --rename, or delete the topic",
            )
        found = self._settings.source.cluster.log_ends([self.lane.source], [EARLIEST])[self.lane.source]
        if isinstance(found, str):
            raise LaneStuck(self.lane.source, 0.0, found)
        tx = self._transactions
        producer = self._settings.new_producer_id() if tx is None else tx.new_producer()
        incarnation = self._settings.incarnations.get(self.lane.source.topic, "")
        first = int(found[0] or 0)
        target_first, gap = self._target_of(first, end)
        return self._write(RunRecord(self.lane, 1, producer, 0, first, target_first, RunCause.START, incarnation,
                                     gap=gap))  # fmt: skip

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
        place = run.place_at(end)
        self._write(RunRecord(self.lane, self._runs.number + 1, producer, sequence, place.offset, end, cause,
                              run.incarnation, place.skip))  # fmt: skip
        return True

    def _begin_numbers(self) -> None:
        """Store the run with which the lane goes on under a producer id: the target had none when it was begun."""
        found = self._settings.target.cluster.log_ends([self.lane.target], [LATEST])[self.lane.target]
        if isinstance(found, str):
            raise LaneStuck(self.lane.target, 0.0, found)
        end = int(found[0] or 0)
        run = self._runs.at(end)
        if run is None:
            raise BelowRun(self.lane.target, self._runs.runs[0].target_first, end)
        compare_tail(self._settings.source, self._settings.target, self._runs, end, self._stopping)
        self._write(RunRecord(self.lane, self._runs.number + 1, self._settings.new_producer_id(), 0,
                              run.source_at(end), end, RunCause.FORGOTTEN, run.incarnation))  # fmt: skip

    def _log_starts(self) -> tuple[int, int] | None:
        """Return where the logs of source and target start, as an offset of the source; None if that is not known."""
        source = self._settings.source.cluster.log_ends([self.lane.source], [EARLIEST])[self.lane.source]
        target = self._settings.target.cluster.log_ends([self.lane.target], [EARLIEST])[self.lane.target]
        if isinstance(source, str) or isinstance(target, str):
            return None
        run = self._runs.at(int(target[0] or 0))
        return None if run is None else (int(source[0] or 0), run.source_at(int(target[0] or 0)))

    def _new_sender(self, last: RunRecord) -> LaneSender | PlainSender:
        settings = self._settings
        if not settings.has_numbers:
            return PlainSender(self.lane.target, settings.target.cluster.leaders, settings.target.connect)
        return LaneSender(
            self.lane.target, self._runs.numbering(last), settings.target.cluster.leaders, settings.target.connect,
            transactional_id=None if self._transactions is None else self._transactions.id, follows_others=True,
            forgotten_after_ms=_NEVER_MS if self._transactions is not None else settings.forgotten_after_ms,
            leased_until=self._leased_until,
        )  # fmt: skip

    # -- transactions ----------------------------------------------------------------------------------------------

    def _commit(self, sender: LaneSender | PlainSender, target: int, position: int) -> None:
        """Commit what was sent. The run after the marker is stored before, so that its place is known.

        Args:
            position: Where the source is read on; -1 if it is not.
        """
        assert self._transactions is not None
        if sender.flush(WAIT_S) != target:
            return
        run, last = self._runs.at(target), self._runs.runs[-1]
        assert run is not None
        place, sequence = run.place_at(target), self._runs.numbering(last).sequence_at(target)
        after = RunRecord(self.lane, self._runs.number + 1, last.producer, sequence, place.offset, target + 1,
                          RunCause.MARKER, last.incarnation, place.skip, gap=1)  # fmt: skip
        if not self._write(after):
            return
        self._transactions.commit(last.producer, target)
        self._acknowledge(target)
        if position >= 0:
            self._resume = target + 1, position

    def _take_over(self, *, needs_epoch: bool = False) -> bool:
        """Describe what is at the end of the log, as whoever wrote it may have been killed in a transaction.

        A run is stored in any case: a former owner of the lane that goes on cannot store one any more, and so commits
        nothing.

        Returns:
            Whether the lane goes on at what is described now.
        """
        tx = self._transactions
        if tx is None:
            return True
        tx.is_open = False
        known = self._runs.runs[-1].producer
        runs = self._read_runs()
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
        self._runs = self._state.map_of(self.lane)
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

    def _has_gap(self, sender: LaneSender | PlainSender, target: int, position: int) -> bool:
        """Store that offsets are to be filled up to a position of the source; return False if there are none."""
        if not self._settings.preserves_offsets or position <= target:
            return False
        if sender.flush(WAIT_S) == target:
            last = self._runs.runs[-1]
            sequence = self._runs.numbering(last).sequence_at(target)
            self._write(RunRecord(self.lane, self._runs.number + 1, last.producer, sequence, position, position,
                                  self._cause(), last.incarnation, gap=position - target))  # fmt: skip
        return True

    def _fill_gaps(self) -> bool:
        """Fill the offsets before a run, where the target's log ends there; return False if the lane is stopped."""
        name = self.lane.target
        if not self._settings.preserves_offsets:
            return True
        ends = self._settings.target.cluster.log_ends([name], [EARLIEST, LATEST])[name]
        if isinstance(ends, str):
            raise LaneStuck(name, 0.0, ends)
        start, end = (int(each or 0) for each in ends)
        run, first = self._read_runs().gap_at(end), self._runs.runs[0]
        if run is not None:
            self.figures.trouble = f"offsets {end} to {run.target_first - 1} of the target are filled"
            with OffsetFiller(name, self._settings.transactional_id(self.lane), self._settings.target) as filler:
                if not filler.fill(run.target_first, self._stopping.is_set):
                    return False
            self.figures.trouble = ""
        if first.gap and start < first.target_first:
            self._settings.cut(name, first.target_first)
        return True

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
        target_first, gap = self._target_of(error.go_on_at, end)
        self._write(RunRecord(self.lane, known + 1, last.producer, sequence, error.go_on_at, target_first,
                              RunCause(error.cause), last.incarnation,
                              lost_first=error.position if self.lane.is_counted else -1, gap=gap))  # fmt: skip
        return True


def _without_hole(found: Sequence[CopiedBatch], position: int) -> Sequence[CopiedBatch]:
    """Return the pieces before the first hole."""
    for index, piece in enumerate(found):
        if piece.first_offset != position:
            return found[:index]
        position += piece.records
    return found
