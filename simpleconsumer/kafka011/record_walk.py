"""Finds where the records of batches start, in a stretch that holds their records back to back.

The first two bytes of a record say how long it is, for nearly all. So a table has the length of a record by these, and
where there are many, they are walked in lanes (`column_lanes`): a start is guessed where attributes of 0 follow a
possible length, where the record before seems to end without headers, and where the same holds for the next one.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints
from simpleconsumer.column_lanes import join_lanes
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.column_areas import Areas
from simpleconsumer.kafka011.records import SMALLEST_RECORD
from simpleconsumer.kafka011.varints import read_varint

__all__ = ["Spans", "expected_spans", "walked_spans"]

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


class Spans(NamedTuple):
    """Where records are in a stretch: where each starts and ends, and how many of them each batch has."""

    starts: Ints
    ends: Ints
    counts: Ints


def expected_spans(areas: Areas) -> Spans | None:
    """Return the spans that are to be expected without looking at most records; None if nothing is.

    A batch of one record holds nothing else, and batches which are as large as if all their records had the size of the
    first one most likely have such. Whether it is so must be checked.
    """
    records = areas.records
    least, most = int(records.min()), int(records.max())
    if least == most == 1:
        return Spans(areas.start, areas.end, records)
    if least < 1 or areas.floor.any():
        return None
    start, number = int(areas.start[0]), int(records[0])
    first_step = _STEP_LIST[_FIRST_TWO(areas.stretch.data, start)[0]]
    if start + number * first_step + max(number - _ONE_BYTE, 0) != areas.end[0]:
        return None
    step = _STEPS[_at_any(areas.stretch, "<u2")[areas.start]].astype(np.int64)
    # From the 65th on they are one byte longer, as their offsets take two.
    longer = np.maximum(records - _ONE_BYTE, 0)
    if (areas.start + records * step + longer != areas.end).any():
        return None
    behind = np.cumsum(records)
    index = np.arange(int(behind[-1])) - np.repeat(behind - records, records)
    starts = np.repeat(areas.start, records) + index * np.repeat(step, records)
    if most > _ONE_BYTE:
        starts += np.maximum(index - _ONE_BYTE, 0)
    return _spans(areas, starts, records)


def walked_spans(areas: Areas) -> Spans | None:
    """Return the spans that are found from record to record; None if they do not fit the batches.

    A record that reaches into the next batch would not let that one's start be among the positions.
    """
    positions = _positions(areas)
    end = int(positions[-1])
    is_part = len(areas.records) == 1 and areas.records[0] < 0
    if end != areas.size and not is_part:
        return None
    starts = positions[:-1]
    if len(areas.skips):
        at = np.searchsorted(starts, areas.skips)
        if (positions[at] != areas.skips).any():
            return None
        is_record = np.ones(len(starts), np.bool_)
        is_record[at] = False
        starts = starts[is_record]
    if not len(starts):
        return None
    if is_part:
        return Spans(starts, positions[1:], np.array([len(starts)])) if starts[0] == areas.start[0] else None
    first = np.searchsorted(starts, areas.start)
    if (starts[np.minimum(first, len(starts) - 1)] != areas.start).any():
        return None
    counts = np.diff(first, append=len(starts))
    return _spans(areas, starts, counts) if (counts == areas.records).all() else None


def _spans(areas: Areas, starts: Ints, counts: Ints) -> Spans:
    """Return the spans of records that follow each other in each batch."""
    ends = np.empty(len(starts), np.int64)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = areas.end
    return Spans(starts, ends, counts)


def _positions(areas: Areas) -> Ints:
    """Return where each whole record or skip of a stretch starts, and as the last item where the last one ends."""
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
