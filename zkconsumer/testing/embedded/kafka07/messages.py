"""Checks of produced message sets as a broker of Kafka 0.7 makes them. Pure.

Written beside `simpleconsumer.kafka07.message_set`, not on top of it, so that the consumer is not tested by its own
reader; the two share the codecs alone. Entry: `int32 size, message`; message of magic 0: `int8 0, uint32 crc, payload`,
of magic 1: `int8 1, int8 attributes, uint32 crc, payload`. The CRC covers the payload alone.

Source: kafka.log.Log, kafka.message.ByteBufferMessageSet, Message, FileMessageSet (0.7.2).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from simpleconsumer import codecs
from simpleconsumer.errors import DecodeError
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka07 import requests as requests

Bytes = bytes | bytearray | memoryview

SIZE_FIELD: Final = 4
SMALLEST_MESSAGE: Final = 5
MAX_DEPTH: Final = 64
_MAX_INFLATED_BYTES: Final = 256 * 1024 * 1024
_HEADER_BYTES: Final = {0: 5, 1: 6}
_CODEC_BITS: Final = 3
_KNOWN_CODECS: Final = (codecs.GZIP, codecs.SNAPPY)
_SIZE = Struct(">i")
_CRC = Struct(">I")


class InvalidSet(Refusal):
    """A produced set for which the Java broker closes the connection."""

    def __init__(self, reason: str) -> None:
        super().__init__(requests.INVALID_MESSAGE, reason)


class TooLarge(Refusal):
    """A produced set that the Java broker drops without a sign: one of its payloads is above `max.message.size`."""

    def __init__(self, reason: str) -> None:
        super().__init__(requests.UNKNOWN, reason)


class CheckedSet(NamedTuple):
    """What of a produced set is stored.

    Attributes:
        data: its whole entries, as they were received.
        messages: how many there are, those in compressed entries counted one by one.
    """

    data: Bytes
    messages: int


def check(message_set: Bytes, max_payload_bytes: int) -> CheckedSet:
    """Return what of a produced set is stored.

    Entries inside of compressed ones are checked, too, at any depth; their size is not.

    Raises:
        InvalidSet: a wrong checksum or size, an unknown magic or codec, compressed data that cannot be read.
        TooLarge: a payload is larger than the broker stores.
    """
    data = memoryview(message_set)
    end = 0
    for at, size in outer_entries(data):
        header = _checked_header(data[at : at + size])
        if size - header > max_payload_bytes:
            raise TooLarge(f"payload of {size - header} bytes, at most {max_payload_bytes} are stored")
        end = at + size
    return CheckedSet(data[:end], _count(data[:end], 0, _MAX_INFLATED_BYTES))


def outer_entries(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield position and size of the messages of a set, up to an incomplete one at the end.

    Raises:
        InvalidSet: a negative size, or the first entry is incomplete.
    """
    at = 0
    while at + SIZE_FIELD <= len(data):
        (size,) = _SIZE.unpack_from(data, at)
        if size < 0 or (at == 0 and size > len(data) - SIZE_FIELD):
            raise InvalidSet(f"message of {size} bytes at {at} of a set of {len(data)} bytes")
        if at + SIZE_FIELD + size > len(data):
            return
        yield at + SIZE_FIELD, size
        at += SIZE_FIELD + size


def is_intact(message: memoryview) -> bool:
    """Return whether a message of a log has a known magic and the right checksum, as recovery checks it."""
    try:
        _checked_header(message)
    except InvalidSet:
        return False
    return True


def _checked_header(message: memoryview) -> int:
    """How many bytes precede the payload of a message."""
    header = _HEADER_BYTES.get(message[0]) if len(message) else None
    if header is None or len(message) < header:
        magic = message[0] if len(message) else "no"
        raise InvalidSet(f"message of {len(message)} bytes with {magic} magic byte")
    (crc,) = _CRC.unpack_from(message, header - _CRC.size)
    if zlib.crc32(message[header:]) != crc:
        raise InvalidSet(f"message of {len(message)} bytes with a wrong checksum")
    return header


def _count(data: memoryview, depth: int, left_bytes: int) -> int:
    """How many messages a set of intact entries holds, compressed ones counted one by one."""
    if depth > MAX_DEPTH:
        raise InvalidSet(f"compressed entries within each other, more than {MAX_DEPTH} deep")
    messages = 0
    for at, size in outer_entries(data):
        message = data[at : at + size]
        header = _checked_header(message)
        codec = message[1] & _CODEC_BITS if header == _HEADER_BYTES[1] else codecs.NONE
        if codec == codecs.NONE:
            messages += 1
            continue
        if codec not in _KNOWN_CODECS:
            raise InvalidSet(f"codec {codec}: 0, 1 and 2 are known")
        try:
            inside = codecs.decompress(codec, message[header:], left_bytes)
        except DecodeError as error:
            raise InvalidSet(f"compressed entry that cannot be read: {error}") from error
        messages += _count(memoryview(inside), depth + 1, left_bytes - len(inside))
    return messages
