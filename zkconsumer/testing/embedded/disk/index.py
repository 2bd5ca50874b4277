"""The index of a segment: a sparse table of positions in memory, and the `.index` file that the Java broker writes.

File: entries of 8 bytes, `int32 offset - base offset, int32 position`, ascending.

Source: kafka.log.OffsetIndex (0.8.2.2).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path


class OffsetIndex:
    """Ascending pairs of an offset (relative to the segment) and the position of an entry that starts with it.

    Threads: none of its own; its log's lock guards it.
    """

    def __init__(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, relative_offset: int, position: int) -> None:
        """Add the next pair."""
        self._offsets.append(relative_offset)
        self._positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """Return a position from which a search for this offset can start; 0 before the first pair."""
        at = bisect_right(self._offsets, relative_offset) - 1
        return self._positions[at] if at >= 0 else 0

    def last_position(self) -> int:
        """Return the position of the last pair; 0 without one."""
        return self._positions[-1] if self._positions else 0

    def cut(self, size_bytes: int) -> None:
        """Drop pairs that point at or behind a position."""
        while self._positions and self._positions[-1] >= size_bytes:
            self._positions.pop()
            self._offsets.pop()

    def save(self, path: Path) -> None:
        """Write the file."""
        pairs = array("i", [0]) * (2 * len(self._offsets))
        pairs[0::2] = self._offsets
        pairs[1::2] = self._positions
        if sys.byteorder == "little":
            pairs.byteswap()
        path.write_bytes(pairs.tobytes())

    @classmethod
    def load(cls, path: Path, size_bytes: int) -> OffsetIndex | None:
        """Return the index of a segment of that size; None if there is no file, or none that fits."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        pairs = array("i")
        if len(data) % (2 * pairs.itemsize):
            return None
        pairs.frombytes(data)
        if sys.byteorder == "little":
            pairs.byteswap()
        index = cls()
        index._offsets, index._positions = pairs[0::2], pairs[1::2]
        for column in (index._offsets, index._positions):
            if any(left >= right for left, right in pairwise(column)) or min(column, default=0) < 0:
                return None
        return index if index.last_position() < max(size_bytes, 1) else None
