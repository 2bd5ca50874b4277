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
from collections.abc import Callable, Sequence
from typing import Final

from rebalance.errors import RebalanceError
from simpleconsumer.dialect import BatchNotWhole
from simpleconsumer.errors import BrokenFraming, MessageError, SimpleConsumerError, VersionNotServed
from simpleconsumer.types import NO_ID
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.errors import PartitionStopped, ReadFailed
from zkconsumer.fetching.partition_queue import Chunk
from zkconsumer.mirror.compared_records import compare_last
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
    Misplaced,
    NumberRefused,
    SourceLost,
    TransactionLost,
)
from zkconsumer.mirror.kept_runs import WAIT_S, KeptRuns
from zkconsumer.mirror.lane_runs import Lane, RunRecord
from zkconsumer.mirror.lane_settings import LaneFigures, LaneSettings
from zkconsumer.mirror.lane_source import LaneSource, SourcePool
from zkconsumer.mirror.lanes.lane_sender import LaneSender
from zkconsumer.mirror.lanes.lane_transactions import LOST_CODES, LaneTransactions
from zkconsumer.mirror.lanes.plain_sender import PlainSender
from zkconsumer.mirror.leaf_writer import LeafWriter
from zkconsumer.mirror.pieces import CopiedBatch, EntryPieces, has_transactions, limits_of, pieces
from zkconsumer.mirror.refused_records import refused_record
from zkconsumer.mirror.state_log import StateLog
from zkconsumer.mirror.topics.topic_settings import settings_in_force
from zkconsumer_error import ZkConsumerError

log = logging.getLogger(__name__)

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
        self._settings = settings
        self._source = LaneSource(pool, lane.source)
        self._stopping = threading.Event()
        self._sender: LaneSender | PlainSender | None = None
        self._transactions: LaneTransactions | None = None
        if settings.pins_producers:
            self._transactions = LaneTransactions(lane.target, settings.transactional_id(lane), settings.target)
        self._runs = KeptRuns(lane, state, settings, self.figures, self._stopping, self._transactions)
        self._limits = settings.limits
        self._lost_at = 0
        is_compacted = lane.source.topic in settings.compacted
        self._leaves = LeafWriter(lane, state, self._runs.log_starts, is_on=not is_compacted)
        self._entries = EntryPieces(0)
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
            return self._runs.take_over(needs_epoch=isinstance(error, (TransactionLost, NumberRefused, LaterEpoch)))
        if isinstance(error, (NumberRefused, BelowRun)):
            return self._runs.renumber(error)
        if isinstance(error, SourceLost):
            return self._runs.skip_lost(error, self._lost_at)
        if isinstance(error, AnotherWriter):  # maybe another process of this mirror, with a later epoch
            known = self._runs.map.number
            return self._runs.refresh().number > known
        return False

    def _copy(self) -> None:
        """Copy until the lane goes on at another position, or is stopped."""
        if not self._runs.refresh().runs:
            if not self._runs.begin():
                return
            self._runs.settled_at = time.monotonic()
        elif not self._runs.settled_at:
            self._runs.settled_at = time.monotonic() + self._settings.settle_s
        if self._resume is None and not (self._runs.fill_gaps() and self._runs.take_over()):
            return
        last = self._runs.map.runs[-1]
        if self._settings.has_numbers and last.producer == NO_ID:  # the target's brokers were upgraded
            self._runs.begin_numbers()
            return
        numbering = self._runs.map.numbering(last)
        self._limits = limits_of(
            self._settings.limits, settings_in_force(self._settings.target, self.lane.target.topic)
        )
        with self._new_sender(last) as sender:
            self._sender = sender
            try:
                while not self._stopping.is_set():
                    target = sender.position(WAIT_S)
                    # The end first, and then the runs: a run is stored before its records, so none is missed.
                    self._runs.refresh()
                    if self._runs.map.numbering(self._runs.map.runs[-1]) != numbering:
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
        data, run = sender.held_data(error.offset), self._runs.map.at(error.offset)
        if data is None or run is None:
            return error
        settings = settings_in_force(self._settings.target, self.lane.target.topic)
        return refused_record(self.lane, run.source_at(error.offset), error, data, settings)

    def _follow(self, sender: LaneSender | PlainSender, target: int) -> None:
        """Copy in order, until the lane goes on elsewhere."""
        run = self._runs.map.at(target)
        if run is None:
            raise BelowRun(self.lane.target, self._runs.map.runs[0].target_first, target)
        self.figures.trouble = ""
        self._lost_at = target
        position, skip = run.place_at(target)
        self._runs.check_incarnation(position)
        if self._resume is not None and self._resume[0] == target:
            position = self._resume[1]
        else:
            if self._settings.has_numbers:
                compare_last(self._runs.place, self._settings.source, self._settings.target, self._runs.map, target)
            else:
                compare_tail(self._settings.source, self._settings.target, self._runs.map, target, self._stopping)
            self._source.start(position)
            self._entries = EntryPieces(skip)
            self.figures.position = position
        self._resume = None
        self._leaves.restart()
        self._runs.saw_transactions = False
        self._in_hand.clear()
        while not self._stopping.is_set():
            try:
                chunk = self._source.next_chunk(_IDLE_S if sender.is_settled else _ANSWER_S)
            except SourceLost as error:
                if sender.flush(WAIT_S) != target:
                    return
                self._lost_at = target
                if self._entries.left:  # which of what is left was copied cannot be counted any more
                    raise SourceLost(self._runs.place, position, None, error.cause, error.reason) from error
                raise
            self._runs.check_incarnation(position)
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
                if not self._entries.left and not self._runs.count_anew(target, position):
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
        run = None if stored is None else self._runs.map.at(stored)
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
        self._runs.saw_transactions = self._runs.saw_transactions or has_transactions(chunk)
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
        if kept and not self._runs.declare(kept, target):
            return None
        if not self.lane.is_counted:
            self._in_hand.extend((piece.first_offset + piece.records, piece.time_ms) for piece in kept)
        for piece in kept:
            self._note(sender, None)
            self._settings.take_bytes(len(piece.data), self._stopping)
            if self._stopping.is_set():
                return None
            if self._transactions is not None:
                self._transactions.open(self._runs.map.runs[-1].producer)
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

    def _new_sender(self, last: RunRecord) -> LaneSender | PlainSender:
        settings = self._settings
        if not settings.has_numbers:
            return PlainSender(self.lane.target, settings.target.cluster.leaders, settings.target.connect)
        return LaneSender(
            self.lane.target, self._runs.map.numbering(last), settings.target.cluster.leaders, settings.target.connect,
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
        if not self._runs.after_marker(target):
            return
        self._transactions.commit(self._runs.map.runs[-1].producer, target)
        self._acknowledge(target)
        if position >= 0:
            self._resume = target + 1, position

    # -- offsets of the source on the target ---------------------------------------------------------------------------

    def _has_gap(self, sender: LaneSender | PlainSender, target: int, position: int) -> bool:
        """Store that offsets are to be filled up to a position of the source; return False if there are none."""
        if not self._settings.preserves_offsets or position <= target:
            return False
        if sender.flush(WAIT_S) == target:
            self._runs.leave_gap(target, position)
        return True

    # -- what the source has lost --------------------------------------------------------------------------------------


def _without_hole(found: Sequence[CopiedBatch], position: int) -> Sequence[CopiedBatch]:
    """Return the pieces before the first hole."""
    for index, piece in enumerate(found):
        if piece.first_offset != position:
            return found[:index]
        position += piece.records
    return found
