"""The head of a record batch: the facts about its records that need no reading of them.

    at   0  int64   base offset: that of the first record, also when compaction has removed it
         8  int32   size of the rest
        12  int32   leader epoch, which the broker sets
        16  int8    magic: 2. It is at the same place in the entries of magic 0 and 1
        17  uint32  CRC-32C of everything after it
        21  int16   attributes: codec in bits 0 to 2; 3: log append time; 4: transactional; 5: control
        23  int32   last offset - base offset, also when compaction has removed that record
        27  int64   base timestamp
        35  int64   largest timestamp; with log append time, that of all records
        43  int64   producer id; int16 producer epoch; int32 base sequence; -1 each without idempotence
        57  int32   number of records, 0 in a batch that compaction has emptied
        61          the records; with a codec these alone are compressed, as one stream

Neither base offset, size, epoch nor magic is covered by the checksum.

Source: org.apache.kafka.common.record.DefaultRecordBatch (1.1, 3.9).

Decides whether the base offset of a record batch can be right, and which offset stands for one that cannot be read.

The checksum of a batch covers how many offsets it takes, and not where they start. So base offsets are judged by their
neighbours, by the rules of `kafka08.offset_order`: a batch is *damaged* if it begins before the end of the one before,
or reaches into the following ones, or past the end of the log without a neighbour that confirms it. A first batch has
no neighbour before it: a contradiction counts if the batch after it follows directly on that one.

A base offset that is wrong by less than the hole that compaction left next to it cannot be distinguished from a right
one.

Also reads the heads of the entries of a fetched set, and no record.

Entries of older formats may be among the batches.

How the records of a fetched set were appended: in which leader epoch, and whether the broker has set their time.

The heads of the entries say so, of any magic; nothing is decompressed.

Source: org.apache.kafka.common.record.DefaultRecordBatch, AbstractLegacyRecordBatch (3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Final, NamedTuple

from simpleconsumer.codecs import crc32c
from simpleconsumer.dialect_types import Appended
from simpleconsumer.errors import BrokenFraming
from simpleconsumer.kafka08 import classify as kafka08
from simpleconsumer.kafka08.offset_order import Level, offset_behind, plain, walk_entries
from simpleconsumer.types import MAX_INT64, Buffer

MAGIC: Final = 2
MAGIC_AT: Final = 16
OVERHEAD: Final = 12
"""How many bytes of a batch its size does not count."""
CRC_BODY_AT: Final = 21
HEAD: Final = Struct(">qiibIhiqqqhii")
HEAD_BYTES: Final = HEAD.size
SMALLEST_SIZE: Final = HEAD_BYTES - OVERHEAD
CODEC_MASK: Final = 7
LOG_APPEND_TIME: Final = 8
IS_TRANSACTIONAL: Final = 16
IS_CONTROL: Final = 32
_CRC = Struct(">I")
_CRC_AT: Final = 17


class BatchHead(NamedTuple):
    """The fields of the head, in their order."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_delta


def read_head(buffer: Buffer, position: int) -> BatchHead:
    """Return the head at a position; raises struct.error if it is not whole."""
    return BatchHead._make(HEAD.unpack_from(buffer, position))


def has_batch_checksum(buffer: Buffer, position: int, end: int) -> bool:
    """Return whether an entry has the checksum of a record batch; if so it is one, whatever its magic says."""
    if end - position < HEAD_BYTES:
        return False
    stated = _CRC.unpack_from(buffer, position + _CRC_AT)[0]
    return bool(crc32c(memoryview(buffer)[position + CRC_BODY_AT : end]) == stated)


_HEAD: Final = Struct(">qi4xb6xi").unpack_from
_OFFSET: Final = Struct(">q").unpack_from


def why_batch_is_damaged(level: Level, base: int, last: int, end: int) -> str | None:
    """Return what is wrong with the offsets of the next batch of a set, as a clause; None if they can be right.

    Args:
        base, last: First and last offset of the batch, by its head.
        end: Where it ends in the set.
    """
    floor = level.floor
    if base < 0:
        return f"base offset {base} is negative"
    if base < floor:
        return f"base offset {base} is not above {floor - 1}, the offset before"
    if last >= MAX_INT64:  # the offset after it could not be asked for
        return f"offset {last} is not below {MAX_INT64}, the largest possible one"
    if last >= level.limit and base != floor:
        return f"offset {last} is not below {level.limit}, where the log ends"
    hole = base - max(floor, level.asked)
    if hole <= 0 and floor:
        return None
    later = offset_behind(level, end, last, 1 if hole > 0 or _is_followed_directly(level.buffer, end) else 2)
    return None if later is None else f"offset {last} is not below {later}, the offset of a later entry"


