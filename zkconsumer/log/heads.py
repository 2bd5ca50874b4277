"""Reads the heads of entries on disk, and says whether their checksums fit. Pure.

    .log    int64 offset, int32 size, then at byte 16 the magic: 0 and 1 are messages or wrappers, 2 is a record batch
    .kafka  (Kafka 0.7) int32 size, int8 magic, from magic 1 on int8 attributes, uint32 CRC of the payload, payload

A checksum does not cover the whole head. What it leaves out is known from other bytes, and so it can be repaired: the
size from where the next entry starts, the magic from the checksum that fits, the offset from the neighbours (`order`).

Source: kafka.message.Message (0.7.2, 0.8.2.2), org.apache.kafka.common.record.DefaultRecordBatch (3.9).
"""

from __future__ import annotations

import re
from struct import Struct, error
from typing import Final, Protocol

from simpleconsumer.codecs import crc32c
from simpleconsumer.dialect import KAFKA011, KAFKA07
from simpleconsumer.dialect_types import MAX_DECODED_BYTES
from simpleconsumer.errors import BrokenFraming, MessageError
from zkconsumer.log.runs import CANDIDATE, LOOKAHEAD, SMALL_ENTRY, PlainRun, crc32, entry_start, plain_run
from zkconsumer.log.values import NO_MARKER, DiskEntry

CODEC: Final = 7
TRANSACTIONAL: Final = 16
CONTROL: Final = 32
BATCH: Final = 2
_BATCH_HEAD: Final = Struct(">qiibIhiqqqhii")
_HEAD: Final = Struct(">qiIBB")
_SIZE: Final = Struct(">i")
_CRC: Final = Struct(">I")
_INT64: Final = Struct(">q")
_MARKER: Final = Struct(">hh")
_MAGIC_AT: Final = 16
_APPEND_TIME: Final = 8
_TIMED: Final = 26
_SMALLEST_OF_MAGIC: Final = (14, 22)
_GZIP: Final = b"\x1f\x8b\x08"
_XERIAL: Final = b"\x82SNAPPY\x00"
_SOME_OFFSET: Final = 2**40
_MOST_FAULTS: Final = 1000
"""So many messages that cannot be read are reported of one entry."""

_head: Final = _HEAD.unpack_from
_batch_head: Final = _BATCH_HEAD.unpack_from


class DiskLayout(Protocol):
    """How entries of a kind of files are read.

    Attributes:
        overhead: How many bytes of an entry its size does not count.
        smallest: The least size.
        candidate: Matches, without taking a byte, where an entry may start.
        lookahead: How many bytes that pattern reads.
        has_offsets: Whether entries carry their offset.
        doubtful: The bytes of a head that `entry` itself repairs, and what is wrong with them.
    """

    overhead: int
    smallest: int
    candidate: re.Pattern[bytes]
    lookahead: int
    has_offsets: bool
    doubtful: tuple[int, int, str]

    def size_at(self, view: memoryview, at: int) -> int:
        """Return the size field of the entry at a byte, of which `overhead` bytes are there."""

    def entry(self, view: memoryview, at: int, end: int, place: int) -> DiskEntry | str:
        """Return the whole entry at these bytes, or why it is none; `place` is that of its first byte in the file."""

    def repaired(self, view: memoryview, at: int, end: int, place: int) -> tuple[DiskEntry, int, int, str] | None:
        """Return the entry whose head is wrong and whose other bytes fit; with it the wrong bytes and the reason."""

    def is_plausible(self, view: memoryview, at: int, lowest: int, highest: int) -> bool:
        """Return whether the offset of the entry at a byte is within bounds."""

    def is_compressed(self, view: memoryview, at: int) -> bool:
        """Return whether the head of an entry names a codec; its inside is a set of messages, or looks like one."""

    def next_by_head(self, view: memoryview, at: int) -> int | None:
        """Return the offset behind an entry, as its head has it; None if it has none."""

    def run(self, view: memoryview, at: int, expected: int, epoch: int) -> PlainRun | None:
        """Return the plain entries from a byte on (`runs.plain_run`); None if files of this kind have no runs."""

    def entry_start(
        self, view: memoryview, at: int, stop: int, left: int, low: int, high: int, budget: int, refill: int
    ) -> tuple[int, int]:
        """Return where an entry may start whose checksum fits (`runs.entry_start`)."""


