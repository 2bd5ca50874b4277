"""Checks of positions of Kafka 0.7: whether an entry starts at a byte position, and whether the log is the same still.

Rules, and which failure each prevents:
- The first entry of an ownership is looked at before it is delivered. An operator, or another client, may have stored a
  position within an entry; a broker serves it, and sends bytes from the middle of messages.
- From such a position the entry around it is looked for, from the start of its segment on. Reading goes on at the
  start of that entry: some messages are delivered again, and none is lost. The walk reads a limited number of bytes.
- A whole entry within another one seems to be one of the log: in the value of a message, or in a set that snappy has
  stored as it is. Mostly no entry follows it. So the same search is made once before a partition is given up.
- An entry above the limit is passed over by the size that it names. If that leads past the end of the log, the size
  is damaged: `auto.offset.reset` would decide there, and messages would be lost.
- While an answer is read, nothing is asked: its memory is used again for the next answer, and the sets of other
  partitions in it would be overwritten. `decide` makes decisions that need a request when the whole answer was read.
- A broker that comes back may have another log under the same name. So the last entry that was delivered is read again
  and compared; 0.7 has neither epochs nor incarnations of topics. Where retention has taken that entry, nothing can be
  compared, and `auto.offset.reset` decides as for any position that is outside the log.

Threads: All of it on the thread of one fetcher, between its fetches.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rebalance.rebalance_statistics import Counters
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect_types import FetchResult, Outcome, PositionIs
from simpleconsumer.errors import BrokenFraming, SimpleConsumerError, broker_error
from simpleconsumer.types import MAX_INT64, Buffer, FetchedPartition
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetching.fetch_state import BROKEN_TRIES, MOST_SEGMENTS, EntryMark, FetchState, Need, OutOfRange
from zkconsumer.fetching.partition_queue import Chunk, FetchTask

log = logging.getLogger(__name__)

MOST_WALKED_BYTES: Final = 2 * 1024**3
"""How many bytes of a log are read at most to find the entry around a position: two segments of the default size."""
_SIZE_BYTES: Final = 4
_SHORTEST_ENTRY_BYTES: Final = 9
_OUT_OF_RANGE: Final = 1


class NoEntryThere(ZkConsumerError):  # noqa: N818 - the name says what is wrong
    """No entry starts at a position, and none was found around it.

    Attributes:
        position: Where reading should have started.
        reason: The fault there, and how far the search went, clauses.
    """

    remedy = "set the group's offset to earliest, latest, or a position that `zkconsumer consume` prints"

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"position {self.position} is not the start of an entry ({self.reason}); {self.remedy}"


class CheckCalls(NamedTuple):
    """The callbacks of the checks, on the thread of the fetcher.

    Attributes:
        failed: With a task that must be asked for again later, and the reason.
        out_of_range: With each partition whose position is not that of an entry of its log, with the offsets that were
            read of a log that is gone, or that are within an entry, and with where reading goes on.
    """

    failed: Callable[[FetchTask, str], None]
    out_of_range: OutOfRange


class _Differing(NamedTuple):
    """A partition whose last entry is not where it was.

    Attributes:
        is_out_of_range: The broker called its place out of range.
        is_gone: There is nothing in its place.
    """

    task: FetchTask
    mark: EntryMark
    is_out_of_range: bool
    is_gone: bool


class EntryChecks:
    """The checks of one fetcher.

    Args:
        broker_id: Of the fetcher's broker.
        consumer: The connection of the fetcher.
        counters: Counts what was found.
    """

    def __init__(self, broker_id: int, consumer: SimpleConsumer, counters: Counters, calls: CheckCalls) -> None:
        self._broker_id = broker_id
        self._consumer = consumer
        self._counters = counters
        self._failed = calls.failed
        self._out_of_range = calls.out_of_range
        self._differing: list[_Differing] = []

    # -- the first entry -----------------------------------------------------------------------------------------------

    def doubts(self, task: FetchTask, answer: FetchedPartition, result: FetchResult) -> bool:
        """Look at the first answer of an ownership; return whether no entry seems to start at its position."""
        state = task.state
        fault: str | None = None
        if result.outcome in (Outcome.BROKEN, Outcome.TOO_LARGE):
            fault = result.reason
        elif result.outcome is Outcome.CHUNK:
            fault = self._consumer.dialect.first_entry_fault(answer.message_set)
            state.is_start_checked = fault is None
        if fault is None:
            return False
        log.warning(
            "%s/%s on broker %d: no entry seems to start at position %d (%s); searching for the entry around it",
            *state.partition,
            self._broker_id,
            state.offset,
            fault,
        )
        self._walk_to(state, fault)
        return True

    def doubts_start(self, task: FetchTask, fault: str) -> bool:
        """Look once whether reading started within an entry, before a partition is given up; return whether it does."""
        state = task.state
        if state.is_start_walked or state.offset > MAX_INT64 - _SHORTEST_ENTRY_BYTES:
            return False  # an entry there would end after the largest position
        log.warning(
            "%s/%s on broker %d: no entry seems to start at position %d (%s); reading may have started "
            "inside an entry; searching for its start",
            *state.partition,
            self._broker_id,
            state.offset,
            fault,
        )
        self._walk_to(state, fault)
        return True

    def _walk_to(self, state: FetchState, fault: str) -> None:
        state.doubt = fault
        state.broken = 0
        state.is_start_walked = True
        state.need = Need.SEGMENTS

    def ask(self, tasks: Sequence[FetchTask], now: float) -> None:
        """Ask where the segments start in which positions are that no entry seems to start at."""
        for task in tasks:
            state = task.state
            if state.need is not Need.SEGMENTS or state.retry_at > now or not task.is_wanted:
                continue
            self._counters.add("broker_requests", "offsets")
            try:
                [(code, starts)] = self._consumer.multi_offsets_before([state.partition], LATEST, MOST_SEGMENTS)
            except SimpleConsumerError:
                if state.is_start_checked:
                    self._damaged(task)  # or a broker that cannot answer this would cost its connection for ever
                raise
            below = [start for start in starts if start <= state.offset]
            if code or not below:
                state.need = Need.RANGE_CHECK
                continue
            state.walk_from = state.walk_at = max(below)
            if state.is_start_checked and state.walk_from > state.started_at:
                self._damaged(task)  # an entry starts where a segment does: from there on all places were right
                continue
            state.need = Need.WALK
            state.size_bytes = self._walk_bytes(task)

    def _walk_bytes(self, task: FetchTask) -> int:
        state = task.state
        return max(_SIZE_BYTES, min(state.configured_bytes, state.offset - state.walk_at + _SIZE_BYTES))

    def take(self, task: FetchTask, answer: FetchedPartition) -> None:
        """Handle the answer to a fetch that a check has asked for."""
        if answer.error_code not in (0, _OUT_OF_RANGE):
            row = broker_error(answer.error_code)
            self._failed(task, f"{row.name} (code {row.code}): {row.meaning}")
        elif task.state.need is Need.COMPARE:
            self._compare(task, answer)
        else:
            self._walk(task, answer)

    def _walk(self, task: FetchTask, answer: FetchedPartition) -> None:
        state = task.state
        if answer.error_code:
            state.need = Need.RANGE_CHECK
            return
        try:
            found = self._consumer.dialect.find_boundary(answer.message_set, state.walk_at, state.offset)
        except BrokenFraming as error:
            self._give_up(task, f"{state.doubt}; {error}, on the way from {state.walk_from}, where its segment starts")
            return
        if found.position_is is PositionIs.BOUNDARY:
            # An entry starts there, and it is damaged: that is reported like any other damage.
            self._damaged(task)
        elif found.position_is is PositionIs.INSIDE:
            self._start_at(task, found.start, found.end)
        elif found.start - state.walk_from > MOST_WALKED_BYTES:
            self._give_up(
                task, f"{state.doubt}; {MOST_WALKED_BYTES} bytes from {state.walk_from} on were read without success"
            )
        elif found.start > state.walk_at:
            state.walk_at = found.start
            state.broken = 0
            state.size_bytes = self._walk_bytes(task)
        else:
            state.broken += 1
            if state.broken > BROKEN_TRIES:
                self._give_up(task, f"{state.doubt}; the log ends at {state.walk_at}")
            else:
                self._failed(task, f"nothing comes from {state.walk_at}, before position {state.offset}")

    def _start_at(self, task: FetchTask, start: int, end: int) -> None:
        state, queue = task.state, task.queue
        log.warning(
            "%s/%s: position %d is inside the entry from %d to %d; continuing at its start, so its messages "
            "may be delivered again",
            *state.partition,
            state.offset,
            start,
            end,
        )
        self._counters.add("errors", "within_entry")
        # So that the start may be stored instead of the position, from which a Java member cannot read.
        gone = range(start + 1, state.offset + 1)
        self._out_of_range(state.partition, gone, start)
        if queue is not None:
            queue.push_reset(start, gone)
        state.start_again(start)
        self._go_on(task)

    def _damaged(self, task: FetchTask) -> None:
        """Continue at the position; an entry that was fetched often enough before the search gets few more tries."""
        if task.state.is_start_checked:
            task.state.broken = BROKEN_TRIES
        self._go_on(task)

    def _go_on(self, task: FetchTask) -> None:
        state = task.state
        state.need = Need.FETCH
        state.is_start_checked = True
        state.size_bytes = state.configured_bytes
        state.error = None

    def _give_up(self, task: FetchTask, reason: str) -> None:
        if task.state.is_start_checked:
            self._damaged(task)  # reading started at an entry, as far as can be known
            return
        task.state.need = Need.NOTHING
        if task.queue is not None:
            task.queue.push(Chunk(b"", MAX_INT64, None, error=NoEntryThere(task.state.offset, reason)))

    def log_end(self, task: FetchTask) -> int | None:
        """Return where the log ends now; None if the broker does not say so."""
        self._counters.add("broker_requests", "offsets")
        [(code, ends)] = self._consumer.multi_offsets_before([task.state.partition], LATEST)
        return ends[0] if ends and not code else None

    # -- the same log --------------------------------------------------------------------------------------------------

    def compare_later(self, task: FetchTask) -> None:
        """Have the last entry before the position read again, if this member knows it; else look at the next one."""
        state = task.state
        if state.last_entry is not None and state.last_entry.end == state.offset:
            state.need = Need.COMPARE
            state.size_bytes = state.last_entry.size_bytes
        else:
            state.is_start_checked = False

    def _compare(self, task: FetchTask, answer: FetchedPartition) -> None:
        mark = task.state.last_entry
        assert mark is not None
        data: Buffer = answer.message_set
        if not answer.error_code and len(data) >= mark.size_bytes and zlib.crc32(data[: mark.size_bytes]) == mark.crc:
            self._go_on(task)
            task.state.is_start_checked = mark.end == task.state.offset
            return
        is_gone = bool(answer.error_code) or not len(data)
        self._differing.append(_Differing(task, mark, bool(answer.error_code), is_gone))

    def decide(self) -> None:
        """Decide about the partitions whose last entry was not found; asks where their logs start."""
        differing, self._differing = self._differing, []
        for each in differing:
            self._counters.add("broker_requests", "offsets")
            [(code, starts)] = self._consumer.multi_offsets_before([each.task.state.partition], EARLIEST)
            self._decide(each, None if code or not starts else starts[0])

    def _decide(self, differing: _Differing, start: int | None) -> None:
        task, mark, is_out_of_range, is_gone = differing
        state = task.state
        if start is None:
            place = f"the entry from {mark.start} to {mark.end}"
            self._failed(task, f"{place} has changed, and the start of the log is unknown")
            return
        if is_out_of_range and start >= mark.end:
            # Retention has taken the entry. Whether the position is in the log still is found out by a fetch from it.
            self._go_on(task)
            return
        what = "is no longer in the log" if is_gone else "has other bytes"
        log.warning(
            "%s/%s: broker %d has another log than before: the entry from %d to %d, which was delivered, %s; "
            "continuing at the start of the new log, %d",
            *state.partition,
            self._broker_id,
            mark.start,
            mark.end,
            what,
            start,
        )
        self._counters.add("errors", "log_changed")
        # Nothing that was read is in the new log, wherever that ends.
        gone = state.behind_end(start)
        self._out_of_range(state.partition, gone, start)
        if task.queue is not None:
            task.queue.push_reset(start, gone)
        state.start_again(start)
        state.last_entry = None
        self._go_on(task)
