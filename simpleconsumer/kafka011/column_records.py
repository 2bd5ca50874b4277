"""Reads many records at once: varints, keys, values and headers as arrays.

`read_records` accepts a stretch of records if all of them are valid, or refuses it. It never reports what is wrong, as
`records` does that exactly, one record at a time. So what is accepted here must equal what `records` yields.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints
from simpleconsumer.kafka011.column_areas import Areas
from simpleconsumer.kafka011.records import NO_TIMESTAMP
from simpleconsumer.kafka08.column_entries import APPEND_TIME, CREATE_TIME, NO_TIME, Entries

__all__ = ["HeaderFields", "Records", "read_records"]

_MAX_TIME: Final = 2**62
_MOST_HEADERS: Final = 64
"""More headers in one record are read by the slow path."""


class HeaderFields(NamedTuple):
    """The headers of a stretch, in the order of records and within each of them.

    Attributes:
        counts: How many each record has.
        key_start, key_length, value_start, value_length: Of each header; the length of a value is -1 for null.
    """

    counts: Ints
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints


class Records(NamedTuple):
    """The records of a stretch.

    Attributes:
        entries: Their fields, as those of older messages.
        headers: None if no record has any.
        ends: Where each record ends.
    """

    entries: Entries
    headers: HeaderFields | None
    ends: Ints


class _Varints:
    """Reads varints at many places of a stretch."""

    def __init__(self, stretch: NDArray[np.uint8]) -> None:
        self._are_good = True
        self._stretch = stretch
        self._words: NDArray[np.uint64] = np.ndarray((len(stretch) - 7,), "<u8", stretch, 0, (1,))

    def are_good(self) -> bool:
        """Return whether none so far was longer than it may be, or than 8 bytes."""
        return self._are_good

    def read(self, at: Ints, most_bytes: int = 5) -> tuple[Ints, Ints]:
        """Return the numbers at some places, and the places behind them.

        Args:
            at: The places.
            most_bytes: How long they may be: 5 for those of 32 bits, and 8 for those of 64, longer ones of which are
                not read here.
        """
        low = self._stretch[at]
        if int(low.max()) < 0x80:
            number = low.astype(np.int64)
            return (number >> 1) ^ -(number & 1), at + 1
        high = self._stretch[at + 1]
        is_long = low >= 0x80
        if (is_long & (high >= 0x80)).any():
            number, behind = self._longer(at, most_bytes)
        else:
            number = (low & 0x7F).astype(np.int64)
            number += (high * is_long).astype(np.int64) << 7
            behind = at + 1 + is_long
        return (number >> 1) ^ -(number & 1), behind

    def _longer(self, at: Ints, most_bytes: int) -> tuple[Ints, Ints]:
        """Return the numbers without their zigzag; none if any of them is too long."""
        word = self._words[at]
        ends = ~word & np.uint64(0x8080808080808080 >> 8 * (8 - most_bytes))
        if not ends.all():
            self._are_good = False
            return np.zeros(len(at), np.int64), at
        end = ends & (~ends + np.uint64(1))
        word &= end - np.uint64(1)
        longest = int(end.max())
        length = np.ones(len(at), np.int64)
        for byte in range(1, 8):
            limit = 0x80 << 8 * byte
            if longest < limit:
                break
            length += end >= np.uint64(limit)
        number = word & np.uint64(0x7F)
        for byte in range(1, int(length.max())):
            number |= (word >> np.uint64(byte)) & np.uint64(0x7F << 7 * byte)
        return number.astype(np.int64), at + length


def read_records(areas: Areas, positions: Ints) -> Records | None:
    """Return the records of a stretch; None if any of them is not valid.

    Args:
        positions: As `record_positions` returns them.
    """
    found = _without_skips(areas, positions)
    if found is None:
        return None
    starts, ends, counts = found
    varints = _Varints(areas.stretch)
    _, at = varints.read(starts)
    stamp, at = varints.read(at + 1, most_bytes=8)
    delta, at = varints.read(at)
    key_length, key_start = varints.read(at)
    if not varints.are_good() or not _fits(key_length, key_start, ends):
        return None
    value_length, value_start = varints.read(key_start + np.maximum(key_length, 0))
    if not varints.are_good() or not _fits(value_length, value_start, ends):
        return None
    header_count, behind = varints.read(value_start + np.maximum(value_length, 0))
    if not varints.are_good():
        return None
    headers = None
    if header_count.any():
        with_headers = _headers(varints, header_count, behind, ends)
        if with_headers is None:
            return None
        headers, behind = with_headers
    if (behind != ends).any():
        return None
    offset = _offsets(areas, delta, counts)
    times = _timestamps(areas, stamp, counts)
    if offset is None or times is None:
        return None
    entries = Entries(offset, key_start, key_length, value_start, value_length, *times, 0)
    return Records(entries, headers, ends)


def _without_skips(areas: Areas, positions: Ints) -> tuple[Ints, Ints, Ints] | None:
    """Return where records start and end, and how many each batch has; None if these are not as many as it says.

    A record that reaches into the next batch would not let that one's start be among the positions.
    """
    starts, ends = positions[:-1], positions[1:]
    if len(areas.skips):
        at = np.searchsorted(positions, areas.skips)
        if (positions[np.minimum(at, len(starts))] != areas.skips).any():
            return None
        is_record = np.ones(len(starts), np.bool_)
        is_record[at] = False
        starts, ends = starts[is_record], ends[is_record]
    first = np.searchsorted(starts, areas.start)
    if (starts[np.minimum(first, len(starts) - 1)] != areas.start).any():
        return None
    counts = np.diff(first, append=len(starts))
    return (starts, ends, counts) if ((counts == areas.records) | (areas.records < 0)).all() else None


def _fits(length: Ints, start: Ints, ends: Ints) -> bool:
    """Return whether keys or values are within their records, with a byte to spare."""
    return bool(int(length.min()) >= -1 and (start + length < ends).all())


def _offsets(areas: Areas, delta: Ints, counts: Ints) -> Ints | None:
    """Return absolute offsets; None if they do not ascend within the bounds of their batches."""
    if (delta < np.repeat(areas.floor, counts)).any() or (delta > np.repeat(areas.last_delta, counts)).any():
        return None
    offset: Ints = delta + np.repeat(areas.base, counts)
    return None if (offset[1:] <= offset[:-1]).any() else offset


def _timestamps(areas: Areas, stamp: Ints, counts: Ints) -> tuple[Ints, NDArray[np.int32]] | None:
    """Return timestamps and their types; None if one might not fit into 64 bits."""
    base = areas.base_time
    if max(int(base.max()), int(stamp.max())) >= _MAX_TIME or min(int(base.min()), int(stamp.min())) <= -_MAX_TIME:
        return None
    timestamp_ms: Ints = stamp + np.repeat(base, counts)
    kind = np.full(len(stamp), CREATE_TIME, np.int32)
    if areas.is_appended.any():
        is_appended = np.repeat(areas.is_appended, counts)
        timestamp_ms = np.where(is_appended, np.repeat(areas.append_time, counts), timestamp_ms)
        kind[is_appended] = APPEND_TIME
    kind[timestamp_ms == NO_TIMESTAMP] = NO_TIME
    return timestamp_ms, kind


def _headers(varints: _Varints, counts: Ints, at: Ints, ends: Ints) -> tuple[HeaderFields, Ints] | None:
    """Return the headers of all records and where each record ends behind them; None if any is not valid."""
    if int(counts.min()) < 0 or int(counts.max()) > _MOST_HEADERS:
        return None
    at = at.copy()
    first = np.cumsum(counts) - counts
    fields = np.empty((4, int(counts.sum())), np.int64)
    for number in range(int(counts.max())):
        which = np.flatnonzero(counts > number)
        limits = ends[which]
        if (at[which] >= limits).any():
            return None
        key_length, key_start = varints.read(at[which])
        if not varints.are_good() or int(key_length.min()) < 0 or not _fits(key_length, key_start, limits):
            return None
        value_length, value_start = varints.read(key_start + key_length)
        if not varints.are_good() or int(value_length.min()) < -1:
            return None
        at[which] = value_start + np.maximum(value_length, 0)
        if (at[which] > limits).any():
            return None
        fields[:, first[which] + number] = key_start, key_length, value_start, value_length
    return HeaderFields(counts, *fields), at
