"""Shared by the tests of Kafka 0.7: the recorded frames, a simple reference decoder, decoding behind errors."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import golden_frames
from decoding import MEBIBYTE

from simpleconsumer import codecs
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka07.message_set import decode_messages
from simpleconsumer.types import Buffer, EntryMessage, Message

VERSION = "0.7.2"
PARTITION = "0-1"


def frame(name: str) -> bytes:
    """Return a whole recorded frame, size field included."""
    return golden_frames.frame(VERSION, name)


def answer(name: str) -> bytes:
    """Return the body of a recorded response, behind its size."""
    return frame(f"{name}-response")[4:]


def decoded_by_java() -> tuple[dict[str, list[tuple[int, int, int, bytes]]], dict[str, int]]:
    """Return what the Java library printed, by name of the fetch: offset, magic, CRC, payload; and the valid bytes."""
    rows: dict[str, list[tuple[int, int, int, bytes]]] = {}
    ends: dict[str, int] = {}
    row = re.compile(r"(\S+) \d+ offset=(\d+) magic=(\d) crc=(\d+) payload=(.*)")
    end = re.compile(r"(\S+) count=(\d+) validBytes=(\d+) error=0")
    for line in (golden_frames.GOLDEN / f"kafka-{VERSION}" / "java-decoded.txt").read_text().splitlines():
        if match := row.fullmatch(line):
            name, *numbers, payload = match.groups()
            offset, magic, crc = map(int, numbers)
            rows.setdefault(name, []).append((offset, magic, crc, payload.encode()))
        elif match := end.fullmatch(line):
            ends[match[1]] = int(match[3])
            assert len(rows.setdefault(match[1], [])) == int(match[2])
    return rows, ends


def entries(data: Buffer) -> list[tuple[int, int]]:
    """Return start and end of every whole entry of a set."""
    found = []
    position = 0
    while position + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, position)
        if size < 5 or position + 4 + size > len(data):
            break
        found.append((position, position + 4 + size))
        position += 4 + size
    return found


def decode_simply(data: bytes, base: int = 0) -> list[Message]:
    """Return the messages of a correct set: no fast path, no checks but the CRC, recursion for compressed entries."""
    messages: list[Message] = []
    for start, end in entries(data):
        is_compressed, payloads = _payloads(data[start + 4 : end])
        place = ("t", PARTITION, base + start)
        if not is_compressed:
            messages.append(Message(*place, base + end, None, payloads[0]))
            continue
        for index, payload in enumerate(payloads):
            behind = end if index == len(payloads) - 1 else start
            messages.append(EntryMessage(*place, base + behind, None, payload, None, index))
    return messages


def _payloads(message: bytes) -> tuple[bool, list[bytes]]:
    """Return whether a message is compressed, and the payloads that it stands for."""
    magic = message[0]
    codec = message[1] & 3 if magic else 0
    payload = message[5 + magic :]
    assert zlib.crc32(payload) == struct.unpack_from(">I", message, 1 + magic)[0]
    if not codec:
        return False, [payload]
    inside = codecs.decompress(codec, payload, 64 * MEBIBYTE)
    return True, [each for start, end in entries(inside) for each in _payloads(inside[start + 4 : end])[1]]


def decode_all(
    buffer: Buffer, start_offset: int = 0, max_decoded_bytes: int = MEBIBYTE, **place: Any
) -> tuple[list[Message], list[MessageError | BrokenFraming]]:
    """Return all messages and all errors, going on behind each error as a consumer that skips would."""
    messages: list[Message] = []
    errors: list[MessageError | BrokenFraming] = []
    resume = None
    while True:
        try:
            for message in decode_messages(
                buffer, "t", PARTITION, start_offset, max_decoded_bytes=max_decoded_bytes, resume=resume, **place
            ):
                messages.append(message)  # noqa: PERF402 - what came before an error counts
            return messages, errors
        except MessageError as error:
            errors.append(_well_formed(error))
            resume = error.resume
            start_offset, place = error.offset, {**place, "start_index": 0}
        except BrokenFraming as error:
            errors.append(error)
            return messages, errors


def _well_formed(error: MessageError) -> MessageError:
    assert (error.topic, error.partition) == ("t", PARTITION)
    assert str(error).startswith(f"t/{PARTITION} at {error.offset}: ")
    assert error.resume is not None
    return error


def numbered(messages: list[Message]) -> Iterator[tuple[int, int, int]]:
    """Yield offset, index and next offset of each message."""
    for message in messages:
        yield message.offset, message.index, message.next_offset
