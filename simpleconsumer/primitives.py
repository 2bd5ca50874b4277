"""Kafka's primitive types: every reader takes `(buffer, offset)` and returns `(value, next offset)`. Pure.

All integers are big-endian and signed. A field that ends behind the buffer is a `BufferUnderflow` with its place; an
impossible length or count is a `DecodeError` before memory is allocated for it.

A frame is `int32 size` and as many bytes, the same in every Kafka version. `frame_size` checks a size field before
memory is allocated for it.

Source: kafka.api.ApiUtils, kafka.common (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, TypeVar

from simpleconsumer.errors import BrokenFraming, BufferUnderflow, DecodeError, LimitExceeded
from simpleconsumer.types import Buffer

T = TypeVar("T")

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


def read_int8(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 8 bit integer at offset and the offset behind it."""
    return _read(_INT8, buffer, offset)


def read_int16(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 16 bit integer at offset and the offset behind it."""
    return _read(_INT16, buffer, offset)


def read_int32(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 32 bit integer at offset and the offset behind it."""
    return _read(_INT32, buffer, offset)


def read_int64(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return the 64 bit integer at offset and the offset behind it."""
    return _read(_INT64, buffer, offset)


def read_string(buffer: Buffer, offset: int) -> tuple[str, int]:
    """Return the string at offset (int16 byte count, UTF-8) and the offset behind it.

    Raises:
        DecodeError: The string is null, its length is negative, or it is not UTF-8.
        BufferUnderflow: It ends behind the buffer.
    """
    length, start = read_int16(buffer, offset)
    if length < 0:
        raise DecodeError(f"string at byte {offset} has length {length}")
    end = start + length
    _require(buffer, start, length, "string")
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"string at byte {offset} is not UTF-8: {error.reason}") from error


def read_nullable_string(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    """Return the string at offset, or None for length -1, and the offset behind it."""
    length, start = read_int16(buffer, offset)
    return (None, start) if length == -1 else read_string(buffer, offset)


def read_bytes(buffer: Buffer, offset: int) -> tuple[memoryview, int]:
    """Return a view (not a copy) of the bytes at offset (int32 count), and the offset behind them.

    Raises:
        DecodeError: The length is negative (no field that this reads may be null).
        BufferUnderflow: They end behind the buffer.
    """
    length, start = read_int32(buffer, offset)
    if length < 0:
        raise DecodeError(f"bytes at byte {offset} have length {length}")
    _require(buffer, start, length, "bytes")
    return memoryview(buffer)[start : start + length], start + length


def read_array(
    buffer: Buffer, offset: int, read: Callable[[Buffer, int], tuple[T, int]], smallest_item: int
) -> tuple[list[T], int]:
    """Return the items at offset (int32 count, then the items) and the offset behind them.

    Args:
        read: Reader of one item.
        smallest_item: Bytes that the shortest possible item takes, at least 1. A count that cannot fit into the
            rest of the buffer is refused at once, so a corrupt count costs neither time nor memory.
    """
    count, offset = read_int32(buffer, offset)
    left = len(buffer) - offset
    if count < 0 or count * smallest_item > left:
        raise DecodeError(f"array at byte {offset - 4} says {count} items, but {left} bytes are left")
    items: list[T] = []
    for _ in range(count):
        item, offset = read(buffer, offset)
        items.append(item)
    return items, offset


def require_end(buffer: Buffer, offset: int, what: str) -> None:
    """Raise DecodeError when bytes follow behind the end of an answer."""
    if offset != len(buffer):
        raise DecodeError(f"{what}: {len(buffer) - offset} bytes after its end at byte {offset}")


def encode_int16(value: int) -> bytes:
    """Return the 2 bytes of a 16 bit integer."""
    return _INT16.pack(value)


def encode_int32(value: int) -> bytes:
    """Return the 4 bytes of a 32 bit integer."""
    return _INT32.pack(value)


def encode_int64(value: int) -> bytes:
    """Return the 8 bytes of a 64 bit integer."""
    return _INT64.pack(value)


def encode_string(text: str) -> bytes:
    """Return the string with its int16 byte count; more than 32767 bytes of UTF-8, or no UTF-8, are a ValueError."""
    data = encode_text(text)
    if len(data) > 0x7FFF:
        raise ValueError(f"string of {len(data)} bytes; the limit is 32767: {text[:40]!r}...")
    return _INT16.pack(len(data)) + data


def encode_text(text: str) -> bytes:
    """Return the bytes of a text; ValueError for halves of characters, as bytes that are no UTF-8 become."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:40]!r} cannot be encoded as UTF-8: {error.reason}") from None


def encode_nullable_string(text: str | None) -> bytes:
    """Return the string with its int16 byte count, -1 for None."""
    return b"\xff\xff" if text is None else encode_string(text)


def encode_bytes(data: bytes | None) -> bytes:
    """Return the bytes with their int32 count, -1 for None."""
    return b"\xff\xff\xff\xff" if data is None else _INT32.pack(len(data)) + data


def encode_array(items: list[bytes]) -> bytes:
    """Return encoded items behind their int32 count."""
    return _INT32.pack(len(items)) + b"".join(items)


def _read(layout: Struct, buffer: Buffer, offset: int) -> tuple[int, int]:
    _require(buffer, offset, layout.size, f"int{layout.size * 8}")
    return layout.unpack_from(buffer, offset)[0], offset + layout.size


def _require(buffer: Buffer, offset: int, size: int, what: str) -> None:
    left = len(buffer) - offset
    if size > left:
        raise BufferUnderflow(f"{what} at byte {offset} needs {size} bytes, {left} are left")


SIZE_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Default limit of one frame. Well above a fetch of 200 partitions with 1 MiB each, well below the memory of a host;
bytes that are no size field (text, a TLS alert) nearly always give a larger number."""
MAX_OPENING_FRAME_BYTES: Final = 64 * 1024
"""Limit of an answer before the first request of a connection, while nobody has shown who he is: lists of versions and
of mechanisms, and tokens of SASL."""

_MOST_JOINED_BYTES = 64 * 1024
"""Largest request whose pieces are sent as one."""
_SIZE = Struct(">i")

Frame = bytes | Sequence[bytes]
"""A whole request with its size, or the pieces of one."""


def packets(frame: Frame) -> Sequence[bytes]:
    """Return what is sent at once each: every piece of a large frame, as new memory costs more than a packet."""
    if isinstance(frame, bytes):
        return [frame]
    return frame if sum(map(len, frame)) > _MOST_JOINED_BYTES else [b"".join(frame)]


def frame_size(header: Buffer, max_frame_bytes: int = MAX_FRAME_BYTES) -> int:
    """Return the size in the first four bytes of a frame, which does not count these four.

    Raises:
        BrokenFraming: It is negative.
        LimitExceeded: It is larger than `max_frame_bytes`.
    """
    size: int = _SIZE.unpack_from(header)[0]
    if size < 0:
        raise BrokenFraming(f"frame with the negative size {size}")
    if size > max_frame_bytes:
        raise LimitExceeded(f"frame of {size} bytes, at most {max_frame_bytes} are accepted")
    return size
