"""The stream of messages that the application iterates, one by one or in batches.

Decoding happens here, in the application's own thread, one chunk at a time. Rules:
- A message is done when the application asks the stream for the next one, and not before.
- The lease is looked at last before a message is handed over, each time: a process that was stopped for a minute
  between two messages must not deliver what others own by now.
- Of what is decoded but not handed over nothing counts: position and queue say all. So an exception that a signal
  handler raises at any point of `next()` costs decoding a chunk again, and no message. Where that was cut off, it is
  done again out of reach of interrupts (`zkconsumer.streams.uninterrupted`), so that a reader who is struck every few
  milliseconds gets on. Struck on its way out of `next()`, a message is in hand that the loop has not seen; `handed`
  says which, for those who go on.
- A batch is to all of this what a message is: in hand as a whole, done when the next one is asked for.
- What is wrong with one message is raised once; the following `next()` goes on behind it.

Source: kafka.consumer.ConsumerIterator (0.8.2.2), whose iterator is lost after any error but a time-out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import get_ident
from typing import Any, Protocol

from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConcurrentStreamUse, ConsumerTimeout, DecoderFailed, PartitionStopped
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.partition_queue import Chunk, InHand, PartitionQueue
from zkconsumer.streams.batches import MessageBatch, StreamBatches
from zkconsumer.streams.uninterrupted import UninterruptedDecoding
from zkconsumer.wakeup import Wakeup

__all__ = ["KafkaStream", "LeaseView"]

log = logging.getLogger(__name__)

Decoder = Callable[[bytes], Any]

_LEASE_POLL_S = 0.05
_LOOK_AGAIN_S = 0.05
_NOWHERE = TopicPartition("", -1)


class LeaseView(Protocol):
    """Until when messages may be handed over, on the clock of the stream."""

    @property
    def until(self) -> float: ...


_NO_CHUNK: Iterator[Message] = iter(())
"""Stands for the decoder while no chunk is open."""
_UNDER_WAY = object()
"""Stands for a message that is being decoded out of reach of interrupts."""


class KafkaStream:
    """Iterator of the messages of the partitions that one consumer thread owns.

    Iteration ends for ever when the connector shuts down. With `consumer.timeout.ms` of 0 or more, `next()` raises
    ConsumerTimeout when no message came in time, and iterating again goes on.

    Args:
        thread_id: Identity in the group, `<consumer id>-<number>`.
        lease: Until when messages may be handed over.
        clock: Seconds, the clock of the lease.
        key_decoder: Turns the bytes of a key into what the application wants. It is not called for a missing key.
        value_decoder: Turns the bytes of a value into what the application wants. It is not called for a missing
            value (a deletion mark).

    Raises by `next()`:
        ConsumerTimeout: See above.
        MessageError, DecoderFailed: One message is unreadable; iterating again goes on behind it.
        PartitionStopped: One partition is unreadable from here on; iterating again goes on with the others.
        ConcurrentStreamUse: Another thread is inside `next()` of this stream.
        Whatever `fail` was told, every time.

    Threads: One at a time, any; everything with an underscore belongs to the thread inside `next()`. `end`, `fail`
        and `wake` may be called from any thread and from signal handlers.
    """

    def __init__(
        self,
        thread_id: str,
        config: ConsumerConfig,
        lease: LeaseView,
        clock: Callable[[], float],
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> None:
        self.thread_id = thread_id
        # Queues in the order in which their chunks came, one entry a chunk.
        self.ready: deque[PartitionQueue] = deque()
        # The thread that took the last message (`threading.get_ident`), and that message. A message can be in hand of
        # its queue and not have been handed over: a signal handler may run in between, and must not commit it.
        self.reader: int | None = None
        self.handed: InHand | None = None
        # How many messages could not be read, and how many partitions.
        self.failures = 0
        self._lease = lease
        self._clock = clock
        self._timeout_ms = config.consumer_timeout_ms
        self._max_decoded_bytes = config.decoded_max_bytes
        self._on_error = config.on_message_error
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._decode = self._apply_decoders if key_decoder or value_decoder else None
        self._wakeup = Wakeup()
        self._inside: dict[str, int] = {}
        self._is_ended = False
        self._at_end: Callable[[], None] | None = None
        self._error: Exception | None = None
        # What the fast path reads; without an open chunk `_source` leads to the slow one.
        self._queue = PartitionQueue(_NOWHERE, 0, self, ByteBudget(0))
        self._chunk: Chunk | None = None
        self._messages: Iterator[Any] | None = None  # or batches, while the application reads those
        self._source = _NO_CHUNK
        self._batches: StreamBatches | None = None
        # The last call was interrupted, perhaps in decoding; and what is decoded since then where no interrupt strikes.
        self._was_cut_off = False
        self._decoding: UninterruptedDecoding | None = None

    def __iter__(self) -> KafkaStream:
        return self

    def __repr__(self) -> str:
        return f"KafkaStream({self.thread_id!r})"

    def batches(
        self, *, max_messages: int | None = None, max_bytes: int | None = None, columns: Sequence[str] | None = None
    ) -> StreamBatches:
        """Return an iterator of the same messages as `MessageBatch`es, each of one partition.

        It ends, waits and raises as the stream itself does, about a message as about none: what comes before it is a
        batch, what comes behind it another one. Batches and messages may be asked for by turns.

        Args:
            max_messages: Most messages of a batch; None for no limit.
            max_bytes: Most bytes of message set, inflated, that a batch is made of (1 MiB by default); a message that
                is larger is a batch of its own.
            columns: Some of key, value, offset, timestamp_ms and timestamp_type; None for all of them.

        Raises:
            ValueError: A limit or a column that cannot be, or a stream with decoders, which work on single messages.
            TypeError: A limit that is no whole number.
            ImportError: numpy and pyarrow are not installed (`pip install 'zkconsumer[columns]'`).
        """
        if self._decode is not None:
            raise ValueError("this stream has decoders, which work on single messages: a batch carries bytes")
        return StreamBatches(self._next_batch, max_messages, max_bytes, columns)

    # -- told by others ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have a waiting `next()` look again."""
        self._wakeup.wake()

    def end(self) -> None:
        """End the iteration, for ever; the queues must be ended after this call."""
        self._is_ended = True
        self._wakeup.wake()

    def end_after_hand(self, at_end: Callable[[], None]) -> None:
        """End the iteration with the message that the calling thread works on; `at_end` is called before it ends."""
        self._at_end = at_end

    def settle(self, is_done: bool) -> None:
        """The calling thread, which was the last to read, reads no more; is it done with what it has in hand?"""
        if is_done:
            self._finish_hand(None)
        self.reader = self.handed = None

    def fail(self, error: Exception) -> None:
        """Raise this by every `next()` from now on; the queues must be ended after this call."""
        self._error = error
        self._wakeup.wake()

    def on_fork(self, error: Exception) -> None:
        """Raise this by every `next()` from now on, in a forked child; takes no lock, as its holder may be gone."""
        self._source = _NO_CHUNK
        self._queue = PartitionQueue(_NOWHERE, 0, self, ByteBudget(0))
        self._chunk = self._messages = self._decoding = None
        self._inside = {}
        self._error = error

    # -- the fast path: a message out of the chunk that is open --------------------------------------------------------

    def __next__(self) -> Message:
        message: Message | None = None
        trouble: Exception | None = None
        try:
            message = next(self._source)
            queue = self._queue
            queue.in_hand = message  # store, then check (zkconsumer.fetching.partition_queue)
            self.reader = get_ident()
            if self._decode is not None:
                self._decode(message)
            if queue.is_live and self._clock() < self._lease.until:
                self.handed = message
                return message
        except StopIteration:
            pass
        except (MessageError, BrokenFraming, DecoderFailed) as error:
            trouble = error
        except BaseException as error:
            self._interrupted(message, error)
            raise
        try:
            found: Message = self._next_slowly(message, trouble, None)
            return found
        finally:
            trouble = None  # its traceback holds this frame: a cycle for each error otherwise

    def _apply_decoders(self, message: Message) -> None:
        key, value = message.key, message.value
        try:
            if self._key_decoder is not None and message.key is not None:
                message.key = self._key_decoder(message.key)
            if self._value_decoder is not None and message.value is not None:
                message.value = self._value_decoder(message.value)
        except Exception as error:  # whatever the application's code raises is about this message
            raise DecoderFailed(message.topic, message.partition, message.offset, key, value) from error

    def _interrupted(self, message: InHand | None, error: BaseException) -> None:
        """Leave things so that the next call finds the message again that this call did not hand over."""
        if isinstance(error, ValueError) and "already executing" in str(error):
            raise ConcurrentStreamUse(self.thread_id) from None
        self._was_cut_off = True
        self._source = _NO_CHUNK
        self._chunk = self._messages = None
        self._finish_hand(message)

    def _finish_hand(self, message: InHand | None) -> None:
        """What was in hand is done; `message` was decoded behind it and is not handed over."""
        queue = self._queue
        hand = queue.in_hand
        if message is not None:
            queue.finish_hand(message.offset)
        elif hand is not None:
            queue.finish_hand(hand.next_offset)

    # -- the slow path: between chunks ---------------------------------------------------------------------------------

    def _next_batch(self, batches: StreamBatches) -> MessageBatch:
        before = self._queue.in_hand
        try:
            found: MessageBatch = self._next_slowly(None, None, batches)
            return found
        except (ConcurrentStreamUse, MessageError):
            raise
        except BaseException as error:
            # Interrupted when something was in hand already: a moment that a message passes once in a chunk.
            hand = self._queue.in_hand
            if hand is not None and hand is not before:
                self.handed = None
                if self._chunk is not None:
                    self._chunk.resume = None  # if it is an error, nobody has heard of it
                self._interrupted(hand, error)
            raise

    def _next_slowly(
        self, message: Message | None, trouble: Exception | None, batches: StreamBatches | None
    ) -> Any:
        """Return the next message, after waiting if need be; one caller at a time. Arguments as in `_find_message`."""
        me = get_ident()
        # One atomic step, and a thread that was interrupted inside finds its own mark and may enter again.
        if self._inside.setdefault("thread", me) != me:
            raise ConcurrentStreamUse(self.thread_id)
        try:
            return self._find_message(message, trouble, batches)
        finally:
            self._inside.pop("thread", None)

    def _find_message(
        self, message: Message | None, trouble: Exception | None, batches: StreamBatches | None
    ) -> Any:
        """Return the next message or batch.

        Args:
            message: Decoded by this call and not to be handed over: revoked, no lease, or its decoder failed.
            trouble: What is wrong with the next message.
            batches: Who asks for a batch; None for a message.
        """
        self._source = _NO_CHUNK
        self._finish_hand(message)
        self.handed = None
        if not self._was_cut_off:
            self._decoding = None
        if self._batches is not batches:
            self._batches = batches
            self._chunk = self._messages = None
        queue, chunk, messages, found = self._queue, self._chunk, None, None
        if chunk is not None:
            if trouble is not None:
                messages = self._report(queue, chunk, trouble, message)
            elif batches is not None and queue.is_live and queue.failure is None:
                messages = self._messages
            if messages is not None:
                found = self._read(queue, chunk, messages)
        deadline = None if self._timeout_ms < 0 else self._clock() + self._timeout_ms / 1000
        while found is None or found is _UNDER_WAY:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._is_ended:
                if self._at_end is not None:
                    self._at_end()
                raise StopIteration
            found = self._read_ready()
            if found is _UNDER_WAY:
                self._wakeup.wait(_LOOK_AGAIN_S)  # whatever the time-out: there is something
            elif found is None:
                self._wait(deadline)
        return found

    def _wait(self, deadline: float | None) -> None:
        wait_s = None if deadline is None else deadline - self._clock()
        if wait_s is not None and wait_s <= 0:
            raise ConsumerTimeout(self._timeout_ms)
        if self.ready:
            # There is something, but no lease, and nobody tells of its renewal.
            wait_s = _LEASE_POLL_S if wait_s is None else min(wait_s, _LEASE_POLL_S)
        self._wakeup.wait(wait_s)

    def _read_ready(self) -> Any:
        """Hand over the next message of what is queued; None when nothing is, or the lease is out; or _UNDER_WAY."""
        while self.ready:
            try:
                queue = self.ready[0]
            except IndexError:  # the coordinator dropped it just now
                continue
            if not queue.is_live or queue.failure is not None:
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
                self._chunk = self._messages = self._decoding = None
                queue.take_out(chunk)
                continue
            if self._clock() >= self._lease.until:
                return None
            # The position says where to begin; what an interrupted call had decoded already is decoded again.
            decoding = self._decode_uninterrupted(queue, chunk) if self._was_cut_off else None
            if decoding is None:
                message = self._read(queue, chunk, self._open(queue, chunk))
            elif decoding.is_done:
                message = self._read(queue, chunk, decoding.messages, decoding.take)
            else:
                return _UNDER_WAY
            if message is not None:
                return message
        return None

    def _decode_uninterrupted(self, queue: PartitionQueue, chunk: Chunk) -> UninterruptedDecoding | None:
        """Return what comes next in a chunk, decoded or under way; None if that is not possible."""
        decoding = self._decoding
        if decoding is None or not decoding.is_next(self._batches, chunk, queue.position):
            decoding = UninterruptedDecoding(
                self._batches, chunk, queue.position, self._open(queue, chunk), self._wakeup.wake
            )
            self._decoding = decoding
        return decoding if decoding.begin() else None

    def _open(self, queue: PartitionQueue, chunk: Chunk) -> Iterator[Any]:
        """Begin with a chunk, or go on in it, where the position is."""
        return self._open_at(queue, chunk, queue.position, chunk.resume)

    def _open_at(self, queue: PartitionQueue, chunk: Chunk, start_offset: int, resume: object) -> Iterator[Any]:
        topic, partition = queue.partition
        dialect = chunk.dialect
        if dialect is None:
            return iter(())
        decode = dialect.decode_messages if self._batches is None else partial(self._batches.decode, dialect)
        return decode(
            chunk.data, topic, partition, start_offset, high_watermark=chunk.high_watermark,
            max_decoded_bytes=self._max_decoded_bytes, resume=resume,
        )  # fmt: skip

    def _read(
        self, queue: PartitionQueue, chunk: Chunk, messages: Iterator[Any], take: Callable[..., Any] = next
    ) -> Any:
        """Hand over the next message or batch of a chunk, and leave the chunk open.

        None: the chunk is at its end, or nothing may be handed over. The first one is what `take` returns.
        """
        while True:
            self._queue, self._chunk, self._messages = queue, chunk, None if self._batches else messages
            message: Any = None
            trouble: Exception | None = None
            try:
                message = take(messages, None)
                if message is not None:
                    queue.in_hand = message
                    self.reader = get_ident()
                    if self._decode is not None:
                        self._decode(message)
                    if queue.is_live and self._clock() < self._lease.until:
                        if self._batches:
                            self._messages = messages
                        else:
                            self._source = messages
                        self.handed = message
                        self._was_cut_off = False
                        return message
            except (MessageError, BrokenFraming, DecoderFailed) as error:
                trouble = error
            except BaseException as error:
                self._interrupted(message, error)
                raise
            self._finish_hand(message)
            if message is not None and trouble is None:
                return None
            trouble = trouble or chunk.error
            if trouble is None:
                self._chunk = self._messages = self._decoding = None
                queue.take_out(chunk)
                return None
            rest = self._report(queue, chunk, trouble, message)
            if rest is None:
                return None
            messages, take = rest, next

    # -- what is wrong with one message --------------------------------------------------------------------------------

    def _report(
        self, queue: PartitionQueue, chunk: Chunk, trouble: Exception, message: Message | None
    ) -> Iterator[Any] | None:
        """Raise what is wrong with the next message, or pass over it, as `on.message.error` says.

        Return what to go on with in this chunk; None when the chunk is done for. A message that is raised about is in
        hand like any other: it is done when the next one is asked for.
        """
        if isinstance(trouble, MessageError):
            next_offset = max(trouble.next_offset, queue.position)
        elif message is not None:
            next_offset = message.next_offset
        else:
            self._stop_partition(queue, trouble)
            return None
        queue.in_hand = bad = Message(*queue.partition, queue.position, next_offset, None, None)
        if not (queue.is_live and self._clock() < self._lease.until):
            queue.finish_hand(queue.position)
            return None
        self.failures += 1
        if self._on_error == "stop":
            queue.finish_hand(queue.position)
            queue.halt(str(trouble))
            log.error("partition stopped, on.message.error=stop: %s", trouble)
            return None
        rest = self._messages if isinstance(trouble, DecoderFailed) else None
        if isinstance(trouble, MessageError) and trouble.resume is not None:
            rest = self._open_at(queue, chunk, 0, trouble.resume)
            chunk.resume = trouble.resume
        if self._on_error == "skip":
            log.warning("message skipped, on.message.error=skip: %s", trouble)
            queue.finish_hand(next_offset)
            return rest
        self._messages = rest
        self._source = _NO_CHUNK if rest is None or self._batches is not None else rest
        self.reader = get_ident()
        self.handed = bad
        raise trouble

    def _stop_partition(self, queue: PartitionQueue, trouble: Exception) -> None:
        """End a partition behind whose position nothing can be read; the others of the stream go on."""
        if not queue.is_live:
            return
        self.failures += 1
        error = PartitionStopped(*queue.partition, queue.position, str(trouble))
        queue.halt(str(error))
        log.error("%s", error)
        if self._on_error != "stop":
            raise error from trouble
