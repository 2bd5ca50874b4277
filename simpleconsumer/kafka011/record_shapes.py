"""The fast path of rows: runs of records of the same form, without headers.

A *shape* is what follows from the length of a record once its form is known: how many bytes its timestamp and its
offset take, and how long its key is. So one `unpack_from` yields the varints as bytes, key and value, and the length of
the *next* record; and comparisons with the bytes that are expected check all of them. Lengths and differences of one
byte or two are read here, which is nearly all.

A *family* holds the shapes of one form, by the first two bytes of a record: its length, or length and attributes.
`read_run` yields messages until the next record is of another form, wrong in any way, too large, or too near the end of
the buffer. It raises no errors: `records` reads that record by the slow, exact path. At the end of a plain batch it
goes on in the next one, if that is plain, too, and follows directly on it (`BatchReading.plain_behind`).

Offsets follow one another in all batches but those that were compacted, so the bytes of an offset are compared with
those of the next one; behind a hole, they are looked up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from struct import Struct, error
from typing import Any, Final

from simpleconsumer.kafka011.batch_head import HEAD_BYTES
from simpleconsumer.kafka011.batch_reading import BatchReading
from simpleconsumer.kafka011.records import NO_TIMESTAMP, OpenBatch
from simpleconsumer.kafka011.varints import encode_varint, read_varlong
from simpleconsumer.types import Buffer, Message

__all__ = ["read_run"]

_ONE_BYTE: Final = 64
_TWO_BYTES: Final = 8192
_LONGEST_STAMP: Final = 6
"""Bytes of a timestamp difference: 6 are enough for 69 years."""
_MAX_SHAPES: Final = 8192
_MAX_STAMPS: Final = 16384
_MAX_TIME: Final = 2**62
"""With a base timestamp below that no time exceeds 64 bits."""
_AT_ONCE: Final = 512
_NO_KEY: Final = 1
"""The byte of a key's length that stands for null."""

_DELTAS: Final = tuple(encode_varint(delta) for delta in range(_TWO_BYTES))
"""The bytes of each difference of offsets."""
_DELTA_OF: Final = {encoded: delta for delta, encoded in enumerate(_DELTAS)}
_LENGTHS: Final = _DELTAS
_FIRST_TWO: Final = Struct("<H").unpack_from


class _Stamps(dict[bytes, int]):
    """Attributes and timestamp difference, as found -> the difference; KeyError unless they are regular."""

    def __missing__(self, encoded: bytes) -> int:
        stamp, end = read_varlong(encoded, 1)
        if encoded[0] or end != len(encoded):
            raise KeyError(encoded)
        if len(self) >= _MAX_STAMPS:
            self.clear()
        self[encoded] = stamp
        return stamp


_stamps: Final = _Stamps()


class _Family(dict[int, tuple[Any, ...]], ABC):
    """Shapes by the first two bytes of a record, built when first asked for; KeyError for those that have none."""

    def __init__(self, stamp_bytes: int, delta_bytes: int, key_length: int) -> None:
        super().__init__()
        self.stamp_bytes = stamp_bytes
        self.delta_bytes = delta_bytes
        self.key_length = key_length
        # Attributes, differences, length of the key, key, number of headers.
        self.fixed_bytes = stamp_bytes + delta_bytes + max(key_length, 0) + 3

    def __missing__(self, first_two: int) -> tuple[Any, ...]:
        low, high = first_two & 0xFF, first_two >> 8
        if low < 0x80:
            pad, size = 1, low  # and the attributes
        elif high < 0x80:
            pad, size = 2, low & 0x7F | high << 7
        else:
            raise KeyError(first_two)
        if size & 1 or (pad == 1 and high):
            raise KeyError(first_two)
        size >>= 1
        rest = size - self.fixed_bytes
        value_length = rest - 1 if rest <= _ONE_BYTE else rest - 2
        if value_length < 0 or len(_LENGTHS[value_length]) + value_length != rest:
            raise KeyError(first_two)
        _make_room()
        shape = self[first_two] = (*self._shape(pad, value_length, _LENGTHS[value_length]), pad + size)
        return shape

    @abstractmethod
    def _shape(self, pad: int, value_length: int, encoded_length: bytes) -> tuple[Any, ...]:
        """Build the shape of records whose value has this length."""

    @abstractmethod
    def run(self, reading: BatchReading, batch: OpenBatch, topic: str, partition: int | str) -> Iterator[Message]:
        """Yield messages of this family from the place of a reading on, and leave it at the first other one."""


