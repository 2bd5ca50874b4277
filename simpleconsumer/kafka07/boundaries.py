"""Finds out whether a byte position is the start of an entry, by walking from one that is.

No byte of a log shows where an entry starts: a broker serves any position and sends what is there. So a position that
somebody else has stored is checked from the start of its segment on, which the broker names (offsets request). Only the
size fields are read, so the walk may fetch a few bytes at the end of each entry that it does not hold.

Pure: the caller fetches.
"""

from __future__ import annotations

from simpleconsumer.dialect_types import Boundary, PositionIs
from simpleconsumer.entry_walk import plain, walk_entries
from simpleconsumer.errors import BrokenFraming
from simpleconsumer.kafka07.message_set import LAYOUT
from simpleconsumer.types import Buffer

__all__ = ["find_boundary", "last_entry_before"]


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
