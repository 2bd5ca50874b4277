"""A message set of magic 0 or 1 that is being read, and what is known of the offsets there."""

from __future__ import annotations

from typing import Final

from simpleconsumer.types import MAX_INT64, Buffer

__all__ = ["CODEC_MASK", "ENTRY_OVERHEAD", "NO_TIMESTAMP", "Level"]

ENTRY_OVERHEAD: Final = 12
CODEC_MASK: Final = 7
NO_TIMESTAMP: Final = -1


class Level:
    """A message set that is being read: that of a broker, or the inside of a wrapper.

    Attributes:
        position: Where the next entry starts.
        magic: Magic that the messages must have: that of the wrapper; None outside of wrappers.
        base: What to add to the offsets found here (magic 1 wrappers hold relative ones).
        timestamp_ms: Timestamp of all messages here (wrapper with LogAppendTime), or None.
        wrapper_offset: Offset of the wrapper; -1 outside of wrappers.
        budget_bytes: How many bytes wrappers in here may still decompress to.
        floor: Least offset that the next entry can have: behind that of the entry before. Like `limit` and `asked` it
            is relative to `base`, as the offsets of the entries here are.
        limit: Offsets here are below it, except one that follows directly on that of the entry before: that the two
            agree is better evidence than a high watermark, which may be late. In a wrapper of magic 1 all are below it.
        asked: The offset that was asked for; the place of the first entry if its own offset is damaged.
        damaged: The last entries of damaged offset: the floor at that time, and their number.
    """

    __slots__ = (
        "asked",
        "base",
        "budget_bytes",
        "buffer",
        "damaged",
        "floor",
        "limit",
        "magic",
        "position",
        "timestamp_ms",
        "wrapper_offset",
    )

    def __init__(self, buffer: Buffer, budget_bytes: int = 0) -> None:
        self.buffer = buffer
        self.position = 0
        self.magic: int | None = None
        self.base = 0
        self.timestamp_ms: int | None = None
        self.wrapper_offset = -1
        self.budget_bytes = budget_bytes
        self.floor = 0
        self.limit = MAX_INT64
        self.asked = 0
        self.damaged = (-1, 0)
