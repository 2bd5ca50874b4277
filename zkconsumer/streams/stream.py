"""The stream of messages that the application iterates, one by one or in batches.

It decides what is handed over; where it reads is the cursor's part (`zkconsumer.streams.cursor`). Rules, and which
failure each prevents:
- A message is done when the application asks the stream for the next one, and not before.
- The lease is checked last before a message is handed over, for each message: a process that was stopped for a minute
  between two messages must not deliver what other members own by then.
- Messages that are decoded but not handed over do not count: the position and the queue hold all that counts. So an
  exception that a signal handler raises at any point of `next()` costs decoding a chunk again, and no message. If it is
  raised while `next()` returns, a message is in hand that the loop has not seen; `handed` holds it, for applications
  that continue.
- The same holds for a batch as a whole: it is in hand, and done when the next one is asked for.
- The error about a message is raised once; the following `next()` continues after it.

Source: kafka.consumer.ConsumerIterator (0.8.2.2), whose iterator is lost after any error but a time-out.

Which decoders an application has given, and for what: Kafka 0.7 has no keys, and one decoder there is for values.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident, main_thread
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self

from simpleconsumer.dialect import KAFKA08, Dialect
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import EntryMessage, K, Message, TopicPartition, V
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConcurrentStreamUse, ConsumerTimeout, DecoderFailed, PartitionStopped
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.partition_queue import Chunk, InHand, PartitionQueue
from zkconsumer.streams.batches import MessageBatch, StreamBatches
from zkconsumer.streams.cursor import Cursor, Decoder, Decoders, LeaseView, Step
from zkconsumer.wakeup import Wakeup

__all__ = ["DecoderChoice", "KafkaStream", "LeaseView", "SleepsUntilWoken", "StreamParts"]

log = logging.getLogger(__name__)
_LEASE_POLL_S = 0.05
_LOOK_AGAIN_S = 0.05
_NOWHERE = TopicPartition("", -1)


class SleepsUntilWoken(Protocol):
    """How a stream waits for messages: `zkconsumer.wakeup.Wakeup`, or what an event loop has in its place."""

    def wake(self) -> None: ...

    def wait(self, timeout_s: float | None) -> bool: ...


class StreamParts(NamedTuple):
    """The parts of a stream.

    Attributes:
        thread_id: Identity in the group, `<consumer id>-<number>`.
        lease: Until when messages may be handed over.
        clock: Seconds, the clock of the lease.
        key_decoder: Turns the bytes of a key into what the application wants.
        value_decoder: Turns the bytes of a value into what the application wants.
    """

    thread_id: str
    config: ConsumerConfig
    lease: LeaseView
    clock: Callable[[], float]
    key_decoder: Decoder | None = None
    value_decoder: Decoder | None = None


_NO_CHUNK: Iterator[Message] = iter(())
"""The source of messages while no chunk is open."""
_NOT_DECODED_YET = object()
"""Stands for a message that a thread of its own still decodes."""


class KafkaStream(Step, Generic[K, V]):
    """A stream of messages: `for message in stream`.

    `ConsumerConnector.create_message_streams` returns streams; applications do not create them. A stream delivers the
    messages of the partitions that are assigned to it. A message is done when the next one is asked for.

    Iteration ends for ever when the connector shuts down. With `consumer.timeout.ms` of 0 or more, `next()` raises
    ConsumerTimeout when no message came in time, and iterating again continues.

    `KafkaStream[K, V]` yields `Message[K, V]`: K and V are what the decoders of keys and values return, `bytes` without
    decoders.

    Attributes:
        thread_id: Identity in the group, `<consumer id>-<number>`.
        handed: The message or batch that the stream returned last and that is not done yet; None if there is none.

    Raises by `next()`:
        ConsumerTimeout: See above.
        MessageError, DecoderFailed: One message is unreadable; iterating again continues after it.
        PartitionStopped: One partition is unreadable from here on; iterating again continues with the others.
        ConcurrentStreamUse: Another thread is inside `next()` of this stream.
        StreamFailed: The member has failed; raised every time.

    Threads: One at a time, any.
    """

    # Names with an underscore are not for applications. `_reader`, `handed`, `_end`, `_fail` and `_wake` are for the
    # other parts of this package, from any thread, and from signal handlers; the rest belongs to the thread inside
    # `next()`.

    def __init__(self, parts: StreamParts, wakeup: SleepsUntilWoken | None = None) -> None:
        thread_id, config, lease, clock, key_decoder, value_decoder = parts
        self.thread_id = thread_id
        # Queues in the order in which their chunks came, one entry a chunk.
        self._ready: deque[PartitionQueue] = deque()
        # The thread that took the last message (`threading.get_ident`) or the asyncio task, and that message. A message
        # can be in hand of its queue and not handed over yet: a signal handler may run in between, and must not
        # commit it.
        self._reader: object = None
        self.handed: InHand | None = None
        # The connector, which leaves its group when it is dropped: not before its streams.
        self._owner: object = None
        # How many messages could not be read, and how many partitions.
        self._failures = 0
        self._lease = lease
        self._clock = clock
        self._timeout_ms = config.consumer_timeout_ms
        self._on_error = config.on_message_error
        self._set_decoders(key_decoder, value_decoder)
        self._dialect: Dialect = KAFKA08
        self._wakeup = Wakeup() if wakeup is None else wakeup
        self._inside: dict[str, int] = {}
        self._is_ended = False
        self._at_end: Callable[[], None] | None = None
        self._error: Exception | None = None
        # For the fast path. Without an open chunk `_source` is empty, which leads to the slow path.
        self._queue = PartitionQueue(_NOWHERE, 0, self, ByteBudget(0))
        self._source = _NO_CHUNK
        self._cursor = Cursor(config.decoded_max_bytes, self._wakeup.wake)

    def _set_decoders(self, key_decoder: Decoder | None, value_decoder: Decoder | None) -> None:
        """Set what decodes keys and values, before the first message is read."""
        self._decode = Decoders(key_decoder, value_decoder).apply if key_decoder or value_decoder else None

    def _use_dialect(self, dialect: Dialect) -> None:
        """Set of which generation the messages are, before the first one is read."""
        self._dialect = dialect

    if TYPE_CHECKING:

        def __next__(self) -> Message[K, V]:
            """Return the next message, and wait for it as long as `consumer.timeout.ms` allows."""

    def __repr__(self) -> str:
        return f"KafkaStream({self.thread_id!r})"

    def batches(
        self, *, max_messages: int | None = None, max_bytes: int | None = None, columns: Sequence[str] | None = None
    ) -> StreamBatches:
        """Return an iterator of the same messages as `MessageBatch`es, each of one partition.

        It ends, waits and raises as the stream itself does. An error about a message comes between two batches: one
        of the messages before it, and one of the messages after it. Batches and messages may be asked for in turns.

        Args:
            max_messages: Most messages of a batch; None for no limit.
            max_bytes: Most bytes of message set, inflated, that a batch is made of (1 MiB by default); a message that
                is larger is a batch of its own.
            columns: Some of key, value, offset, timestamp_ms, timestamp_type and headers (null before Kafka 0.11); in
                Kafka 0.7 not of headers, but of entry_index (the number of the message in its compressed entry) and
                next_offset. None for all of them but headers.

        Raises:
            ValueError: A limit or a column that cannot be, or a stream with decoders, which work on single messages.
            TypeError: A limit that is no whole number.
            ImportError: numpy and pyarrow are not installed (`pip install 'zkconsumer[columns]'`).
        """
        if self._decode is not None:
            raise ValueError("this stream has decoders, which work on single messages; batches have bytes")
        return StreamBatches(self._next_batch, self._dialect, max_messages, max_bytes, columns)

    # -- called by others ----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Let a waiting `next()` check again."""
        self._wakeup.wake()

    def _end(self) -> None:
        """End the iteration, for ever; the queues must be ended after this call."""
        self._is_ended = True
        self._wakeup.wake()

    def _end_after_hand(self, at_end: Callable[[], None]) -> None:
        """End the iteration with the message that the calling thread works on; `at_end` is called before it ends."""
        self._at_end = at_end

    def _settle(self, is_done: bool) -> None:
        """Take note that the calling thread, which was the last to read, reads no more.

        Args:
            is_done: Whether what it has in hand is done.
        """
        if is_done:
            self._finish_hand(None)
        self._reader = self.handed = None

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        """Return whether a message was really handed over to a reader, and to the last one that read."""
        return self._reader == reader and self.handed is hand

    def _is_being_read(self) -> bool:
        """Return whether who took the last message may still ask for the next one."""
        if self._reader == main_thread().ident and not main_thread().is_alive():
            return False  # the program has ended, and waits for the thread that waits here
        # The thread that waits here may have the identity of a reader that has ended.
        return self._reader != get_ident() and self._reader in sys._current_frames()

    def _fail(self, error: Exception) -> None:
        """Make every `next()` raise this from now on; the queues must be ended after this call."""
        self._error = error
        self._wakeup.wake()

    def _on_fork(self, error: Exception) -> None:
        """Make every `next()` raise this in a forked child; takes no lock, as the thread that holds it is gone."""
        self._source = _NO_CHUNK
        self._queue = PartitionQueue(_NOWHERE, 0, self, ByteBudget(0))
        self._cursor = Cursor(0, self._wakeup.wake)
        self._inside = {}
        self._error = error

    # -- between the step (zkconsumer.streams.cursor), which is the fast path, and the slow path -----------------------

    @staticmethod
    def _is_trouble(error: BaseException) -> bool:
        """Return whether an error is about the next message, and not an interrupt of the call."""
        return isinstance(error, (MessageError, BrokenFraming, DecoderFailed))

    def _interrupted(self, message: InHand | None, error: BaseException) -> None:
        """Make sure that the next call decodes the message again which this call did not hand over."""
        if isinstance(error, ValueError) and "already executing" in str(error):
            raise ConcurrentStreamUse(self.thread_id) from None
        self._source = _NO_CHUNK
        self._cursor.cut_off()
        self._finish_hand(message)

    def _finish_hand(self, message: InHand | None) -> None:
        """Take note that the items in hand are done; `message` was decoded after them and is not handed over."""
        queue = self._queue
        hand = queue.in_hand
        if message is not None:
            queue.finish_hand(message.offset, message.index)
        elif hand is not None:
            queue.finish_hand(hand.next_offset, hand._done_in_entry)

    # -- the slow path: between chunks ---------------------------------------------------------------------------------

    def _next_batch(self, batches: StreamBatches) -> MessageBatch:
        before = self._queue.in_hand
        try:
            found: MessageBatch = self._next_slowly(None, None, batches)
            return found
        except (ConcurrentStreamUse, MessageError):
            raise
        except BaseException as error:
            # Interrupted after something was put in hand: for messages this happens at the first one of a chunk only.
            hand = self._queue.in_hand
            if hand is not None and hand is not before:
                self.handed = None
                if self._cursor.chunk is not None:
                    self._cursor.chunk.resume = None  # if it is an error, it was not raised
                self._interrupted(hand, error)
            raise

    def _next_slowly(self, message: Message | None, trouble: Exception | None, batches: StreamBatches | None) -> Any:
        """Return the next message, after waiting if need be; one caller at a time. Arguments as in `_find_message`."""
        me = get_ident()
        # One atomic step, and a thread that was interrupted inside finds its own mark and may enter again.
        if self._inside.setdefault("thread", me) != me:
            raise ConcurrentStreamUse(self.thread_id)
        try:
            return self._find_message(message, trouble, batches)
        finally:
            self._inside.pop("thread", None)

    def _find_message(self, message: Message | None, trouble: Exception | None, batches: StreamBatches | None) -> Any:
        """Return the next message or batch.

        Args:
            message: Decoded by this call and not to be handed over: revoked, no lease, or its decoder failed.
            trouble: The error about the next message.
            batches: Who asks for a batch; None for a message.
        """
        source, self._source = self._source, _NO_CHUNK
        self._finish_hand(message)
        self.handed = None
        self._cursor.read_for(batches)
        queue, chunk, rest, found = self._queue, self._cursor.chunk, None, None
        if chunk is not None:
            if trouble is not None:
                rest = self._report(queue, chunk, trouble, message)
            elif message is not None and queue.is_finishing and self._hand_over_rest(queue, message, source):
                return message
            elif batches is not None and (queue.is_live or queue.is_finishing) and queue.failure is None:
                rest = self._cursor.rest
            if rest is not None:
                found = self._read(queue, chunk, rest)
        deadline = None if self._timeout_ms < 0 else self._clock() + self._timeout_ms / 1000
        while found is None or found is _NOT_DECODED_YET:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._is_ended:
                within_entry = self._is_within_entry()
                if within_entry is None:
                    if self._at_end is not None:
                        self._at_end()
                    raise StopIteration
                if not within_entry:
                    self._wakeup.wait(_LOOK_AGAIN_S)
                    continue
            found = self._read_ready()
            if found is _NOT_DECODED_YET:
                self._wakeup.wait(_LOOK_AGAIN_S)  # whatever the time-out is: a message is there
            elif found is None:
                self._wait(deadline)
        return found

    def _is_within_entry(self) -> bool | None:
        """Return whether the rest of an entry of Kafka 0.7 is still to be delivered before the stream ends.

        False while that is so, and queues are still to be ended, which takes a moment; None if it is not so.
        """
        ready = tuple(self._ready)
        if not any(queue.index > 0 and queue.is_inside_entry() and not queue.is_settled for queue in ready):
            return None
        return ready[0].is_finishing

    def _hand_over_rest(self, queue: PartitionQueue, message: Message, source: Iterator[Message]) -> bool:
        """Hand over a message of an entry of Kafka 0.7 that was begun before its partition was revoked or paused."""
        queue.in_hand = message
        if not (queue.is_finishing and self._clock() < self._lease.until):
            queue.finish_hand(message.offset, message.index)
            return False
        self._source = source
        self.handed = message
        return True

    def _wait(self, deadline: float | None) -> None:
        wait_s = None if deadline is None else deadline - self._clock()
        if wait_s is not None and wait_s <= 0:
            raise ConsumerTimeout(self._timeout_ms)
        if self._ready:
            # There are messages, but no lease, and its renewal is not reported.
            wait_s = _LEASE_POLL_S if wait_s is None else min(wait_s, _LEASE_POLL_S)
        self._wakeup.wait(wait_s)

    def _read_ready(self) -> Any:
        """Hand over the next queued message; None without any, or without a lease; or _NOT_DECODED_YET."""
        while self._ready:
            try:
                queue = self._ready[0]
            except IndexError:  # the coordinator has just dropped it
                continue
            if not (queue.is_live or queue.is_finishing) or queue.failure is not None:
                queue.drop()
                continue
            try:
                chunk = queue.chunks[0]
            except IndexError:
                queue.forget_entry()
                continue
            if chunk.reset_to is not None:
                queue.reset(chunk.reset_to)
            if chunk.reset_to is not None or chunk.next_offset <= queue.position:
                self._cursor.take_out(queue, chunk)
                continue
            if self._clock() >= self._lease.until:
                return None
            opened = self._cursor.open(queue, chunk)
            if opened is None:
                return _NOT_DECODED_YET
            message = self._read(queue, chunk, opened.items, opened.take)
            if message is not None:
                return message
        return None

    def _read(self, queue: PartitionQueue, chunk: Chunk, items: Iterator[Any], take: Callable[..., Any] = next) -> Any:
        """Hand over the next message or batch of a chunk, and leave the chunk open.

        Return None when the chunk is at its end, or nothing may be handed over. The first item is what `take` returns.
        """
        cursor = self._cursor
        while True:
            self._queue, cursor.chunk, cursor.rest = queue, chunk, None if cursor.batches else items
            found: Any = None
            trouble: Exception | None = None
            try:
                found = take(items, None)
                if found is not None:
                    queue.in_hand = found
                    self._reader = get_ident()
                    if self._decode is not None:
                        self._decode(found)
                    if (queue.is_live or queue.is_finishing) and self._clock() < self._lease.until:
                        if cursor.batches:
                            cursor.rest = items
                        else:
                            self._source = items
                        self.handed = found
                        cursor.was_cut_off = False
                        return found
            except (MessageError, BrokenFraming, DecoderFailed) as error:
                trouble = error
            except BaseException as error:
                self._interrupted(found, error)
                raise
            self._finish_hand(found)
            if found is not None and trouble is None:
                return None
            trouble = trouble or chunk.error
            if trouble is None:
                if chunk.dialect is not None and chunk.dialect.has_offsets_without_messages:
                    queue.finish_hand(chunk.next_offset)  # a chunk without messages is done, too
                cursor.take_out(queue, chunk)
                return None
            rest = self._report(queue, chunk, trouble, found)
            if rest is None:
                return None
            items, take = rest, next

    # -- what is wrong with one message --------------------------------------------------------------------------------

    def _report(
        self, queue: PartitionQueue, chunk: Chunk, trouble: Exception, message: Message | None
    ) -> Iterator[Any] | None:
        """Raise what is wrong with the next message, or skip the message, as `on.message.error` says.

        Return the items after it in this chunk; None when nothing more of the chunk may be read. A message about
        which an error is raised is in hand like any other: it is done when the next one is asked for.
        """
        if isinstance(trouble, MessageError):
            next_offset = max(trouble.next_offset, queue.position)
        elif message is not None:
            next_offset = message.next_offset
        else:
            self._stop_partition(queue, trouble)
            return None
        queue.in_hand = bad = _unreadable(queue, next_offset)
        if not ((queue.is_live or queue.is_finishing) and self._clock() < self._lease.until):
            queue.finish_hand(queue.position)
            return None
        self._failures += 1
        if self._on_error == "stop":
            queue.finish_hand(queue.position)
            queue.halt(str(trouble))
            log.error("partition stopped, on.message.error=stop: %s", trouble)
            return None
        rest = self._cursor.rest if isinstance(trouble, DecoderFailed) else None
        if isinstance(trouble, MessageError) and trouble.resume is not None:
            rest = self._cursor.open_behind_error(queue, chunk, trouble.resume)
        if self._on_error == "skip":
            log.warning("message skipped, on.message.error=skip: %s", trouble)
            queue.finish_hand(next_offset, bad._done_in_entry)
            return rest
        self._cursor.rest = rest
        self._source = _NO_CHUNK if rest is None or self._cursor.batches is not None else rest
        self._reader = get_ident()
        self.handed = bad
        raise trouble

    def _stop_partition(self, queue: PartitionQueue, trouble: Exception) -> None:
        """End a partition that cannot be read after its position; the others of the stream continue."""
        if not queue.is_live:
            return
        self._failures += 1
        error = PartitionStopped(*queue.partition, queue.position, str(trouble))
        queue.halt(str(error))
        log.error("%s", error)
        if self._on_error != "stop":
            raise error from trouble


