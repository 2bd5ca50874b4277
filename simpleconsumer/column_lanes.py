"""Finds where entries of varying sizes start, from many places of a message set at once.

The start of an entry is known only from the entry before it, so a plain walk takes one entry after the other. Here the
walk starts at some hundred places that look like the head of an entry (the *lanes*), and all lanes take each step
together, as arrays.

A start may be guessed wrongly, and the result is right all the same: the first lane starts where an entry starts, and a
lane counts only if the walk of the lane before it arrived exactly at its start. So the result equals that of the plain
walk. `tests/benchmarks/column_lanes.py` measures what this saves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.entry_walk import EntryLayout
from simpleconsumer.types import Buffer

__all__ = ["WORTH_LANES", "join_lanes", "positions_by_lanes"]

WORTH_LANES: Final = 3000
"""From about so many entries on this is faster than the plain walk."""
_ENTRIES_A_LANE = 24
_FIRST_STEPS = 32
_FURTHER_STEPS = 8
_MOST_ROUNDS = 8
_GUESSES_A_LANE = 12

Ints = NDArray[np.int64]


def positions_by_lanes(buffer: Buffer, known: Ints, layout: EntryLayout) -> Ints:
    """Return where entries start, from the last known one on; the last one is where the walk must be continued.

    The known one alone is returned if lanes do not help here. Sizes are read as `entry_positions` does.

    Args:
        known: Where some consecutive entries start: their sizes show what to expect.
    """
    start, sizes = int(known[-1]), np.diff(known)
    room = len(buffer) - start - layout.mark_at - layout.mark_bytes
    count = int(room / (float(sizes.mean()) * _ENTRIES_A_LANE))
    if count < 2:
        return known[-1:]
    starts = _guesses(buffer, known, count, room // count, layout)
    if len(starts) < count // 2:
        return known[-1:]
    size_at = _anywhere(buffer, ">u4", layout.size_at)
    last = len(size_at) - 1

    def advance(at: Ints) -> Ints:
        behind: Ints = at + size_at[np.minimum(at, last)]
        behind += layout.overhead
        return behind

    return join_lanes(starts, len(buffer) - layout.overhead + 1, advance)


def join_lanes(starts: Ints, end: int, advance: Callable[[Ints], Ints], first_steps: int = _FIRST_STEPS) -> Ints:
    """Return where entries start, as far as the walks of lanes join; the last one is where the walk must be continued.

    Args:
        starts: Where the lanes start, in ascending order; the first one is certain.
        end: No entry starts from there on.
        advance: Returns where the entries behind some entries start: never at the same place, and behind the end if an
            entry makes no sense.
        first_steps: How many steps most lanes need.
    """
    limits = np.append(starts[1:], end)
    return _joined(_walked(starts, limits, advance, first_steps), limits)


def _guesses(buffer: Buffer, known: Ints, count: int, distance: int, layout: EntryLayout) -> Ints:
    """Return where lanes may start, in ascending order: the first is certain, the others look like an entry."""
    start, sizes = int(known[-1]), np.diff(known)
    largest = int(sizes.max())
    mark = np.dtype(f"u{layout.mark_bytes}")
    looks: NDArray[Any] = np.ndarray(
        (count - 1, min(distance, largest)), mark, buffer, start + distance + layout.mark_at, (distance, 1)
    )
    pattern = np.ndarray((1,), mark, buffer, int(known[-2]) + layout.mark_at)[0]
    found = np.flatnonzero(looks == pattern)
    if len(found) > _GUESSES_A_LANE * count:  # the pattern is too common
        return known[-1:]
    lane, behind = np.divmod(found, looks.shape[1])
    at = start + (lane + 1) * distance + behind
    size = _anywhere(buffer, ">u4", layout.size_at)[at].astype(np.int64)
    is_likely = (size >= layout.smallest) & (size <= 4 * largest)
    if layout.has_offset:
        offset = _anywhere(buffer, ">i8", 0)[at].astype(np.int64)
        least = int.from_bytes(buffer[start : start + 8], "big", signed=True)
        is_likely &= (offset >= least) & (offset - least <= len(buffer))
    at, lane = at[is_likely], lane[is_likely]
    return np.append(known[-1:], at[np.diff(lane, prepend=-1) > 0])


def _walked(starts: Ints, limits: Ints, advance: Callable[[Ints], Ints], steps: int) -> Ints:
    """Return one row for each lane: the entries that it passes, up to its limit or the most rounds."""
    now, going = starts.copy(), np.arange(len(starts))
    rounds: list[Ints] = []
    while len(going) and len(rounds) < _MOST_ROUNDS:
        at, passed = now[going], np.empty((len(going), steps), np.int64)
        for step in range(steps):
            passed[:, step] = at
            at = advance(at)
        rounds.append(np.repeat(now[:, np.newaxis], steps, axis=1))  # lanes that have arrived stay at their place
        rounds[-1][going], now[going] = passed, at
        going, steps = going[at < limits[going]], _FURTHER_STEPS
    return np.concatenate([*rounds, now[:, np.newaxis]], axis=1)


def _joined(walked: Ints, limits: Ints) -> Ints:
    """Return the entries of all lanes up to the first lane that does not arrive at the start of the next one."""
    is_within = walked < limits[:, np.newaxis]
    counts = is_within.sum(axis=1)
    # A lane that did not reach its limit counts up to its last step.
    ends = np.minimum(counts, walked.shape[1] - 1)
    arrived = walked[np.arange(len(walked)), ends]
    leads_on = arrived == limits
    leads_on[-1] = False  # behind it is no lane
    good = int(leads_on.argmin())
    is_within[np.arange(len(walked)), ends] = False
    return np.append(walked[: good + 1][is_within[: good + 1]], arrived[good])


def _anywhere(buffer: Buffer, kind: str, delta: int) -> NDArray[Any]:
    """Return the numbers that are `delta` bytes behind each byte of the buffer."""
    return np.ndarray((len(buffer) - delta - np.dtype(kind).itemsize + 1,), kind, buffer, delta, (1,))
