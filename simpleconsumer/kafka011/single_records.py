"""The fast path of rows for plain batches of one record each, as producers send them that do not wait for more.

All of such a batch but its checksum, its times, its key and its value follows from its size and the length of its key.
So one `unpack_from` yields these, the bytes between them, and the offset and size of the *next* entry; and comparisons
with the bytes that are expected check head and record. A *form* holds the layouts, by size, of batches with the same
attributes whose keys have one length.

`read_singles` yields messages until the next batch is of another form, wrong in any way, or the last of its set. It
raises no errors: `batch_reading` and `records` read that batch exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from struct import Struct, error
from typing import Any, Final

from simpleconsumer.crc32c import crc32c
from simpleconsumer.kafka011.batch_head import (
    CRC_BODY_AT,
    HEAD_BYTES,
    IS_TRANSACTIONAL,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    SMALLEST_SIZE,
)
from simpleconsumer.kafka011.batch_reading import BatchReading
from simpleconsumer.kafka011.records import NO_TIMESTAMP
from simpleconsumer.kafka011.varints import encode_varint
from simpleconsumer.types import Message

__all__ = ["read_singles"]

_ENTRY: Final = Struct(">qi").unpack_from
_MIDDLE: Final = Struct(">21x6s").unpack_from
"""Attributes, and the last difference of offsets, of a batch."""
_ONE: Final = b"\0\0\0\1"
"""The number of records."""
_AT_BASE: Final = b"\0\0\0"
"""Attributes of a record, and its differences of time and offset."""
_NO_KEY: Final = 1
"""The byte of a key's length that stands for null."""
_LARGEST: Final = 16 * 1024
"""Above that a cached layout saves little compared with the copy of the value."""
_MOST_LAYOUTS: Final = 8192
_LARGEST_OFFSET: Final = 2**62
_KEY_AT: Final = HEAD_BYTES + len(_AT_BASE)
_MOST_ONE_BYTE: Final = SMALLEST_SIZE + 1 + 63
_MOST_TWO_BYTES: Final = SMALLEST_SIZE + 2 + 8191
"""Sizes of batches whose record has a length of one byte, or of two."""

_room = _MOST_LAYOUTS
"""How many layouts and forms may still be kept."""


class _Form(dict[int, tuple[Any, ...]], ABC):
    """Layouts by the size of a batch, built when first asked for; KeyError for those that have none."""

    def __init__(self, middle: bytes, of_key: int) -> None:
        super().__init__()
        self._middle = middle
        self._of_key = of_key
        is_appended = middle[1] & LOG_APPEND_TIME
        # Magic, checksum, attributes and last difference, and one of the two times of the batch.
        self._head = ">16xBI6s" + ("8xq14x" if is_appended else "q22x")

    def __missing__(self, size: int) -> tuple[Any, ...]:
        if not SMALLEST_SIZE < size <= _LARGEST:
            raise KeyError(size)
        record = size - SMALLEST_SIZE - _length_bytes(size)
        key_bytes = 0 if self._of_key == _NO_KEY else self._of_key >> 1
        rest = record - len(_AT_BASE) - 1 - key_bytes - 1  # the lengths of key and value, the number of headers
        for width in (1, 2, 3):
            of_value = encode_varint(max(rest - width, 0))
            if len(of_value) == width <= rest:
                break
        else:
            raise KeyError(size)
        _make_room()
        ahead = _ONE + encode_varint(record) + _AT_BASE + bytes((self._of_key,))
        layout = self[size] = self._layout(ahead, of_value, rest - width)
        return layout

    @abstractmethod
    def _layout(self, ahead: bytes, of_value: bytes, value_bytes: int) -> tuple[Any, ...]:
        """Build the layout of batches with these bytes before the key, and before the value."""

    @abstractmethod
    def run(self, reading: BatchReading, topic: str, partition: int | str) -> Iterator[Message]:
        """Yield messages of this form from the place of a reading on, and leave it at the first other batch."""


class _Keyless(_Form):
    """Records without key."""

    def _layout(self, ahead: bytes, of_value: bytes, value_bytes: int) -> tuple[Any, ...]:
        ahead += of_value
        return Struct(f"{self._head}{len(ahead)}s{value_bytes}sBqi").unpack_from, ahead

    def run(self, reading: BatchReading, topic: str, partition: int | str) -> Iterator[Message]:
        level = reading.level
        buffer, position, floor = level.buffer, level.position, level.floor
        limit = min(level.limit, _LARGEST_OFFSET)
        view, checksum, expected_middle = memoryview(buffer), crc32c, self._middle
        new, kind = object.__new__, Message
        try:
            base, size = _ENTRY(buffer, position)
            while True:
                unpack, expected = self[size]
                magic, crc, middle, time, ahead, value, headers, next_base, next_size = unpack(buffer, position)
                end = position + size + OVERHEAD
                if ahead != expected or middle != expected_middle or headers or magic != MAGIC:
                    return
                if base != floor and not floor < base < next_base < limit:
                    return
                if checksum(view[position + CRC_BODY_AT : end]) != crc:
                    return
                floor = base + 1
                # As the constructor does, without its call.
                message = new(kind)
                message.topic, message.partition = topic, partition
                message.offset, message.next_offset = base, floor
                message.key, message.value = None, value
                message.timestamp_ms = None if time == NO_TIMESTAMP else time
                position = end
                yield message
                base, size = next_base, next_size
        except (error, KeyError):  # too near the end, or not cached
            return
        finally:
            level.position, level.floor = position, floor


