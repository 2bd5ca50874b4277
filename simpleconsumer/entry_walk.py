"""Finds the whole entries of a message set by their sizes, without reading any message.

A fetcher needs it for each set, to know where to fetch next before anything is decoded. So it has a fast path: runs of
entries of one size are found by comparing strided slices instead of entry by entry. Pure.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from simpleconsumer.errors import BrokenFraming
from simpleconsumer.types import Buffer

__all__ = ["EntryLayout", "Walk", "plain", "walk_entries"]

_SHORT_BLOCK: Final = 4
_LONG_BLOCK: Final = 64
_FIRST_WINDOW: Final = 64


class EntryLayout:
    """How the entries of a generation are framed.

    Attributes:
        size_at: Where the int32 size is in an entry.
        overhead: How many bytes of an entry its size does not count.
        smallest: The least size that a message can have.
        mark_at: Where the bytes are by which most entries of a set look alike.
        mark_bytes: How many these are: 2 or 4.
        has_offset: Whether an entry starts with an int64 offset, which ascends.
        size: Reads the size of the entry at a byte of a buffer.
        unsigned_size: The same without a sign: a negative size leads out of every set.
    """

    def __init__(
        self, size_at: int, overhead: int, smallest: int, *, mark_at: int, mark_bytes: int, has_offset: bool
    ) -> None:
        self.size_at = size_at
        self.overhead = overhead
        self.smallest = smallest
        self.mark_at = mark_at
        self.mark_bytes = mark_bytes
        self.has_offset = has_offset
        self.size = Struct(f">{size_at}xi")
        self.unsigned_size = Struct(f">{size_at}xI")


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


def walk_entries(view: Buffer, layout: EntryLayout) -> Walk:
    """Return the whole entries of a set; `view` holds bytes (`plain`).

    Raises:
        BrokenFraming: A size field is negative or below the least size of a message.
    """
    length, size_at, overhead = len(view), layout.size.unpack_from, layout.overhead
    position, last, entries, tail, before_tail = _whole_blocks(view, layout)
    while position + overhead <= length:
        (size,) = size_at(view, position)
        if size < layout.smallest:
            raise BrokenFraming(f"entry at byte {position}, after {entries} entries, has size {size}")
        end: int = position + overhead + size
        if end > length:
            break
        last = position
        position = end
        entries += 1
    return Walk(position, last, entries, tail, entries - before_tail)


def plain(buffer: Buffer) -> Buffer:
    """Return the buffer itself, as bytes if it is a view of something larger than bytes."""
    return buffer.cast("B") if isinstance(buffer, memoryview) and buffer.format != "B" else buffer


def _whole_blocks(view: Buffer, layout: EntryLayout) -> tuple[int, int, int, int, int]:
    """Return where the exact walk continues, the entry before that, how many are before, and the tail with its count.

    The block of entries in which the set ends, or in which a size is wrong, is left out.
    """
    size_at = layout.unsigned_size.unpack_from
    length, smallest, overhead = len(view), layout.smallest, layout.overhead
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
                at += size + overhead
        except error:  # no room for another head
            return position, last, entries, tail, before_tail
        if at > length:
            return position, last, entries, tail, before_tail
        tail, before_tail = position, entries
        position, last, entries = at, start, entries + block
        block = _LONG_BLOCK
        if size == previous:
            more = _equal_entries(view, position, size, layout)
            if more:
                entries += more
                position += more * (size + overhead)
                last = position - size - overhead
            if more >= _FIRST_WINDOW:
                tail = position - _FIRST_WINDOW * (size + overhead)
                before_tail = entries - _FIRST_WINDOW
                block = _SHORT_BLOCK


def _equal_entries(view: Buffer, position: int, size: int, layout: EntryLayout) -> int:
    """Return how many whole entries from position on have exactly this size.

    Each of the four bytes of the size field is compared for many entries at once, by a slice with the distance of two
    entries as its stride; the windows grow as long as the entries match.
    """
    stride = size + layout.overhead
    possible = (len(view) - position) // stride
    count = 0
    window = _FIRST_WINDOW
    while count < possible:
        step = min(window, possible - count)
        first = position + count * stride + layout.size_at
        equal = step
        for index, byte in enumerate(size.to_bytes(4, "big")):
            column = bytes(view[first + index : first + step * stride : stride])
            if column.count(byte) != step:
                equal = min(equal, step - len(column.lstrip(bytes((byte,)))))
        count += equal
        if equal < step:
            break
        window *= 4
    return count
