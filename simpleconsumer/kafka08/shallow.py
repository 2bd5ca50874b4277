"""Finds where a message set of Kafka 0.8 ends, and the offset behind its last entry, without reading any message."""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer import entry_walk
from simpleconsumer.entry_walk import EntryLayout, Walk, plain
from simpleconsumer.kafka08.level import ENTRY_OVERHEAD
from simpleconsumer.types import Buffer

__all__ = ["LAYOUT", "SMALLEST_MESSAGE", "Walk", "plain", "shallow_end", "walk_entries"]

SMALLEST_MESSAGE: Final = 14
"""Size of a magic 0 message with neither key nor value."""
LAYOUT: Final = EntryLayout(8, ENTRY_OVERHEAD, SMALLEST_MESSAGE)
_OFFSET = Struct(">q")


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
    return entry_walk.walk_entries(view, LAYOUT)