def last_offset_of_unreadable(level: Level, base: int, last_delta: int, count: int, end: int) -> int:
    """Return the last offset that a batch may hold whose bytes do not match its checksum.

    The following entries decide. At the end of a set its head is believed if it agrees with itself; if not, the batch
    counts as one offset, so that no later message is skipped.
    """
    later = offset_behind(level, end)
    if later is not None:
        return later - 1
    first = max(level.floor, level.asked)
    last = base + last_delta
    if base <= first <= last < level.limit and last_delta == count - 1:
        return last
    return first


def _is_followed_directly(buffer: Buffer, position: int) -> bool:
    """Return whether the entry at a position is a batch, and the next entry begins right after its last offset."""
    try:
        base, size, magic, last_delta = _HEAD(buffer, position)
        return bool(magic == MAGIC and _OFFSET(buffer, position + OVERHEAD + size)[0] == base + last_delta + 1)
    except error:  # the set ends
        return False


_ENTRY: Final = Struct(">qi")
_PLACE: Final = Struct(">qi4xb6xi")


def set_end(data: Buffer) -> tuple[int, int | None, int]:
    """Return how many bytes whole entries take, the offset after the last one, and the number of entries.

    Raises:
        BrokenFraming: A size field is negative or below 14.
    """
    view = plain(data)
    walk = walk_entries(view)
    return (walk.end, _offsets_of(view, walk.last)[1] + 1, walk.entries) if walk.entries else (0, None, 0)


def bytes_an_offset(data: Buffer, offset: int) -> float | None:
    """Return how many bytes of a set one offset takes, None when the set does not show it.

    Args:
        offset: The requested offset; a batch that holds it starts before.
    """
    view = plain(data)
    if len(view) < _PLACE.size or view[MAGIC_AT] != MAGIC:
        return kafka08.bytes_an_offset(data, offset)
    try:
        size_bytes, later, _ = set_end(view)
    except BrokenFraming:
        return None
    first, last = _offsets_of(view, 0)
    if later is None:
        size_bytes, later = OVERHEAD + _ENTRY.unpack_from(view)[1], last + 1
    return size_bytes / (later - first) if later > first else None


def first_offset_in(data: Buffer, offset: int, start: int) -> int:
    """Return the first offset that may be in the entry that holds `offset`, at least `start`."""
    view = plain(data)
    for position in _starts(view):
        first, last = _offsets_of(view, position)
        if last >= offset:
            is_batch = view[position + MAGIC_AT] == MAGIC
            return max(first, start) if is_batch else kafka08.first_offset_in(view[position:], offset, start)
        start = last + 1
    return start


def _starts(view: Buffer) -> Iterator[int]:
    """Yield where entries start of which the head is there."""
    position = 0
    while position + _PLACE.size <= len(view):
        yield position
        position += OVERHEAD + max(_ENTRY.unpack_from(view, position)[1], 0)


def _offsets_of(view: Buffer, position: int) -> tuple[int, int]:
    """Return the first and the last offset of an entry; of one that is no batch, its own."""
    offset = int(_ENTRY.unpack_from(view, position)[0])
    if view[position + MAGIC_AT] != MAGIC or position + _PLACE.size > len(view):
        return offset, offset
    return offset, offset + int(_PLACE.unpack_from(view, position)[3])


_BATCH: Final = Struct(">qiibIhi").unpack_from
"""Base offset, size, leader epoch, magic, checksum, attributes, last offset less base offset."""
_MESSAGE: Final = Struct(">qi4xbB").unpack_from
"""Of the magic before: offset, size, magic, attributes."""
_MESSAGE_HEAD: Final = 18


def appended(data: Buffer) -> list[Appended]:
    """Return how the records of a set were appended, up to the first incomplete head; equal neighbours are one."""
    found: list[Appended] = []
    position, end = 0, len(data)
    while position + _MESSAGE_HEAD <= end:
        epoch: int | None = None
        last, size, magic, attributes = _MESSAGE(data, position)
        if magic == MAGIC:
            if position + HEAD_BYTES > end:
                break
            base, size, leader_epoch, _, _, attributes, delta = _BATCH(data, position)
            last, epoch = base + delta, None if leader_epoch < 0 else leader_epoch
        has_append_time = magic > 0 and bool(attributes & LOG_APPEND_TIME)
        if found and found[-1][1:] == (epoch, has_append_time):
            found.pop()
        found.append(Appended(last, epoch, has_append_time))
        if size <= 0:
            break
        position += OVERHEAD + size
    return found
