"""Where entries of many sizes begin, found from many places at once.

Only the entry before says where the next one begins, so a walk has to go one by one. Here it starts from some hundred
places that look like the head of an entry (the *lanes*), and all lanes take each step together, as arrays.

A guess may be wrong, the result cannot: the first lane starts where an entry begins, and a lane counts only if the one
before it, walking on, came to exactly the place where this one started. So what is returned is what the walk one by one
would have found.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.kafka08.message_shapes import ENTRY_OVERHEAD
from simpleconsumer.types import Buffer

__all__ = ["WORTH_LANES", "positions_by_lanes"]

WORTH_LANES: Final = 3000
"""From about how many entries on this is faster than one by one."""
_ENTRIES_A_LANE = 24
_FIRST_STEPS = 32
_FURTHER_STEPS = 8
_MOST_ROUNDS = 8
_GUESSES_A_LANE = 12
_HEAD_BYTES = 20
"""What is looked at of an entry: offset, size, CRC, magic, attributes, and the two bytes behind them."""

Ints = NDArray[np.int64]


def positions_by_lanes(buffer: Buffer, known: Ints) -> Ints:
    """Return where entries begin, from the last known one on, and at last where the walk has to be gone on with.

    What is returned is the known one alone if lanes are of no use here. Sizes are taken as `entry_positions` does.

    Args:
        known: Where some entries begin, one behind the other: their sizes tell what to expect.
    """
    begin, sizes = int(known[-1]), np.diff(known)
    room = len(buffer) - begin - _HEAD_BYTES
    count = int(room / (float(sizes.mean()) * _ENTRIES_A_LANE))
    if count < 2:
        return known[-1:]
    starts = _guesses(buffer, known, count, room // count)
    if len(starts) < count // 2:
        return known[-1:]
    limits = np.append(starts[1:], len(buffer) - ENTRY_OVERHEAD + 1)
    return _joined(_walked(buffer, starts, limits), limits)


def _guesses(buffer: Buffer, known: Ints, count: int, distance: int) -> Ints:
    """Return where lanes may start, in ascending order: the first is certain, the others look like it."""
    begin, sizes = int(known[-1]), np.diff(known)
    largest = int(sizes.max())
    # Magic, attributes and the next two bytes: of the length of the key, or of the timestamp.
    looks: NDArray[np.uint32] = np.ndarray(
        (count - 1, min(distance, largest)), np.uint32, buffer, begin + distance + 16, (distance, 1)
    )
    pattern = np.ndarray((1,), np.uint32, buffer, int(known[-2]) + 16)[0]
    found = np.flatnonzero(looks == pattern)
    if len(found) > _GUESSES_A_LANE * count:  # it tells nothing here
        return known[-1:]
    lane, behind = np.divmod(found, looks.shape[1])
    at = begin + (lane + 1) * distance + behind
    offset = _anywhere(buffer, ">i8", 0)[at].astype(np.int64)
    size = _anywhere(buffer, ">u4", 8)[at].astype(np.int64)
    least = int.from_bytes(buffer[begin : begin + 8], "big", signed=True)
    is_likely = (offset >= least) & (offset - least <= len(buffer)) & (size <= 4 * largest)
    at, lane = at[is_likely], lane[is_likely]
    return np.append(known[-1:], at[np.diff(lane, prepend=-1) > 0])


def _walked(buffer: Buffer, starts: Ints, limits: Ints) -> Ints:
    """Return one row for each lane: the entries it passes, at least up to its limit if it gets there in time."""
    size_at = _anywhere(buffer, ">u4", 8)
    last = len(size_at) - 1
    now, going, steps = starts.copy(), np.arange(len(starts)), _FIRST_STEPS
    rounds: list[Ints] = []
    while len(going) and len(rounds) < _MOST_ROUNDS:
        at, passed = now[going], np.empty((len(going), steps), np.int64)
        for step in range(steps):
            passed[:, step] = at
            at = at + size_at[np.minimum(at, last)]
            at += ENTRY_OVERHEAD
        rounds.append(np.repeat(now[:, np.newaxis], steps, axis=1))  # those that are there stay where they are
        rounds[-1][going], now[going] = passed, at
        going, steps = going[at < limits[going]], _FURTHER_STEPS
    return np.concatenate([*rounds, now[:, np.newaxis]], axis=1)


def _joined(walked: Ints, limits: Ints) -> Ints:
    """Return the entries of all lanes up to the first one that does not lead to the start of the next one."""
    is_within = walked < limits[:, np.newaxis]
    counts = is_within.sum(axis=1)
    # A lane that did not get to its limit counts to its last step.
    ends = np.minimum(counts, walked.shape[1] - 1)
    arrived = walked[np.arange(len(walked)), ends]
    leads_on = arrived == limits
    leads_on[-1] = False  # behind it is no lane
    good = int(leads_on.argmin())
    is_within[np.arange(len(walked)), ends] = False
    return np.append(walked[: good + 1][is_within[: good + 1]], arrived[good])


def _anywhere(buffer: Buffer, kind: str, delta: int) -> NDArray[Any]:
    """Return the number that stands `delta` bytes behind each byte of the buffer."""
    return np.ndarray((len(buffer) - delta - np.dtype(kind).itemsize + 1,), kind, buffer, delta, (1,))
