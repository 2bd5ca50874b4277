"""What the heads of the entries of a fetched set show of it, without reading a record.

Entries of older formats may be among the batches. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from simpleconsumer.errors import BrokenFraming
from simpleconsumer.kafka011.batch_head import MAGIC, MAGIC_AT, OVERHEAD
from simpleconsumer.kafka08 import entry_heads as kafka08
from simpleconsumer.kafka08.shallow import plain, walk_entries
from simpleconsumer.types import Buffer

__all__ = ["bytes_an_offset", "first_offset_in", "set_end"]

_ENTRY: Final = Struct(">qi")
_PLACE: Final = Struct(">qi4xb6xi")


def set_end(data: Buffer) -> tuple[int, int | None, int]:
    """Return how many bytes whole entries take, the offset behind the last one, and how many entries there are.

    Raises:
        BrokenFraming: A size field is negative or below 14.
    """
    view = plain(data)
    walk = walk_entries(view)
    return (walk.end, _offsets_of(view, walk.last)[1] + 1, walk.entries) if walk.entries else (0, None, 0)


def bytes_an_offset(data: Buffer, offset: int) -> float | None:
    """Return how many bytes of a set one offset takes, None when the set does not show it.

    Args:
        offset: What was asked for; a batch that holds it starts before.
    """
    view = plain(data)
    if len(view) < _PLACE.size or view[MAGIC_AT] != MAGIC:
        return kafka08.bytes_an_offset(data, offset)
    try:
        size_bytes, behind, _ = set_end(view)
    except BrokenFraming:
        return None
    first, last = _offsets_of(view, 0)
    if behind is None:
        size_bytes, behind = OVERHEAD + _ENTRY.unpack_from(view)[1], last + 1
    return size_bytes / (behind - first) if behind > first else None


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
