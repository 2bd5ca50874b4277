"""Where a message set ends: a walk over the sizes of its entries, without looking into any message.

A fetcher needs it for each set it receives, to know from where to fetch next before anything is decoded, so it has a
fast path: runs of entries of one size are found by comparing strided slices instead of entry by entry.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer.errors import BrokenFraming
from simpleconsumer.message_shapes import ENTRY_OVERHEAD
from simpleconsumer.types import Buffer

SMALLEST_MESSAGE: Final = 14
"""Size of a magic 0 message with neither key nor value."""
_EQUAL_SIZES_WORTH_A_RUN = 4
_FIRST_WINDOW = 64
_SIZE = Struct(">i")
_OFFSET = Struct(">q")


def shallow_end(buffer: Buffer) -> tuple[int, int | None, int]:
    """Return how many bytes whole entries take, the offset behind the last one, and how many entries there are.

    Nothing is inflated and no CRC is checked. `(0, None, 0)` for a buffer that is not empty means that not even
    one entry is whole: the fetch size was too small for the message.

    Raises:
        BrokenFraming: A size field is negative or below 14.
    """
    view = plain(buffer)
    length = len(view)
    position = last = entries = equal = previous = 0
    read_size = _SIZE.unpack_from
    while position + ENTRY_OVERHEAD <= length:
        (size,) = read_size(view, position + 8)
        if size < SMALLEST_MESSAGE:
            raise BrokenFraming(f"entry at byte {position}, after {entries} entries, has size {size}")
        end: int = position + ENTRY_OVERHEAD + size
        if end > length:
            break
        last = position
        position = end
        entries += 1
        if size != previous:
            previous, equal = size, 1
            continue
        equal += 1
        if equal == _EQUAL_SIZES_WORTH_A_RUN:
            equal = 0
            more = _equal_entries(view, position, size)
            if more:
                entries += more
                position += more * (size + ENTRY_OVERHEAD)
                last = position - size - ENTRY_OVERHEAD
    return (position, _OFFSET.unpack_from(view, last)[0] + 1, entries) if entries else (0, None, 0)


def _equal_entries(view: Buffer, position: int, size: int) -> int:
    """Return how many whole entries from position on have exactly this size.

    Each of the four bytes of the size field is compared for many entries at once, by a slice with the distance
    of two entries as its stride; the windows grow as long as they match.
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
            column = bytes(view[first + index : first + index + (step - 1) * stride + 1 : stride])
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
