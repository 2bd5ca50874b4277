"""Message sets of magic 0 and 1, as brokers of Kafka 0.10 and later read and write them. Pure.

A message of magic 1: `uint32 crc, int8 magic, int8 attributes, int64 timestamp ms, key, value`; one of magic 0 has no
timestamp. Within a wrapper of magic 1 offsets count from the first message, within one of magic 0 they are those of the
log; a wrapper has the offset of its last message, and in magic 1 the newest timestamp.

Source: org.apache.kafka.common.record.LegacyRecord, AbstractLegacyRecordBatch, MemoryRecordsBuilder (1.1).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from simpleconsumer import codecs
from simpleconsumer.errors import DecodeError
from zkconsumer.testing.embedded.disk.messages import ENTRY_OVERHEAD, Bytes, Refusal, entries, key_of, value_of
from zkconsumer_error import ErrorCode

NO_TIMESTAMP: Final = -1
CODEC_BITS: Final = 7
LOG_APPEND_TIME: Final = 8
_MAX_INFLATED_BYTES: Final = 256 * 1024 * 1024
_ENTRY = Struct(">qi")
_CRC = Struct(">I")
_HEAD = {0: Struct(">BB"), 1: Struct(">BBq")}
_STAMP = Struct(">q")
_INT32 = Struct(">i")


class OldMessage(NamedTuple):
    """One message; magic 0 keeps no timestamp."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    magic: int = 1
    is_append_time: bool = False


def codec_of(entry: Bytes) -> int:
    """Return the codec of an entry of magic 0 or 1."""
    return int(entry[ENTRY_OVERHEAD + 5]) & CODEC_BITS


def messages_of(entry: Bytes) -> list[OldMessage]:
    """Return the messages of one entry with the offsets that they have in the log, a wrapper's in its place.

    Raises:
        Refusal: 2 a wrapper does not inflate, or holds no message set.
    """
    offset = int(_ENTRY.unpack_from(entry)[0])
    message = memoryview(entry)[ENTRY_OVERHEAD:]
    codec = codec_of(entry)
    if not codec:
        return [_message(offset, message)]
    try:
        inside = codecs.decompress(codec, value_of(message) or b"", _MAX_INFLATED_BYTES)
    except DecodeError as error:
        raise Refusal(
            ErrorCode.CORRUPT_MESSAGE, f"the wrapper with offset {offset} does not inflate: {error}"
        ) from error
    found = list(_inner(inside))
    if message[4] == 1 and found:
        first = offset - found[-1].offset
        found = [each._replace(offset=first + each.offset) for each in found]
    if message[4] == 1 and message[5] & LOG_APPEND_TIME:
        stamp = int(_STAMP.unpack_from(message, 6)[0])
        found = [each._replace(timestamp_ms=stamp, is_append_time=True) for each in found]
    return found


def _inner(message_set: bytes) -> Iterator[OldMessage]:
    for position, size in entries(message_set):
        offset = int(_ENTRY.unpack_from(message_set, position)[0])
        start = position + ENTRY_OVERHEAD
        yield _message(offset, memoryview(message_set)[start : start + size])


def _message(offset: int, message: memoryview) -> OldMessage:
    magic = message[4]
    stamp = int(_STAMP.unpack_from(message, 6)[0]) if magic == 1 else NO_TIMESTAMP
    key, value = key_of(message), value_of(message)
    is_append_time = magic == 1 and bool(message[5] & LOG_APPEND_TIME)
    return OldMessage(offset, _copied(key), _copied(value), stamp, magic, is_append_time)


def _copied(data: memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def encode_set(messages: Sequence[OldMessage], magic: int, codec: int, base_offset: int) -> bytes:
    """Return a message set, with a codec one wrapper.

    Args:
        base_offset: from which a wrapper of magic 1 counts.
    """
    if not codec:
        return b"".join(_entry(each.offset, magic, 0, each) for each in messages)
    start = base_offset if magic == 1 else 0
    inside = b"".join(_entry(each.offset - start, magic, 0, each) for each in messages)
    value = codecs.compress(codec, inside, legacy_lz4_checksum=magic == 0)
    last = messages[-1]
    newest = max(each.timestamp_ms for each in messages)
    wrapper = OldMessage(last.offset, None, value, newest, magic, last.is_append_time)
    return _entry(last.offset, magic, codec, wrapper)


def _entry(offset: int, magic: int, codec: int, message: OldMessage) -> bytes:
    if magic == 1:
        attributes = codec | (LOG_APPEND_TIME if message.is_append_time else 0)
        head = _HEAD[1].pack(magic, attributes, message.timestamp_ms)
    else:
        head = _HEAD[0].pack(magic, codec)
    body = head + _sized(message.key) + _sized(message.value)
    return _ENTRY.pack(offset, len(body) + 4) + _CRC.pack(zlib.crc32(body)) + body


def _sized(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else _INT32.pack(len(data)) + data
