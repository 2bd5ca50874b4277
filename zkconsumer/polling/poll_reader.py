"""Takes records out of the queues of partitions, for the thread that polls.

Rules, and which failure each prevents:
- Records that a poll has returned are in hand until the next call of `poll`, and done then: commits in
  between, by a timer or for a partition that is given up, do not count them.
- Records that are decoded and not returned do not count: after an interrupt, or an error about a later record, they are
  decoded again from the position.
- The lease is checked last, for all records of a poll together.

Source: docs/SEMANTICS.md, "KafkaConsumer"; Fetcher.collectFetch (Kafka 3.9).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import Any, Final

from rebalance.lease import Lease
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import TopicPartition
from zkconsumer.errors import DecoderFailed
from zkconsumer.fetching.fetch_state import LogTruncated as LogCut
from zkconsumer.fetching.fetch_state import OutOfLog
from zkconsumer.fetching.partition_queue import Chunk, InHand, PartitionQueue
from zkconsumer.polling.errors import LogTruncated, OffsetOutOfRange
from zkconsumer.polling.taken_items import OpenItems, TakenItems
from zkconsumer.wakeup import Wakeup

_LEASE_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Hand:
    """The records of one partition that the last poll returned (`zkconsumer.fetching.partition_queue.InHand`)."""

    offset: int
    next_offset: int
    index: int
    _done_in_entry: int


@dataclass(slots=True)
class Taken:
    """The records that were taken of one partition.

    Attributes:
        queue: Where from.
        records: The records, or batches of them.
        count: How many records these are.
        next_offset: The offset after them.
        done_in_entry: How many messages of the entry at `next_offset` are done then (Kafka 0.7).
        spent: The chunks that are read to their end.
        reset_to: Where the position has jumped before the records (`auto.offset.reset`); None if it has not.
    """

    queue: PartitionQueue
    records: list[Any] = field(default_factory=list)
    count: int = 0
    first_offset: int = 0
    next_offset: int = -1
    done_in_entry: int = 0
    first_index: int = 0
    spent: list[Chunk] = field(default_factory=list)
    reset_to: int | None = None

    @property
    def has_moved(self) -> bool:
        """Whether the position of the partition is another one now."""
        return self.next_offset >= 0 or bool(self.spent) or self.reset_to is not None


class PollReader:
    """The reader of all partitions of a consumer that is polled; see `zkconsumer.member.membership.MemberStream`.

    Args:
        thread_id: Its name in the coordination.
        lease: Until when records may be returned.
        clock: Seconds, the clock of the lease.
        max_decoded_bytes: Most bytes that a compressed set may inflate to.

    Attributes:
        handed: Stands for what the last poll returned, records or none; None while a poll is under way.
        error: The error that ended the delivery; None while it goes on.
        is_ended: Whether the consumer is closing.
        resets: Where positions have jumped (`auto.offset.reset`); who has taken note removes them.

    Threads: That of the application which polls; `_wake`, `_end` and `_fail` any.
    """

    def __init__(
        self,
        thread_id: str,
        lease: Lease,
        clock: Callable[[], float],
        max_decoded_bytes: int,
    ) -> None:
        self.thread_id = thread_id
        self.handed: InHand | None = None
        self.error: Exception | None = None
        self.is_ended = False
        self.resets: dict[TopicPartition, int] = {}
        self._ready: deque[PartitionQueue] = deque()
        self._reader: object = self  # whichever thread polls, and closes: it is one reader
        self._thread = 0
        self._failures = 0
        self._lease = lease
        self._clock = clock
        self._max_decoded_bytes = max_decoded_bytes
        self._wakeup = Wakeup()
        self._hands: dict[PartitionQueue, _Hand] = {}
        self._refused: PartitionQueue | None = None
        self._open: dict[PartitionQueue, tuple[Chunk, TakenItems, OpenItems]] = {}

    @property
    def leased_until(self) -> float:
        """Until when records may be returned."""
        return self._lease.until

    # -- called by others ----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._wakeup.wake()

    def _end(self) -> None:
        self.is_ended = True
        self._wakeup.wake()

    def _fail(self, error: Exception) -> None:
        self.error = error
        self._wakeup.wake()

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        return self._reader == reader and any(each is hand for each in self._hands.values())

    def _is_being_read(self) -> bool:
        return self._thread != get_ident() and self._thread in sys._current_frames()

    # -- the polling thread --------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have come."""
        if self._ready and self._clock() >= self._lease.until:
            timeout_s = min(timeout_s, _LEASE_POLL_S)  # there are records, and no lease; its renewal is not reported
        self._wakeup.wait(max(timeout_s, 0.0))

    def begin(self) -> None:
        """Start a poll: what the last one has returned is done."""
        self._thread = get_ident()
        self.handed = None
        self._refused = None
        self._open = {queue: each for queue, each in self._open.items() if queue.is_live}
        for queue, hand in list(self._hands.items()):
            queue.finish_hand(hand.next_offset, hand._done_in_entry)
            self._hands.pop(queue, None)

    def is_sound(self, queue: PartitionQueue) -> bool:
        """Return whether no record of a queue was refused by the last poll, and none is in the middle of an entry."""
        hand = self._hands.get(queue)
        index = queue.index if hand is None else hand._done_in_entry
        return queue.failure is None and queue is not self._refused and not index

    def next_offset(self, queue: PartitionQueue) -> int:
        """Return where the next poll goes on with a queue."""
        hand = self._hands.get(queue)
        return queue.position if hand is None else hand.next_offset

    def finish(self, queue: PartitionQueue) -> None:
        """Take note that what the last poll has returned of a queue is done."""
        hand = self._hands.pop(queue, None)
        if hand is not None:
            queue.finish_hand(hand.next_offset, hand._done_in_entry)

    def give_back(self, unread: Mapping[TopicPartition, int] | None = None) -> dict[TopicPartition, int]:
        """Have nothing in hand any more; the messages before the unread offsets are done.

        Args:
            unread: The first offsets that were not worked on; None for nothing that was.

        Returns:
            Partition -> where it has to be read from again; `forget_hands` is called when it is.
        """
        lost: dict[TopicPartition, int] = {}
        self._open.clear()
        for queue, hand in list(self._hands.items()):
            if unread is None:
                at: int | None = hand.offset
            else:
                at = unread.get(queue.partition)
            if at is None:
                queue.finish_hand(hand.next_offset, hand._done_in_entry)
                continue
            lost[queue.partition] = at
            if at == hand.offset:
                queue.finish_hand(at, hand.index)
            else:
                queue.finish_hand(at)
        return lost

    def forget_hands(self) -> None:
        """Take note that what was given back is read again."""
        self._hands.clear()

    def end_poll(self) -> None:
        """End a poll: from now on the application works on what it has returned, if anything."""
        self.handed = _Hand(0, 0, 0, 0)

    def take(self, limit: int, items: TakenItems, may_read: Callable[[PartitionQueue], bool]) -> list[Taken]:
        """Take up to `limit` records; errors about a record are raised if it is the first one.

        Args:
            limit: Most records.
            items: As what they are taken.
            may_read: Returns whether a queue is one of the present assignment, at the present position.

        Raises:
            MessageError, BrokenFraming: The next record of a partition cannot be read; the position stays.
            DecoderFailed: A deserializer has failed; the position stays.
            OffsetOutOfRange, LogTruncated: The log does not have the position, and no policy says where to go on.
        """
        found: list[Taken] = []
        try:
            for queue in dict.fromkeys(tuple(self._ready)):
                if not queue.is_live and not queue.is_finishing:
                    queue.drop()
                    continue
                if queue.failure is None and may_read(queue):
                    self._refused, taken = queue, Taken(queue)
                    found.append(taken)
                    limit -= self._take_of(taken, limit, items, is_first=not any(each.records for each in found))
                if limit <= 0:
                    break
            self._refused = None
            return self._put_in_hand([taken for taken in found if taken.has_moved])
        except BaseException:
            self._open.clear()
            raise

    def _take_of(self, taken: Taken, limit: int, items: TakenItems, *, is_first: bool) -> int:
        """Take records of one partition; return how many."""
        queue = taken.queue
        for chunk in tuple(queue.chunks):
            if chunk.reset_to is not None:
                if taken.records or taken.spent:
                    break
                queue.reset(chunk.reset_to)
                queue.take_out(chunk)
                taken.reset_to = self.resets[queue.partition] = chunk.reset_to
                continue
            position = taken.next_offset if taken.next_offset >= 0 else queue.position
            if chunk.next_offset <= position:
                taken.spent.append(chunk)
                continue
            try:
                is_spent = self._read(taken, chunk, position, limit, items)
            except (MessageError, BrokenFraming, DecoderFailed):
                self._open.pop(queue, None)
                if taken.records or not is_first:
                    break  # the next poll raises it
                self._failures += 1
                raise
            if not is_spent:
                break
            if chunk.error is not None:
                if taken.records or not is_first:
                    break
                self._failures += 1
                raise _named(chunk.error, queue.partition)
            if chunk.dialect is not None and chunk.dialect.has_offsets_without_messages:
                taken.next_offset = max(taken.next_offset, chunk.next_offset)
            taken.spent.append(chunk)
            self._open.pop(queue, None)
        return taken.count

    def _read(self, taken: Taken, chunk: Chunk, position: int, limit: int, kind: TakenItems) -> bool:
        """Read records of a chunk; return whether it is at its end."""
        queue = taken.queue
        if chunk.dialect is None:
            return True
        open_chunk, open_kind, items = self._open.get(queue, (None, None, None))
        if open_chunk is not chunk or open_kind is not kind or items is None:
            index = queue.index if position == queue.position else 0
            opened = partial(kind.opened, chunk.dialect)
            items = chunk.opened(opened, queue.partition, position, index, self._max_decoded_bytes, None)
            self._open[queue] = chunk, kind, items
        is_first = not taken.records
        try:
            return items.add_to(taken.records, limit - taken.count)
        finally:
            if items.count:
                if is_first:
                    taken.first_offset, taken.first_index = items.first
                taken.count += items.count
                taken.next_offset, taken.done_in_entry = items.next_place

    def _put_in_hand(self, found: list[Taken]) -> list[Taken]:
        """Return what may be returned to the application, which has it in hand from now on."""
        kept: list[Taken] = []
        for taken in found:
            queue = taken.queue
            if not taken.records:
                if taken.next_offset >= 0:
                    queue.finish_hand(taken.next_offset)  # a chunk without records is done, too
                self._take_out(taken)
                kept.append(taken)
                continue
            first = taken.first_offset
            hand = _Hand(first, taken.next_offset, taken.first_index, taken.done_in_entry)
            self._hands[queue] = hand
            queue.in_hand = hand  # store, then check (zkconsumer.fetching.partition_queue)
            if (queue.is_live or queue.is_finishing) and self._clock() < self._lease.until:
                self._take_out(taken)
                kept.append(taken)
            else:
                self._open.pop(queue, None)
                self._hands.pop(queue, None)
                queue.finish_hand(first, taken.first_index)
        return kept

    @staticmethod
    def _take_out(taken: Taken) -> None:
        for chunk in taken.spent:
            taken.queue.take_out(chunk)

    def forget(self) -> None:
        """Drop what is open and in hand: nothing of it counts."""
        self._open.clear()
        self._hands.clear()
        self.resets.clear()


def _named(error: Exception, partition: TopicPartition) -> Exception:
    """Return an error about a position as KafkaConsumer names it."""
    if isinstance(error, LogCut):
        return LogTruncated(partition, error.position, None, error.latest)
    if isinstance(error, OutOfLog):
        return OffsetOutOfRange(partition, error.position, error.earliest, error.latest)
    return error
