"""Runs of sound entries in `.log` files, and where an entry may start behind damage. Pure.

A log mostly consists of plain entries: each starts where the one before ends, in the file and in offsets, and nothing
about them has to be judged. A run of them is read as one. Where a run ends, its next entry is read alone.

The kernel has the same in compiled form (`simpleconsumer/kernel/disk_entries.pxi`). Whoever changes one changes the
other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from isal.isal_zlib import crc32 as crc32_of_isal

from simpleconsumer import kernel
from simpleconsumer.codecs import crc32c
from simpleconsumer.types import MAX_INT64

crc32: Final[Callable[..., int]] = crc32_of_isal if kernel.compiled is None else kernel.compiled.crc32
CANDIDATE: Final = re.compile(rb"(?s)(?=[\x00-\x3f].{7}(?!\x00{4})[\x00-\x7f].{7}[\x00-\x02])")
"""Where an entry may start: the offset is not negative, the size neither negative nor zero, the magic known."""
LOOKAHEAD: Final = 17
_HEAD: Final = Struct(">qiIBB")
_BATCH_HEAD: Final = Struct(">qiibIhiqqqhii")
_INT64: Final = Struct(">q")
_OVERHEAD: Final = 12
_MAGIC_AT: Final = 16
_BATCH: Final = 2
_SMALLEST: Final = 14
_SMALLEST_TIMED: Final = 22
SMALL_ENTRY: Final = 1024
_MOST_DELTA: Final = 2**31 - 1
_CODEC: Final = 7
_APPEND_TIME: Final = 8
_NO_PLAIN_BITS: Final = 48
"""Of a transaction, or a marker."""


class PlainRun(NamedTuple):
    """Plain entries that follow each other.

    Attributes:
        end: The byte behind the last one.
        entries: How many they are.
        last_first: The first offset of the last one.
        next_offset: The offset behind them; each offset has a message.
        magic, attributes: Those of each of them.
        first_ms, last_ms: The earliest and the latest time; -1 for none.
    """

    end: int
    entries: int
    last_first: int
    next_offset: int
    magic: int
    attributes: int
    first_ms: int
    last_ms: int


def plain_run(data: memoryview, at: int, expected: int, epoch: int) -> PlainRun:
    """Return the plain entries from a byte on: whole ones whose checksum fits, without holes, of one form.

    Batches of transactions and compressed messages of older formats are not plain: more than their head counts.

    Args:
        expected: The first offset that the first one must have.
        epoch: The leader epoch that all must have; -1 for older formats, which have none.
    """
    return (_plain_run if kernel.compiled is None else _compiled_run)(data, at, expected, epoch)


def _compiled_run(data: memoryview, at: int, expected: int, epoch: int) -> PlainRun:
    return PlainRun(*kernel.compiled.plain_run(data, at, expected, epoch))


def _plain_run(data: memoryview, at: int, expected: int, epoch: int) -> PlainRun:
    found = PlainRun(at, 0, expected, expected, -1, 0, -1, -1)
    first_ms = last_ms = -1
    while len(data) - found.end >= _BATCH_HEAD.size and found.next_offset < MAX_INT64 - _MOST_DELTA:
        at = found.end
        offset, size, _, magic, attributes = _HEAD.unpack_from(data, at)
        if magic > _BATCH or (found.entries and magic != found.magic) or offset != found.next_offset:
            break
        if size > len(data) - at - _OVERHEAD or size < (_SMALLEST_TIMED if magic else _SMALLEST):
            break
        delta, own_first_ms = 0, -1
        if magic == _BATCH:
            _, _, own_epoch, _, _, attributes, delta, own_first_ms, own_last_ms, *_, count = _BATCH_HEAD.unpack_from(
                data, at
            )
            attributes &= 0xFFFF
            if attributes & _NO_PLAIN_BITS or own_epoch != epoch or delta < 0 or count != delta + 1:
                break
            if attributes & _APPEND_TIME:
                own_first_ms = own_last_ms
        else:
            if attributes & _CODEC or epoch != -1:
                break
            own_first_ms = own_last_ms = int(_INT64.unpack_from(data, at + 18)[0]) if magic else -1
        if (found.entries and attributes != found.attributes) or not _fits(data, at, size):
            break
        if own_first_ms >= 0 and (first_ms < 0 or own_first_ms < first_ms):
            first_ms = own_first_ms
        last_ms = max(last_ms, own_last_ms)
        found = PlainRun(at + size + _OVERHEAD, found.entries + 1, offset, offset + delta + 1, magic, attributes,
                         first_ms, last_ms)  # fmt: skip
    return found


def _fits(data: memoryview, at: int, size: int) -> bool:
    """Return whether the checksum of a whole entry fits."""
    end = at + _OVERHEAD + size
    if data[at + _MAGIC_AT] == _BATCH:
        if size < _BATCH_HEAD.size - _OVERHEAD:
            return False
        return crc32c(data[at + 21 : end]) == int.from_bytes(data[at + 17 : at + 21], "big")
    return bool(crc32(data[at + 16 : end]) == int.from_bytes(data[at + 12 : at + 16], "big"))


def entry_start(
    data: memoryview, at: int, stop: int, left: int, low: int, high: int, budget: int, refill: int
) -> tuple[int, int]:
    """Return where the next entry starts of which the checksum fits, or ends behind `data`; -1 for nowhere.

    Args:
        data: Bytes of a file.
        at, stop: The first place that is tried, and the one behind the last.
        left: How many bytes the file has from the start of `data` on.
        low, high: The entry's offset must not be below the first one, and be below the second one.
        budget: So many bytes are checked at most, those of entries of up to 1 KiB not counted.
        refill: So many more for each place that was passed by.

    Returns:
        The place, and what is left of the budget without the refill.
    """
    if kernel.compiled is not None:
        found: tuple[int, int] = kernel.compiled.entry_start(data, at, stop, left, low, high, budget, refill)
        return found
    for match in CANDIDATE.finditer(data, at):
        place = match.start()
        if place >= stop:
            break
        offset, size, *_ = _HEAD.unpack_from(data, place) if len(data) - place >= _HEAD.size else (-1, 0)
        if not _SMALLEST <= size <= left - place - _OVERHEAD or not low <= offset < high:
            continue
        if size > SMALL_ENTRY:
            if budget + refill * (place + 1 - at) < 0:
                continue
            budget -= size
        if size > len(data) - place - _OVERHEAD or _fits(data, place, size):
            return place, budget
    return -1, budget
