"""Decodes message sets of Kafka 0.8 and 0.10, compressed ones too, and checks every checksum.

A set is entries back to back: `int64 offset, int32 size`, then a message of that size (`message_shapes` shows its
layout). It may end in the middle of an entry, because a broker cuts a fetch at its byte limit. A message whose
attributes name a codec is a *wrapper*: its value is a compressed message set.

    magic 0: offsets inside are absolute; the wrapper carries that of the last one
    magic 1: offsets inside are relative; the wrapper carries the absolute offset of the last one. With
             LogAppendTime its timestamp holds for all of them

Rules, and their reasons:
- One bad message raises one error, which has its place, and `resume`, with which decoding continues after it.
- Only an impossible size field is `BrokenFraming`: nothing after it can be found.
- The offset of an entry must fit those around it, as no checksum covers it (`offset_order`).
- The end of a broker's set may be cut off, without an error. The end of the inside of a wrapper may not: the CRC covers
  those bytes, so messages were lost before the wrapper was made.
- Memory is bounded by the buffer, plus `max_decoded_bytes` for the wrapper that is being read.

Source: kafka.message.ByteBufferMessageSet, Message (0.8.2.2, 0.10.0.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from struct import Struct
from typing import Final, NamedTuple

from isal.isal_zlib import crc32

from simpleconsumer import codecs, kernel
from simpleconsumer.dialect_types import MAX_DECODED_BYTES, MAX_DEPTH
from simpleconsumer.errors import (
    BrokenFraming,
    CorruptMessage,
    CrcMismatch,
    DamagedOffset,
    DecodeError,
    LimitExceeded,
    MessageError,
    MessageTooLarge,
    UnknownCodec,
)
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.kafka08.offset_order import (
    CODEC_MASK,
    ENTRY_OVERHEAD,
    NO_TIMESTAMP,
    SMALLEST_MESSAGE,
    Level,
    most_in,
    offset_behind,
    place_of_damaged,
    plain,
    shallow_end,
    why_damaged,
)
from simpleconsumer.primitives import read_int32
from simpleconsumer.types import Buffer, Message

__all__ = ["MAX_DECODED_BYTES", "MAX_DEPTH", "decode_messages", "encode_message_set", "shallow_end"]

SMALLEST_OF_MAGIC: Final = (14, 22)
LOG_APPEND_TIME: Final = 8
REACHED: Final = -(2**70)
"""Start offset once the first message was found: below all offsets, including wrong ones of damaged wrappers."""
_ENTRY = Struct(">qi")
_MESSAGE = Struct(">IBB")
_INT64 = Struct(">q")


class Entry(NamedTuple):
    """One entry, read by the slow path. `offset` is as found, not yet absolute."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    end: int


class _Fault(Exception):  # noqa: N818 - not an error yet: the caller adds the place and `resume`
    """Something is wrong with one entry; `offset` is as found, `end` is where the next entry starts."""

    def __init__(self, kind: type[MessageError], offset: int, end: int, reason: str) -> None:
        self.kind = kind
        self.offset = offset
        self.end = end
        self.reason = reason


class Resume:
    """Where to continue: the open levels, the outermost without its buffer (the caller passes that again)."""

    def __init__(self, levels: list[Level]) -> None:
        self._levels = [copy(level) for level in levels]
        self._levels[0].buffer = b""

    def levels(self, buffer: Buffer) -> list[Level]:
        """Return new copies, so that one `resume` can be used any number of times."""
        levels = [copy(level) for level in self._levels]
        levels[0].buffer = buffer
        return levels


def decode_messages(
    buffer: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    high_watermark: int | None = None,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    resume: object = None,
) -> Iterator[Message]:
    """Return the messages of a set from `start_offset` on, including those in wrappers, as an iterator.

    A fetch from the middle of a wrapper returns the whole wrapper; messages before `start_offset` are skipped, and so
    are errors there. Keys and values are `bytes`, copied out of the buffer.

    Args:
        start_offset: First offset to yield. Offsets ascend in a log, so only the first message is searched for: all
            messages after it are yielded.
        high_watermark: That of the same answer; offsets from there on are damaged. None when it is not known.
        max_decoded_bytes: Most bytes that one wrapper, with the wrappers inside of it, may decompress to.
        resume: `MessageError.resume` of an earlier call with the same arguments: continue after that message.

    Raises:
        CrcMismatch, DamagedOffset, UnknownCodec, CorruptMessage, MessageTooLarge: Of one message, or of one wrapper;
            continue with `resume`.
        BrokenFraming: The size field of an entry is negative or below 14; nothing after it can be read.

    Threads: Any number at once, each with its own generator.
    """
    levels = open_levels(buffer, start_offset, high_watermark, max_decoded_bytes, resume)
    return kernel.chained(read_runs(levels, topic, partition, start_offset))