class _Keyless(_Family):
    """Records without key."""

    def _shape(self, pad: int, value_length: int, encoded_length: bytes) -> tuple[Any, ...]:
        lengths = encode_varint(-1) + encoded_length
        layout = f"<{pad}x{1 + self.stamp_bytes}s{self.delta_bytes}s{len(lengths)}s{value_length}sBH"
        return Struct(layout).unpack_from, lengths

    def run(self, reading: BatchReading, batch: OpenBatch, topic: str, partition: int | str) -> Iterator[Message]:
        data, position, end = batch.data, batch.position, batch.end
        base, base_time, append_time = batch.base, batch.base_time, batch.append_time
        index, count, wanted, last_delta = batch.index, batch.count, batch.floor, batch.last_delta
        view = None if batch.is_inflated else memoryview(data)
        new, kind, stamps = object.__new__, Message, _stamps
        shapes: _Family = self
        short = long = shapes
        shaped, peek = None, False
        offset = base + wanted
        try:
            (first_two,) = _FIRST_TWO(data, position)
            while True:
                most = count - index
                if wanted or most > _AT_ONCE:
                    most = min(most, last_delta + 1 - wanted, _AT_ONCE, _TWO_BYTES - wanted)
                for expected_delta in _DELTAS[wanted : wanted + most]:
                    if peek:
                        shapes = short if data[position + 2 + (first_two >> 7 & 1)] < 0x80 else long
                        unpack, expected, step = shapes[first_two]
                    elif first_two != shaped:  # runs of one length are common
                        unpack, expected, step = shapes[first_two]
                        shaped = first_two
                    stamp, delta, lengths, value, headers, next_two = unpack(data, position)
                    behind = position + step
                    if delta != expected_delta or lengths != expected or headers or behind > end:
                        break
                    timestamp: int | None = base_time + stamps[stamp]  # which checks the bytes, too
                    if append_time is not None:
                        timestamp = append_time
                    if timestamp == NO_TIMESTAMP:
                        timestamp = None
                    position, first_two = behind, next_two
                    # As the constructor does, without its call.
                    message = new(kind)
                    message.topic, message.partition = topic, partition
                    message.offset = offset
                    offset += 1
                    message.next_offset = offset
                    message.key, message.value, message.timestamp_ms = None, value, timestamp
                    yield message
                moved = offset - base - wanted
                index, wanted = index + moved, wanted + moved
                if moved == max(most, 0):
                    if most <= 0 or index == count:
                        if index != count or position != end or view is None:
                            return
                        behind_it = reading.plain_behind(view, end, base + last_delta + 1, count)
                        if behind_it is None:
                            return
                        position, index, wanted = end + HEAD_BYTES, 0, 0
                        end, base, last_delta, count, base_time, append_time = behind_it
                        offset = base
                        (first_two,) = _FIRST_TWO(data, position)
                    continue
                if lengths == expected and not headers and behind <= end and delta in _DELTA_OF:
                    stamps[stamp]  # KeyError if what was read as a difference is a part of the time
                    wanted = _behind_hole(wanted, last_delta, delta)
                    offset = base + wanted
                    continue
                family = _family_at(data, position)
                if family is shapes or type(family) is not _Keyless:
                    return
                # Timestamps of one byte and of two often take turns.
                peek = family.delta_bytes == shapes.delta_bytes and family.stamp_bytes + shapes.stamp_bytes == 3
                if peek:
                    short, long = _keyless[1, family.delta_bytes], _keyless[2, family.delta_bytes]
                shapes, shaped = family, None
        except (error, KeyError, IndexError):  # too near the end, or not cached
            return
        finally:
            if base != batch.base:
                reading.move_to(end, base, last_delta, count, base_time, append_time)
            moved = offset - base - wanted
            batch.position, batch.index, batch.floor = position, index + moved, wanted + moved


