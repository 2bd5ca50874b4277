"""Encodes message sets of Kafka 0.8 (magic 0) and 0.10 (magic 1) as the Java producer does.

Inside of a wrapper magic 0 offsets are absolute and magic 1 offsets count from the first message. The wrapper carries
the offset of its last message and, in magic 1, the largest timestamp inside, or the append time of the log.

Source: kafka.message.ByteBufferMessageSet, Message (0.8.2.2, 0.10.0.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from isal.isal_zlib import crc32

from simpleconsumer import codecs, kernel
from simpleconsumer.primitives import encode_bytes
from simpleconsumer.types import Encodable, Message

__all__ = ["Encodable", "encode_message", "encode_message_set", "encode_wrapper"]

_ENTRY = Struct(">qiI")
_HEAD_0 = Struct(">BB")
_HEAD_1 = Struct(">BBq")
_LOG_APPEND_TIME = 8
_NO_TIMESTAMP = -1


def encode_message_set(
    messages: Iterable[Encodable],
    codec: str = "none",
    magic: int = 0,
    *,
    first_offset: int = 0,
    offsets: Sequence[int] | None = None,
    timestamp_ms: int | None = None,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Return a message set, empty for no messages; with a codec, all messages are in one wrapper.

    Args:
        codec: none, gzip, snappy or lz4.
        magic: 0, or 1 for brokers from 0.10 on.
        first_offset: Offset of the first message. A producer uses 0: the broker assigns offsets.
        offsets: Offset of each message instead, ascending, with holes as compaction leaves them.
        timestamp_ms: Creation time of messages without a timestamp (magic 1); None for "no timestamp".
        log_append_time_ms: Timestamp that a broker with LogAppendTime sets (magic 1).

    Raises:
        ValueError: Unknown codec or magic, or offsets that do not fit the messages.
    """
    if codec not in codecs.CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(codecs.CODECS)}")
    stamp = _NO_TIMESTAMP if timestamp_ms is None else timestamp_ms
    given = list(messages)
    if kernel.compiled is not None and magic in (0, 1) and offsets is None and log_append_time_ms is None:
        first = 0 if magic == 1 and codec != "none" else first_offset
        inside: bytes | None = kernel.compiled.message_set(given, magic, first, stamp)
        if inside is not None:
            last = first_offset + len(given) - 1
            return inside if codec == "none" else encode_wrapper(inside, codec, magic, last, timestamp_ms=stamp)
    rows = [_row(each, stamp) for each in given]
    if offsets is None:
        offsets = range(first_offset, first_offset + len(rows))
    if len(offsets) != len(rows):
        raise ValueError(f"{len(offsets)} offsets for {len(rows)} messages")
    if not rows:
        return b""
    if codec == "none":
        return _plain_entries(rows, magic, offsets, log_append_time_ms)
    base = offsets[0] if magic == 1 else 0
    inside = _plain_entries(rows, magic, [offset - base for offset in offsets], None)
    newest = max(stamp for _, _, stamp in rows)
    return encode_wrapper(inside, codec, magic, offsets[-1], timestamp_ms=newest, log_append_time_ms=log_append_time_ms)


def _plain_entries(
    rows: Sequence[tuple[bytes | None, bytes | None, int]], magic: int, offsets: Sequence[int], append_time: int | None
) -> bytes:
    """Return entries that are not compressed."""
    return b"".join(
        encode_message(offset, key, value, magic, timestamp_ms=stamp, log_append_time_ms=append_time)
        for offset, (key, value, stamp) in zip(offsets, rows, strict=True)
    )


def encode_wrapper(
    inside: bytes,
    codec: str,
    magic: int,
    offset: int,
    *,
    timestamp_ms: int = _NO_TIMESTAMP,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Return one entry that holds a compressed message set; `offset` is that of the last message inside."""
    number = codecs.CODECS[codec]
    value = codecs.compress(number, inside, legacy_lz4_checksum=magic == 0)
    return encode_message(
        offset, None, value, magic, number, timestamp_ms=timestamp_ms, log_append_time_ms=log_append_time_ms
    )


def encode_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    magic: int = 0,
    attributes: int = 0,
    *,
    timestamp_ms: int = _NO_TIMESTAMP,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Return one entry: `int64 offset, int32 size, uint32 crc`, then the message of that magic.

    Args:
        attributes: Codec in bits 0 to 2. Bit 3 is set for `log_append_time_ms`, which then is the timestamp.
    """
    if magic == 0:
        head = _HEAD_0.pack(0, attributes)
    elif magic == 1:
        if log_append_time_ms is not None:
            timestamp_ms = log_append_time_ms
            attributes |= _LOG_APPEND_TIME
        head = _HEAD_1.pack(1, attributes, timestamp_ms)
    else:
        raise ValueError(f"magic {magic} is neither 0 nor 1")
    body = head + encode_bytes(key) + encode_bytes(value)
    return _ENTRY.pack(offset, len(body) + 4, crc32(body)) + body


def _row(message: Encodable, stamp: int) -> tuple[bytes | None, bytes | None, int]:
    """Return key, value and timestamp of a message to encode."""
    if isinstance(message, Message):
        own = message.timestamp_ms
        return message.key, message.value, stamp if own is None else own
    if isinstance(message, tuple):
        key, value = message
        return key, value, stamp
    return None, message, stamp
