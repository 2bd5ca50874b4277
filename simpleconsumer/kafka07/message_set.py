"""Decodes message sets of Kafka 0.7, compressed ones too, and checks every checksum.

A set is entries back to back: `int32 size`, then a message of that size (`message_encode` shows its layout). It may end
in the middle of an entry, because a broker cuts a fetch at its byte limit. A message whose attributes name a codec is a
*compressed entry*: its payload is a compressed message set.

Positions. The log is addressed by bytes, and no entry carries its place: it follows from where the set starts. All
messages of a compressed entry have the position where the *outermost* entry starts, and are numbered from 0 on. To
continue after a message, an application commits `next_offset`: the end of the entry for the last message, its start
for those before. No position within an entry is ever produced, as nobody could fetch from there.

Rules, and their reasons:
- One bad message raises one error, which has its place, and `resume`, with which decoding continues after it. It
  counts as one message of its entry, whatever it holds, so the numbers are the same whenever an entry is decoded.
- Only an impossible size field of the outermost set is `BrokenFraming`: nothing after it can be found.
- The CRC covers neither size, magic nor attributes. A codec that the payload does not have is `CorruptMessage`; a
  compressed entry whose codec bits were lost is delivered as it is stored, since any bytes are a legal payload.
- The end of a broker's set may be cut off, without an error. The end of the inside of a compressed entry may not: the
  CRC covers those bytes, so messages were lost before it was made.
- Memory is bounded by the buffer, plus `max_decoded_bytes` for the compressed entry that is being read.

Source: kafka.message.ByteBufferMessageSet, Message, CompressionUtils (0.7.2).

A message set of Kafka 0.7 that is being read, and the outermost entry of which it is a part.

Finds out whether a byte position is the start of an entry, by walking from one that is.

No byte of a log shows where an entry starts: a broker serves any position and sends the bytes there. So a position that
somebody else has stored is checked from the start of its segment on, which the broker names (offsets request). Only the
size fields are read, so the walk may fetch a few bytes at the end of each entry that it does not hold.

Pure: the caller fetches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from struct import Struct, error
from typing import Final, NamedTuple

from isal.isal_zlib import crc32

from simpleconsumer import codecs, kernel
from simpleconsumer.dialect_types import MAX_DECODED_BYTES, MAX_DEPTH, Boundary, PositionIs
from simpleconsumer.errors import (
    BrokenFraming,
    CorruptMessage,
    CrcMismatch,
    DecodeError,
    LimitExceeded,
    MessageError,
    MessageTooLarge,
    UnknownCodec,
)
from simpleconsumer.primitives import EntryLayout, plain, walk_entries
from simpleconsumer.types import MAX_INT64, Buffer, EntryMessage, Message

ENTRY_OVERHEAD: Final = 4
CODEC_MASK: Final = 3
_MAGIC_AND_ATTRIBUTES = Struct(">4xBB").unpack_from


class Level:
    """A message set that is being read: that of a broker, or the inside of a compressed entry.

    Attributes:
        position: Where the next entry starts.
        budget_bytes: How many bytes compressed entries in here may still inflate to.
    """

    __slots__ = ("budget_bytes", "buffer", "position")

    def __init__(self, buffer: Buffer, budget_bytes: int) -> None:
        self.buffer = buffer
        self.position = 0
        self.budget_bytes = budget_bytes


class OpenEntry:
    """The outermost entry that is being read.

    Attributes:
        start: Where it starts in the log.
        end: Where it ends in the log.
        index: Number of the next message in it.
    """

    __slots__ = ("end", "index", "start")

    def __init__(self, place: int) -> None:
        self.start = self.end = place
        self.index = 0


def is_plain_at(level: Level) -> bool:
    """Return whether the head of an uncompressed message comes next; whether the message is whole is not looked at."""
    try:
        magic, attributes = _MAGIC_AND_ATTRIBUTES(level.buffer, level.position)
    except error:
        return False
    return bool(magic == 0 or (magic == 1 and attributes == 0))


SMALLEST_MESSAGE: Final = 5
"""Size of a magic 0 message without payload."""
LAYOUT: Final = EntryLayout(0, ENTRY_OVERHEAD, SMALLEST_MESSAGE)
_HEADER_BYTES: Final = (5, 6)  # by magic
_SIZE = Struct(">i").unpack_from
_CRC = Struct(">I").unpack_from


class Entry(NamedTuple):
    """One entry, read by the slow path; `end` is where the next one starts in its level."""

    codec: int
    payload: bytes
    end: int


class _Fault(Exception):  # noqa: N818 - not an error yet: the caller adds the place and `resume`
    """Something is wrong with one entry; `end` is where the next entry starts in its level."""

    def __init__(self, kind: type[MessageError], end: int, reason: str) -> None:
        self.kind = kind
        self.end = end
        self.reason = reason


class Reading:
    """Where a set is being read: its open levels, and the outermost entry.

    Attributes:
        levels: The open message sets, the innermost last.
        base: Position of the first byte of the outermost set in the log.
        entry: The outermost entry whose inside is open, or that was read last.
        skip: How many messages of the entry at `skip_in` are not wanted.
        skip_in: Where that entry starts; -1 for none.
    """

    def __init__(self, levels: list[Level], base: int, entry: OpenEntry) -> None:
        self.levels = levels
        self.base = base
        self.entry = entry
        self.skip = 0
        self.skip_in = -1

    def is_wanted(self) -> bool:
        """Return whether the message, or the error, that comes next is wanted; those before are skipped."""
        return self.entry.start != self.skip_in or self.entry.index >= self.skip

    def skips_here(self) -> bool:
        """Return whether the next entry of the outermost set is one in which messages are to be skipped."""
        return self.skip > 0 and len(self.levels) == 1 and self.base + self.levels[0].position == self.skip_in

    def copied(self) -> Reading:
        """Return a copy that decoding does not change; bytes are shared."""
        return Reading([copy(level) for level in self.levels], self.base, copy(self.entry))


class Resume:
    """Where to continue: a reading, the outermost level without its buffer (the caller passes that again)."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading.copied()
        if self._reading.levels:
            self._reading.levels[0].buffer = b""

    def reading(self, buffer: Buffer) -> Reading:
        """Return a new copy, so that one `resume` can be used any number of times."""
        reading = self._reading.copied()
        if reading.levels:
            reading.levels[0].buffer = with_positions(buffer, reading.base)
        return reading