class _Keyed(_Family):
    """Records with keys of one length.

    A run continues over keys of other lengths: from the first such key on, the length of each key is read before the
    shape is chosen.
    """

    def _shape(self, pad: int, value_length: int, encoded_length: bytes) -> tuple[Any, ...]:
        layout = (
            f"<{pad}x{1 + self.stamp_bytes}s{self.delta_bytes}sB{self.key_length}s{len(encoded_length)}s"
            f"{value_length}sBH"
        )
        return Struct(layout).unpack_from, 2 * self.key_length, encoded_length

    def run(self, reading: BatchReading, batch: OpenBatch, topic: str, partition: int | str) -> Iterator[Message]:
        data, position, end = batch.data, batch.position, batch.end
        base, base_time, append_time = batch.base, batch.base_time, batch.append_time
        index, count, wanted, last_delta = batch.index, batch.count, batch.floor, batch.last_delta
        view = None if batch.is_inflated else memoryview(data)
        new, kind, stamps = object.__new__, Message, _stamps
        family: _Family | None = self
        shapes: _Family = self
        others, peek = self._others(), False
        key_at = self.stamp_bytes + self.delta_bytes + 2
        offset = base + wanted
        try:
            (first_two,) = _FIRST_TWO(data, position)
            while True:
                most = count - index
                if wanted or most > _AT_ONCE:
                    most = min(most, last_delta + 1 - wanted, _AT_ONCE, _TWO_BYTES - wanted)
                for expected_delta in _DELTAS[wanted : wanted + most]:
                    if peek:
                        shapes = others[data[position + key_at + (first_two >> 7 & 1)]]
                    unpack, expected_key, expected_value, step = shapes[first_two]
                    stamp, delta, of_key, key, of_value, value, headers, next_two = unpack(data, position)
                    behind = position + step
                    if (
                        delta != expected_delta
                        or of_key != expected_key
                        or of_value != expected_value
                        or headers
                        or behind > end
                    ):
                        break
                    timestamp: int | None = base_time + stamps[stamp]  # which checks the bytes, too
                    if append_time is not None:
                        timestamp = append_time
                    if timestamp == NO_TIMESTAMP:
                        timestamp = None
                    position, first_two = behind, next_two
                    message = new(kind)  # as above
                    message.topic, message.partition = topic, partition
                    message.offset = offset
                    offset += 1
                    message.next_offset = offset
                    message.key, message.value, message.timestamp_ms = key, value, timestamp
                    yield message
                moved = offset - base - wanted
                index, wanted = index + moved, wanted + moved
                if moved == max(most, 0):
                    if most <= 0 or index == count:
                        if index != count or position != end or view is None:
                            return
                        behind_it = reading.plain_behind(view, end, base + last_delta + 1, count)
                        if behind_it is None:
                            return
                        position, index, wanted = end + HEAD_BYTES, 0, 0
                        end, base, last_delta, count, base_time, append_time = behind_it
                        offset = base
                        (first_two,) = _FIRST_TWO(data, position)
                    continue
                is_hole = of_key == expected_key and of_value == expected_value and not headers and behind <= end
                if is_hole and delta in _DELTA_OF:
                    stamps[stamp]  # as above
                    wanted = _behind_hole(wanted, last_delta, delta)
                    offset = base + wanted
                    continue
                family = _family_at(data, position)
                if family is shapes or type(family) is not _Keyed:
                    return
                peek = family.stamp_bytes == shapes.stamp_bytes and family.delta_bytes == shapes.delta_bytes
                shapes, others = family, family._others()
                key_at = family.stamp_bytes + family.delta_bytes + 2
        except (error, KeyError, IndexError):
            return
        finally:
            if base != batch.base:
                reading.move_to(end, base, last_delta, count, base_time, append_time)
            moved = offset - base - wanted
            batch.position, batch.index, batch.floor = position, index + moved, wanted + moved

    def _others(self) -> _KeyFamilies:
        """Return the families that differ in the length of the key alone."""
        return _keyed[self.stamp_bytes, self.delta_bytes]


class _KeyFamilies(dict[int, _Family]):
    """Families of keyed records that differ in the length of their keys, by the byte that says it."""

    def __init__(self, stamp_bytes: int, delta_bytes: int) -> None:
        super().__init__()
        self._form = stamp_bytes, delta_bytes

    def __missing__(self, of_key: int) -> _Family:
        if of_key & 1 or of_key >= 0x80:
            raise KeyError(of_key)
        _make_room()
        family = self[of_key] = _Keyed(*self._form, of_key >> 1)
        return family


_FORMS: Final = [(stamp, delta) for stamp in range(1, _LONGEST_STAMP + 1) for delta in (1, 2)]
_keyless: Final = {form: _Keyless(*form, -1) for form in _FORMS}
_keyed: Final = {form: _KeyFamilies(*form) for form in _FORMS}


def read_run(reading: BatchReading, batch: OpenBatch, topic: str, partition: int | str) -> Iterator[Message]:
    """Return the messages of an open batch and of those behind it, up to the first one that the slow path must read."""
    family = _family_at(batch.data, batch.position) if -_MAX_TIME < batch.base_time < _MAX_TIME else None
    return iter(()) if family is None else family.run(reading, batch, topic, partition)


def _family_at(data: Buffer, start: int) -> _Family | None:
    """Return the family of the record at a position; None if it must be read by the slow path."""
    try:
        at = stamp_end = start + (2 if data[start] < 0x80 else 3)
        while data[stamp_end] >= 0x80:
            stamp_end += 1
        stamp_end += 1
        delta_end = stamp_end + (1 if data[stamp_end] < 0x80 else 2)
        form = stamp_end - at, delta_end - stamp_end
        of_key = data[delta_end]
        return _keyless[form] if of_key == _NO_KEY else _keyed[form][of_key]
    except (IndexError, KeyError):
        return None


def _behind_hole(wanted: int, last_delta: int, delta: bytes) -> int:
    """Return the difference behind a hole, from its bytes; raises KeyError if it does not fit."""
    found = _DELTA_OF[delta]
    if not wanted < found <= last_delta:
        raise KeyError(delta)
    return found


def _make_room() -> None:
    """Drop all shapes when there are too many; runs in other threads build again those that they need."""
    global _room
    _room -= 1
    if _room < 0:
        _room = _MAX_SHAPES
        for form in _FORMS:
            _keyless[form].clear()
            for family in list(_keyed[form].values()):
                family.clear()
            _keyed[form].clear()


_room = _MAX_SHAPES
