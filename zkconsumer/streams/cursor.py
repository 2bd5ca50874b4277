"""Where a stream reads in its chunks: opens them at the position, and decodes again what an interrupt cut off.

A cursor knows neither a lease nor what is in hand: `zkconsumer.streams.stream` decides what is handed over. Rules, and
which failure each prevents:
- The position of the queue says where a chunk is opened, and nothing else does: an interrupt at any point costs
  decoding a part of a chunk again, and no message.
- After an interrupt the next message or batch is decoded by a thread of its own (`UninterruptedDecoding`): otherwise a
  reader that is interrupted every few milliseconds would never finish a large batch.
- After an error a chunk is opened where the error says (`MessageError.resume`): no error is raised twice.

Decoding in a thread of its own, for readers that are interrupted again and again.

An exception that a signal handler raises, or that is sent to a thread, interrupts the reader in the middle of its work.
The messages decoded until then are lost. If that happens every few milliseconds, a batch, or a large wrapper, would
never be finished. So after an interrupt a thread of its own decodes, which no such exception reaches. The reader waits
for it. It may be interrupted in that any number of times, and finds the result when it asks again.

The step from one message of a stream to the next: the work for each message.

The kernel has the same in compiled form (`simpleconsumer/kernel/step.pxi`). Whoever changes one changes the other.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from simpleconsumer import kernel
from simpleconsumer.types import Message
from zkconsumer.errors import DecoderFailed
from zkconsumer.fetching.partition_queue import Chunk, InHand, PartitionQueue
from zkconsumer.streams.batches import StreamBatches


class UninterruptedDecoding:
    """The next items of a chunk, decoded in a thread of its own.

    Args:
        source: The reader of batches that asks, None for messages; the result is for the same one only.
        position: Where in the chunk the messages start.
        messages: Yields them.
        wake: Called in that thread when the result is there.

    Attributes:
        messages: Yields the items after the result, once that is there.
        is_done: The result is there.

    Threads: The reader's. The thread of its own uses nothing of the stream but `messages`.
    """

    def __init__(
        self, source: object, chunk: Chunk, place: tuple[int, int], messages: Iterator[Any], wake: Callable[[], None]
    ) -> None:
        self.messages = messages
        self.is_done = False
        self._source = source
        self._chunk = chunk
        self._place = place
        self._wake = wake
        self._started = _thread.allocate_lock()
        self._found: InHand | None = None
        self._error: BaseException | None = None
        self._is_spent = False

    def is_next(self, source: object, chunk: Chunk, place: tuple[int, int]) -> bool:
        """Return whether this is what comes next in a chunk from a place on, position and index of its queue."""
        if self._is_spent or self._source is not source or self._chunk is not chunk:
            return False
        found = self._found
        return self._place <= place <= (self._place if found is None else (found.offset, found.index))

    def start(self) -> bool:
        """Start the thread if it does not run yet; return False if the system gives no thread.

        To be called from time to time until the result is there. An interrupt may have come before the start; or it may
        have hit the new thread, which up to Python 3.11 has the reader's number until it runs.
        """
        # Not by `threading.Thread`: its start waits for the thread, and these waits are not safe to interrupt.
        if not self._started.locked():
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                return False
        return True

    def take(self, *_: object) -> Any:
        """Return the next message or batch, or None at the end of the chunk, as `next(messages, None)` would.

        A reader that was interrupted with it may take it again.

        Raises:
            Whatever decoding raises, once: after it another decoding is needed.
        """
        if self._error is None:
            return self._found
        self._is_spent = True  # first, as an interrupt may come here, too
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _run(self) -> None:
        if not self._started.acquire(blocking=False):
            return
        try:
            self._found = next(self.messages, None)
        except BaseException as error:  # noqa: BLE001 - `take` raises it in the reader
            self._error = error
        self.is_done = True
        self._wake()


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The result of a decoder; bytes without a decoder.
    DecodedKey = TypeVar("DecodedKey", default=bytes)
    DecodedValue = TypeVar("DecodedValue", default=bytes)
else:
    from typing import TypeVar

    DecodedKey = TypeVar("DecodedKey")
    DecodedValue = TypeVar("DecodedValue")
Decoder = Callable[[bytes], Any]


class OpenChunk(NamedTuple):
    """The messages or batches of a chunk from the position on.

    Attributes:
        items: Yields them.
        take: Called as `next(items, None)` would be, for the first of them.
    """

    items: Iterator[Any]
    take: Callable[..., Any]


class Cursor:
    """The place of one stream in one chunk.

    Args:
        max_decoded_bytes: Most bytes that a compressed message may inflate to.
        wake: Called, on any thread, when something that was decoded uninterrupted is ready.

    Attributes:
        chunk: The chunk that is open; None between chunks.
        rest: The rest of the open chunk, where the stream does not keep that itself: batches, and the items after an
            error.
        batches: The reader of batches that asked last; None while single messages are read.
        was_cut_off: True after an interrupt, until the next message or batch is handed over.

    Threads: The reader's.
    """

    def __init__(self, max_decoded_bytes: int, wake: Callable[[], None]) -> None:
        self.chunk: Chunk | None = None
        self.rest: Iterator[Any] | None = None
        self.batches: StreamBatches | None = None
        self.was_cut_off = False
        self._max_decoded_bytes = max_decoded_bytes
        self._wake = wake
        self._decoding: UninterruptedDecoding | None = None

    def read_for(self, batches: StreamBatches | None) -> None:
        """Read batches, or messages for None; a chunk that was read in the other form is left and opened again."""
        if not self.was_cut_off:
            self._decoding = None
        if self.batches is not batches:
            self.batches = batches
            self.chunk = self.rest = None

    def cut_off(self) -> None:
        """Leave the chunk after an interrupt: its decoded messages are decoded again."""
        self.was_cut_off = True
        self.leave()

    def leave(self) -> None:
        """Leave the chunk; it is opened again at the position of its queue."""
        self.chunk = self.rest = None

    def take_out(self, queue: PartitionQueue, chunk: Chunk) -> None:
        """Leave a chunk that was read to its end, and remove it from its queue."""
        self.chunk = self.rest = self._decoding = None
        queue.take_out(chunk)

    def open(self, queue: PartitionQueue, chunk: Chunk) -> OpenChunk | None:
        """Open a chunk at the position of its queue; None while a thread of its own still decodes what comes first."""
        # Messages that an interrupted call had decoded already are decoded again.
        decoding = self._decode_uninterrupted(queue, chunk) if self.was_cut_off else None
        if decoding is None:
            return OpenChunk(self._items_of(queue, chunk, chunk.resume), next)
        return OpenChunk(decoding.messages, decoding.take) if decoding.is_done else None

    def open_behind_error(self, queue: PartitionQueue, chunk: Chunk, resume: object) -> Iterator[Any]:
        """Return the items after an error; from then on the chunk is always opened there."""
        rest = self._items_of(queue, chunk, resume, is_behind=True)
        chunk.resume = resume
        return rest

    def _items_of(self, queue: PartitionQueue, chunk: Chunk, resume: object, is_behind: bool = False) -> Iterator[Any]:
        """Return the items of a chunk from the position of its queue on, or all items after `resume`."""
        dialect = chunk.dialect
        if dialect is None:
            return iter(())
        decode = dialect.decode_messages if self.batches is None else partial(self.batches._decode, dialect)
        place = (0, 0) if is_behind else (queue.position, queue.index)
        return chunk.opened(decode, queue.partition, *place, self._max_decoded_bytes, resume)

    def _decode_uninterrupted(self, queue: PartitionQueue, chunk: Chunk) -> UninterruptedDecoding | None:
        """Return what comes next in a chunk, decoded or being decoded; None if the system gives no thread for it."""
        decoding = self._decoding
        place = queue.position, queue.index
        if decoding is None or not decoding.is_next(self.batches, chunk, place):
            items = self._items_of(queue, chunk, chunk.resume)
            decoding = UninterruptedDecoding(self.batches, chunk, place, items, self._wake)
            self._decoding = decoding
        return decoding if decoding.start() else None


class Decoders:
    """Turns the bytes of keys and values into the application's own values.

    A decoder is not called for a missing key, nor for a missing value (a deletion mark).
    """

    def __init__(self, key_decoder: Decoder | None, value_decoder: Decoder | None) -> None:
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder

    def apply(self, message: Message) -> None:
        """Decode key and value of a message in place.

        Raises:
            DecoderFailed: A decoder raised an error; the error carries the bytes.
        """
        key, value = message.key, message.value
        try:
            if self._key_decoder is not None and message.key is not None:
                message.key = self._key_decoder(message.key)
            if self._value_decoder is not None and message.value is not None:
                message.value = self._value_decoder(message.value)
        except Exception as error:  # whatever the application's code raises is about this message
            raise DecoderFailed(message.topic, message.partition, message.offset, key, value) from error


class LeaseView(Protocol):
    """Until when messages may be handed over, on the clock of the stream."""

    @property
    def until(self) -> float: ...


class PlainStep:
    """The fast path of `KafkaStream`: a message out of the chunk that is open.

    Attributes:
        handed: The message or batch that the stream returned last and that is not done yet; None if there is none.
        _reader: The thread that took the last message (`threading.get_ident`), or the asyncio task.
        _source: The messages of the chunk that is open; without one it is empty, which leads to the slow path.
        _queue: Where they came from.
        _decode: Decodes key and value of a message in place; None for nothing.
        _lease: Until when messages may be handed over.
        _clock: Seconds, the clock of the lease.
        _is_trouble: Returns whether an error is about the next message, and not an interrupt of the call.
        _interrupted: Makes sure that the next call decodes the message again which this call did not hand over.
        _next_slowly: Returns the next message, after waiting if need be.
    """

    handed: InHand | None
    _reader: object
    _source: Iterator[Any]
    _queue: PartitionQueue
    _decode: Callable[[Any], None] | None
    _lease: LeaseView
    _clock: Callable[[], float]
    _is_trouble: Callable[[BaseException], bool]
    _interrupted: Callable[[Any, BaseException], None]
    _next_slowly: Callable[[Any, Any, Any], Any]

    def __iter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __next__(self) -> Any:
        """Return the next message, and wait for it as long as `consumer.timeout.ms` allows."""
        message = trouble = None
        try:
            message = next(self._source)
            queue = self._queue
            queue.in_hand = message  # store, then check (zkconsumer.fetching.partition_queue)
            self._reader = get_ident()
            if self._decode is not None:
                self._decode(message)
            if queue.is_live and self._clock() < self._lease.until:
                self.handed = message
                return message
        except StopIteration:
            pass
        except BaseException as error:
            if not self._is_trouble(error):
                self._interrupted(message, error)
                raise
            trouble = error
        try:
            return self._next_slowly(message, trouble, None)
        finally:
            trouble = None  # its traceback holds this frame: a cycle for each error otherwise


if TYPE_CHECKING:
    Step = PlainStep
else:
    Step = PlainStep if kernel.compiled is None else kernel.compiled.Step
"""The compiled step where there is a kernel, else the one in Python."""
