"""The queue of one partition between a fetcher and a stream, and the chunks in it.

The reader's side takes no lock, because a signal handler that shuts the connector down may interrupt a reader at any
point. Four rules make that safe:

1. *Store, then check.* The reader stores `in_hand` before it checks `is_live`; the coordinator clears `is_live` before
   it checks `in_hand`. So either the reader sees the revocation and delivers nothing, or the coordinator sees the
   message in hand and waits for it. CPython makes the stores of a thread visible to all others in their order.
2. *Use, then remove.* The reader works on the chunk at the head of the queue and removes it after it was read to its
   end. An interrupt in between (KeyboardInterrupt can come anywhere) loses no chunk.
3. *Give back, then remove.* The bytes of a chunk are given back to the budget before the chunk leaves the queue, and
   they count once however often they are given back. After an interrupt in between, the chunk is still in the queue
   and the step is done again.
4. *The thread that removes a callback calls it.* `deque.popleft` succeeds for one thread only.

In Kafka 0.7 the messages of a compressed entry share one position. A queue that is ended while some of them are done
delivers the others first, as only whole entries can be committed; that is `is_finishing`.

A partition to fetch, as it is passed from the coordinator to a fetcher, and from one fetcher to the next.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.dialect import Dialect
from simpleconsumer.dialect_types import PositionIs
from simpleconsumer.types import AbortedTransaction, TopicPartition
from zkconsumer.fetching.byte_budget import ByteBudget, Charge
from zkconsumer.fetching.fetch_state import EntryMark, FetchMeter, FetchState, Need

T = TypeVar("T")


class Chunk:
    """A part of one partition, between its fetcher and its stream.

    Attributes:
        data: Whole entries of a message set; a copy, as the answer's memory is used again.
        next_offset: Position once the chunk is read.
        data_offset: Position of the first byte of the data in Kafka 0.7; else None.
        dialect: Decodes the data; None for a chunk without data.
        high_watermark: Where the log ended when the chunk was fetched; None when that is not known.
        aborted: The aborted transactions among the messages, which are left out.
        size_bytes: How many bytes of the budget it needs.
        charge: The bytes of the budget that it takes now.
        reset_to: Not None: no data, the position jumps there (`auto.offset.reset`).
        error: Not None: no data (or data that ends in this error), raised when the reader gets there.
        last_entry: The last entry of the data in Kafka 0.7; else None.
        resume: Where decoding continues after the last error that was raised about this chunk; None before the first
            one. A chunk may be opened again, and then no error is raised twice.
    """

    __slots__ = (
        "aborted",
        "charge",
        "data",
        "data_offset",
        "dialect",
        "error",
        "high_watermark",
        "last_entry",
        "next_offset",
        "reset_to",
        "resume",
        "size_bytes",
    )

    def __init__(
        self,
        data: bytes,
        next_offset: int,
        dialect: Dialect | None,
        *,
        data_offset: int | None = None,
        last_entry: EntryMark | None = None,
        high_watermark: int | None = None,
        aborted: Sequence[AbortedTransaction] = (),
        reset_to: int | None = None,
        error: Exception | None = None,
    ) -> None:
        self.data = data
        self.data_offset = data_offset
        self.last_entry = last_entry
        self.next_offset = next_offset
        self.dialect = dialect
        self.high_watermark = high_watermark
        self.aborted = aborted
        self.size_bytes = len(data)
        self.charge = Charge()
        self.reset_to = reset_to
        self.error = error
        self.resume: object = None

    def opened(
        self, decode: Callable[..., T], partition: TopicPartition, offset: int, index: int, max_decoded_bytes: int,
        resume: object,
    ) -> T:  # fmt: skip
        """Return what `decode` makes of the data, which has the arguments of `Dialect.decode_messages`.

        Args:
            offset: The first one that is wanted; in Kafka 0.7 the start of an entry.
            index: How many messages of that entry are skipped, in Kafka 0.7; else 0.
            resume: Where it continues after an error; None for the start.
        """
        return decode(
            self.data, *partition, offset, start_index=index, data_offset=self.data_offset,
            high_watermark=self.high_watermark, max_decoded_bytes=max_decoded_bytes, aborted=self.aborted,
            resume=resume,
        )  # fmt: skip


class InHand(Protocol):
    """The message or the batch of messages that the application works on.

    Attributes:
        offset: Of the message, or of the first one.
        next_offset: The offset after the message, or after the last one.
        index: Its number, or that of the first one, in a compressed entry of Kafka 0.7; else 0.
        _done_in_entry: How many messages of the entry at `next_offset` are done when it is; 0 but in Kafka 0.7.
    """

    @property
    def offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def index(self) -> int: ...

    @property
    def _done_in_entry(self) -> int: ...


class Reader(Protocol):
    """The side of a stream that its queues use.

    Attributes:
        _ready: Queues in the order in which their chunks came, one entry for each chunk.
        _reader: Who took the last message: a thread, by `threading.get_ident`, or an asyncio task.
        handed: The message or batch that was returned to the application last.

    Applications hold the streams themselves, so what only this package uses has an underscore.
    """

    _ready: deque[PartitionQueue]

    @property
    def _reader(self) -> object: ...

    @property
    def handed(self) -> InHand | None: ...

    def _wake(self) -> None: ...

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        """Return whether a message was really handed over to a reader, and to the last one that read."""

    def _is_being_read(self) -> bool:
        """Return whether who took the last message may still ask for the next one."""


class PartitionQueue:
    """The chunks of one partition for one stream, during one ownership.

    A partition that is revoked and assigned again gets a new queue, so nothing of the old ownership can be delivered.

    Attributes:
        is_live: Cleared by the coordinator when the partition is revoked, lost, or the consumer stops.
        in_hand: The message or batch that the application works on; None between them.
        position: Offset after the last done message, up to date whenever nothing is in hand.
        index: How many messages of the entry at `position` are done; 0 but in Kafka 0.7.
        is_settled: True once the final position was reported; from then on the queue does not count.
        failure: The error that ended the partition (`on.message.error=stop`, broken framing), else None.
        chunks: The queued chunks, with the one that is being read.

    Threads: `in_hand`, `position` by the reader; `is_live`, `committed` by the coordinator; a fetcher adds chunks,
        and the reader removes them, or whoever drops them.
    """

    __slots__ = (
        "_budget",
        "_committed",
        "_marks",
        "_on_room",
        "_position_left",
        "_unread_reset",
        "_waiting",
        "chunks",
        "failure",
        "in_hand",
        "index",
        "is_live",
        "is_settled",
        "partition",
        "position",
        "stream",
    )

    def __init__(self, partition: TopicPartition, position: int, stream: Reader, budget: ByteBudget) -> None:
        self.partition = partition
        self.position = position
        self.index = 0
        self._marks: tuple[EntryMark, ...] = ()
        self.stream = stream
        self.is_live = True
        self.is_settled = False
        self.in_hand: InHand | None = None
        self._committed = self._position_left = -1
        self._unread_reset: tuple[int, range] | None = None
        self.failure: str | None = None
        self.chunks: deque[Chunk] = deque()
        self._budget = budget
        self._waiting: deque[tuple[Callable[[int], None], bool]] = deque()
        self._on_room: Callable[[], None] | None = None

    # -- the fetcher's side --------------------------------------------------------------------------------------------

    def on_room(self, call: Callable[[], None] | None) -> None:
        """Have `call` called whenever a chunk was read; the reader calls it, so it must be quick."""
        self._on_room = call

    def push(self, chunk: Chunk, *, wakes: bool = True) -> None:
        """Add a chunk; if the queue ends at the same moment, the chunk is dropped again.

        Args:
            wakes: Whether to wake the reader, too; without it, who pushes calls `wake_reader` soon.
        """
        self._budget.charge(chunk.charge, chunk.size_bytes, self.stream)
        self.chunks.append(chunk)
        self.stream._ready.append(self)
        if (not self.is_live and not self.is_finishing) or self.failure is not None:
            self.drop()
        if wakes:
            self.stream._wake()

    def wake_reader(self) -> None:
        """Have a reader that waits look at what was pushed."""
        self.stream._wake()

    def push_reset(self, position: int, gone: range) -> None:
        """Have the reader continue at another position after the queued chunks.

        Args:
            position: Where it goes on.
            gone: Positions that the log does not have: none of them is a final position any more.
        """
        before = self._unread_reset
        if before is not None and gone and before[1]:
            gone = range(min(gone.start, before[1].start), max(gone.stop, before[1].stop))
        self._unread_reset = position, gone
        self.push(Chunk(b"", position, None, reset_to=position))

    # -- the reader's side ---------------------------------------------------------------------------------------------

    def take_out(self, chunk: Chunk) -> None:
        """Remove a chunk that was read, unless another thread dropped it meanwhile."""
        self._budget.release(chunk.charge)
        if chunk.last_entry is not None:
            self._marks = (chunk.last_entry,)
        try:
            self.chunks.remove(chunk)
        except ValueError:
            return
        self.forget_entry()
        if self._on_room is not None:
            self._on_room()

    def forget_entry(self) -> None:
        """Remove one entry of the stream's `ready`, for a chunk that is gone."""
        try:
            self.stream._ready.remove(self)
        except ValueError:  # the coordinator was first
            pass

    def finish_hand(self, position: int, index: int = 0) -> None:
        """Take note that nothing is in hand and everything below `position` is done; completes a drain.

        The position never goes back, not even where damaged offsets do.

        Args:
            index: How many messages of the entry at `position` are done.
        """
        if position > self.position:
            self.position, self.index = position, index
        elif position == self.position and index > self.index:
            self.index = index
        self.in_hand = None
        if not self.is_live and not self.index:
            self.drop()
            self.settle(self._final_position())

    @property
    def is_finishing(self) -> bool:
        """Whether the queue was ended, and the rest of the entry at its position is still to be delivered."""
        return self.index > 0 and not self.is_live and not self.is_settled and self.failure is None

    def reset(self, position: int) -> None:
        """Continue at another position of the log, to which the offsets committed so far do not apply."""
        self._position_left = self.position
        self.position, self.index = position, 0
        self._committed = -1
        self._marks = ()
        if self._unread_reset is not None and self._unread_reset[0] == position:
            self._unread_reset = None

    def halt(self, reason: str) -> None:
        """Deliver nothing more in this ownership; the partition stays owned, and its position does not move."""
        self.failure = reason
        self.drop()

    @property
    def committed(self) -> int:
        """Position that the application committed explicitly: done, even while in hand; -1 when there is none."""
        return self._committed

    @committed.setter
    def committed(self, position: int) -> None:
        # The answer to a commit can come after the committed position was found outside the log, and left.
        self._committed = -1 if position == self._position_left else position

    # -- the coordinator's side ----------------------------------------------------------------------------------------

    def done_position(self) -> int:
        """Return the offset after the last done message; a batch in hand counts as far as it was committed."""
        hand = self.in_hand
        if hand is None:
            return self.position
        return max(hand.offset, min(hand.next_offset, self.committed))

    def end(self, done: Callable[[int], None] | None = None) -> None:
        """Deliver nothing more, and drop the chunks; `done` gets the final position once nothing is in hand.

        In Kafka 0.7 the rest of an entry that was begun is delivered first.
        """
        if done is not None:
            self._waiting.append((done, True))
        self.is_live = False
        if not self.is_inside_entry():
            self.drop()
        self.settle_if_done()
        self.stream._wake()

    @property
    def is_ending(self) -> bool:
        """Whether the partition is being given up, and its final position is waited for."""
        return any(is_final for _, is_final in tuple(self._waiting))

    def end_at(self, position: int) -> None:
        """Have a queue that is being given up end at another position: the messages in hand do not count."""
        self.in_hand, self.position, self.index = None, position, 0
        self._committed, self._unread_reset = -1, None
        self.drop()
        self.settle(position)

    def when_hand_empty(self, call: Callable[[int], None]) -> None:
        """Call `call` with the position once nothing is in hand, for a queue that was ended and still counts."""
        self._waiting.append((call, False))
        self.settle_if_done()

    def settle_if_done(self) -> None:
        """Complete a drain when nothing is in hand, or only what was committed."""
        hand = self.in_hand
        if self.is_live or self.is_inside_entry():
            return
        if hand is None or hand.next_offset <= self.committed:
            self.settle(self._final_position())

    def is_inside_entry(self) -> bool:
        """Whether some messages of an entry of Kafka 0.7 are done, or in hand, and others are not."""
        hand = self.in_hand
        return (self.index if hand is None else hand._done_in_entry) > 0 and self.failure is None

    def cancel(self) -> int:
        """End without waiting for what is in hand, and return the final position; the queue does not count any more."""
        self.is_live = False
        self._waiting.clear()
        self.is_settled = True
        self.drop()
        return self._final_position()

    def _final_position(self) -> int:
        """Return the done position; where a reset leads that the reader has not got to, if the log lacks the done one.

        Who reads on from a position that the log does not have skips what the log gets until it has grown past it.
        """
        position, reset = self.done_position(), self._unread_reset
        return reset[0] if reset is not None and position in reset[1] else position

    def settle(self, position: int) -> None:
        """Call each waiting callback once with the final position."""
        while self._waiting:
            try:
                done, is_final = self._waiting.popleft()
            except IndexError:  # another thread was first
                return
            self.is_settled = self.is_settled or is_final
            done(position)

    def drop(self) -> None:
        """Remove all chunks, and all entries of this queue in its stream's `ready`."""
        while True:
            try:
                chunk = self.chunks[-1]
                if chunk.last_entry is not None:
                    self._mark_entries(chunk)
                self._budget.release(chunk.charge)
                self.chunks.remove(chunk)
            except IndexError:
                break
            except ValueError:  # another thread was first
                continue
        while True:
            try:
                self.stream._ready.remove(self)
            except ValueError:
                return

    def entry_before(self, position: int) -> EntryMark | None:
        """Return the entry of Kafka 0.7 that ends at the final position, as far as it is known."""
        return next((mark for mark in self._marks if mark.end == position), None)

    def entry_around(self, position: int) -> tuple[int, int] | None:
        """Return start and end of the entry of Kafka 0.7 within which a position is, as far as it is known."""
        for chunk in tuple(self.chunks):
            base = chunk.data_offset
            if chunk.dialect is None or base is None or chunk.error is not None:
                continue  # without messages, or with sizes that lead nowhere
            if base <= position < chunk.next_offset:
                found = chunk.dialect.find_boundary(chunk.data, base, position)
                return None if found.position_is is PositionIs.BOUNDARY else (found.start, found.end)
        return next(((mark.start, mark.end) for mark in self._marks if mark.start < position < mark.end), None)

    def _mark_entries(self, chunk: Chunk) -> None:
        """Keep the entries that end before and with what is in hand: one of both ends is the final position.

        The chunk is of Kafka 0.7, and was read in part.
        """
        hand = self.in_hand
        ends = {self.position} if hand is None else {hand.offset, hand.next_offset}
        found = tuple(mark for end in ends if (mark := _entry_that_ends(chunk, end)) is not None)
        if found:
            self._marks = found


