"""Reads and writes the flexible encoding of Kafka's messages: compact lengths and tagged fields.

Lengths and counts are unsigned varints, one more than the value, 0 for null. Each struct ends with tagged fields, which
a reader skips if it does not know them. `primitives` has the classic encoding.

Source: org.apache.kafka.common.protocol.ByteBufferAccessor, MessageUtil (2.4); KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from simpleconsumer.errors import BufferUnderflow, DecodeError
from simpleconsumer.primitives import encode_text, read_array, read_int32
from simpleconsumer.types import Buffer

T = TypeVar("T")
Reader = Callable[[Buffer, int], tuple[T, int]]

_MOST_VARINT_BYTES = 5


def read_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the unsigned varint at offset, of 32 bits at most, and the offset behind it."""
    value = 0
    for index in range(_MOST_VARINT_BYTES):
        if offset + index >= len(buffer):
            raise BufferUnderflow(f"varint at byte {offset} ends after the buffer")
        byte = buffer[offset + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >> 32:
                break
            return value, offset + index + 1
    raise DecodeError(f"varint at byte {offset} has more than 32 bits")


def read_nullable_compact_string(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """Return the compact string at offset, None for null, and the offset behind it."""
    length, start = read_uvarint(buffer, offset)
    if not length:
        return None, start
    end = start + length - 1
    if end > len(buffer):
        raise BufferUnderflow(f"compact string at byte {offset} needs {length - 1} bytes, "
                              f"{len(buffer) - start} are left")
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"compact string at byte {offset} is not UTF-8: {error.reason}") from error


def read_nullable_compact_bytes(buffer: Buffer, offset: int) -> tuple[bytes | None, int]:
    """Return a copy of the compact bytes at offset, None for null, and the offset behind them."""
    length, start = read_uvarint(buffer, offset)
    if not length:
        return None, start
    end = start + length - 1
    if end > len(buffer):
        raise BufferUnderflow(f"compact bytes at byte {offset} need {length - 1} bytes, {len(buffer) - start} are left")
    return bytes(buffer[start:end]), end


def read_compact_array(buffer: Buffer, offset: int, read: Reader[T], smallest_item: int) -> tuple[list[T], int]:
    """Return the items at offset and the offset behind them; arguments are those of `primitives.read_array`."""
    count, start = read_uvarint(buffer, offset)
    left = len(buffer) - start
    if not count or (count - 1) * smallest_item > left:
        raise DecodeError(f"compact array at byte {offset} says {count - 1} items, but {left} bytes are left")
    items: list[T] = []
    for _ in range(count - 1):
        item, start = read(buffer, start)
        items.append(item)
    return items, start


def read_uuid(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """Return the 16 bytes at offset as 32 hex digits, None if all are zero, and the offset behind them."""
    if len(buffer) - offset < 16:
        raise BufferUnderflow(f"uuid at byte {offset} needs 16 bytes, {len(buffer) - offset} are left")
    uuid = bytes(buffer[offset : offset + 16])
    return uuid.hex() if any(uuid) else None, offset + 16


def skip_tagged_fields(buffer: Buffer, offset: int) -> int:
    """Return the offset behind the tagged fields at offset; none of them matters to this package."""
    count, offset = read_uvarint(buffer, offset)
    if 2 * count > len(buffer) - offset:
        raise DecodeError(f"{count} tagged fields before byte {offset}, but {len(buffer) - offset} bytes are left")
    for _ in range(count):
        _, offset = read_uvarint(buffer, offset)
        size, offset = read_uvarint(buffer, offset)
        if size > len(buffer) - offset:
            raise BufferUnderflow(f"tagged field at byte {offset} needs {size} bytes, {len(buffer) - offset} are left")
        offset += size
    return offset


def encode_uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def encode_compact_string(text: str | None) -> bytes:
    """Return the compact encoding of a string, or of null."""
    if text is None:
        return b"\0"
    data = encode_text(text)
    return encode_uvarint(len(data) + 1) + data


def encode_compact_bytes(data: bytes | None) -> bytes:
    """Return the compact encoding of bytes, or of null."""
    return b"\0" if data is None else encode_uvarint(len(data) + 1) + data


def encode_uuid(uuid: str | None) -> bytes:
    """Return the 16 bytes of 32 hex digits; all are zero for None."""
    return bytes(16) if uuid is None else bytes.fromhex(uuid)


def encode_compact_array(items: Iterable[bytes]) -> bytes:
    """Return encoded items, each with its tagged fields, behind their compact count."""
    listed = list(items)
    return encode_uvarint(len(listed) + 1) + b"".join(listed)


def read_bool(buffer: Buffer, offset: int) -> tuple[bool, int]:
    """Return the boolean at offset and the offset behind it."""
    if offset >= len(buffer):
        raise BufferUnderflow(f"boolean at byte {offset} needs 1 byte, 0 are left")
    return buffer[offset] != 0, offset + 1


def read_nullable_array(buffer: Buffer, offset: int, read: Reader[T], smallest_item: int) -> tuple[list[T], int]:
    """Return the items of a classic array, none for null, and the offset behind them; else as `read_array`."""
    count, start = read_int32(buffer, offset)
    return ([], start) if count == -1 else read_array(buffer, offset, read, smallest_item)