def decode_messages(
    buffer: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    start_index: int = 0,
    data_offset: int | None = None,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    resume: object = None,
) -> Iterator[Message]:
    """Yield the messages of a set from a position on, including those in compressed entries.

    Payloads are `bytes`, copied out of the buffer.

    Args:
        start_offset: Position of the first entry to read. It must be the start of an entry, as no bytes show where one
            starts (`find_boundary` finds it).
        start_index: How many messages of the entry at `start_offset` are skipped, and errors there, each as one.
        data_offset: Position of the first byte of the buffer; None for `start_offset`.
        max_decoded_bytes: Most bytes that one compressed entry, with those inside of it, may inflate to.
        resume: `MessageError.resume` of an earlier call with the same buffer: continue after that message, or at
            `start_offset` and `start_index` if they are after it.

    Raises:
        ValueError: The buffer does not hold the position.
        CrcMismatch, UnknownCodec, CorruptMessage, MessageTooLarge: Of one message, or of one compressed entry; continue
            with `resume`.
        BrokenFraming: The size field of an entry is negative or below 5; nothing after it can be read.

    Threads: Any number at once, each with its own generator.
    """
    reading = open_reading(buffer, start_offset, start_index, data_offset, max_decoded_bytes, resume)
    return kernel.chained(read_runs(reading, topic, partition))


