"""Varints of records: base 128, the lowest group first, and zigzag, so that small negative numbers are short too.

The lengths in flexible requests are other ones, without zigzag. Most varints of a record take one byte or two.

Source: org.apache.kafka.common.utils.ByteUtils (1.1).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.errors import DecodeError
from simpleconsumer.messages.flexible import encode_uvarint
from simpleconsumer.types import Buffer

__all__ = ["encode_varint", "read_varint", "read_varlong"]

_MOST_BYTES_32: Final = 5
_MOST_BYTES_64: Final = 10


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the number of at most 32 bits at a position, and the position behind it.

    Raises:
        DecodeError: It is longer, or does not fit into 32 bits.
        IndexError: It ends behind the data.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(data, position, _MOST_BYTES_32, 32)


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Return the number of at most 64 bits at a position, and the position behind it; raises as `read_varint` does."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(data, position, _MOST_BYTES_64, 64)


def _read_long(data: Buffer, position: int, most_bytes: int, bits: int) -> tuple[int, int]:
    number = shift = 0
    for at in range(position, position + most_bytes):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> bits:
                raise DecodeError(f"the varint at byte {position} does not fit into {bits} bits")
            return (number >> 1) ^ -(number & 1), at + 1
        shift += 7
    raise DecodeError(f"the varint at byte {position} is longer than {most_bytes} bytes")


def encode_varint(number: int) -> bytes:
    """Return a number of at most 64 bits as a varint."""
    rest = (number << 1) ^ (number >> 63)
    return _SHORT[rest] if 0 <= rest < 0x80 else encode_uvarint(rest)


_SHORT: Final = tuple(bytes((byte,)) for byte in range(0x80))
