"""Decides whether the base offset of a record batch can be right, and which offset stands for one that cannot be read.

The checksum of a batch covers how many offsets it takes, and not where they start. So base offsets are judged by their
neighbours, by the rules of `kafka08.offset_order`: a batch is *damaged* if it begins before the end of the one before,
or reaches into those behind it, or behind the end of the log without a neighbour that says so. A first batch has no
neighbour before it: what it contradicts counts if the batch behind it follows directly on that one.

A base offset that is wrong by less than the hole that compaction left beside it cannot be distinguished from a right
one.

Pure.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from simpleconsumer.kafka011.batch_head import MAGIC, OVERHEAD
from simpleconsumer.kafka08.level import Level
from simpleconsumer.kafka08.offset_order import offset_behind
from simpleconsumer.types import MAX_INT64, Buffer

__all__ = ["last_offset_of_unreadable", "why_batch_is_damaged"]

_HEAD: Final = Struct(">qi4xb6xi").unpack_from
_OFFSET: Final = Struct(">q").unpack_from


def why_batch_is_damaged(level: Level, base: int, last: int, end: int) -> str | None:
    """Return what is wrong with the offsets of the next batch of a set, as a clause; None if they can be right.

    Args:
        base, last: First and last offset of the batch, by its head.
        end: Where it ends in the set.
    """
    floor = level.floor
    if base < 0:
        return f"base offset {base} is negative"
    if base < floor:
        return f"base offset {base} is not above {floor - 1}, the offset before"
    if last >= MAX_INT64:  # the offset behind it could not be asked for
        return f"offset {last} is not below {MAX_INT64}, the largest possible one"
    if last >= level.limit and base != floor:
        return f"offset {last} is not below {level.limit}, where the log ends"
    hole = base - max(floor, level.asked)
    if hole <= 0 and floor:
        return None
    behind = offset_behind(level, end, last, 1 if hole > 0 or _is_followed_directly(level.buffer, end) else 2)
    return None if behind is None else f"offset {last} is not below {behind}, the offset of a later entry"


def last_offset_of_unreadable(level: Level, base: int, last_delta: int, count: int, end: int) -> int:
    """Return the last offset that a batch may hold whose bytes do not match its checksum.

    What is behind it decides. At the end of a set its head is believed if it agrees with itself; if not, the batch
    counts as one offset, so that no message behind it is skipped.
    """
    behind = offset_behind(level, end)
    if behind is not None:
        return behind - 1
    first = max(level.floor, level.asked)
    last = base + last_delta
    if base <= first <= last < level.limit and last_delta == count - 1:
        return last
    return first


def _is_followed_directly(buffer: Buffer, position: int) -> bool:
    """Return whether the entry at a position is a batch behind whose last offset the next entry begins."""
    try:
        base, size, magic, last_delta = _HEAD(buffer, position)
        return bool(magic == MAGIC and _OFFSET(buffer, position + OVERHEAD + size)[0] == base + last_delta + 1)
    except error:  # the set ends
        return False