def read_runs(levels: list[Level], topic: str, partition: int | str, start_offset: int) -> Iterator[Iterable[Message]]:
    """Yield the messages of open levels in runs; errors as by `decode_messages`."""
    while levels:
        level = levels[-1]
        if kernel.compiled is not None:
            run = kernel.compiled.EntryRows(level, topic, partition, start_offset)
            yield run
            if run.has_reached:
                start_offset = REACHED
        # The kernel leaves the rest: wrappers, the end of a set, doubtful offsets, and all faults.
        try:
            entry = next_entry(levels, topic, partition)
        except MessageError as error:
            if error.offset >= start_offset:
                raise
            continue
        if entry is not None and entry.offset + level.base >= start_offset:
            start_offset = REACHED
            yield (_message(level, entry, topic, partition),)


def next_entry(levels: list[Level], topic: str, partition: int | str) -> Entry | None:
    """Read and check one entry of the innermost level; None for a wrapper, which is then open, or the end of the level.

    Raises:
        MessageError, BrokenFraming: As `decode_messages` does, whatever the offset; the levels are after the message.
    """
    level = levels[-1]
    try:
        entry = _read_entry(level)
        if entry is None:
            _leave(levels)
            return None
        level.position = entry.end
        if entry.attributes & CODEC_MASK:
            levels.append(_open_wrapper(levels, entry))
            return None
        level.floor = entry.offset + 1
        return entry
    except _Fault as fault:
        raise _place(fault, levels, topic, partition) from fault.__cause__


def _leave(levels: list[Level]) -> None:
    """Leave the innermost level, which is read to its end."""
    inside = levels.pop()
    if levels:
        # Not after the offset of the wrapper: its checksum covers the offsets inside, and not its own.
        outside = levels[-1]
        outside.floor = max(outside.floor, inside.floor + inside.base - outside.base)


def open_levels(
    buffer: Buffer, start_offset: int, high_watermark: int | None, max_decoded_bytes: int, resume: object
) -> list[Level]:
    """Return the levels with which decoding starts or continues."""
    buffer = plain(buffer)
    if resume is None:
        level = Level(buffer, max_decoded_bytes)
        level.asked = max(start_offset, 0)
        if high_watermark is not None and high_watermark >= 0:
            level.limit = min(level.limit, high_watermark)
        return [level]
    if not isinstance(resume, Resume):
        raise TypeError(f"resume must come from a MessageError, not {type(resume).__name__}")
    return resume.levels(buffer)


def _read_entry(level: Level) -> Entry | None:
    """Return the entry at the level's position, checked; None at the end of the set.

    Raises:
        BrokenFraming: See decode_messages.
        _Fault: This entry is wrong.
    """
    buffer, position = level.buffer, level.position
    bounds = _bounds(level)
    if bounds is None:
        return None
    offset, size, end = bounds
    reason = why_damaged(level, offset, end, most_in(buffer, position, size))
    if reason is not None:
        raise _Fault(DamagedOffset, place_of_damaged(level, end) - level.base, end, reason)
    crc, magic, attributes = _MESSAGE.unpack_from(buffer, position + ENTRY_OVERHEAD)
    if magic >= len(SMALLEST_OF_MAGIC):
        raise _Fault(CorruptMessage, offset, end, f"magic {magic} is not known (0 and 1 are)")
    computed = crc32(memoryview(buffer)[position + 16 : end])
    if computed != crc:
        raise _Fault(CrcMismatch, offset, end, f"the CRC is {computed:#010x}, the message says {crc:#010x}")
    if size < SMALLEST_OF_MAGIC[magic]:
        raise _Fault(CorruptMessage, offset, end, f"{size} bytes are too few for magic {magic}")
    if level.magic is not None and level.magic != magic:
        raise _Fault(CorruptMessage, offset, end, f"magic {magic} in a wrapper of magic {level.magic}")
    timestamp_ms = None
    position += 18
    if magic == 1:
        timestamp_ms = _INT64.unpack_from(buffer, position)[0]
        position += 8
    key, position = _read_field(buffer, position, end, offset, "key")
    value, position = _read_field(buffer, position, end, offset, "value")
    if position != end:
        raise _Fault(CorruptMessage, offset, end, f"{end - position} bytes after the value")
    return Entry(offset, magic, attributes, timestamp_ms, key, value, end)


def _bounds(level: Level) -> tuple[int, int, int] | None:
    """Return offset, size and end of the entry at the level's position; None when no whole entry is left."""
    buffer, position, length = level.buffer, level.position, len(level.buffer)
    inside = level.magic is not None
    if position + ENTRY_OVERHEAD > length:
        if inside and position < length:
            raise _end_of_level(level, f"{length - position} bytes after its last message")
        return None
    offset, size = _ENTRY.unpack_from(buffer, position)
    end: int = position + ENTRY_OVERHEAD + size
    if size < SMALLEST_MESSAGE:
        if inside:
            raise _end_of_level(level, f"an entry of size {size} at byte {position}")
        raise BrokenFraming(f"entry at byte {position} (offset {offset}) has size {size}")
    if end > length:
        if inside:
            raise _end_of_level(level, f"an entry that ends {end - length} bytes after it")
        return None
    return offset, size, end


def _end_of_level(level: Level, reason: str) -> _Fault:
    """Return the fault of a wrapper of magic 0 whose inside is cut off; nothing more of it can be read."""
    # `_last_offset` has seen all entries of one of magic 1, so offsets are absolute here.
    return _Fault(CorruptMessage, level.wrapper_offset, len(level.buffer), f"the wrapper holds {reason}")


