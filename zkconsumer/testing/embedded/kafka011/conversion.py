"""Converts what is produced to the format of a log, and what is fetched to a format that an old client reads.

Pure.

Headers and control batches are lost on the way to older clients; offsets stay as they are.

Source: kafka.log.LogValidator, org.apache.kafka.common.record.RecordsUtil, LazyDownConversionRecords (2.8), FileRecords
(1.1).

Message sets of magic 0 and 1, as brokers of Kafka 0.10 and later read and write them.

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
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import DecodeError, SimpleConsumerError
from simpleconsumer.kafka011.batch_head import CODEC_MASK, IS_CONTROL, LOG_APPEND_TIME, MAGIC, MAGIC_AT, read_head
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import Message
from zkconsumer.testing.embedded.disk.messages import (
    ENTRY_OVERHEAD,
    UNKNOWN,
    Bytes,
    CheckedSet,
    Refusal,
    assign_offsets,
    entries,
    key_of,
    value_of,
)
from zkconsumer.testing.embedded.kafka011.batches import UNSUPPORTED_CODEC, ZSTD
from zkconsumer_error import ErrorCode

NO_TIMESTAMP: Final = -1
CODEC_BITS: Final = 7
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


_OFFSET = Struct(">q")
_OVERFLOW = Struct(">qi")
_SMALLEST_BATCH: Final = 61
_NAMES: Final = {number: name for name, number in codecs.BATCH_CODECS.items()}


# ---- produced


def numbered_set(
    checked: CheckedSet, first_offset: int, magic: int, leader_epoch: int, append_time_ms: int | None = None
) -> tuple[bytes, int, list[int]]:
    """Return what a log of a magic stores of a produced set of magic 0 and 1, the offset behind it, and its entries.

    Entries that have the magic of the log already are kept, offsets apart. Everything else becomes one wrapper, one
    batch, or messages without compression, as it came.

    Args:
        append_time_ms: the time of all messages; None: that which each has. Magic 0 has none.
    """
    whole = list(_entries(checked.data))
    append_time_ms = None if magic == 0 else append_time_ms
    same = append_time_ms is None and all(entry[MAGIC_AT] == magic for entry in whole)
    if magic == 0 and same:
        data, next_offset, positions = assign_offsets(checked, first_offset)
        return bytes(data), next_offset, positions
    if same and not checked.codec:
        return _renumbered(checked, first_offset)
    produced = [message for entry in whole for message in messages_of(entry)]
    next_offset = first_offset + len(produced)
    if not produced:
        return b"", first_offset, []
    if same and len(whole) == 1 and _counts_from_zero(produced, whole[0]):
        return _OFFSET.pack(next_offset - 1) + bytes(whole[0][8:]), next_offset, [0]
    messages = [each._replace(offset=first_offset + number) for number, each in enumerate(produced)]
    if append_time_ms is not None:
        messages = [each._replace(timestamp_ms=append_time_ms, is_append_time=True) for each in messages]
    if magic == MAGIC:
        return _batch(messages, checked.codec, first_offset, leader_epoch, append_time_ms), next_offset, [0]
    data = bytearray(encode_set(messages, magic, checked.codec, first_offset))
    return bytes(data), next_offset, [position for position, _ in entries(data)]


def _renumbered(checked: CheckedSet, first_offset: int) -> tuple[bytes, int, list[int]]:
    data = bytearray(checked.data)
    for number, position in enumerate(checked.positions):
        _OFFSET.pack_into(data, position, first_offset + number)
    return bytes(data), first_offset + len(checked.positions), checked.positions


def _counts_from_zero(messages: list[OldMessage], wrapper: Bytes) -> bool:
    """Return whether the messages of a wrapper of magic 1 may stay in it as they are."""
    first = _OFFSET.unpack_from(wrapper)[0] - (len(messages) - 1)
    counted = [each.offset for each in messages] == list(range(first, first + len(messages)))
    return counted and all(each.magic == 1 for each in messages)


def _batch(
    messages: list[OldMessage], codec: int, first_offset: int, leader_epoch: int, append_time_ms: int | None
) -> bytes:
    rows = [Message("", 0, each.offset, each.offset + 1, each.key, each.value, each.timestamp_ms) for each in messages]
    return encode_record_batch(
        rows, _NAMES[codec], first_offset=first_offset, leader_epoch=leader_epoch, log_append_time_ms=append_time_ms
    )


# ---- fetched


def needs_down_conversion(data: Bytes, magic: int) -> bool:
    """Return whether an entry is newer than a client reads."""
    return any(entry[MAGIC_AT] > magic for entry in _entries(data))


def down_converted(data: Bytes, magic: int, offset: int, *, drops_headers: bool = True) -> list[bytes]:
    """Return the whole entries in a format that a client reads, each by itself; nothing for control batches.

    What follows a batch of zstd is left for a later fetch.

    Args:
        magic: the newest that the client reads, 0 or 1.
        offset: that was asked for; older messages are left out where that costs nothing.
        drops_headers: whether a message with headers comes without them; else it fails.

    Raises:
        Refusal: 76 the first entry is compressed with zstd, 2 it cannot be read; -1 a message has headers.
    """
    found: list[bytes] = []
    for entry in _entries(data):
        try:
            converted = _down(entry, magic, offset, drops_headers)
        except Refusal as refusal:
            if found and refusal.code == UNSUPPORTED_CODEC:
                break
            raise
        if converted:
            found.append(converted)
    return found


def down_converted_together(data: Bytes) -> list[bytes]:
    """Return the whole entries in magic 0 as brokers of Kafka 0.10 convert them: with a codec all in one wrapper."""
    whole = list(_entries(data))
    messages = [each for entry in whole for each in messages_of(entry)]
    return [encode_set(messages, 0, codec_of(whole[0]), messages[0].offset)] if messages else []


def _down(entry: Bytes, magic: int, offset: int, drops_headers: bool) -> bytes:
    if entry[MAGIC_AT] <= magic:
        return bytes(entry)
    base, codec = int(_OFFSET.unpack_from(entry)[0]), 0
    if entry[MAGIC_AT] == MAGIC:
        attributes = read_head(entry, 0).attributes
        codec = attributes & CODEC_MASK
        if attributes & IS_CONTROL:
            return b""
        if codec == ZSTD:
            raise Refusal(UNSUPPORTED_CODEC, f"the batch at offset {base} has zstd, which older clients do not know")
        messages = _of_batch(entry, drops_headers, is_append_time=bool(attributes & LOG_APPEND_TIME))
    else:
        codec, messages = codec_of(entry), messages_of(entry)
    wanted = [each for each in messages if codec or each.offset >= offset]
    return encode_set(wanted, magic, codec, base) if wanted else b""


def _of_batch(entry: Bytes, drops_headers: bool, *, is_append_time: bool) -> list[OldMessage]:
    try:
        messages = list(KAFKA011.decode_messages(bytes(entry), "", 0, 0))
    except SimpleConsumerError as error:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch cannot be read: {error}") from error
    if not drops_headers and any(each.headers for each in messages):
        raise Refusal(UNKNOWN, "a message has headers, which older clients do not know")
    return [
        OldMessage(
            each.offset, each.key, each.value, NO_TIMESTAMP if each.timestamp_ms is None else each.timestamp_ms,
            is_append_time=is_append_time,
        )
        for each in messages
    ]  # fmt: skip


def sent_for(data: Bytes, converted: list[bytes]) -> bytes:
    """Return what brokers from 2.0 on send, who say how long an answer is before they convert it.

    It is as long as what is stored, or as the first converted entry if that is longer. What is too much is cut off, and
    what is missing is an entry that says to be longer than the answer.
    """
    size = max(len(data), len(converted[0]) if converted else ENTRY_OVERHEAD)
    whole = b"".join(converted)
    missing = size - len(whole)
    if missing <= 0:
        return whole[:size]
    filler = _OVERFLOW.pack(-1, max(missing + 1, _SMALLEST_BATCH))
    return whole + filler[:missing] + bytes(max(missing - len(filler), 0))


def _entries(data: Bytes) -> Iterator[memoryview]:
    """Yield the whole entries."""
    view = memoryview(data)
    for position, size in entries(data):
        yield view[position : position + ENTRY_OVERHEAD + size]