def read_runs(reading: Reading, topic: str, partition: int | str) -> Iterator[Iterable[Message]]:
    """Yield the rest of a reading in runs; errors as by `decode_messages`."""
    levels, entry = reading.levels, reading.entry
    held: EntryMessage | None = None  # perhaps the last one of its entry
    while levels:
        if kernel.compiled is not None and held is None and not reading.skips_here():
            yield _run(reading, topic, partition)
        # The kernel leaves the rest: compressed entries, the ends of sets, and all faults.
        trouble: MessageError | None = None
        found: Entry | None = None
        try:
            found = next_entry(reading, topic, partition)
        except MessageError as error:
            trouble = error
        if held is not None and (trouble is not None or found is not None or len(levels) <= 1):
            if trouble is None and found is None:
                held.next_offset = entry.end  # nothing came after it
            yield (held,)
            held = None
        if trouble is not None:
            try:
                raise trouble
            finally:
                trouble = None  # its traceback holds this frame: a cycle for each error otherwise
        if found is None:
            continue
        if len(levels) == 1:
            yield (Message(topic, partition, entry.start, entry.end, None, found.payload),)
            continue
        message = EntryMessage(topic, partition, entry.start, entry.start, None, found.payload, None, entry.index - 1)
        if not is_plain_at(levels[-1]):
            held = message
        else:
            yield (message,)


def _run(reading: Reading, topic: str, partition: int | str) -> Iterator[Message]:
    """Return the plain messages of the innermost level from its place on, as far as the kernel reads them."""
    level, entry = reading.levels[-1], reading.entry
    rows: Iterator[Message]
    if len(reading.levels) == 1:
        rows = kernel.compiled.EntryRows07(level, reading.base, topic, partition)
    else:
        first = reading.skip if entry.start == reading.skip_in else 0
        rows = kernel.compiled.InsideRows07(level, entry, topic, partition, first)
    return rows


def next_entry(reading: Reading, topic: str, partition: int | str) -> Entry | None:
    """Read and check one entry of the innermost level.

    Returns:
        A message; None for a compressed entry, which is then open, for the end of the level, which is then closed, and
        for messages and errors that are not wanted.

    Raises:
        MessageError, BrokenFraming: As `decode_messages` does; the reading is after the message.
    """
    levels, entry = reading.levels, reading.entry
    level = levels[-1]
    if len(levels) == 1:
        entry.start = entry.end = reading.base + level.position
        entry.index = 0
    try:
        found = _read_entry(level, is_inside=len(levels) > 1)
        if found is None:
            levels.pop()
            return None
        level.position = found.end
        if len(levels) == 1:
            entry.end = reading.base + found.end
        if found.codec:
            levels.append(_open_entry(levels, found))
            return None
    except _Fault as fault:
        if reading.is_wanted():  # no variable for the error: its traceback holds this frame
            raise _place(fault, reading, topic, partition) from fault.__cause__
        _place(fault, reading, topic, partition)
        return None
    is_wanted = reading.is_wanted()
    entry.index += 1
    return found if is_wanted else None


def open_reading(
    buffer: Buffer,
    start_offset: int,
    start_index: int,
    data_offset: int | None,
    max_decoded_bytes: int,
    resume: object,
) -> Reading:
    """Return the reading with which decoding starts or continues; arguments as of `decode_messages`."""
    if resume is None:
        base = start_offset if data_offset is None else data_offset
        reading = Reading([Level(with_positions(buffer, base), max_decoded_bytes)], base, OpenEntry(base))
        place = start_offset
    elif isinstance(resume, Resume):
        reading = resume.reading(buffer)
        place = reading.base + reading.levels[0].position if reading.levels else start_offset
        if len(reading.levels) > 1:
            place = reading.entry.start
    else:
        raise TypeError(f"resume must come from a MessageError, not {type(resume).__name__}")
    if start_offset >= place and reading.levels:
        if start_offset > place or len(reading.levels) == 1:
            _move_to(reading, start_offset)
        reading.skip, reading.skip_in = start_index, start_offset
    return reading


