"""Handles produced message sets as a broker does: checks them, assigns offsets, recompresses. Pure.

Written apart from `simpleconsumer.kafka08.message_set`, so that the consumer is not tested by its own
reader; the two share the codecs alone. Entry: `int64 offset, int32 size, message`; message of magic 0: `uint32 crc,
int8 magic, int8 attributes, int32 key length, key, int32 value length, value`.

Source: kafka.log.Log, kafka.message.ByteBufferMessageSet, kafka.message.Message (0.8.2.2).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from simpleconsumer import codecs
from simpleconsumer.errors import DecodeError
from zkconsumer_error import ErrorCode

Bytes = bytes | bytearray | memoryview

ENTRY_OVERHEAD: Final = 12
SMALLEST_MESSAGE: Final = 14
UNKNOWN: Final = -1

_MAX_INFLATED_BYTES = 256 * 1024 * 1024
_CODEC_BITS = 7
_ENTRY = Struct(">qi")
_HEADER = Struct(">qiIBB")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_WRAPPER = Struct(">BBii")  # magic, attributes, null key, value length


class Refusal(Exception):  # noqa: N818 - not a failure: the answer that a broker gives
    """A request that a broker answers with an error code.

    Attributes:
        code: Kafka's error code.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"error {code}: {reason}")
        self.code = code


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """A message set whose entries are whole and whose checksums are right.

    Attributes:
        data: the whole entries; a partial one at the end is cut off.
        positions: where each entry starts.
        codec: codec of the last compressed entry, 0 without one: the whole set is rewritten with it.
    """

    data: Bytes
    positions: list[int]
    codec: int


def check(message_set: Bytes, max_message_bytes: int) -> CheckedSet:
    """Return what of a produced set would be stored.

    Only the outer entries are looked at, as in the Java broker: messages inside of wrappers are not checked.

    Raises:
        Refusal: code 2 for a size below 14 or a wrong checksum, 10 for an entry above `max_message_bytes`, -1 for an
            unknown codec.
    """
    positions: list[int] = []
    position, codec, length = 0, 0, len(message_set)
    view = memoryview(message_set)
    while position + ENTRY_OVERHEAD <= length:
        _, size = _ENTRY.unpack_from(view, position)
        if size < SMALLEST_MESSAGE:
            raise Refusal(
                ErrorCode.CORRUPT_MESSAGE, f"entry at byte {position} has size {size}, below {SMALLEST_MESSAGE}"
            )
        end = position + ENTRY_OVERHEAD + size
        if end > length:
            break
        if size + ENTRY_OVERHEAD > max_message_bytes:
            limit = f"at most {max_message_bytes} are stored"
            raise Refusal(
                ErrorCode.MESSAGE_TOO_LARGE, f"entry of {size + ENTRY_OVERHEAD} bytes at byte {position}, {limit}"
            )
        _, _, crc, _, attributes = _HEADER.unpack_from(view, position)
        if zlib.crc32(view[position + 16 : end]) != crc:
            raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"the checksum of the entry at byte {position} is wrong")
        found = attributes & _CODEC_BITS
        if found > codecs.LZ4:
            raise Refusal(UNKNOWN, f"the entry at byte {position} has the unknown codec {found}")
        codec = found or codec
        positions.append(position)
        position = end
    return CheckedSet(view[:position], positions, codec)


def assign_offsets(checked: CheckedSet, first_offset: int) -> tuple[bytearray, int, list[int]]:
    """Return the bytes to store, the offset after their last message, and where their entries start.

    Plain sets keep their bytes, offsets apart. A set with a compressed entry is unpacked, numbered and packed into one
    wrapper, whose offset is that of its last message.

    Raises:
        Refusal: code -1 for a wrapper that does not inflate, 2 for one that holds no message set.
    """
    if checked.codec == 0:
        data = bytearray(checked.data)
        for number, position in enumerate(checked.positions):
            _INT64.pack_into(data, position, first_offset + number)
        return data, first_offset + len(checked.positions), checked.positions
    inside = bytearray()
    offset = first_offset
    for message in deep_messages(checked.data):
        inside += _ENTRY.pack(offset, len(message)) + message
        offset += 1
    if not inside:
        return inside, first_offset, []
    return bytearray(_wrapper(bytes(inside), checked.codec, offset - 1)), offset, [0]


def deep_messages(message_set: Bytes) -> Iterator[memoryview]:
    """Yield the messages of a set without offset and size, those of wrappers (of wrappers) instead of the wrappers."""
    view = memoryview(message_set)
    for position, size in entries(view):
        message = view[position + ENTRY_OVERHEAD : position + ENTRY_OVERHEAD + size]
        codec = message[5] & _CODEC_BITS
        if codec == 0:
            yield message
            continue
        try:
            inside = codecs.decompress(codec, value_of(message) or b"", _MAX_INFLATED_BYTES)
        except DecodeError as error:
            raise Refusal(UNKNOWN, f"the wrapper at byte {position} does not inflate: {error}") from error
        yield from deep_messages(inside)


def entries(message_set: Bytes) -> Iterator[tuple[int, int]]:
    """Yield position and message size of each whole entry.

    Raises:
        Refusal: code 2, a size is below 14.
    """
    position, length = 0, len(message_set)
    while position + ENTRY_OVERHEAD <= length:
        _, size = _ENTRY.unpack_from(message_set, position)
        if size < SMALLEST_MESSAGE:
            raise Refusal(
                ErrorCode.CORRUPT_MESSAGE, f"entry at byte {position} has size {size}, below {SMALLEST_MESSAGE}"
            )
        if position + ENTRY_OVERHEAD + size > length:
            return
        yield position, size
        position += ENTRY_OVERHEAD + size


def key_of(message: Bytes) -> memoryview | None:
    """Return the key of a message of magic 0 or 1, None for null."""
    return _field(memoryview(message), _fields_at(message))[0]


def value_of(message: Bytes) -> memoryview | None:
    """Return the value of a message of magic 0 or 1, None for null."""
    view = memoryview(message)
    return _field(view, _field(view, _fields_at(message))[1])[0]


def _fields_at(message: Bytes) -> int:
    """Where the key begins: magic 1 has a timestamp before it."""
    return 14 if message[4] == 1 else 6


def plain_entry(offset: int, key: bytes | None, value: bytes | None) -> bytes:
    """Return one entry of magic 0 without compression."""
    return _entry(offset, b"\0\0" + _sized(key) + _sized(value))


def _wrapper(inside: bytes, codec: int, offset: int) -> bytes:
    value = codecs.compress(codec, inside, legacy_lz4_checksum=True)
    return _entry(offset, _WRAPPER.pack(0, codec, -1, len(value)) + value)


def _entry(offset: int, body: bytes) -> bytes:
    return _HEADER.pack(offset, len(body) + 4, zlib.crc32(body), body[0], body[1]) + body[2:]


def _sized(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else _INT32.pack(len(data)) + data


def _field(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    if position + 4 > len(view):
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a field at byte {position} of a message of {len(view)} bytes")
    length = _INT32.unpack_from(view, position)[0]
    if length < 0:
        return None, position + 4
    end = position + 4 + length
    if end > len(view):
        place = f"at byte {position} of a message of {len(view)}"
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a field of {length} bytes {place}")
    return view[position + 4 : end], end
