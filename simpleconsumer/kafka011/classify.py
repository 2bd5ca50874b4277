"""Classifies the answer to a fetch for one partition, for brokers that send record batches.

Pure. Rules, and which failure each prevents:
- A position moves by whole entries of which the checksum is right and the base offset can be: a damaged one would lead
  out of the log, or over messages that nobody has read.
- It moves past a batch that delivers nothing, too. Otherwise the client would ask for ever for control batches, aborted
  transactions, and batches that compaction has emptied.
- A last batch after a hole, and one that cannot be read, are left out: when they are fetched again they come first,
  and the following entries show which offsets they take.
- "Out of range" moves no position, and neither does "offset not available", which a new leader says until it knows how
  far the log is committed.
- The limits of a fetch are soft: the first batch comes whole, however large. So an answer without any is broken.

Sets of magic 0 and 1 alone are judged by `kafka08.classify`.

Source: org.apache.kafka.clients.consumer.internals.Fetcher (1.1), FetchCollector (3.9).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import BrokenFraming
from simpleconsumer.kafka011.batch_head import (
    MAGIC,
    MAGIC_AT,
    OVERHEAD,
    SMALLEST_SIZE,
    has_batch_checksum,
    last_offset_of_unreadable,
    read_head,
    why_batch_is_damaged,
)
from simpleconsumer.kafka08 import classify as kafka08
from simpleconsumer.kafka08.offset_order import Level, Walk, most_in, plain, walk_entries, why_damaged
from simpleconsumer.types import Buffer, FetchedPartition

NOT_LEADER_CODES: Final = frozenset((3, 5, 6, 9, 56, 74, 78, 100, 103))
"""Error codes of a broker that does not lead the partition, or leads it in another epoch than the client knows."""
_ENTRY = Struct(">qi")


def classify(
    answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, version: int = 0
) -> FetchResult:
    """Return what the answer to a fetch of one partition means.

    Args:
        position: The offset that was asked for.
        asked_bytes: The size that was asked for.
        largest_bytes: The largest size that may ever be asked for.
        version: Of the fetch request, if it is known; below 4 a broker converts record batches for the answer.
    """
    code = answer.error_code
    if code:
        return kafka08.classify_error(code, NOT_LEADER_CODES)
    data = plain(answer.message_set)
    if 0 < version < 4:
        return kafka08.classify(answer, position, asked_bytes, largest_bytes, version)
    if not data:
        return FetchResult(Outcome.NOTHING)
    walk: Walk | None = None
    broken = ""
    try:
        walk = walk_entries(data)
    except BrokenFraming as error:
        broken = str(error)
    if len(data) > MAGIC_AT and not _has_batches(data, walk):
        return kafka08.classify(answer, position, asked_bytes, largest_bytes, version)
    if walk is None:
        return FetchResult(Outcome.BROKEN, reason=broken)
    if not walk.entries:
        return FetchResult(Outcome.BROKEN, reason=_without_whole_entry(data))
    if _begins_below(data, position):
        found = read_head(data, 0).last_offset
        reason = f"offset {position} was requested, a batch up to {found} came first, and {position} does not follow it"
        return FetchResult(Outcome.DAMAGED, next_offset=position + 1, offset=position, reason=reason)
    result = _usable(answer, data, walk, position)
    if result is not None and result.next_offset > position:
        return result
    reason = f"the offsets of the {walk.entries} entries at {position} cannot be determined"
    if asked_bytes < largest_bytes:  # with more bytes come entries that show it
        return FetchResult(Outcome.GROW, size_bytes=min(2 * asked_bytes, largest_bytes), reason=reason)
    if result is not None:
        return FetchResult(Outcome.BACK_OFF, reason=f"{reason}: they end at {result.next_offset}")
    return FetchResult(Outcome.CHUNK, walk.end, _behind_unreadable(answer, data, position))


def _has_batches(data: Buffer, walk: Walk | None) -> bool:
    """Return whether any entry of a set is no message of magic 0 or 1; the first and the last one tell."""
    return data[MAGIC_AT] >= MAGIC or (walk is not None and data[walk.last + MAGIC_AT] >= MAGIC)


def _without_whole_entry(data: Buffer) -> str:
    if len(data) < _ENTRY.size:
        return f"{len(data)} bytes came, which have no entry"
    offset, size = _ENTRY.unpack_from(data)
    return f"{len(data)} bytes came of an entry of {size + OVERHEAD} (offset {offset})"


def _begins_below(data: Buffer, position: int) -> bool:
    """Return whether a set starts with a sound batch that ends before the position, with a hole there."""
    if data[MAGIC_AT] != MAGIC:
        return False
    size: int = _ENTRY.unpack_from(data)[1]
    end = size + OVERHEAD
    if not has_batch_checksum(data, 0, end) or not 0 <= read_head(data, 0).last_offset < position:
        return False
    later = _offset_at(data, end)
    return later is None or later > position


def _usable(answer: FetchedPartition, data: Buffer, walk: Walk, position: int) -> FetchResult | None:
    """Return the chunk of the entries up to the last one that can be trusted; None if there is none."""
    for start in dict.fromkeys((walk.tail, 0)):
        level = _level(answer, data, position)
        at, sound_end, epoch = start, 0, -1
        while at < walk.end:
            end = at + OVERHEAD + _ENTRY.unpack_from(data, at)[1]
            last = _last_offset(level, at, end)
            if last is not None and (end < walk.end or _is_trusted(answer, level, at, last)):
                level.floor = last + 1
                sound_end = end
                epoch = read_head(data, at).leader_epoch if data[at + MAGIC_AT] == MAGIC else -1
            at = end
        if sound_end:
            return FetchResult(Outcome.CHUNK, sound_end, level.floor, leader_epoch=epoch)
    return None


def _level(answer: FetchedPartition, data: Buffer, position: int) -> Level:
    level = Level(data)
    level.asked = position
    if answer.high_watermark >= 0:
        level.limit = answer.high_watermark
    return level


def _last_offset(level: Level, at: int, end: int) -> int | None:
    """Return the last offset that an entry takes; None if it is damaged."""
    data = level.buffer
    offset, size = _ENTRY.unpack_from(data, at)
    if data[at + MAGIC_AT] < MAGIC:
        return None if why_damaged(level, offset, end, most_in(data, at, size)) else int(offset)
    if data[at + MAGIC_AT] != MAGIC or size < SMALLEST_SIZE:
        return None
    last = read_head(data, at).last_offset
    is_damaged = last < offset or why_batch_is_damaged(level, offset, last, end) is not None
    is_confirmed = offset <= max(level.floor, level.asked) <= last and _offset_at(data, end) == last + 1
    if is_confirmed and not is_damaged:
        return last  # as the batches around it say the same as its head; decoding reports a wrong checksum
    if not has_batch_checksum(data, at, end):
        return last if is_confirmed else None
    return None if is_damaged else last


def _is_trusted(answer: FetchedPartition, level: Level, at: int, last: int) -> bool:
    """Return whether a last entry follows on the one before or ends the log, or the next head confirms it.

    With `isolation.level=read_committed` the log ends at the first open transaction.
    """
    data = level.buffer
    offset, size = _ENTRY.unpack_from(data, at)
    if offset <= max(level.floor, level.asked) or last + 1 in (level.limit, answer.last_stable_offset):
        return True
    later = _offset_at(data, at + OVERHEAD + size)
    return later is not None and later > last


def _offset_at(data: Buffer, at: int) -> int | None:
    """Return the offset of the entry that starts at a byte, cut off or not; None at the end of the set."""
    return int(_ENTRY.unpack_from(data, at)[0]) if at + _ENTRY.size <= len(data) else None


def _behind_unreadable(answer: FetchedPartition, data: Buffer, position: int) -> int:
    """Return the offset after a set of which no entry can be trusted, though more bytes were asked for."""
    level = _level(answer, data, position)
    end = OVERHEAD + _ENTRY.unpack_from(data)[1]
    if data[MAGIC_AT] != MAGIC or end < OVERHEAD + SMALLEST_SIZE:
        return position + 1
    head = read_head(data, 0)
    last = _last_offset(level, 0, end)
    if last is None:
        last = last_offset_of_unreadable(level, head.base_offset, head.last_delta, head.records, end)
    return max(position, last) + 1
