"""Shared by the decoder tests: decoding that continues behind errors, a simple reference decoder, bounded memory."""

from __future__ import annotations

import resource
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simpleconsumer import codecs, kernel
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka08.message_set import decode_messages
from simpleconsumer.types import Buffer, Message

MEBIBYTE = 1024 * 1024


PATHS = ("kernel", "plain")


@contextmanager
def decoding_by(path: str) -> Iterator[None]:
    """Decode by the compiled kernel, if there is one, or by plain Python alone."""
    before = kernel.compiled
    if path == "plain":
        kernel.compiled = None
    try:
        yield
    finally:
        kernel.compiled = before


def decode_all(
    buffer: Buffer, start_offset: int = 0, max_decoded_bytes: int = MEBIBYTE, high_watermark: int | None = None
) -> tuple[list[Message], list[MessageError | BrokenFraming]]:
    """Return all messages and all errors, going on behind each error as a consumer that skips would."""
    messages: list[Message] = []
    errors: list[MessageError | BrokenFraming] = []
    resume = None
    while True:
        try:
            for message in decode_messages(
                buffer, "t", 0, start_offset, high_watermark=high_watermark, max_decoded_bytes=max_decoded_bytes,
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


def well_formed(error: MessageError) -> MessageError:
    assert (error.topic, error.partition, error.next_offset) == ("t", 0, error.offset + 1)
    assert error.resume is not None
    assert str(error).startswith(f"t/0 at {error.offset}: ")
    return error


def decode_simply(data: bytes, base: int = 0, append_time: int | None = None) -> list[Message]:
    """Return the messages of a correct set: no fast path, no checks but the CRC, recursion for wrappers."""
    messages = []
    position = 0
    while position < len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        message = data[position + 12 : position + 12 + size]
        position += 12 + size
        crc, magic, attributes = struct.unpack_from(">IBB", message)
        assert zlib.crc32(message[4:]) == crc
        timestamp: int | None = struct.unpack_from(">q", message, 6)[0] if magic else None
        key, rest = _field(message[14:] if magic else message[6:])
        value, rest = _field(rest)
        assert not rest
        if attributes & 7:
            assert value is not None
            inside = codecs.decompress(attributes & 7, value, 64 * MEBIBYTE)
            time = timestamp if attributes & 8 and append_time is None else append_time
            last = base + offset - _last_offset(inside) if magic else 0
            messages += decode_simply(inside, last, time)
        else:
            stamp = timestamp if append_time is None else append_time
            stamp = None if stamp == -1 else stamp
            messages.append(Message("t", 0, base + offset, base + offset + 1, key, value, stamp))
    return messages


def _field(data: bytes) -> tuple[bytes | None, bytes]:
    (length,) = struct.unpack_from(">i", data)
    return (None, data[4:]) if length == -1 else (data[4 : 4 + length], data[4 + length :])


def _last_offset(data: bytes) -> int:
    position = last = 0
    while position < len(data):
        last, size = struct.unpack_from(">qi", data, position)
        position += 12 + size
    return last


def entries(data: Buffer) -> list[tuple[int, int, int]]:
    """Return start, end and offset of every whole entry of a set."""
    found = []
    position = 0
    while position + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        if position + 12 + size > len(data):
            break
        found.append((position, position + 12 + size, offset))
        position += 12 + size
    return found


@contextmanager
def memory_growth_below(limit_bytes: int) -> Iterator[None]:
    """Fail when the resident size of the process at its peak was larger than before by more than that."""
    _forget_peak()
    before = _peak_bytes()
    yield
    growth = _peak_bytes() - before
    assert growth < limit_bytes, f"memory grew by {growth} bytes"


def _forget_peak() -> None:
    """Set the peak back to the present size where the system can (Linux); elsewhere it is that of all tests so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def _peak_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
