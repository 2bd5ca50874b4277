"""Where a stream reads in its chunks: opens them at the position, and decodes again what an interrupt cut off.

A cursor knows neither a lease nor what is in hand: `zkconsumer.streams.stream` decides what is handed over. Rules, and
which failure each prevents:
- The position of the queue says where a chunk is opened, and nothing else does: an interrupt at any point costs
  decoding a part of a chunk again, and no message.
- After an interrupt the next message or batch is decoded by a thread of its own (`uninterrupted`): a reader that is
  interrupted every few milliseconds would never finish a large batch otherwise.
- Behind an error a chunk is opened where the error says (`MessageError.resume`): no error is raised twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from simpleconsumer.types import Message
from zkconsumer.errors import DecoderFailed
from zkconsumer.fetching.partition_queue import Chunk, PartitionQueue
from zkconsumer.streams.batches import StreamBatches
from zkconsumer.streams.uninterrupted import UninterruptedDecoding

__all__ = ["Cursor", "DecodedKey", "DecodedValue", "Decoder", "Decoders", "OpenChunk"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What a decoder returns; bytes without a decoder.
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
        rest: What is left of the open chunk, where the stream does not keep that itself: batches, and what comes
            behind an error.
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
        """Leave the chunk after an interrupt: what was decoded of it is decoded again."""
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
        # What an interrupted call had decoded already is decoded again.
        decoding = self._decode_uninterrupted(queue, chunk) if self.was_cut_off else None
        if decoding is None:
            return OpenChunk(self._items_of(queue, chunk, chunk.resume), next)
        return OpenChunk(decoding.messages, decoding.take) if decoding.is_done else None

    def open_behind_error(self, queue: PartitionQueue, chunk: Chunk, resume: object) -> Iterator[Any]:
        """Return what comes behind an error; from then on the chunk is always opened there."""
        rest = self._items_of(queue, chunk, resume, is_behind=True)
        chunk.resume = resume
        return rest

    def _items_of(
        self, queue: PartitionQueue, chunk: Chunk, resume: object, is_behind: bool = False
    ) -> Iterator[Any]:
        """Return what is in a chunk from the position of its queue on, or all that is behind `resume`."""
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
    """What turns the bytes of keys and values into what the application wants.

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
