"""What the heads of the entries of a message set show of it, without looking into any message. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Final

from simpleconsumer.errors import BrokenFraming
from simpleconsumer.kafka08.down_conversion import last_offset_of_batch
from simpleconsumer.kafka08.level import CODEC_MASK, ENTRY_OVERHEAD
from simpleconsumer.kafka08.shallow import shallow_end
from simpleconsumer.types import Buffer

__all__ = ["bytes_an_offset", "first_offset_in"]

_ENTRY: Final = Struct(">qi")
_HEAD: Final = Struct(">qi5xB")


def bytes_an_offset(message_set: Buffer, offset: int) -> float | None:
    """Return how many bytes of a set one offset takes, None when the set does not show it.

    A set without a whole entry is measured by the head of its first entry.

    Args:
        offset: What was asked for; a wrapper that holds it starts before.
    """
    try:
        size_bytes, behind, _ = shallow_end(message_set)
    except BrokenFraming:
        return None
    if behind is None:
        if len(message_set) < _ENTRY.size:
            return None
        first, message_bytes = _ENTRY.unpack_from(message_set)
        size_bytes, behind = message_bytes + _ENTRY.size, first + 1
        last = last_offset_of_batch(message_set)
        if last is not None:
            offset, behind = first, last + 1
    return size_bytes / (behind - offset) if behind > offset else None


def first_offset_in(message_set: Buffer, offset: int, start: int) -> int:
    """Return the first offset that may be in the entry that holds `offset`.

    A wrapper carries its last offset only; its first one is somewhere behind the entry before.

    Args:
        start: First offset that the set may hold.
    """
    position, first = 0, start
    while position + _HEAD.size <= len(message_set):
        last, size, attributes = _HEAD.unpack_from(message_set, position)
        if last >= offset:
            return first if attributes & CODEC_MASK else int(last)
        first = last + 1
        position += ENTRY_OVERHEAD + size
    return first