def _entry_that_ends(chunk: Chunk, end: int) -> EntryMark | None:
    """Return the entry of a chunk of Kafka 0.7 that ends at a position; None if none does."""
    base = chunk.data_offset
    if chunk.dialect is None or base is None or not base < end <= chunk.next_offset:
        return None
    start = chunk.dialect.last_entry_before(chunk.data, base, end)
    return None if start is None else EntryMark(start, end, zlib.crc32(chunk.data[start - base : end - base]))


class FetchTask:
    """One partition to fetch, or whose log ends are asked for.

    Attributes:
        queue: Where the messages go; None if only ends of the log are asked for.
        policy: `smallest` or `largest`: which end of the log to ask for, and where to continue if the position is
            outside the log. With `stop` nothing is read any more then, and the reader gets the error `OutOfLog`.
        resolved: Called with the end, or the two ends, that were asked for.
        since_ms: Where a partition of Kafka 0.7 starts, instead of at an end of its log: with what was written to it
            since then (milliseconds since 1970); None: at the end that `policy` names.
        is_cancelled: True when the result is not needed any more.
        is_placed: True while a fetcher has it.
        refusal: Why nothing of it may be delivered; None if it may.
        meter: Counts what is fetched; None if nothing is delivered.
    """

    __slots__ = ("is_cancelled", "is_placed", "meter", "policy", "queue", "refusal", "resolved", "since_ms", "state")

    def __init__(
        self,
        state: FetchState,
        queue: PartitionQueue | None,
        policy: str,
        resolved: Callable[..., None] | None = None,
        since_ms: int | None = None,
    ) -> None:
        self.state = state
        self.queue = queue
        self.policy = policy
        self.resolved = resolved
        self.since_ms = since_ms
        self.is_cancelled = False
        self.is_placed = False
        self.refusal: str | None = None
        self.meter: FetchMeter | None = None

    @property
    def is_wanted(self) -> bool:
        """False once the ownership has ended, or the partition was given up."""
        return not self.is_cancelled and (self.queue is None or (self.queue.is_live and self.queue.failure is None))

    @property
    def ends_needed(self) -> tuple[int, ...]:
        """The ends of its log that must be known before it can be fetched, as times of an offset request."""
        match self.state.need:
            case Need.RESOLVE:
                return (EARLIEST,) if self.policy == "smallest" else (LATEST,)
            case Need.END_CHECK:
                return (LATEST,)
            case Need.BOUNDS | Need.RANGE_CHECK:
                return (EARLIEST, LATEST)
            case _:
                return ()
