"""Finds where the entries of a message set start.

To walk entry by entry would take half of the time of columnar decoding. So the walk is only used at the start: when the
last entries had one size, the size fields of the next ones are compared by one strided access; and if sizes vary and
entries are many, they are walked in lanes (`column_lanes`).
"""

from __future__ import annotations

from struct import error

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_lanes import WORTH_LANES, positions_by_lanes
from simpleconsumer.entry_walk import EntryLayout
from simpleconsumer.types import Buffer

__all__ = ["entry_positions"]

_SHORT_BLOCK = 8
_LONG_BLOCK = 128
_FIRST_WINDOW = 64
_LARGEST_WINDOW = 1 << 16


def entry_positions(buffer: Buffer, layout: EntryLayout) -> NDArray[np.int64]:
    """Return where each whole entry starts, and as the last item where the last one ends.

    Sizes are read as unsigned, so the walk always advances; callers check whether they are possible. A negative one
    leads out of the buffer and ends the walk.
    """
    size_at, overhead = layout.unsigned_size.unpack_from, layout.overhead
    found: list[int] = []
    runs: list[NDArray[np.int64]] = []
    position, block, lanes_help = 0, _SHORT_BLOCK, True
    try:
        while True:
            for _ in range(block):
                found.append(position)
                position += size_at(buffer, position)[0] + overhead
            step = position - found[-1]
            if found[-1] - found[-2] == step == found[-2] - found[-3]:
                run = _equal_entries(buffer, position, step, layout)
                if run:
                    runs += (_array(found), np.arange(position, position + run * step, step, dtype=np.int64))
                    found.clear()
                    position += run * step
                block = _SHORT_BLOCK if run >= _FIRST_WINDOW else _LONG_BLOCK
                continue
            known = found[-_LONG_BLOCK:]
            if lanes_help and block == _LONG_BLOCK and _is_worth_lanes(len(buffer) - position, position - known[0]):
                ahead = positions_by_lanes(buffer, _array([*known, position]), layout)
                runs += (_array(found), ahead[:-1])
                found.clear()
                position = int(ahead[-1])
                lanes_help = len(ahead) > WORTH_LANES  # else they found little, and would again
            block = _LONG_BLOCK
    except error:  # no room for another head
        pass
    if found[-1] > len(buffer):  # the end of an entry that is cut off
        found.pop()
    runs.append(_array(found))
    return np.concatenate(runs)


def _is_worth_lanes(left_bytes: int, block_bytes: int) -> bool:
    """Return whether enough entries are left, assuming that they are as large as those of the last block."""
    return left_bytes * _LONG_BLOCK > WORTH_LANES * block_bytes


def _equal_entries(buffer: Buffer, position: int, step: int, layout: EntryLayout) -> int:
    """Return how many whole entries from position on take `step` bytes each."""
    possible = (len(buffer) - position) // step
    count, window = 0, _FIRST_WINDOW
    while count < possible:
        looked_at = min(window, possible - count)
        first = position + count * step + layout.size_at
        sizes: NDArray[np.uint32] = np.ndarray((looked_at,), ">u4", buffer, first, (step,))
        differs = sizes != step - layout.overhead
        if differs.any():
            return count + int(differs.argmax())
        count += looked_at
        window = min(window * 4, _LARGEST_WINDOW)
    return count


def _array(positions: list[int]) -> NDArray[np.int64]:
    return np.fromiter(positions, np.int64, len(positions))