def _unreadable(queue: PartitionQueue, next_offset: int) -> Message:
    """Return what stands for the next message of a queue, which cannot be read."""
    if next_offset > queue.position and not queue.index:
        return Message(*queue.partition, queue.position, next_offset, None, None)
    return EntryMessage(*queue.partition, queue.position, next_offset, None, None, index=queue.index)


class DecoderChoice(NamedTuple):
    """The decoders of a consumer.

    Attributes:
        key_decoder: For keys.
        value_decoder: For values.
        is_by_position: The first one was given by its position, and may be meant for values.
    """

    key_decoder: Decoder | None
    value_decoder: Decoder | None
    is_by_position: bool = False

    @classmethod
    def of(cls, decoder: Decoder | None, key_decoder: Decoder | None, value_decoder: Decoder | None) -> Self:
        """Return the choice that these arguments of `create_message_streams` mean.

        Raises:
            TypeError: A decoder of keys that is given twice; one that is not callable, or is a coroutine function.
        """
        if decoder is not None and key_decoder is not None:
            raise TypeError("two decoders of keys are given: a positional one and key_decoder")
        _check("value_decoder", value_decoder)
        if decoder is not None:
            _check("decoder", decoder)
            return cls(decoder, value_decoder, True)
        _check("key_decoder", key_decoder)
        return cls(key_decoder, value_decoder)

    def for_07(self) -> Self:
        """Return the choice for a cluster of Kafka 0.7.

        Raises:
            TypeError: There is one for keys.
        """
        if self.key_decoder is None:
            return self
        if self.is_by_position and self.value_decoder is None:
            return self._replace(key_decoder=None, value_decoder=self.key_decoder)
        raise TypeError(
            "a decoder of keys is given, but this cluster is of Kafka 0.7, which has no keys; give only "
            "a decoder of values"
        )


def _check(name: str, decoder: object) -> None:
    """Refuse decoders whose results would be coroutines: nothing awaits them, and the messages would count as done."""
    if decoder is None:
        return
    if not callable(decoder):
        raise TypeError(f"{name} is {decoder!r}; it must be callable with the bytes")
    if inspect.iscoroutinefunction(decoder) or inspect.iscoroutinefunction(type(decoder).__call__):
        raise TypeError(
            f"{name} is a coroutine function; make it `def`, because nothing awaits it, not even zkconsumer.aio"
        )
