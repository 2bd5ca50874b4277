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
_WORTH_LANES: Final = 2000
_ONE_BYTE: Final = 64
"""Offsets differ from the base offset by less in one byte."""
_SHORT_RECORD: Final = 66
"""Bytes of the longest record whose length is one byte."""
_RECORDS_A_LANE: Final = 12
_MOST_FIRST_STEPS: Final = 32
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
    """Return where each whole record or skip of a stretch starts, and as the last item where the last one ends."""
    equal = _of_equal_sizes(areas)
    if equal is not None:
        return equal
    data, end = areas.stretch.data, areas.size
    step_of, first_two = _STEP_LIST, _FIRST_TWO
    ahead = _by_lanes(areas) if areas.number >= _WORTH_LANES else np.zeros(1, np.int64)
    position = int(ahead[-1])
    found: list[int] = []
    while position < end:
        found.append(position)
        position += step_of[first_two(data, position)[0]] or _long_step(data, position)
    positions = np.concatenate([ahead[:-1], np.array([*found, position], np.int64)])
    return positions if positions[-1] <= end else positions[:-1]  # the last one is cut off


def _long_step(data: memoryview, position: int) -> int:
    """Return the bytes of a record by its whole length; more than any stretch has if that makes no sense."""
    try:
        size, behind = read_varint(data, position)
    except (DecodeError, IndexError):
        return _NOWHERE
    return behind - position + size if size >= SMALLEST_RECORD - 1 else _NOWHERE


def _of_equal_sizes(areas: Areas) -> Ints | None:
    """Return the same if in each batch all records have the size of its first one; None if not.

    From the 65th on they are one byte longer, as their offsets take two.
    """
    stretch, starts, records = areas.stretch, areas.start, areas.records
    has_skips = len(areas.skips) > 0
    if (has_skips and len(areas.skips) != len(starts)) or (records < 1).any() or areas.floor.any():
        return None
    ends = np.append((areas.skips if has_skips else starts)[1:], areas.size)
    heads = _at_any(stretch, "<u2")
    step = _STEPS[heads[starts]].astype(np.int64)
    if (starts + records * step + np.maximum(records - _ONE_BYTE, 0) != ends).any():
        return None
    each = records + has_skips
    index = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each + has_skips, each)
    positions = np.repeat(starts, each) + index * np.repeat(step, each) + np.maximum(index - _ONE_BYTE, 0)
    positions[index < 0] = areas.skips
    found = np.append(positions, areas.size)
    return found if (_STEPS[heads[positions]] == np.diff(found)).all() else None


def _by_lanes(areas: Areas) -> Ints:
    """Return where records and skips start, the last one being where the walk is to be continued."""
    heads = _at_any(areas.stretch, "<u2")
    starts = _some_skips(areas)
    if len(starts) * _RECORDS_A_LANE * 2 < areas.number:
        starts = np.union1d(starts, _guesses(areas, heads))
    last = len(heads) - 1
    steps = min(areas.number // len(starts) * 4 // 3 + 2, _MOST_FIRST_STEPS)
    return join_lanes(starts, areas.size, lambda at: at + _LEAPS[heads[np.minimum(at, last)]], steps)


def _some_skips(areas: Areas) -> Ints:
    """Return where the stretch starts, and skips that are about as many records apart as lanes are to be."""
    if not len(areas.skips):
        return np.zeros(1, np.int64)
    lane = areas.skips * (areas.number // _RECORDS_A_LANE + 1) // areas.size
    return areas.skips[np.diff(lane, prepend=-1) > 0]


def _guesses(areas: Areas, heads: NDArray[np.uint16]) -> Ints:
    """Return where lanes may start, in ascending order: places that look like a record."""
    stretch, size = areas.stretch, areas.size
    count = areas.number // _RECORDS_A_LANE
    distance = size // max(count, 1)
    mean = size // areas.number
    attributes_at = 2 if mean > _SHORT_RECORD else 1
    width = min(distance, 3 * mean // 2, size - (count - 1) * distance - attributes_at)
    if count < 2 or width < 1:
        return np.empty(0, np.int64)

    def looks(delta: int) -> NDArray[np.uint8]:
        return np.ndarray((count - 1, width), np.uint8, stretch, distance + delta, (distance, 1))

    found = np.flatnonzero((looks(-1) == 0) & (looks(attributes_at) == 0))
    if len(found) > _GUESSES_A_LANE * count:  # binary values, of zeros
        return np.empty(0, np.int64)
    lane, behind = np.divmod(found, width)
    at = distance + lane * distance + behind
    step = _STEPS[heads[at]].astype(np.int64)
    following = np.minimum(at + step, size - 1)
    is_likely = (step > attributes_at) & (step <= 8 * mean) & (stretch[following - 1] == 0)
    is_likely &= _STEPS[heads[following]] > 0
    at, lane = at[is_likely], lane[is_likely]
    found_at: Ints = at[np.diff(lane, prepend=-1) > 0]
    return found_at


def _at_any(stretch: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Return the numbers at each byte of a stretch."""
    return np.ndarray((len(stretch) - np.dtype(kind).itemsize + 1,), kind, stretch, 0, (1,))