class _Keyed(_Form):
    """Records with keys of one length.

    A run continues over keys of other lengths: from the first such key on, the length of each key is read before the
    form is chosen.
    """

    def _layout(self, ahead: bytes, of_value: bytes, value_bytes: int) -> tuple[Any, ...]:
        key = self._of_key >> 1
        layout = f"{self._head}{len(ahead)}s{key}s{len(of_value)}s{value_bytes}sBqi"
        return Struct(layout).unpack_from, ahead, of_value

    def run(self, reading: BatchReading, topic: str, partition: int | str) -> Iterator[Message]:
        level = reading.level
        buffer, position, floor = level.buffer, level.position, level.floor
        limit = min(level.limit, _LARGEST_OFFSET)
        view, checksum, expected_middle = memoryview(buffer), crc32c, self._middle
        new, kind = object.__new__, Message
        form: _Form = self
        forms, peek = _keyed[expected_middle], False
        try:
            base, size = _ENTRY(buffer, position)
            while True:
                if peek:
                    form = forms[buffer[position + _key_at(size)]]
                unpack, expected, expected_value = form[size]
                magic, crc, middle, time, ahead, key, of_value, value, headers, next_base, next_size = unpack(
                    buffer, position
                )
                end = position + size + OVERHEAD
                if ahead != expected or of_value != expected_value or middle != expected_middle or headers:
                    if peek:
                        return
                    peek = True
                    continue
                if magic != MAGIC or (base != floor and not floor < base < next_base < limit):
                    return
                if checksum(view[position + CRC_BODY_AT : end]) != crc:
                    return
                floor = base + 1
                message = new(kind)  # as above
                message.topic, message.partition = topic, partition
                message.offset, message.next_offset = base, floor
                message.key, message.value = key, value
                message.timestamp_ms = None if time == NO_TIMESTAMP else time
                position = end
                yield message
                base, size = next_base, next_size
        except (error, KeyError, IndexError):
            return
        finally:
            level.position, level.floor = position, floor


class _KeyForms(dict[int, _Form]):
    """Forms with keys and the same attributes, by the byte that says the length of the key; KeyError for long keys."""

    def __init__(self, middle: bytes) -> None:
        super().__init__()
        self._middle = middle

    def __missing__(self, of_key: int) -> _Form:
        if of_key & 1 or of_key >= 0x80:
            raise KeyError(of_key)
        _make_room()
        form = self[of_key] = _Keyed(self._middle, of_key)
        return form


_MIDDLES: Final = [
    bytes((0, attributes, 0, 0, 0, 0))
    for attributes in (0, LOG_APPEND_TIME, IS_TRANSACTIONAL, IS_TRANSACTIONAL | LOG_APPEND_TIME)
]
_keyless: Final = {middle: _Keyless(middle, _NO_KEY) for middle in _MIDDLES}
_keyed: Final = {middle: _KeyForms(middle) for middle in _MIDDLES}


def read_singles(reading: BatchReading, topic: str, partition: int | str) -> Iterator[Message]:
    """Return the messages from the place between two batches on, up to one that must be read by the slow path."""
    form = _form_at(reading)
    return iter(()) if form is None else form.run(reading, topic, partition)


def _form_at(reading: BatchReading) -> _Form | None:
    """Return the form of the next batch; None if it must be read by the slow path."""
    level = reading.level
    buffer, position = level.buffer, level.position
    if not max(reading.start_offset, 1) <= level.floor < _LARGEST_OFFSET:
        return None
    try:
        (middle,) = _MIDDLE(buffer, position)
        if middle[1] & IS_TRANSACTIONAL and not reading.has_no_aborted():
            return None
        of_key = buffer[position + _key_at(_ENTRY(buffer, position)[1])]
        return _keyless[middle] if of_key == _NO_KEY else _keyed[middle][of_key]
    except (error, KeyError, IndexError):
        return None


def _length_bytes(size: int) -> int:
    """Return how many bytes the length of the record takes in a batch of a size."""
    return 1 if size <= _MOST_ONE_BYTE else 2 if size <= _MOST_TWO_BYTES else 3


def _key_at(size: int) -> int:
    """Return where the length of the key is in a batch of a size."""
    return _KEY_AT + _length_bytes(size)


def _make_room() -> None:
    """Drop all layouts when there are too many; runs in other threads build again those that they need."""
    global _room
    _room -= 1
    if _room < 0:
        _room = _MOST_LAYOUTS
        for middle in _MIDDLES:
            _keyless[middle].clear()
            for form in list(_keyed[middle].values()):
                form.clear()
            _keyed[middle].clear()
