"""Reads many records at once: varints, keys, values and headers as arrays.

`read_records` accepts a stretch of records if all of them are valid, or refuses it. It never reports what is wrong, as
`records` does that exactly, one record at a time. So what is accepted here must equal what `records` yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints
from simpleconsumer.kafka011.records import NO_TIMESTAMP, OpenBatch
from simpleconsumer.kafka08.column_entries import APPEND_TIME, CREATE_TIME, NO_TIME, Entries

__all__ = ["HeaderFields", "Part", "Records", "read_records"]

_MAX_TIME: Final = 2**62
_MOST_HEADERS: Final = 64
"""More headers in one record are read by the slow path."""


class Part(NamedTuple):
    """Records of one batch within a stretch.

    Attributes:
        start: The byte where they start.
        records: How many there must be; None for any number.
    """

    start: int
    batch: OpenBatch
    records: int | None


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
        counts: How many records each part has.
    """

    entries: Entries
    headers: HeaderFields | None
    counts: Ints


class _Varints:
    """Reads varints at many places of a stretch."""

    def __init__(self, stretch: NDArray[np.uint8]) -> None:
        self._are_good = True
        self._stretch = stretch
        self._words: NDArray[np.uint64] = np.ndarray((len(stretch) - 7,), "<u8", stretch, 0, (1,))

    def are_good(self) -> bool:
        """Return whether none so far was longer than 8 bytes."""
        return self._are_good

    def read(self, at: Ints) -> tuple[Ints, Ints]:
        """Return the numbers at some places, and the places behind them."""
        low = self._stretch[at]
        if int(low.max()) < 0x80:
            number = low.astype(np.int64)
            behind = at + 1
        else:
            number, behind = self._longer(at)
        return (number >> 1) ^ -(number & 1), behind

    def _longer(self, at: Ints) -> tuple[Ints, Ints]:
        """Return the numbers without their zigzag; those of more than 8 bytes are not read."""
        word = self._words[at]
        ends = ~word & np.uint64(0x8080808080808080)
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


def read_records(
    stretch: NDArray[np.uint8], positions: Ints, parts: Sequence[Part]
) -> Records | None:
    """Return the records of a stretch; None if any of them is not valid.

    Args:
        stretch: Records of all parts back to back, and `PADDING` bytes.
        positions: As `record_positions` returns them: one more than there are records.
        parts: In their order; the first starts at byte 0.
    """
    starts, ends = positions[:-1], positions[1:]
    counts = _counts(positions, parts)
    if counts is None:
        return None
    varints = _Varints(stretch)
    _, at = varints.read(starts)
    stamp, at = varints.read(at + 1)
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
        found = _headers(varints, header_count, behind, ends)
        if found is None:
            return None
        headers, behind = found
    if (behind != ends).any():
        return None
    offset = _offsets(delta, parts, counts)
    times = _timestamps(stamp, parts, counts)
    if offset is None or times is None:
        return None
    entries = Entries(offset, key_start, key_length, value_start, value_length, *times, 0)
    return Records(entries, headers, counts)


def _fits(length: Ints, start: Ints, ends: Ints) -> bool:
    """Return whether keys or values are within their records, with a byte to spare."""
    return bool(int(length.min()) >= -1 and (start + length < ends).all())


def _counts(positions: Ints, parts: Sequence[Part]) -> Ints | None:
    """Return how many records each part has; None if it has others than it says, or one reaches into the next part."""
    starts = np.array([part.start for part in parts])
    first = np.searchsorted(positions, starts)
    if (positions[first] != starts).any():
        return None
    counts = np.diff(first, append=len(positions) - 1)
    stated = np.array([-1 if part.records is None else part.records for part in parts])
    return counts if ((counts == stated) | (stated < 0)).all() else None


def _offsets(delta: Ints, parts: Sequence[Part], counts: Ints) -> Ints | None:
    """Return absolute offsets; None if they do not ascend within the bounds of their batches."""
    floor = np.array([part.batch.floor for part in parts])
    last = np.array([part.batch.last_delta for part in parts])
    base = np.array([part.batch.base for part in parts])
    if (delta < np.repeat(floor, counts)).any() or (delta > np.repeat(last, counts)).any():
        return None
    offset: Ints = delta + np.repeat(base, counts)
    return None if (offset[1:] <= offset[:-1]).any() else offset


def _timestamps(stamp: Ints, parts: Sequence[Part], counts: Ints) -> tuple[Ints, NDArray[np.int32]] | None:
    """Return timestamps and their types; None if one might not fit into 64 bits."""
    base = [part.batch.base_time for part in parts]
    if max(base) >= _MAX_TIME or min(base) <= -_MAX_TIME or int(stamp.max()) >= _MAX_TIME or stamp.min() <= -_MAX_TIME:
        return None
    timestamp_ms = stamp + np.repeat(np.array(base), counts)
    given = [part.batch.append_time for part in parts]
    if any(each is not None for each in given):
        is_given = np.repeat([each is not None for each in given], counts)
        timestamp_ms = np.where(is_given, np.repeat([each or 0 for each in given], counts), timestamp_ms)
        kind = np.where(is_given, APPEND_TIME, CREATE_TIME)
    else:
        kind = np.full(len(stamp), CREATE_TIME)
    kind[timestamp_ms == NO_TIMESTAMP] = NO_TIME
    return timestamp_ms, kind.astype(np.int32)


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
