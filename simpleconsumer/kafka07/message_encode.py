"""Encodes message sets of Kafka 0.7 as its Java producer does.

An entry is `int32 size`, then a message of that size:

    magic 0: int8 0, uint32 CRC of the payload, payload; never compressed
    magic 1: int8 1, int8 attributes (codec in the lowest two bits), uint32 CRC of the payload, payload

The payload of a compressed entry is a compressed message set. Messages have neither keys nor timestamps.

Source: kafka.message.Message, ByteBufferMessageSet, CompressionUtils (0.7.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from isal.isal_zlib import crc32

from simpleconsumer import codecs, kernel
from simpleconsumer.types import Encodable, Message

__all__ = ["CODECS", "encode_entry", "encode_message_set", "encode_wrapper"]

CODECS: Final = {name: number for name, number in codecs.CODECS.items() if name in ("none", "gzip", "snappy")}
"""The codecs of Kafka 0.7 by name."""

_ENTRY_0 = Struct(">iBI")
_ENTRY_1 = Struct(">iBBI")


def encode_message_set(messages: Iterable[Encodable], codec: str = "none", magic: int = 1) -> bytes:
    """Return a message set, empty for no messages; with a codec, all messages are in one compressed entry.

    Args:
        messages: Values; or pairs or `Message`s whose key is None. Timestamps are left out.
        codec: none, gzip or snappy.
        magic: 1, as 0.7.2 writes; 0 for the format before it.

    Raises:
        ValueError: A key or a null value, which 0.7 cannot store; an unknown codec or magic; or a codec in magic 0.
    """
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(CODECS)}, the codecs of Kafka 0.7")
    if magic not in (0, 1):
        raise ValueError(f"magic {magic} is neither 0 nor 1")
    given = list(messages)
    inside: bytes | None = None
    if kernel.compiled is not None:
        inside = kernel.compiled.message_set_07(given, magic)
    if inside is None:
        inside = b"".join(encode_entry(_payload(message, index), magic) for index, message in enumerate(given))
    if codec == "none" or not inside:
        return inside
    if magic == 0:
        raise ValueError(f"codec {codec!r} needs magic 1: messages of magic 0 are never compressed")
    return encode_wrapper(inside, codec)


def encode_wrapper(inside: bytes, codec: str) -> bytes:
    """Return one entry that holds a compressed message set."""
    number = CODECS[codec]
    return encode_entry(codecs.compress(number, inside), attributes=number)


def encode_entry(payload: bytes, magic: int = 1, attributes: int = 0) -> bytes:
    """Return one entry: `int32 size`, and the message."""
    if magic == 0:
        return _ENTRY_0.pack(len(payload) + 5, 0, crc32(payload)) + payload
    return _ENTRY_1.pack(len(payload) + 6, magic, attributes, crc32(payload)) + payload


def _payload(message: Encodable, index: int) -> bytes:
    """Return the payload of a message to encode."""
    value: bytes | None
    if isinstance(message, Message):
        key, value = message.key, message.value
    else:
        key, value = message if isinstance(message, tuple) else (None, message)
    if key is not None:
        raise ValueError(f"message {index} has a key: Kafka 0.7 stores none")
    if value is None:
        raise ValueError(f"message {index} has no value: Kafka 0.7 stores no null, only values of 0 bytes")
    return value
