"""The fast path of decoding: runs of uncompressed messages of the same form.

A *shape* is what follows from the size and the key length of a message: the `struct` layout, the bytes that its fixed
fields must hold, and the checksum state behind those. So one `unpack_from` yields CRC, fixed bytes, key, value, and the
offset and size of the *next* entry; one comparison checks the lengths; and the CRC continues from the known state over
the value object, without slicing the buffer.

A *family* holds the shapes of one magic, attributes byte and key length. `Family.run` yields messages until the next
entry is of another family, wrong in any way, too large to cache, or the last of its set (there is no next entry to
read). It raises no errors: `message_set` reads that entry by the slow, exact path. The same holds for an entry whose
offset does not follow that of the one before, unless a hole explains it (`offset_order`).

Layouts (Kafka 0.8.2.2 and 0.10.0.1, kafka.message.Message), behind `int64 offset, int32 size`:

    magic 0: uint32 crc | int8 magic, int8 attributes, int32 key length | key | int32 value length | value
    magic 1: the same with an int64 timestamp between attributes and key length; the CRC covers it
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from struct import Struct, error, pack
from typing import Any, ClassVar, Final

from isal.isal_zlib import crc32

from simpleconsumer.types import MAX_INT64, Buffer, Message

ENTRY_OVERHEAD: Final = 12
CODEC_MASK: Final = 7
NO_TIMESTAMP: Final = -1
_ENTRY = Struct(">qi").unpack_from
# offset, size, CRC; magic, attributes, then key length (magic 0) or timestamp and key length (magic 1).
_HEAD_0 = Struct(">16xBBi").unpack_from
_HEAD_1 = Struct(">16xBB8xi").unpack_from

_LARGEST_CACHED = 16 * 1024  # above it a cached layout saves little compared with the copy of the value
_LARGEST_CACHED_KEY = 1024
# About 5 MB of layouts. Only unusual messages reach it (or bytes made to reach it); then all are dropped.
_MAX_SHAPES = 8192


class Level:
    """A message set that is being read: that of a broker, or the inside of a wrapper.

    Attributes:
        position: Where the next entry starts.
        magic: Magic that the messages must have: that of the wrapper; None outside of wrappers.
        base: What to add to the offsets found here (magic 1 wrappers hold relative ones).
        timestamp_ms: Timestamp of all messages here (wrapper with LogAppendTime), or None.
        wrapper_offset: Offset of the wrapper; -1 outside of wrappers.
        budget_bytes: How many bytes wrappers in here may still decompress to.
        floor: Least offset that the next entry can have: behind that of the entry before. Like `limit` and `asked` it
            is relative to `base`, as the offsets of the entries here are.
        limit: Offsets here are below it, except one that follows directly on that of the entry before: that the two
            agree is better evidence than a high watermark, which may be late. In a wrapper of magic 1 all are below it.
        asked: The offset that was asked for; the place of the first entry if its own offset is damaged.
        damaged: The last entries of damaged offset: the floor at that time, and their number.
    """

    __slots__ = (
        "asked",
        "base",
        "budget_bytes",
        "buffer",
        "damaged",
        "floor",
        "limit",
        "magic",
        "position",
        "timestamp_ms",
        "wrapper_offset",
    )

    def __init__(self, buffer: Buffer, budget_bytes: int = 0) -> None:
        self.buffer = buffer
        self.position = 0
        self.magic: int | None = None
        self.base = 0
        self.timestamp_ms: int | None = None
        self.wrapper_offset = -1
        self.budget_bytes = budget_bytes
        self.floor = 0
        self.limit = MAX_INT64
        self.asked = 0
        self.damaged = (-1, 0)


class Family(dict[int, tuple[Any, ...]], ABC):
    """Shapes by message size, built when first asked for; sizes that are not cached raise KeyError."""

    def __init__(self, magic: int, attributes: int, key_length: int) -> None:
        super().__init__()
        self.attributes = attributes
        self.key_length = key_length
        self.overhead = (14 if magic == 0 else 22) + max(key_length, 0)

    def __missing__(self, size: int) -> tuple[Any, ...]:
        value_length = size - self.overhead
        if value_length < 0 or size > _LARGEST_CACHED:
            raise KeyError(size)
        _make_room()
        shape = self[size] = self._shape(value_length)
        return shape

    @abstractmethod
    def _shape(self, value_length: int) -> tuple[Any, ...]:
        """Build the shape of messages whose value has this length."""

    @abstractmethod
    def run(self, level: Level, topic: str, partition: int | str) -> Iterator[Message]:
        """Yield messages of this family from `level.position` on, and leave it at the first entry of another one."""


class _Keyless0(Family):
    """Magic 0 without key."""

    def _shape(self, value_length: int) -> tuple[Any, ...]:
        fixed = bytes((0, self.attributes)) + pack(">ii", -1, value_length)
        return Struct(f">12xI10s{value_length}sqi").unpack_from, fixed, crc32(fixed)

    def run(self, level: Level, topic: str, partition: int | str) -> Iterator[Message]:
        buffer, position, checksum = level.buffer, level.position, crc32
        floor, limit = level.floor, level.limit
        new, kind = object.__new__, Message
        shaped: int | None = None
        try:
            offset, size = _ENTRY(buffer, position)
            while True:
                if size != shaped:  # runs of one size are common, and the look-up takes a seventh of the time
                    unpack, expected, state = self[size]
                    shaped = size
                crc, fixed, value, next_offset, next_size = unpack(buffer, position)
                if fixed != expected or checksum(value, state) != crc:
                    return
                if offset != floor and not floor < offset < next_offset < limit:
                    return
                floor = offset + 1
                # As the constructor does, without its call, which takes a sixth of the time of a message here.
                message = new(kind)
                message.topic, message.partition = topic, partition
                message.offset, message.next_offset = offset, floor
                message.key, message.value, message.timestamp_ms = None, value, None
                yield message
                position += size + 12
                offset = next_offset
                size = next_size
        except (error, KeyError):  # too near the end, or not cached
            return
        finally:
            level.position, level.floor = position, floor


class _Keyed0(Family):
    """Magic 0 with keys of one length.

    A run continues over keys of other lengths: from the first such key on each head is read before the shape is chosen.
    """

    known: ClassVar[dict[tuple[int, int, int], Family]] = {}

    def _shape(self, value_length: int) -> tuple[Any, ...]:
        fixed = bytes((0, self.attributes)) + pack(">i", self.key_length)
        layout = Struct(f">12xI6s{self.key_length}s4s{value_length}sqi")
        return layout.unpack_from, fixed, pack(">i", value_length), crc32(fixed)

    def run(self, level: Level, topic: str, partition: int | str) -> Iterator[Message]:
        buffer, position, checksum = level.buffer, level.position, crc32
        floor, limit = level.floor, level.limit
        shapes: Family = self
        known, peek = self.known, False
        new, kind = object.__new__, Message
        try:
            offset, size = _ENTRY(buffer, position)
            while True:
                if peek:
                    shapes = known[_HEAD_0(buffer, position)]
                unpack, expected, expected_length, state = shapes[size]
                crc, fixed, key, length, value, next_offset, next_size = unpack(buffer, position)
                if fixed != expected or length != expected_length:
                    if peek:
                        return
                    peek = True
                    continue
                if checksum(value, checksum(length, checksum(key, state))) != crc:
                    return
                if offset != floor and not floor < offset < next_offset < limit:
                    return
                floor = offset + 1
                message = new(kind)  # as above
                message.topic, message.partition = topic, partition
                message.offset, message.next_offset = offset, floor
                message.key, message.value, message.timestamp_ms = key, value, None
                yield message
                position += size + 12
                offset = next_offset
                size = next_size
        except (error, KeyError):
            return
        finally:
            level.position, level.floor = position, floor


class _Keyless1(Family):
    """Magic 1 without key. The timestamp is before the lengths, so the CRC is computed over the buffer itself."""

    def _shape(self, value_length: int) -> tuple[Any, ...]:
        layout = Struct(f">12xI2sq8s{value_length}sqi")
        return layout.unpack_from, bytes((1, self.attributes)), pack(">ii", -1, value_length)

    def run(self, level: Level, topic: str, partition: int | str) -> Iterator[Message]:
        buffer, position, checksum = level.buffer, level.position, crc32
        floor, limit = level.floor, level.limit
        view, base, append_time = memoryview(buffer), level.base, level.timestamp_ms
        try:
            offset, size = _ENTRY(buffer, position)
            while True:
                unpack, expected, expected_lengths = self[size]
                crc, fixed, timestamp, lengths, value, next_offset, next_size = unpack(buffer, position)
                end = position + size + 12
                if fixed != expected or lengths != expected_lengths or checksum(view[position + 16 : end]) != crc:
                    return
                if (offset != floor and not floor < offset < next_offset < limit) or offset >= limit:
                    return
                floor = offset + 1
                if append_time is not None:
                    timestamp = append_time
                if timestamp == -1:
                    timestamp = None
                yield Message(topic, partition, offset + base, floor + base, None, value, timestamp)
                position = end
                offset = next_offset
                size = next_size
        except (error, KeyError):
            return
        finally:
            level.position, level.floor = position, floor


class _Keyed1(Family):
    """Magic 1 with keys of one length; runs continue over other lengths as in magic 0."""

    known: ClassVar[dict[tuple[int, int, int], Family]] = {}

    def _shape(self, value_length: int) -> tuple[Any, ...]:
        layout = Struct(f">12xI2sq4s{self.key_length}s4s{value_length}sqi")
        fixed = bytes((1, self.attributes))
        return layout.unpack_from, fixed, pack(">i", self.key_length), pack(">i", value_length)

    def run(self, level: Level, topic: str, partition: int | str) -> Iterator[Message]:
        buffer, position, checksum = level.buffer, level.position, crc32
        floor, limit = level.floor, level.limit
        view, base, append_time = memoryview(buffer), level.base, level.timestamp_ms
        shapes: Family = self
        known, peek = self.known, False
        try:
            offset, size = _ENTRY(buffer, position)
            while True:
                if peek:
                    shapes = known[_HEAD_1(buffer, position)]
                unpack, expected, key_length, value_length = shapes[size]
                crc, fixed, timestamp, of_key, key, of_value, value, next_offset, next_size = unpack(buffer, position)
                end = position + size + 12
                if fixed != expected or of_key != key_length or of_value != value_length:
                    if peek:
                        return
                    peek = True
                    continue
                if checksum(view[position + 16 : end]) != crc:
                    return
                if (offset != floor and not floor < offset < next_offset < limit) or offset >= limit:
                    return
                floor = offset + 1
                if append_time is not None:
                    timestamp = append_time
                if timestamp == -1:
                    timestamp = None
                yield Message(topic, partition, offset + base, floor + base, key, value, timestamp)
                position = end
                offset = next_offset
                size = next_size
        except (error, KeyError):
            return
        finally:
            level.position, level.floor = position, floor


_families: dict[tuple[int, int, int], Family] = {}


def family_at(level: Level) -> Family | None:
    """Return the family of the entry at `level.position`; None if it must be read by the slow path."""
    try:
        magic, attributes, key_length = _HEAD_0(level.buffer, level.position)
        if magic == 1:
            magic, attributes, key_length = _HEAD_1(level.buffer, level.position)
    except error:
        return None
    family = _families.get((magic, attributes, key_length))
    if family is None:
        if magic > 1 or attributes & CODEC_MASK or not -1 <= key_length <= _LARGEST_CACHED_KEY:
            return None
        family = _new_family(magic, attributes, key_length)
    return family if level.magic is None or level.magic == magic else None


def _new_family(magic: int, attributes: int, key_length: int) -> Family:
    _make_room()
    family: Family
    if key_length == -1:
        family = (_Keyless1 if magic else _Keyless0)(magic, attributes, key_length)
    else:
        keyed = _Keyed1 if magic else _Keyed0
        family = keyed.known[magic, attributes, key_length] = keyed(magic, attributes, key_length)
    _families[magic, attributes, key_length] = family
    return family


def _make_room() -> None:
    """Drop all shapes when there are too many; runs in other threads build again those that they need."""
    global _room
    _room -= 1
    if _room < 0:
        _room = _MAX_SHAPES
        for family in list(_families.values()):
            family.clear()
        for known in (_families, _Keyed0.known, _Keyed1.known):
            known.clear()


_room = _MAX_SHAPES
