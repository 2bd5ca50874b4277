"""Finds where the records of batches start, in a stretch that holds their records back to back.

The first two bytes of a record say how long it is, for nearly all. So a table has the length of a record by these, and
where there are many, they are walked in lanes (`column_lanes`): a start is guessed where attributes of 0 follow a
possible length, where the record before seems to end without headers, and where the same holds for the next one.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints
from simpleconsumer.column_lanes import join_lanes
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.column_areas import Areas
from simpleconsumer.kafka011.records import SMALLEST_RECORD
from simpleconsumer.kafka011.varints import read_varint

__all__ = ["record_positions"]

_FIRST_TWO: Final = Struct("<H").unpack_from
_WORTH_LANES: Final = 1000
_BLOCK: Final = 64
_RECORDS_A_LANE: Final = 24
_GUESSES_A_LANE: Final = 12
_NOWHERE: Final = 1 << 30


def _steps() -> NDArray[np.int32]:
    """Return the bytes of a record by its first two, low byte first; 0 if they are not enough, or make no sense."""
    first_two = np.arange(1 << 16, dtype=np.int32)
    low, high = first_two & 0xFF, first_two >> 8
    is_short = low < 0x80
    size = np.where(is_short, low, low & 0x7F | high << 7)
    known = (is_short | (high < 0x80)) & (size & 1 == 0) & (size >> 1 >= SMALLEST_RECORD - 1)
    return np.where(known, (size >> 1) + np.where(is_short, 1, 2), 0).astype(np.int32)


_STEPS: Final = _steps()
_LEAPS: Final = np.where(_STEPS == 0, _NOWHERE, _STEPS)
"""The same for lanes, which leave the stretch where a length is not known."""
_STEP_LIST: Final[list[int]] = _STEPS.tolist()


def record_positions(areas: Areas) -> Ints:
    """Return where each whole record of a stretch starts, and as the last item where the last one ends."""
    if (areas.records == 1).all():
        return np.append(areas.start, areas.size)
    stretch, end = areas.stretch, areas.size
    data = stretch.data
    step_of, first_two = _STEP_LIST, _FIRST_TWO
    found: list[int] = []
    runs: list[Ints] = []
    position, lanes_help = 0, True
    while position < end:
        begin = len(found)
        for _ in range(_BLOCK):
            found.append(position)
            position += step_of[first_two(data, position)[0]] or _long_step(data, position)
            if position >= end:
                break
        else:
            known = found[begin:]
            if lanes_help and (end - position) * _BLOCK > _WORTH_LANES * (position - known[0]):
                ahead = _by_lanes(areas, np.array([*known, position]))
                runs += (np.array(found, np.int64), ahead[:-1])
                found.clear()
                position = int(ahead[-1])
                lanes_help = len(ahead) > _BLOCK
    if position > end:
        position = found.pop() if found else position
    found.append(position)
    runs.append(np.array(found, np.int64))
    return np.concatenate(runs)


def _long_step(data: memoryview, position: int) -> int:
    """Return the bytes of a record by its whole length; more than any stretch has if that makes no sense."""
    try:
        size, behind = read_varint(data, position)
    except (DecodeError, IndexError):
        return _NOWHERE
    return behind - position + size if size >= SMALLEST_RECORD - 1 else _NOWHERE


def _by_lanes(areas: Areas, known: Ints) -> Ints:
    """Return where records start from the last known one on, the last one being where the walk is to be continued."""
    stretch, end = areas.stretch, areas.size
    start, sizes = int(known[-1]), np.diff(known)
    count = int((end - start) / (float(sizes.mean()) * _RECORDS_A_LANE))
    if count < 2:
        return known[-1:]
    heads = _at_any(stretch, "<u2")
    starts = _guesses(stretch, heads, start, count, (end - start) // count, sizes)
    if len(areas.start) > 1:
        starts = np.union1d(starts, _some_batches(areas, start))
    if len(starts) < count // 2:
        return known[-1:]
    last = len(heads) - 1
    return join_lanes(starts, end, lambda at: at + _LEAPS[heads[np.minimum(at, last)]])


def _some_batches(areas: Areas, start: int) -> Ints:
    """Return where some batches start behind a place, about as many records apart as lanes are."""
    before = np.cumsum(areas.records) - areas.records
    is_first = np.diff(before // _RECORDS_A_LANE, prepend=-1) > 0
    found = areas.start[is_first]
    return found[found > start]


def _guesses(
    stretch: NDArray[np.uint8], heads: NDArray[np.uint16], start: int, count: int, distance: int, sizes: Ints
) -> Ints:
    """Return where lanes may start, in ascending order: the first is certain, the others look like a record."""
    largest = int(sizes.max())
    attributes_at = 2 if float(np.median(sizes)) >= 66 else 1
    first, width = start + distance, min(distance, largest)
    room = len(stretch) - first - (count - 2) * distance - attributes_at - 1
    width = min(width, room)
    if width < 1:
        return np.array([start])

    def looks(delta: int) -> NDArray[np.uint8]:
        return np.ndarray((count - 1, width), np.uint8, stretch, first + delta, (distance, 1))

    found = np.flatnonzero((looks(-1) == 0) & (looks(attributes_at) == 0))
    if len(found) > _GUESSES_A_LANE * count:  # binary values, of zeros
        return np.array([start])
    lane, behind = np.divmod(found, width)
    at = first + lane * distance + behind
    step = _STEPS[heads[at]].astype(np.int64)
    following = np.minimum(at + step, len(heads) - 1 - attributes_at)
    is_likely = (step > attributes_at) & (step <= 4 * largest) & (stretch[following - 1] == 0)
    is_likely &= _STEPS[heads[following]] > 0
    at, lane = at[is_likely], lane[is_likely]
    return np.append(start, at[np.diff(lane, prepend=-1) > 0])


def _at_any(stretch: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Return the numbers at each byte of a stretch."""
    return np.ndarray((len(stretch) - np.dtype(kind).itemsize + 1,), kind, stretch, 0, (1,))
