"""A message set of Kafka 0.7 that is being read, and the outermost entry of which it is a part."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from simpleconsumer.types import Buffer

__all__ = ["CODEC_MASK", "ENTRY_OVERHEAD", "Level", "OpenEntry", "is_plain_at"]

ENTRY_OVERHEAD: Final = 4
CODEC_MASK: Final = 3
_MAGIC_AND_ATTRIBUTES = Struct(">4xBB").unpack_from


class Level:
    """A message set that is being read: that of a broker, or the inside of a compressed entry.

    Attributes:
        position: Where the next entry starts.
        budget_bytes: How many bytes compressed entries in here may still inflate to.
    """

    __slots__ = ("budget_bytes", "buffer", "position")

    def __init__(self, buffer: Buffer, budget_bytes: int) -> None:
        self.buffer = buffer
        self.position = 0
        self.budget_bytes = budget_bytes


class OpenEntry:
    """The outermost entry that is being read.

    Attributes:
        start: Where it starts in the log.
        end: Where it ends in the log.
        index: Number of the next message in it.
    """

    __slots__ = ("end", "index", "start")

    def __init__(self, place: int) -> None:
        self.start = self.end = place
        self.index = 0


def is_plain_at(level: Level) -> bool:
    """Return whether the head of an uncompressed message comes next; whether the message is whole is not looked at."""
    try:
        magic, attributes = _MAGIC_AND_ATTRIBUTES(level.buffer, level.position)
    except error:
        return False
    return bool(magic == 0 or (magic == 1 and attributes == 0))
