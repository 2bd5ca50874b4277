"""Shared by the tests of record batches: decoding that continues behind errors, and a simple reference decoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from decoding import MEBIBYTE, well_formed

from simpleconsumer import codecs
from simpleconsumer.codecs import crc32c
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka011.record_batch import decode_messages
from simpleconsumer.types import AbortedTransaction, Buffer, HeaderMessage, Headers, Message

Errors = list[MessageError | BrokenFraming]


def decode_all(
    buffer: Buffer,
    start_offset: int = 0,
    *,
    limit: int = MEBIBYTE,
    high_watermark: int | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> tuple[list[Message], Errors]:
    """Return all messages and all errors, going on behind each error as a consumer that skips would."""
    messages: list[Message] = []
    errors: Errors = []
    resume = None
    while True:
        try:
            for message in decode_messages(
                buffer, "t", 0, start_offset, high_watermark=high_watermark, max_decoded_bytes=limit, aborted=aborted,
                resume=resume,
            ):  # fmt: skip
                messages.append(message)  # noqa: PERF402 - what came before an error counts
            return messages, errors
        except MessageError as error:
            errors.append(well_formed(error))
            resume = error.resume
        except BrokenFraming as error:
            errors.append(error)
            return messages, errors


def message_of(
    offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int | None, headers: Headers = ()
) -> Message:
    if headers:
        return HeaderMessage("t", 0, offset, offset + 1, key, value, timestamp_ms, headers)
    return Message("t", 0, offset, offset + 1, key, value, timestamp_ms)


def decode_simply(data: bytes) -> list[Message]:
    """Return the messages of correct batches without control batches: no fast path, no checks but the CRC."""
    messages = []
    position = 0
    while position < len(data):
        (base, size, _, magic, crc, attributes, _, base_time, max_time, _, _, _, count) = struct.unpack_from(
            ">qiibIhiqqqhii", data, position
        )
        end = position + 12 + size
        assert magic == 2
        assert crc32c(data[position + 21 : end]) == crc
        area = data[position + 61 : end]
        if attributes & 7:
            area = codecs.decompress(attributes & 7, area, 64 * MEBIBYTE)
        at = 0
        for _ in range(count):
            message, at = _record(area, at, base, base_time, max_time if attributes & 8 else None)
            messages.append(message)
        assert at == len(area)
        position = end
    return messages


def _record(area: bytes, at: int, base: int, base_time: int, append_time: int | None) -> tuple[Message, int]:
    size, at = _varint(area, at)
    end = at + size
    stamp, at = _varint(area, at + 1)
    delta, at = _varint(area, at)
    key, at = _bytes(area, at)
    value, at = _bytes(area, at)
    count, at = _varint(area, at)
    headers = []
    for _ in range(count):
        name, at = _bytes(area, at)
        content, at = _bytes(area, at)
        assert name is not None
        headers.append((name.decode(), content))
    assert at == end
    time = base_time + stamp if append_time is None else append_time
    return message_of(base + delta, key, value, None if time == -1 else time, tuple(headers)), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at += 1
        shift += 7
        if data[at - 1] < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)