def _read_field(buffer: Buffer, position: int, end: int, offset: int, what: str) -> tuple[bytes | None, int]:
    """Return key or value, None for length -1, and the position after it."""
    if position + 4 > end:
        raise _Fault(CorruptMessage, offset, end, f"no room for the length of the {what}")
    length, position = read_int32(buffer, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise _Fault(CorruptMessage, offset, end, f"{what} of {length} bytes in a message with {end - position} left")
    return bytes(buffer[position : position + length]), position + length


def _open_wrapper(levels: list[Level], wrapper: Entry) -> Level:
    """Return the inside of a wrapper as a new level."""
    level = levels[-1]
    if len(levels) > MAX_DEPTH:
        raise _Fault(CorruptMessage, wrapper.offset, wrapper.end, f"wrappers nested deeper than {MAX_DEPTH}")
    codec = wrapper.attributes & CODEC_MASK
    if codec > codecs.LZ4:
        raise _Fault(UnknownCodec, wrapper.offset, wrapper.end, f"codec {codec} is not known")
    if wrapper.value is None:
        raise _Fault(CorruptMessage, wrapper.offset, wrapper.end, "a wrapper without a value")
    data = _inflate(levels, wrapper, codec, wrapper.value)
    inside = Level(data, level.budget_bytes - len(data))
    if len(levels) > 1:
        levels[1].budget_bytes -= len(data)
    inside.magic = wrapper.magic
    inside.wrapper_offset = wrapper.offset + level.base
    inside.timestamp_ms = level.timestamp_ms
    inside.asked = level.asked + level.base
    if wrapper.magic == 1:
        inside.base = inside.wrapper_offset - _last_offset(inside, wrapper)
        if wrapper.attributes & LOG_APPEND_TIME and inside.timestamp_ms is None:
            inside.timestamp_ms = wrapper.timestamp_ms
        inside.asked -= inside.base
    inside.floor = level.floor + level.base - inside.base
    inside.limit = _limit_inside(level, wrapper) - inside.base
    return inside


def _limit_inside(level: Level, wrapper: Entry) -> int:
    """Return the absolute limit of the offsets in a wrapper.

    In magic 1 they are relative to that of the wrapper. In magic 0 the checksum of the wrapper covers them, and not its
    own offset: if that is too low, the messages inside must not be lost.
    """
    limit = wrapper.offset + 1
    if wrapper.magic == 0:
        later = offset_behind(level, wrapper.end)
        limit = level.limit if later is None else max(limit, later)
    return limit + level.base


def _inflate(levels: list[Level], wrapper: Entry, codec: int, value: bytes) -> bytes:
    """Return the decompressed value, within the budget of the outermost wrapper."""
    charged = levels[min(1, len(levels) - 1)]
    try:
        data = codecs.decompress(codec, value, charged.budget_bytes)
    except LimitExceeded as error:
        # The budget is spent: a hundred such wrappers in one must not cost a hundred times the work.
        if len(levels) > 1:
            charged.budget_bytes = 0
        raise _Fault(MessageTooLarge, wrapper.offset, wrapper.end, str(error)) from error
    except DecodeError as error:
        if len(levels) > 1:  # it may have inflated to so much before it broke off
            charged.budget_bytes -= min(charged.budget_bytes, len(value) * codecs.MOST_RATIO)
        raise _Fault(CorruptMessage, wrapper.offset, wrapper.end, str(error)) from error
    return data


def _last_offset(inside: Level, wrapper: Entry) -> int:
    """Return the relative offset of the last message inside, from which those of all others are computed."""
    try:
        valid_bytes, next_offset, _ = shallow_end(inside.buffer)
    except BrokenFraming as error:
        raise _Fault(CorruptMessage, wrapper.offset, wrapper.end, f"inside the wrapper: {error}") from error
    if valid_bytes != len(inside.buffer):
        left = len(inside.buffer) - valid_bytes
        raise _Fault(CorruptMessage, wrapper.offset, wrapper.end, f"the wrapper breaks off, {left} bytes are left")
    return (next_offset or 1) - 1


def _message(level: Level, entry: Entry, topic: str, partition: int | str) -> Message:
    offset = entry.offset + level.base
    timestamp_ms = entry.timestamp_ms if level.timestamp_ms is None else level.timestamp_ms
    if timestamp_ms == NO_TIMESTAMP:
        timestamp_ms = None
    return Message(topic, partition, offset, offset + 1, entry.key, entry.value, timestamp_ms)


def _place(fault: _Fault, levels: list[Level], topic: str, partition: int | str) -> MessageError:
    """Return the error about an entry of the innermost level, and move the level past that entry."""
    level = levels[-1]
    level.position = fault.end
    if fault.kind is not DamagedOffset:
        level.floor = max(level.floor, fault.offset + 1)
    offset = fault.offset + level.base
    error = fault.kind(topic, partition, offset, offset + 1, fault.reason)
    error.resume = Resume(levels)
    return error
