"""What passes between a fetcher and a stream: chunks, and the flow of one partition.

No lock is held anywhere on the reader's side, because a reader may be interrupted at any point by a signal handler
that shuts the connector down. It rests on four rules instead:

1. *Say it, then look.* The reader stores `in_hand` before it looks at `is_live`; the coordinator clears `is_live`
   before it looks at `in_hand`. So either the reader sees the revocation and delivers nothing, or the coordinator
   sees the message in hand and waits for it. CPython runs the stores of a thread in their order for all the others.
2. *Look, use, then take away.* The reader works on the chunk at the head of the queue and removes it when it is read
   to its end. An interrupt in between (KeyboardInterrupt can strike anywhere) loses no chunk.
3. *Give back, then take out.* The bytes of a chunk go back to the budget before it leaves the queue, and count once
   however many give them back: whoever is interrupted in between finds the chunk again and does it anew.
4. *Whoever takes it out settles it.* `deque.popleft` succeeds for one thread only; that one calls the callback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from simpleconsumer.types import TopicPartition
from zkconsumer.fetching.byte_budget import ByteBudget, Charge

__all__ = ["Chunk", "Flow", "InHand", "Reader"]


class Chunk:
    """A piece of one partition on its way to the stream.

    Attributes:
        data: Whole entries of a message set, a copy of our own.
        next_offset: Position once the chunk is read.
        high_watermark: Where the log ended when the chunk was fetched; None when that is not known.
        size_bytes: What it takes of the budget.
        charge: What it takes of the budget now.
        reset_to: Not None: no data, the position jumps there (`auto.offset.reset`).
        error: Not None: no data (or data that ends in this error), raised when the reader gets there.
        told: How to decode on behind the last error that was told of it; None before. A chunk may be opened again, and
            then nothing is told twice.
    """

    __slots__ = ("charge", "data", "error", "high_watermark", "next_offset", "reset_to", "size_bytes", "told")

    def __init__(
        self,
        data: bytes,
        next_offset: int,
        *,
        high_watermark: int | None = None,
        reset_to: int | None = None,
        error: Exception | None = None,
    ) -> None:
        self.data = data
        self.next_offset = next_offset
        self.high_watermark = high_watermark
        self.size_bytes = len(data)
        self.charge = Charge()
        self.reset_to = reset_to
        self.error = error
        self.told: object = None


class InHand(Protocol):
    """What the application works on at a time: a message, or a batch of them.

    Attributes:
        offset: Of the message, or of the first one.
        next_offset: Behind the message, or the last one.
    """

    @property
    def offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...


class Reader(Protocol):
    """What a flow knows of its stream."""

    ready: deque[Flow]
    reader: int | None
    handed: InHand | None

    def wake(self) -> None: ...


class Flow:
    """One partition on its way to one stream, during one ownership.

    A partition that is revoked and comes back is another flow: what belongs to the old one can reach nobody.

    Attributes:
        is_live: Cleared by the coordinator when the partition is revoked, lost, or the consumer stops.
        in_hand: The message or batch that the application works on; None between them.
        position: Offset behind the last done message, up to date whenever nothing is in hand.
        is_settled: True once the final position was told: then it counts no more.
        failure: What ended the partition (`on.message.error=stop`, broken framing), else None.
        chunks: What is queued, the chunk being read included.

    Threads: `in_hand`, `position` by the reader; `is_live`, `committed` by the coordinator; chunks come in from a
        fetcher and are taken out by the reader, or by whoever drops them.
    """

    __slots__ = (
        "_budget",
        "_committed",
        "_left",
        "_on_room",
        "_waiting",
        "chunks",
        "failure",
        "in_hand",
        "is_live",
        "is_settled",
        "partition",
        "position",
        "stream",
    )

    def __init__(self, partition: TopicPartition, position: int, stream: Reader, budget: ByteBudget) -> None:
        self.partition = partition
        self.position = position
        self.stream = stream
        self.is_live = True
        self.is_settled = False
        self.in_hand: InHand | None = None
        self._committed = self._left = -1
        self.failure: str | None = None
        self.chunks: deque[Chunk] = deque()
        self._budget = budget
        self._waiting: deque[tuple[Callable[[int], None], bool]] = deque()
        self._on_room: Callable[[], None] | None = None

    # -- the fetcher's side --------------------------------------------------------------------------------------------

    def on_room(self, call: Callable[[], None] | None) -> None:
        """Have `call` called (by the reader, so it must be quick) whenever a chunk was read."""
        self._on_room = call

    def push(self, chunk: Chunk) -> None:
        """Queue a chunk; if the flow ends at this very moment, it is dropped again."""
        self._budget.charge(chunk.charge, chunk.size_bytes, self.stream)
        self.chunks.append(chunk)
        self.stream.ready.append(self)
        if not self.is_live or self.failure is not None:
            self.drop()
        self.stream.wake()

    # -- the reader's side ---------------------------------------------------------------------------------------------

    def take_out(self, chunk: Chunk) -> None:
        """Remove a chunk that was read, if nobody dropped it meanwhile."""
        self._budget.release(chunk.charge)
        try:
            self.chunks.remove(chunk)
        except ValueError:
            return
        self.forget_entry()
        if self._on_room is not None:
            self._on_room()

    def forget_entry(self) -> None:
        """Remove one entry of the stream's list, for a chunk that is gone."""
        try:
            self.stream.ready.remove(self)
        except ValueError:  # the coordinator was faster
            pass

    def put_down(self, position: int) -> None:
        """Have nothing in hand from now on, everything below `position` being done; completes a drain.

        A position never goes back, not even where damaged offsets do.
        """
        self.position = position = max(position, self.position)
        self.in_hand = None
        if not self.is_live:
            self.settle(position)

    def reset(self, position: int) -> None:
        """Go on at another place of the log; what was committed up to now says nothing about what is read there."""
        self._left = self.position
        self.position = position
        self._committed = -1

    def halt(self, reason: str) -> None:
        """Deliver no more of this partition in this ownership; it stays owned, and its position where it is."""
        self.failure = reason
        self.drop()

    @property
    def committed(self) -> int:
        """What the application committed explicitly: done, even while it is in hand; -1 for nothing."""
        return self._committed

    @committed.setter
    def committed(self, position: int) -> None:
        # The answer to a commit can come after the position was found to be outside the log, and was left.
        self._committed = -1 if position == self._left else position

    # -- the coordinator's side ----------------------------------------------------------------------------------------

    def done_position(self) -> int:
        """Return the offset behind the last done message; what is in hand is done as far as it was committed."""
        hand = self.in_hand
        if hand is None:
            return self.position
        return max(hand.offset, min(hand.next_offset, self.committed))

    def end(self, done: Callable[[int], None] | None = None) -> None:
        """Deliver nothing more, and drop what is queued; `done` hears the final position once nothing is in hand."""
        if done is not None:
            self._waiting.append((done, True))
        self.is_live = False
        self.drop()
        self.settle_if_done()
        self.stream.wake()

    def when_put_down(self, call: Callable[[int], None]) -> None:
        """Have `call` told the position once nothing is in hand, for a flow that was ended but counts on."""
        self._waiting.append((call, False))
        self.settle_if_done()

    def settle_if_done(self) -> None:
        """Complete a drain when nothing is in hand, or only what was committed."""
        hand = self.in_hand
        if not self.is_live and (hand is None or hand.next_offset <= self.committed):
            self.settle(self.done_position())

    def cancel(self) -> int:
        """Count no more: whatever is in hand is not waited for. Return the final position."""
        self.is_live = False
        self._waiting.clear()
        self.is_settled = True
        self.drop()
        return self.done_position()

    def settle(self, position: int) -> None:
        """Tell the final position to whoever waits for it, each once."""
        while self._waiting:
            try:
                done, is_final = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            self.is_settled = self.is_settled or is_final
            done(position)

    def drop(self) -> None:
        """Empty the queue and take the flow off the list of its stream."""
        while True:
            try:
                chunk = self.chunks[-1]
                self._budget.release(chunk.charge)
                self.chunks.remove(chunk)
            except IndexError:
                break
            except ValueError:  # another thread was faster
                continue
        while True:
            try:
                self.stream.ready.remove(self)
            except ValueError:
                return
