"""Handles the answers to one fetcher: messages for a queue, a further request, another broker, or an error.

The dialect (`simpleconsumer.dialect`) decides the meaning of an answer; this module acts on the dialect's result.

Threads: All of it on the thread of one fetcher.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from rebalance.rebalance_statistics import Counters
from simpleconsumer.dialect import dialect_of
from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import BrokenFraming, DamagedOffset, MessageTooLarge
from simpleconsumer.types import MAX_INT64, Broker, FetchedPartition
from zkconsumer.fetching.entry_checks import EntryChecks
from zkconsumer.fetching.fetch_state import BROKEN_TRIES, EntryMark, Need
from zkconsumer.fetching.partition_queue import Chunk, FetchTask, PartitionQueue

log = logging.getLogger(__name__)

_KEPT_BYTES: Final = 4096


class AskedPartition(NamedTuple):
    """A partition in a fetch request: from which offset it was asked for, and how many bytes of it."""

    task: FetchTask
    offset: int
    size_bytes: int


class AnswerCalls(NamedTuple):
    """The callbacks for answers, on the thread of the fetcher.

    Attributes:
        failed: With a task that must be asked for again later, and the reason.
        lose: With a task whose leader must be found, the reason, and the broker id if that broker does not lead it.
        nearer: With a task that is to be fetched from another replica, and with the id of its broker.
    """

    failed: Callable[[FetchTask, str], None]
    lose: Callable[[FetchTask, str, int | None], None]
    nearer: Callable[[FetchTask, int], None]


class FetchAnswers:
    """The answers of one fetcher.

    Args:
        broker: The fetcher's broker.
        largest_bytes: How many bytes a message may have.
        read_committed: Whether the log ends at its last stable offset.
        counters: Counts errors.
        checks: The checks of positions of Kafka 0.7.
    """

    def __init__(
        self,
        broker: Broker,
        largest_bytes: int,
        read_committed: bool,
        clock: Callable[[], float],
        counters: Counters,
        checks: EntryChecks,
        calls: AnswerCalls,
    ) -> None:
        self._broker = broker
        self._dialect = dialect_of(broker)
        self._largest_bytes = largest_bytes
        self._is_read_committed = read_committed
        self._clock = clock
        self._counters = counters
        self._checks = checks
        self._calls = calls
        self._too_large: list[tuple[AskedPartition, PartitionQueue, FetchResult]] = []
        self._unwoken: list[PartitionQueue] = []

    def wake_readers(self) -> None:
        """Wake the readers of the chunks that `take` has queued.

        The fetcher calls it once the next request is sent, or when there is none to send: a reader that runs has the
        GIL, and the request would wait until all these chunks are read.
        """
        queues, self._unwoken = self._unwoken, []
        for queue in queues:
            queue.wake_reader()

    def take(self, one: AskedPartition, answer: FetchedPartition, *, is_cut: bool = False) -> None:
        """Handle the answer about one partition.

        Args:
            is_cut: Other partitions may have had all the room of the answer.
        """
        task, queue, state = one.task, one.task.queue, one.task.state
        if state.need is not Need.FETCH:
            self._checks.take(task, answer)
            return
        result = self._dialect.classify(
            answer, one.offset, one.size_bytes, self._largest_bytes, self._broker.fetch_version
        )
        if queue is None:
            return
        if state.follows_until is not None and answer.error_code:
            self._calls.lose(task, result.reason, None)  # what a replica says of the log counts for nothing
            return
        if answer.preferred_replica not in (-1, self._broker.id):
            self._calls.nearer(task, answer.preferred_replica)
            return
        unchecked = self._dialect.has_byte_positions and not state.is_start_checked
        if unchecked and self._checks.doubts(task, answer, result):
            return
        log_end = answer.log_end(read_committed=self._is_read_committed)
        if self._dialect.has_byte_positions and len(answer.message_set) < one.size_bytes:
            log_end = one.offset + len(answer.message_set)  # of its segment; the next answer says whether that is all
        if is_cut and result.outcome is Outcome.NOTHING:
            state.answered(self._clock(), log_end)
            return
        self._act(one, queue, answer, result, log_end)

    def ask_about_them(self) -> None:
        """Decide what needs a further request, once no answer is read any more: the request takes their memory."""
        too_large, self._too_large = self._too_large, []
        self._checks.decide()
        for one, queue, result in too_large:
            end = self._checks.log_end(one.task)
            if end is None or result.next_offset <= end:
                self._give_up_message(one, queue, result)
            else:
                place = f"it would end at {result.next_offset}, after the end of the log, {end}"
                self._broken(one.task, queue, f"{result.reason}; {place}: its size is damaged")

    def _act(
        self, one: AskedPartition, queue: PartitionQueue, answer: FetchedPartition, result: FetchResult, log_end: int
    ) -> None:
        """Do what the result of a fetch asks for."""
        task, state = one.task, one.task.state
        match result.outcome:
            case Outcome.CHUNK if self._is_behind_all(one, answer, result):
                self._calls.failed(task, f"the log ends with an entry of offset {MAX_INT64}: no entry can follow")
            case Outcome.CHUNK:
                self._push(one, queue, answer, result)
                state.answered(state.fed_at, log_end)
            case Outcome.NOTHING:
                if state.nothing_came(self._clock(), log_end):
                    log.warning("%s/%s on broker %d: %s", *state.partition, self._broker.id, state.error)
            case Outcome.GROW:
                state.grow(result.size_bytes)
            case Outcome.LEFT_OUT | Outcome.DAMAGED if state.broken < BROKEN_TRIES:
                state.broken += 1
                self._calls.failed(task, result.reason)
            case Outcome.TOO_LARGE if self._dialect.has_byte_positions:
                self._too_large.append((one, queue, result))
            case Outcome.TOO_LARGE | Outcome.LEFT_OUT | Outcome.DAMAGED:
                self._give_up_message(one, queue, result)
            case Outcome.BROKEN:
                self._broken(task, queue, result.reason, answer)
            case Outcome.CHECK_RANGE:
                state.need = Need.RANGE_CHECK
                state.error = result.reason
            case Outcome.FIND_LEADER:
                self._counters.add("errors", "leader_moved")
                self._calls.lose(task, result.reason, self._broker.id)
            case Outcome.BACK_OFF:
                self._calls.failed(task, result.reason)

    def _is_behind_all(self, one: AskedPartition, answer: FetchedPartition, result: FetchResult) -> bool:
        """Return whether a set is the one entry of the largest offset with which the set before ended.

        A broker finds it for every offset. Read again and again, it would be an error for each of them.
        """
        if self._dialect.has_byte_positions or len(answer.message_set) >= one.size_bytes:
            return False  # more of the log may follow
        message_set = memoryview(answer.message_set)[result.first_byte : result.valid_bytes]
        _, after, entries = self._dialect.set_end(message_set, one.offset)
        before, state = one.task.state.last_bytes, one.task.state
        state.last_bytes = b"" if after is None or after <= MAX_INT64 else bytes(message_set[-_KEPT_BYTES:])
        return entries == 1 and bool(state.last_bytes) and before.endswith(state.last_bytes)

    def _push(self, one: AskedPartition, queue: PartitionQueue, answer: FetchedPartition, result: FetchResult) -> None:
        """Give the whole entries of an answer to the stream."""
        state = one.task.state
        # A copy: the answer holds all partitions, and would stay in memory until the last of them is read.
        message_set = bytes(answer.message_set[result.first_byte : result.valid_bytes])
        chunk = Chunk(
            message_set, result.next_offset, self._dialect, high_watermark=answer.high_watermark,
            aborted=answer.aborted,
        )  # fmt: skip
        if self._dialect.has_byte_positions:
            self._place(chunk, one.offset, result)
            state.last_entry = chunk.last_entry
        queue.push(chunk, wakes=False)
        self._unwoken.append(queue)
        state.moved_on(result.next_offset, result.valid_bytes)
        state.read_epoch = result.leader_epoch
        state.fed_at = self._clock()
        if one.task.meter is not None:
            one.task.meter.add(state.fed_at, result.entries or result.next_offset - one.offset, result.valid_bytes)

    def _place(self, chunk: Chunk, position: int, result: FetchResult) -> None:
        """Take note of where a chunk of Kafka 0.7 is in its log, which its bytes do not say."""
        chunk.data_offset = position
        crc = zlib.crc32(memoryview(chunk.data)[result.last_byte :])
        chunk.last_entry = EntryMark(position + result.last_byte, result.next_offset, crc)

    def _give_up_message(self, one: AskedPartition, queue: PartitionQueue, result: FetchResult) -> None:
        """Queue the error about a message that cannot be fetched, and continue after it."""
        kind = DamagedOffset if result.outcome is Outcome.DAMAGED else MessageTooLarge
        error = kind(*one.task.state.partition, result.offset, result.next_offset, result.reason)
        queue.push(Chunk(b"", result.next_offset, None, error=error))
        one.task.state.moved_on(result.next_offset)
        one.task.state.answered(self._clock())

    def _broken(
        self, task: FetchTask, queue: PartitionQueue, reason: str, answer: FetchedPartition | None = None
    ) -> None:
        """Fetch again, as the fault may be temporary; if it lasts, queue what can be read of the set, and the error."""
        task.state.broken += 1
        broken = task.state.broken
        self._calls.failed(task, f"broken message set at offset {task.state.offset}: {reason}")
        if broken > BROKEN_TRIES:
            if self._dialect.has_byte_positions and self._checks.doubts_start(task, reason):
                return
            task.state.need = Need.NOTHING
            queue.push(
                Chunk(
                    b"" if answer is None else bytes(answer.message_set), MAX_INT64, self._dialect,
                    data_offset=task.state.offset, high_watermark=-1 if answer is None else answer.high_watermark,
                    aborted=() if answer is None else answer.aborted, error=BrokenFraming(reason),
                )
            )  # fmt: skip