class LogFile:
    """Entries of `.log` files: Kafka 0.8 and later."""

    overhead = 12
    smallest = 14
    candidate = CANDIDATE
    lookahead = LOOKAHEAD
    has_offsets = True
    doubtful = (0, 8, "the offset of a wrapper is not that of its last message")

    def size_at(self, view: memoryview, at: int) -> int:
        return int(_SIZE.unpack_from(view, at + 8)[0])

    def entry(self, view: memoryview, at: int, end: int, place: int) -> DiskEntry | str:
        if view[at + _MAGIC_AT] == BATCH:
            return _batch(view, at, end, place)
        return _message(view, at, end, place)

    def repaired(self, view: memoryview, at: int, end: int, place: int) -> tuple[DiskEntry, int, int, str] | None:
        size, stated = end - at - self.overhead, self.size_at(view, at)
        magic = view[at + _MAGIC_AT]
        length = _BATCH_HEAD.size
        head = bytearray(view[at : min(at + length, end)])
        if size < self.smallest or (size == stated and (magic == BATCH or end - at < length)):
            return None
        _SIZE.pack_into(head, 8, size)
        if size == stated:  # one fault is repaired, not two
            head[_MAGIC_AT] = BATCH
            wrong = (place + 16, place + 17, f"the magic is {magic}, and it must be {BATCH}")
        else:
            wrong = (place + 8, place + 12, f"the size is {stated}, and it must be {size}")
        found = self.entry(memoryview(b"".join((head, view[at + len(head) : end]))), 0, end - at, place)
        return None if isinstance(found, str) else (found._replace(head=bytes(head)), *wrong)

    def is_plausible(self, view: memoryview, at: int, lowest: int, highest: int) -> bool:
        return lowest <= int(_INT64.unpack_from(view, at)[0]) < highest

    def is_compressed(self, view: memoryview, at: int) -> bool:
        return view[at + _MAGIC_AT] < BATCH and bool(view[at + _MAGIC_AT + 1] & CODEC)

    def next_by_head(self, view: memoryview, at: int) -> int | None:
        offset = int(_INT64.unpack_from(view, at)[0])
        if len(view) - at >= _BATCH_HEAD.size and view[at + _MAGIC_AT] == BATCH:
            return offset + int(_SIZE.unpack_from(view, at + 23)[0]) + 1
        return offset + 1

    def run(self, view: memoryview, at: int, expected: int, epoch: int) -> PlainRun | None:
        return plain_run(view, at, expected, epoch)

    def entry_start(
        self, view: memoryview, at: int, stop: int, left: int, low: int, high: int, budget: int, refill: int
    ) -> tuple[int, int]:
        return entry_start(view, at, stop, left, low, high, budget, refill)


