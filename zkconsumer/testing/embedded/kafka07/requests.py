"""Requests and answers of Kafka 0.7.2, from the broker's side. Pure.

Written apart from `simpleconsumer.kafka07.requests`, so that the consumer is not tested by its own encoder. Request:
`int32 size, int16 type`, body. Answer: `int32 size, int16 error code`, body; produce requests have none. A string is an
int16 count of bytes and UTF-8.

    produce 0        string topic, int32 partition, int32 size, message set
    fetch 1          string topic, int32 partition, int64 position, int32 size
    multifetch 2     int16 count, fetch bodies
    multiproduce 3   int16 count, produce bodies
    offsets 4        string topic, int32 partition, int64 time, int32 count

Bytes after a request are ignored, as in the Java broker.

Source: kafka.api.*, kafka.server.MessageSetSend, MultiMessageSetSend, kafka.utils.Utils (0.7.2).

Checks of produced message sets as a broker of Kafka 0.7 makes them.

Written apart from `simpleconsumer.kafka07.message_set`, so that the consumer is not tested by its own
reader; the two share the codecs alone. Entry: `int32 size, message`; message of magic 0: `int8 0, uint32 crc, payload`,
of magic 1: `int8 1, int8 attributes, uint32 crc, payload`. The CRC covers the payload alone.

Source: kafka.log.Log, kafka.message.ByteBufferMessageSet, Message, FileMessageSet (0.7.2).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from struct import Struct, error
from typing import Final, NamedTuple, TypeVar

from simpleconsumer import codecs
from simpleconsumer.errors import DecodeError
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.protocol import BadRequest

PRODUCE: Final = 0
FETCH: Final = 1
MULTI_FETCH: Final = 2
MULTI_PRODUCE: Final = 3
OFFSETS: Final = 4
ANY_PARTITION: Final = -1
"""As the partition of a produce request: the broker chooses one."""
NO_ERROR: Final = 0
UNKNOWN: Final = -1
OFFSET_OUT_OF_RANGE: Final = 1
INVALID_MESSAGE: Final = 2
WRONG_PARTITION: Final = 3
_INT16 = Struct(">h")
_PRODUCE = Struct(">ii")
_FETCH = Struct(">iqi")
_OFFSETS = Struct(">iqi")
_INT64 = Struct(">q")
_ANSWER = Struct(">ih")
_COUNT = Struct(">i")
T = TypeVar("T")


class Produce(NamedTuple):
    """A message set for a partition."""

    topic: str
    partition: int
    message_set: memoryview


class Fetch(NamedTuple):
    """The bytes of a partition from a position on."""

    topic: str
    partition: int
    position: int
    max_bytes: int


class Offsets(NamedTuple):
    """Starts of segments, and the end, before a time."""

    topic: str
    partition: int
    time_ms: int
    most: int


class Request(NamedTuple):
    """A decoded request.

    Attributes:
        kind: one of the five types.
        parts: the requests: all of one type, more than one in multi requests alone.
    """

    kind: int
    parts: Sequence[Produce] | Sequence[Fetch] | Sequence[Offsets]


def decode_request(frame: bytes | bytearray) -> Request:
    """Return a request from its frame, the size field left out.

    Raises:
        BadRequest: it cannot be read, or its type is not served.
    """
    reader = _Reader(memoryview(frame))
    try:
        kind = reader.int16()
        if kind == PRODUCE:
            return Request(kind, [_produce(reader)])
        if kind == FETCH:
            return Request(kind, [_fetch(reader)])
        if kind == MULTI_FETCH:
            return Request(kind, _several(reader, _fetch))
        if kind == MULTI_PRODUCE:
            return Request(kind, _several(reader, _produce))
        if kind == OFFSETS:
            return Request(kind, [_offsets(reader)])
    except error as cut:
        raise BadRequest(f"a request of {len(frame)} bytes ends too early: {cut}") from cut
    raise BadRequest(f"requests of type {kind} are not served; 0 to 4 are")


def _several(reader: _Reader, read: Callable[[_Reader], T]) -> list[T]:
    count = reader.int16()
    if count < 0:
        raise BadRequest(f"a request for {count} partitions")
    return [read(reader) for _ in range(count)]


def _produce(reader: _Reader) -> Produce:
    topic = reader.string()
    partition, size = reader.take(_PRODUCE)
    return Produce(topic, partition, reader.bytes(size))


def _fetch(reader: _Reader) -> Fetch:
    topic = reader.string()
    partition, position, size = reader.take(_FETCH)
    return Fetch(topic, partition, position, size)


def _offsets(reader: _Reader) -> Offsets:
    topic = reader.string()
    partition, time_ms, most = reader.take(_OFFSETS)
    return Offsets(topic, partition, time_ms, most)


class _Reader:
    """Reads a request from its start to its end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, fields: Struct) -> tuple[int, ...]:
        """The numbers that come next; `struct.error` where the data ends before."""
        found = fields.unpack_from(self._data, self._at)
        self._at += fields.size
        return found

    def int16(self) -> int:
        """The next number."""
        return self.take(_INT16)[0]

    def string(self) -> str:
        """The next string; an absent one, of negative length, is empty."""
        return str(self.bytes(max(self.int16(), 0)), "utf-8", "replace")

    def bytes(self, size: int) -> memoryview:
        """So many bytes."""
        if not 0 <= size <= len(self._data) - self._at:
            raise BadRequest(f"a field of {size} bytes where {len(self._data) - self._at} are left")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found


def set_head(code: int, length: int) -> bytes:
    """Return size and error code before the bytes of a fetched set.

    `length` is negative for a negative fetch size, as the Java broker answers it.
    """
    return _ANSWER.pack(_INT16.size + length, code)


def multi_head(lengths: Sequence[int]) -> bytes:
    """Return size and error code before the answers to the fetches of a multifetch, given the lengths of their sets."""
    return _ANSWER.pack(_INT16.size + sum(length + _ANSWER.size for length in lengths), NO_ERROR)


def encode_offsets(code: int, positions: Sequence[int]) -> bytes:
    """Return the answer to an offsets request."""
    body = _COUNT.pack(len(positions)) + b"".join(map(_INT64.pack, positions))
    return _ANSWER.pack(_INT16.size + len(body), code) + body


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
        super().__init__(INVALID_MESSAGE, reason)


class TooLarge(Refusal):
    """A produced set that the Java broker drops without a sign: one of its payloads is above `max.message.size`."""

    def __init__(self, reason: str) -> None:
        super().__init__(UNKNOWN, reason)


class CheckedSet(NamedTuple):
    """The part of a produced set that is stored.

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