def with_positions(buffer: Buffer, base: int) -> Buffer:
    """Return the bytes of a set up to the largest possible position: nearly always all of them.

    A position beyond 2^63-1 could be neither fetched nor committed. Only a broken broker has bytes there.
    """
    buffer = plain(buffer)
    return buffer if len(buffer) <= MAX_INT64 - base else memoryview(buffer)[: max(0, MAX_INT64 - base)]


def _move_to(reading: Reading, offset: int) -> None:
    """Continue at the entry that starts at a position."""
    outermost = reading.levels[0]
    position = offset - reading.base
    if not 0 <= position <= len(outermost.buffer):
        end = reading.base + len(outermost.buffer)
        raise ValueError(f"position {offset} is not within the data, which has {reading.base} to {end}")
    outermost.position = position
    del reading.levels[1:]


def first_entry_fault(data: Buffer) -> str | None:
    """Return why the first entry of a set cannot be one: its size, its magic or its CRC; None if it is not whole.

    A position that is not the start of an entry shows here: its bytes pass for an entry once in four billion times.
    """
    try:
        _read_entry(Level(plain(data), MAX_DECODED_BYTES), is_inside=False)
    except BrokenFraming as error:
        return str(error)
    except _Fault as fault:
        return fault.reason
    return None


def _read_entry(level: Level, *, is_inside: bool) -> Entry | None:
    """Return the entry at the level's position, checked; None at the end of the set.

    Raises:
        BrokenFraming: See decode_messages.
        _Fault: This entry is wrong.
    """
    buffer, position = level.buffer, level.position
    end = _end_of_entry(level, is_inside=is_inside)
    if end is None:
        return None
    message = memoryview(buffer)[position + ENTRY_OVERHEAD : end]
    magic = message[0]
    if magic >= len(_HEADER_BYTES):
        raise _Fault(CorruptMessage, end, f"magic {magic} is not known (0 and 1 are)")
    header = _HEADER_BYTES[magic]
    if len(message) < header:
        raise _Fault(CorruptMessage, end, f"{len(message)} bytes are too few for magic {magic}")
    payload = bytes(message[header:])
    (crc,) = _CRC(message, header - 4)
    computed = crc32(payload)
    if computed != crc:
        raise _Fault(CrcMismatch, end, f"the CRC is {computed:#010x}, the message says {crc:#010x}")
    return Entry(message[1] & CODEC_MASK if magic else codecs.NONE, payload, end)


def _end_of_entry(level: Level, *, is_inside: bool) -> int | None:
    """Return where the entry at the level's position ends; None when no whole entry is left."""
    buffer, position, length = level.buffer, level.position, len(level.buffer)
    if position + ENTRY_OVERHEAD > length:
        if is_inside and position < length:
            raise _end_of_level(level, f"{length - position} bytes after its last message")
        return None
    (size,) = _SIZE(buffer, position)
    if size < SMALLEST_MESSAGE:
        if is_inside:
            raise _end_of_level(level, f"an entry of size {size} at byte {position}")
        raise BrokenFraming(f"entry at byte {position} has size {size}")
    end: int = position + ENTRY_OVERHEAD + size
    if end > length:
        if is_inside:
            raise _end_of_level(level, f"an entry that ends {end - length} bytes after it")
        return None
    return end


def _end_of_level(level: Level, reason: str) -> _Fault:
    """Return the fault of a compressed entry whose inside is cut off; nothing more of it can be read."""
    return _Fault(CorruptMessage, len(level.buffer), f"the compressed entry holds {reason}")


