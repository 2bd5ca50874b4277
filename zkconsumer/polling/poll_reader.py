"""Takes records out of the queues of partitions, for the thread that polls.

Rules, and which failure each prevents:
- Records that a poll has returned are in hand until the next call of `poll`, and done then: what is committed in
  between by a timer, or by a partition that is given up, does not count them.
- What is decoded and not returned does not count: after an interrupt, or an error about a later record, it is decoded
  again from the position.
- The lease is checked last, for all records of a poll together.

Source: docs/SEMANTICS.md, "KafkaConsumer"; Fetcher.collectFetch (Kafka 3.9).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Final

from rebalance.lease import Lease
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.errors import DecoderFailed
from zkconsumer.fetching.partition_queue import Chunk, InHand, PartitionQueue
from zkconsumer.polling.records import NULL_SIZE, ConsumerRecord, TimestampType
from zkconsumer.wakeup import Wakeup

__all__ = ["PollReader", "Taken"]

Deserializer = Callable[[bytes], Any]
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
    """What was taken of one partition.

    Attributes:
        queue: Where from.
        records: The records.
        next_offset: Behind them.
        done_in_entry: How many messages of the entry at `next_offset` are done then (Kafka 0.7).
        spent: The chunks that are read to their end.
        reset_to: Where the position has jumped before the records (`auto.offset.reset`); None if it has not.
        log_end: Where the log ended when the last of these chunks was fetched; None when it is not known.
    """

    queue: PartitionQueue
    records: list[ConsumerRecord[Any, Any]] = field(default_factory=list)
    next_offset: int = -1
    done_in_entry: int = 0
    first_index: int = 0
    spent: list[Chunk] = field(default_factory=list)
    reset_to: int | None = None
    log_end: int | None = None

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
        deserializers: Of keys and values; None for bytes.
        max_decoded_bytes: Most bytes that a compressed set may inflate to.

    Attributes:
        handed: Stands for what the last poll returned, records or none; None while a poll is under way.
        error: What ended the delivery; None while it goes on.
        is_ended: Whether the consumer is closing.

    Threads: That of the application which polls; `_wake`, `_end` and `_fail` any.
    """

    def __init__(
        self,
        thread_id: str,
        lease: Lease,
        clock: Callable[[], float],
        deserializers: tuple[Deserializer | None, Deserializer | None],
        max_decoded_bytes: int,
    ) -> None:
        self.thread_id = thread_id
        self.handed: InHand | None = None
        self.error: Exception | None = None
        self.is_ended = False
        self._ready: deque[PartitionQueue] = deque()
        self._reader: object = None
        self._failures = 0
        self._lease = lease
        self._clock = clock
        self._key, self._value = deserializers
        self._max_decoded_bytes = max_decoded_bytes
        self._wakeup = Wakeup()
        self._hands: dict[PartitionQueue, _Hand] = {}
        self._open: dict[PartitionQueue, tuple[Chunk, Iterator[Message[bytes, bytes]]]] = {}

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
        return self._reader != get_ident() and self._reader in sys._current_frames()

    # -- the polling thread --------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have come."""
        if self._ready and self._clock() >= self._lease.until:
            timeout_s = min(timeout_s, _LEASE_POLL_S)  # there are records, and no lease; its renewal is not reported
        self._wakeup.wait(max(timeout_s, 0.0))

    def begin(self) -> dict[TopicPartition, int]:
        """Start a poll: what the last one returned is done.

        Returns:
            Partition -> where it has to be read from again: the last poll was interrupted before it returned its
            records.
        """
        self._reader = get_ident()
        lost: dict[TopicPartition, int] = {}
        was_returned, self.handed = self.handed is not None, None
        self._open = {queue: each for queue, each in self._open.items() if queue.is_live}
        for queue, hand in list(self._hands.items()):
            if was_returned:
                queue.finish_hand(hand.next_offset, hand._done_in_entry)
            else:
                queue.in_hand = None
                lost[queue.partition] = hand.offset
            self._hands.pop(queue, None)
        return lost

    def end_poll(self) -> None:
        """End a poll: from now on the application works on what it has returned, if anything."""
        self.handed = _Hand(0, 0, 0, 0)

    def take(self, limit: int, may_read: Callable[[PartitionQueue], bool]) -> list[Taken]:
        """Take up to `limit` records; errors about a record are raised if it is the first one.

        Args:
            limit: Most records.
            may_read: Returns whether a queue is one of the present assignment, at the present position.

        Raises:
            MessageError, BrokenFraming: The next record of a partition cannot be read; the position stays.
            DecoderFailed: A deserializer has failed; the position stays.
        """
        found: list[Taken] = []
        try:
            for queue in dict.fromkeys(tuple(self._ready)):
                if not queue.is_live and not queue.is_finishing:
                    queue.drop()
                    continue
                if queue.failure is None and may_read(queue):
                    taken = Taken(queue)
                    found.append(taken)
                    limit -= self._take_of(taken, limit, is_first=len(found) == 1 or not any(t.records for t in found))
                if limit <= 0:
                    break
            return self._put_in_hand([taken for taken in found if taken.has_moved])
        except BaseException:
            self._open.clear()
            raise

    def _take_of(self, taken: Taken, limit: int, *, is_first: bool) -> int:
        """Take records of one partition; return how many."""
        queue = taken.queue
        for chunk in tuple(queue.chunks):
            if chunk.reset_to is not None:
                if taken.records or taken.spent:
                    break
                queue.reset(chunk.reset_to)
                queue.take_out(chunk)
                taken.reset_to = chunk.reset_to
                continue
            taken.log_end = chunk.high_watermark
            position = taken.next_offset if taken.next_offset >= 0 else queue.position
            if chunk.next_offset <= position:
                taken.spent.append(chunk)
                continue
            try:
                is_spent = self._read(taken, chunk, position, limit)
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
                raise chunk.error
            if chunk.dialect is not None and chunk.dialect.has_offsets_without_messages:
                taken.next_offset = max(taken.next_offset, chunk.next_offset)
            taken.spent.append(chunk)
            self._open.pop(queue, None)
        return len(taken.records)

    def _read(self, taken: Taken, chunk: Chunk, position: int, limit: int) -> bool:
        """Read records of a chunk; return whether it is at its end."""
        queue = taken.queue
        open_chunk, items = self._open.get(queue, (None, None))
        if open_chunk is not chunk or items is None:
            items = self._items(queue, chunk, position)
            self._open[queue] = chunk, items
        records = taken.records
        while len(records) < limit:
            message = next(items, None)
            if message is None:
                return True
            record = self._record(message)
            if not records:
                taken.first_index = message.index
            records.append(record)
            taken.next_offset, taken.done_in_entry = message.next_offset, message._done_in_entry
        return False

    def _items(self, queue: PartitionQueue, chunk: Chunk, position: int) -> Iterator[Message[bytes, bytes]]:
        if chunk.dialect is None:
            return iter(())
        topic, partition = queue.partition
        index = queue.index if position == queue.position else 0
        found: Iterator[Message[bytes, bytes]] = chunk.dialect.decode_messages(
            chunk.data, topic, partition, position, start_index=index, data_offset=chunk.data_offset,
            high_watermark=chunk.high_watermark, max_decoded_bytes=self._max_decoded_bytes, aborted=chunk.aborted,
            resume=None,
        )  # fmt: skip
        return found

    def _record(self, message: Message[bytes, bytes]) -> ConsumerRecord[Any, Any]:
        key, value = message.key, message.value
        try:
            found_key = key if key is None or self._key is None else self._key(key)
            found_value = value if value is None or self._value is None else self._value(value)
        except Exception as error:  # whatever the application's code raises is about this record
            raise DecoderFailed(message.topic, message.partition, message.offset, key, value) from error
        stamp = message.timestamp_ms
        return tuple.__new__(ConsumerRecord, (
            message.topic, message.partition, message.offset, stamp,
            TimestampType.NO_TIMESTAMP_TYPE if stamp is None else TimestampType.CREATE_TIME,
            found_key, found_value, message.headers, None,
            NULL_SIZE if key is None else len(key), NULL_SIZE if value is None else len(value),
        ))  # fmt: skip

    def _put_in_hand(self, found: list[Taken]) -> list[Taken]:
        """Return what may be returned to the application, which has it in hand from now on."""
        kept: list[Taken] = []
        for taken in found:
            queue = taken.queue
            if not taken.records:
                if taken.next_offset >= 0:
                    queue.finish_hand(taken.next_offset)  # what holds no records is done, too
                self._take_out(taken)
                kept.append(taken)
                continue
            first = taken.records[0].offset
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
