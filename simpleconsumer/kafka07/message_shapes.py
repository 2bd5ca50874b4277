"""The fast path of decoding Kafka 0.7: runs of uncompressed messages.

What follows from the size of a message is cached as a `struct` layout: one `unpack_from` yields CRC, payload, and size
and head of the *next* entry. The CRC covers the payload alone, so it is computed over the payload object, without
slicing the buffer. `Shapes.run` yields the entries of a message set, `Shapes.run_inside` the messages of a compressed
entry, until the next entry is compressed or of another magic, wrong in any way, too large to cache, or the last of its
set (there is no next head to read). They raise no errors: `message_set` reads that entry by the slow, exact path.

Inside of a compressed entry, the last message before anything but a plain message is left to the slow path, too: it may
be the last one of the entry, which carries the position of its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Any, Final

from isal.isal_zlib import crc32

from simpleconsumer.types import Buffer, EntryMessage, Message

__all__ = ["CODEC_MASK", "ENTRY_OVERHEAD", "Level", "OpenEntry", "shapes_at"]

ENTRY_OVERHEAD: Final = 4
CODEC_MASK: Final = 3
_LARGEST_CACHED = 16 * 1024  # above it a cached layout saves little compared with the copy of the payload
_MAX_SHAPES = 4096
_SIZE_AND_HEAD = Struct(">iBB").unpack_from


class Level:
    """A message set that is being read: that of a broker, or the inside of a compressed entry.

    Attributes:
        position: Where the next entry starts.
        budget_bytes: How many bytes compressed entries in here may still inflate to.
    """

    __slots__ = ("budget_bytes", "buffer", "position")

    def __init__(self, buffer: Buffer, budget_bytes: int) -> None:
        self.buffer = buffer
        self.position = 0
        self.budget_bytes = budget_bytes


class OpenEntry:
    """The outermost entry that is being read.

    Attributes:
        start: Where it starts in the log.
        end: Where it ends in the log.
        index: Number of the next message in it.
    """

    __slots__ = ("end", "index", "start")

    def __init__(self, place: int) -> None:
        self.start = self.end = place
        self.index = 0


class Shapes(dict[int, Any]):
    """Layouts of the messages of one magic by size, built when first asked for; others raise KeyError.

    Args:
        layout: Of an entry and the head behind it, with a place for the length of the payload.
        overhead: Bytes of a message besides its payload.
        head: What the head of a plain message behind an entry is unpacked to.
    """

    def __init__(self, layout: str, overhead: int, head: int) -> None:
        super().__init__()
        self._layout = layout
        self._overhead = overhead
        self._head = head

    def __missing__(self, size: int) -> Any:
        if not self._overhead <= size <= _LARGEST_CACHED:
            raise KeyError(size)
        if len(self) >= _MAX_SHAPES:  # unusual messages, or bytes made to reach it; runs build what they need again
            self.clear()
        shape = self[size] = Struct(self._layout.format(size - self._overhead)).unpack_from
        return shape

    def run(self, level: Level, base: int, topic: str, partition: int | str) -> Iterator[Message]:
        """Yield plain messages from `level.position` on; the entry there has the head of this magic.

        Args:
            base: Position of the first byte of the buffer in the log.
        """
        buffer, position, checksum = level.buffer, level.position, crc32
        new, kind, plain = object.__new__, Message, self._head
        shaped: int | None = None
        offset = base + position
        try:
            size = _SIZE_AND_HEAD(buffer, position)[0]
            while True:
                if size != shaped:  # runs of one size are common, and the look-up takes a seventh of the time
                    unpack = self[size]
                    shaped = size
                crc, payload, next_size, head = unpack(buffer, position)
                if checksum(payload) != crc:
                    return
                next_offset = offset + size + 4
                # As the constructor does, without its call, which takes a sixth of the time of a message here.
                message = new(kind)
                message.topic, message.partition = topic, partition
                message.offset, message.next_offset = offset, next_offset
                message.key, message.value, message.timestamp_ms = None, payload, None
                yield message
                position += size + 4
                if head != plain:
                    return
                offset = next_offset
                size = next_size
        except (error, KeyError):  # too near the end, or not cached
            return
        finally:
            level.position = position

    def run_inside(self, level: Level, entry: OpenEntry, topic: str, partition: int | str) -> Iterator[EntryMessage]:
        """Yield messages of a compressed entry, all but the last before anything but a plain message."""
        buffer, position, checksum = level.buffer, level.position, crc32
        offset, index = entry.start, entry.index
        new, kind, plain = object.__new__, EntryMessage, self._head
        shaped: int | None = None
        try:
            size = _SIZE_AND_HEAD(buffer, position)[0]
            while True:
                if size != shaped:
                    unpack = self[size]
                    shaped = size
                crc, payload, next_size, head = unpack(buffer, position)
                if head != plain or checksum(payload) != crc:
                    return
                message = new(kind)
                message.topic, message.partition = topic, partition
                message.offset = message.next_offset = offset
                message.key, message.value, message.timestamp_ms = None, payload, None
                message.index = index
                yield message
                index += 1
                position += size + 4
                size = next_size
        except (error, KeyError):
            return
        finally:
            level.position, entry.index = position, index


# Behind the size of the next entry its magic and attributes, or the magic alone.
_SHAPES_1: Final = Shapes(">6xI{}siH", 6, 0x0100)
_SHAPES_0: Final = Shapes(">5xI{}siB", 5, 0)


def shapes_at(level: Level) -> Shapes | None:
    """Return the shapes of the entry at `level.position`; None if it must be read by the slow path."""
    try:
        _, magic, attributes = _SIZE_AND_HEAD(level.buffer, level.position)
    except error:
        return None
    if magic == 1:
        return None if attributes else _SHAPES_1
    return None if magic else _SHAPES_0