def _open_entry(levels: list[Level], entry: Entry) -> Level:
    """Return the inside of a compressed entry as a new level."""
    if len(levels) > MAX_DEPTH:
        raise _Fault(CorruptMessage, entry.end, f"compressed entries nested deeper than {MAX_DEPTH}")
    if entry.codec > codecs.SNAPPY:
        raise _Fault(UnknownCodec, entry.end, f"codec {entry.codec} is not known (1, gzip, and 2, snappy, are)")
    # The budget of the outermost entry counts for all those inside of it.
    charged = levels[min(1, len(levels) - 1)]
    try:
        data = codecs.decompress(entry.codec, entry.payload, charged.budget_bytes)
    except LimitExceeded as error:
        # The budget is spent: a hundred such entries in one must not cost a hundred times the work.
        if len(levels) > 1:
            charged.budget_bytes = 0
        raise _Fault(MessageTooLarge, entry.end, str(error)) from error
    except DecodeError as error:
        if len(levels) > 1:  # it may have inflated to so much before it broke off
            charged.budget_bytes -= min(charged.budget_bytes, len(entry.payload) * codecs.MOST_RATIO)
        raise _Fault(CorruptMessage, entry.end, str(error)) from error
    inside = Level(data, levels[-1].budget_bytes - len(data))
    if len(levels) > 1:
        charged.budget_bytes -= len(data)
    return inside


def _place(fault: _Fault, reading: Reading, topic: str, partition: int | str) -> MessageError:
    """Return the error about an entry of the innermost level, whose next position is after that entry."""
    levels, entry = reading.levels, reading.entry
    levels[-1].position = fault.end
    if len(levels) == 1:
        entry.end = reading.base + fault.end
    index = entry.index
    entry.index += 1
    while len(levels) > 1 and levels[-1].position == len(levels[-1].buffer):
        levels.pop()
    next_offset = entry.end if len(levels) == 1 else entry.start
    error = fault.kind(topic, partition, entry.start, next_offset, fault.reason, index)
    error.resume = Resume(reading)
    return error


def find_boundary(data: Buffer, data_offset: int, position: int) -> Boundary:
    """Return whether a position is the start of an entry.

    An entry needs not be whole: its size is enough.

    Args:
        data: Entries of the log from `data_offset` on; perhaps none, and the last one may be cut off.
        data_offset: Position of the first byte of the data: the start of a segment, or of another entry.
        position: The position to be checked, not before `data_offset`.

    Raises:
        ValueError: The position is before the data.
        BrokenFraming: An entry before the position has an impossible size: `data_offset` is not the start of an entry,
            or the log is damaged.
    """
    if position < data_offset:
        raise ValueError(f"position {position} is before {data_offset}, where the walk starts")
    view = memoryview(plain(data))
    # The fast walk skips whole entries up to the position; one more, perhaps a cut off one, is read here.
    start = data_offset + walk_entries(view[: position - data_offset], LAYOUT).end
    if start == position:
        return Boundary(PositionIs.BOUNDARY, position, position)
    at = start - data_offset
    if at + LAYOUT.overhead > len(view):
        return Boundary(PositionIs.UNKNOWN, start, start)
    (size,) = LAYOUT.size.unpack_from(view, at)
    if size < LAYOUT.smallest:
        raise BrokenFraming(f"entry at position {start} has size {size}")
    end = start + LAYOUT.overhead + size
    if end > position:
        return Boundary(PositionIs.INSIDE, start, end)
    known = PositionIs.BOUNDARY if end == position else PositionIs.UNKNOWN
    return Boundary(known, end, end)


def last_entry_before(data: Buffer, data_offset: int, position: int) -> int | None:
    """Return where the entry starts that ends at a position; None if none of the data does.

    Args:
        data: Whole entries of the log from `data_offset` on.
    """
    view = memoryview(plain(data))[: max(0, position - data_offset)]
    walk = walk_entries(view, LAYOUT)
    return data_offset + walk.last if walk.entries and data_offset + walk.end == position else None
