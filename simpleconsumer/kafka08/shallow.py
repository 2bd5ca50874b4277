"""Finds where a message set ends, by the sizes of its entries, without reading any message.

A fetcher needs it for each set, to know where to fetch next before anything is decoded. So it has a fast path: runs of
entries of one size are found by comparing strided slices instead of entry by entry.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from simpleconsumer.errors import BrokenFraming
from simpleconsumer.kafka08.message_shapes import ENTRY_OVERHEAD
from simpleconsumer.types import Buffer

SMALLEST_MESSAGE: Final = 14
"""Size of a magic 0 message with neither key nor value."""
_SHORT_BLOCK = 4
_LONG_BLOCK = 64
_FIRST_WINDOW = 64
_SIZE = Struct(">i")
_UNSIGNED_SIZE = Struct(">8xI")  # a negative size leads out of every set
_OFFSET = Struct(">q")


class Walk(NamedTuple):
    """The whole entries of a set.

    Attributes:
        end: Where they end.
        last: Where the last one starts.
        entries: How many there are.
        tail: Where one of the last ones starts, which is the first one or has some behind it.
        tail_entries: How many there are from that one on.
    """

    end: int
    last: int
    entries: int
    tail: int
    tail_entries: int


def shallow_end(buffer: Buffer) -> tuple[int, int | None, int]:
    """Return how many bytes whole entries take, the offset behind the last one, and how many entries there are.

    Nothing is decompressed and no CRC is checked. `(0, None, 0)` for a buffer that is not empty means that no entry is
    whole: the fetch size was too small for the message.

    Raises:
        BrokenFraming: A size field is negative or below 14.
    """
    view = plain(buffer)
    walk = walk_entries(view)
    return (walk.end, _OFFSET.unpack_from(view, walk.last)[0] + 1, walk.entries) if walk.entries else (0, None, 0)


def walk_entries(view: Buffer) -> Walk:
    """Return the whole entries of a set; `view` holds bytes (`plain`).

    Raises:
        BrokenFraming: A size field is negative or below 14.
    """
    length = len(view)
    position, last, entries, tail, before_tail = _whole_blocks(view)
    while position + ENTRY_OVERHEAD <= length:
        (size,) = _SIZE.unpack_from(view, position + 8)
        if size < SMALLEST_MESSAGE:
            raise BrokenFraming(f"entry at byte {position}, after {entries} entries, has size {size}")
        end: int = position + ENTRY_OVERHEAD + size
        if end > length:
            break
        last = position
        position = end
        entries += 1
    return Walk(position, last, entries, tail, entries - before_tail)


def _whole_blocks(view: Buffer) -> tuple[int, int, int, int, int]:
    """Return where the exact walk continues, the entry before that, how many are before, and the tail with its count.

    The block of entries in which the set ends, or in which a size is wrong, is left out.
    """
    size_at = _UNSIGNED_SIZE.unpack_from
    length, smallest = len(view), SMALLEST_MESSAGE
    position = last = entries = size = tail = before_tail = 0
    block = _SHORT_BLOCK
    while True:
        at = position
        try:
            for _ in range(block):
                start, previous = at, size
                (size,) = size_at(view, at)
                if size < smallest:
                    return position, last, entries, tail, before_tail
                at += size + ENTRY_OVERHEAD
        except error:  # no room for another head
            return position, last, entries, tail, before_tail
        if at > length:
            return position, last, entries, tail, before_tail
        tail, before_tail = position, entries
        position, last, entries = at, start, entries + block
        block = _LONG_BLOCK
        if size == previous:
            more = _equal_entries(view, position, size)
            if more:
                entries += more
                position += more * (size + ENTRY_OVERHEAD)
                last = position - size - ENTRY_OVERHEAD
            if more >= _FIRST_WINDOW:
                tail = position - _FIRST_WINDOW * (size + ENTRY_OVERHEAD)
                before_tail = entries - _FIRST_WINDOW
                block = _SHORT_BLOCK


def _equal_entries(view: Buffer, position: int, size: int) -> int:
    """Return how many whole entries from position on have exactly this size.

    Each of the four bytes of the size field is compared for many entries at once, by a slice with the distance of two
    entries as its stride; the windows grow as long as the entries match.
    """
    stride = size + ENTRY_OVERHEAD
    possible = (len(view) - position) // stride
    count = 0
    window = _FIRST_WINDOW
    while count < possible:
        step = min(window, possible - count)
        first = position + count * stride + 8
        equal = step
        for index, byte in enumerate(_SIZE.pack(size)):
            column = bytes(view[first + index : first + step * stride : stride])
            if column.count(byte) != step:
                equal = min(equal, step - len(column.lstrip(bytes((byte,)))))
        count += equal
        if equal < step:
            break
        window *= 4
    return count


def plain(buffer: Buffer) -> Buffer:
    """Return the buffer itself, as bytes if it is a view of something larger than bytes."""
    return buffer.cast("B") if isinstance(buffer, memoryview) and buffer.format != "B" else buffer