class KafkaFile:
    """Entries of `.kafka` files, those of Kafka 0.7; their offsets are bytes.

    Args:
        base: Position of the first byte of the file in the log, which the name of the file says.
    """

    overhead = 4
    smallest = 5
    candidate = re.compile(rb"(?s)(?=[\x00-\x7f].{3}[\x00\x01])")
    lookahead = 5
    has_offsets = False
    doubtful = (5, 6, "the attributes are not those of the payload")

    def __init__(self, base: int) -> None:
        self.base = base

    def size_at(self, view: memoryview, at: int) -> int:
        return int(_SIZE.unpack_from(view, at)[0])

    def entry(self, view: memoryview, at: int, end: int, place: int) -> DiskEntry | str:
        magic = view[at + 4]
        if magic > 1:
            return f"magic {magic} is not known (0 and 1 are)"
        payload_at = at + 9 + magic
        if payload_at > end:
            return f"{end - at - 4} bytes are too few for magic {magic}"
        stated = int(_CRC.unpack_from(view, payload_at - 4)[0])
        computed = crc32(view[payload_at:end])
        if computed != stated:
            return f"the CRC is {computed:#010x}, the message says {stated:#010x}"
        attributes = view[at + 5] if magic else 0
        entry = DiskEntry(place, place + end - at, self.base + place, self.base + place + end - at - 1, 1, magic,
                          attributes & 3)  # fmt: skip
        if attributes == 0:
            codec = _codec_of(view[payload_at : payload_at + 8]) if magic else 0
            if codec and (count := self._compressed(view, at, end, codec, entry.first)[0]):
                return entry._replace(messages=count, attributes=codec, head=bytes(view[at : at + 5]) + bytes([codec]))
            return entry
        if attributes & 3:
            count, faults = self._compressed(view, at, end, attributes & 3, entry.first)
            if not count and faults:
                return faults[0][1]
            entry = entry._replace(messages=count, faults=faults)
        return entry if attributes < 4 else entry._replace(head=bytes(view[at : at + 5]) + bytes([attributes & 3]))

    def _compressed(
        self, view: memoryview, at: int, end: int, codec: int, first: int
    ) -> tuple[int, tuple[tuple[int, str], ...]]:
        data = bytearray(view[at:end])
        data[5] = codec
        return _inside_07(bytes(data), first)

    def repaired(self, view: memoryview, at: int, end: int, place: int) -> tuple[DiskEntry, int, int, str] | None:
        size, stated = end - at - self.overhead, self.size_at(view, at)
        if size < self.smallest:
            return None
        magic = view[at + 4]
        for tried in (magic,) if size != stated else (1, 0):
            head = _SIZE.pack(size) + bytes([tried])
            found = self.entry(memoryview(b"".join((head, view[at + 5 : end]))), 0, end - at, place)
            if isinstance(found, DiskEntry):
                wrong = (place, place + 4, f"the size is {stated}, and it must be {size}")
                if tried != magic:
                    wrong = (place + 4, place + 5, f"the magic is {magic}, and it must be {tried}")
                return (found if found.head else found._replace(head=head), *wrong)
        return None

    def is_plausible(self, view: memoryview, at: int, lowest: int, highest: int) -> bool:
        return True

    def is_compressed(self, view: memoryview, at: int) -> bool:
        return bool(view[at + 4] and view[at + 5] & 3)

    def next_by_head(self, view: memoryview, at: int) -> int | None:
        return None

    def run(self, view: memoryview, at: int, expected: int, epoch: int) -> PlainRun | None:
        return None

    def entry_start(
        self, view: memoryview, at: int, stop: int, left: int, low: int, high: int, budget: int, refill: int
    ) -> tuple[int, int]:
        for match in self.candidate.finditer(view, at):
            place = match.start()
            if place >= stop:
                break
            size = self.size_at(view, place)
            end = place + self.overhead + size
            if size < self.smallest + view[place + 4] or end > left:
                continue
            if size > SMALL_ENTRY:
                if budget + refill * (place + 1 - at) < 0:
                    continue
                budget -= size
            payload_at = place + 9 + view[place + 4]
            if end > len(view) or crc32(view[payload_at:end]) == _CRC.unpack_from(view, payload_at - 4)[0]:
                return place, budget
        return -1, budget


LOG_FILE: Final = LogFile()
KAFKA_FILE: Final = KafkaFile


def head_fields(view: memoryview, at: int) -> tuple[int, int, int, int, int]:
    """Return offset, the offset behind, attributes, first and last time of an entry of a `.log` file, by its head."""
    if view[at + _MAGIC_AT] == BATCH:
        base, _, _, _, _, attributes, last_delta, first_ms, last_ms, *_ = _batch_head(view, at)
        return base, base + last_delta + 1, attributes, last_ms if attributes & _APPEND_TIME else first_ms, last_ms
    offset, _, _, magic, attributes = _head(view, at)
    time_ms = int(_INT64.unpack_from(view, at + 18)[0]) if magic and len(view) - at >= _TIMED else -1
    return offset, offset + 1, attributes, time_ms, time_ms


def moved(entry: DiskEntry, first: int, head: bytes) -> DiskEntry:
    """Return an entry with its offsets moved, so that it starts at another one.

    Args:
        head: The first bytes of the entry, as they are in the file or are repaired already.
    """
    last = first + entry.last - entry.first
    own = first if entry.magic == BATCH else last
    return entry._replace(first=first, last=last, head=_INT64.pack(own) + head[8:])


def _batch(view: memoryview, at: int, end: int, place: int) -> DiskEntry | str:
    """Return a record batch."""
    if end - at < _BATCH_HEAD.size:
        return f"{end - at - 12} bytes are too few for magic 2"
    base, _, epoch, _, crc, attributes, last_delta, first_ms, last_ms, producer_id, _, _, count = _batch_head(view, at)
    computed = crc32c(view[at + 21 : end])
    if computed != crc:
        return f"the CRC-32C is {computed:#010x}, the batch says {crc:#010x}"
    if not 0 <= count <= last_delta + 1:
        return f"the batch says that it has {count} records in {last_delta + 1} offsets from {base} on"
    marker = NO_MARKER
    if attributes & CONTROL:
        marker, count = _marker(view, at + _BATCH_HEAD.size, end), 0
    if attributes & _APPEND_TIME:
        first_ms = last_ms
    return DiskEntry(place, place + end - at, base, base + last_delta, count, BATCH, attributes, first_ms, last_ms,
                     epoch, producer_id, marker)  # fmt: skip


