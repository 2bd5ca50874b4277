"""Finds the whole entries of a message set by their sizes, without reading any message. Pure.

A fetcher needs it for each set, to know where to fetch next before anything is decoded. The kernel has the same in
compiled form (`simpleconsumer/kernel/entry_walk.pxi`). Whoever changes one changes the other.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from simpleconsumer import kernel
from simpleconsumer.errors import BrokenFraming
from simpleconsumer.types import Buffer

__all__ = ["EntryLayout", "Walk", "plain", "plain_walk", "walk_entries"]

_BLOCK: Final = 4
"""The tail of a walk starts with the block before the one that the last entry is in."""


class EntryLayout:
    """How the entries of a generation are framed.

    Attributes:
        size_at: Where the int32 size is in an entry.
        overhead: How many bytes of an entry its size does not count.
        smallest: The least size that a message can have.
        size: Reads the size of the entry at a byte of a buffer.
    """

    def __init__(self, size_at: int, overhead: int, smallest: int) -> None:
        self.size_at = size_at
        self.overhead = overhead
        self.smallest = smallest
        self.size = Struct(f">{size_at}xi")


class Walk(NamedTuple):
    """The whole entries of a set.

    Attributes:
        end: Where they end.
        last: Where the last one starts.
        entries: How many there are.
        tail: Where one of the last ones starts, which is the first one or has some behind it.
        tail_entries: How many there are from that one on: all of them, or more than a block and at most two.
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
    walk = plain_walk if kernel.compiled is None else kernel.compiled.walk_entries
    *found, size = walk(view, layout.size_at, layout.overhead, layout.smallest, _BLOCK)
    if size < layout.smallest:
        raise BrokenFraming(f"entry at byte {found[0]}, after {found[2]} entries, has size {size}")
    return Walk(*found)


def plain_walk(
    view: Buffer, size_at: int, overhead: int, smallest: int, block: int
) -> tuple[int, int, int, int, int, int]:
    """Return the fields of a `Walk`, and a size that is impossible, or `smallest`."""
    length, size_of = len(view), Struct(f">{size_at}xi").unpack_from
    position = last = entries = tail = before_tail = block_start = 0
    while position + overhead <= length:
        (size,) = size_of(view, position)
        if size < smallest:
            return position, last, entries, tail, entries - before_tail, size
        end = position + overhead + size
        if end > length:
            break
        if entries % block == 0 and entries:
            tail, before_tail, block_start = block_start, entries - block, position
        last, position = position, end
        entries += 1
    return position, last, entries, tail, entries - before_tail, smallest


def plain(buffer: Buffer) -> Buffer:
    """Return the buffer itself, as bytes if it is a view of something larger than bytes."""
    return buffer.cast("B") if isinstance(buffer, memoryview) and buffer.format != "B" else buffer