def _message(view: memoryview, at: int, end: int, place: int) -> DiskEntry | str:
    """Return a message or a wrapper of magic 0 or 1."""
    offset, size, crc, magic, attributes = _head(view, at)
    if magic > 1:
        return f"magic {magic} is not known (0, 1 and 2 are)"
    computed = crc32(view[at + 16 : end])
    if computed != crc:
        return f"the CRC is {computed:#010x}, the message says {crc:#010x}"
    if size < _SMALLEST_OF_MAGIC[magic]:
        return f"offset {offset} and size {size} are those of no message of magic {magic}"
    time_ms = int(_INT64.unpack_from(view, at + 18)[0]) if magic else -1
    if attributes & CODEC == 0:
        return DiskEntry(place, place + end - at, offset, offset, 1, magic, attributes, time_ms, time_ms)
    # Read at an offset that none of those inside contradicts: the checksum does not cover it.
    offsets, faults = _inside(_INT64.pack(_SOME_OFFSET) + view[at + 8 : end], offset - _SOME_OFFSET if magic else 0)
    if not offsets:
        return faults[0][1] if faults else "the wrapper is empty"
    first, last = offsets[0], offsets[-1]
    if faults:
        faults = tuple((offset if each == _SOME_OFFSET else each, reason) for each, reason in faults)
        first, last = min(first, *(each for each, _ in faults if each >= 0)), max(last, offset)
    entry = DiskEntry(place, place + end - at, first, last, len(offsets), magic, attributes, time_ms, time_ms,
                      faults=faults)  # fmt: skip
    if magic == 0 and not faults and offsets[-1] != offset:
        # Its own offset is not covered by the checksum, and those inside are.
        return entry._replace(head=_INT64.pack(offsets[-1]))
    return entry


def _inside(data: bytes, shift: int) -> tuple[list[int], tuple[tuple[int, str], ...]]:
    """Return the offsets of the messages in a wrapper, shifted, and what is wrong with those that cannot be read."""
    offsets: list[int] = []
    faults: list[tuple[int, str]] = []
    resume: object = None
    while len(faults) < _MOST_FAULTS:
        try:
            for message in KAFKA011.decode_messages(data, "", 0, 0, max_decoded_bytes=MAX_DECODED_BYTES, resume=resume):
                offsets.append(message.offset + shift)
            break
        except MessageError as fault:
            faults.append((fault.offset + shift, fault.reason))
            resume = fault.resume
        except BrokenFraming as fault:
            faults.append((-1, str(fault)))
            break
    return offsets, tuple(faults)


def _codec_of(payload: memoryview) -> int:
    """Return the codec that the first bytes of a payload are of; 0 for none."""
    first = bytes(payload)
    return 1 if first.startswith(_GZIP) else 2 if first.startswith(_XERIAL) else 0


def _inside_07(data: bytes, place: int) -> tuple[int, tuple[tuple[int, str], ...]]:
    """Return how many messages a compressed entry of Kafka 0.7 holds, and what is wrong with the others."""
    count = 0
    faults: list[tuple[int, str]] = []
    resume: object = None
    while len(faults) < _MOST_FAULTS:
        try:
            for _ in KAFKA07.decode_messages(data, "", "0-0", place, data_offset=place, resume=resume):
                count += 1
            break
        except MessageError as fault:
            faults.append((fault.offset, fault.reason))
            resume = fault.resume
        except BrokenFraming as fault:
            faults.append((place, str(fault)))
            break
    return count, tuple(faults)


def _marker(view: memoryview, at: int, end: int) -> int:
    """Return what a control record says, by its key; 99 if it cannot be read."""
    try:
        at = _behind_varint(view, at)  # the length of the record; attributes follow
        at = _behind_varint(view, at + 1)  # time
        at = _behind_varint(view, at)  # offset
        at = _behind_varint(view, at)  # length of the key
        return int(_MARKER.unpack_from(view[:end], at)[1])
    except (IndexError, error):
        return 99


def _behind_varint(view: memoryview, at: int) -> int:
    while view[at] & 0x80:
        at += 1
    return at + 1
