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
from simpleconsumer.kafka011.column_varints import Heads, Varints, uniform_heads
from simpleconsumer.kafka011.record_walk import Spans
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


class _Fields(NamedTuple):
    """What the heads of records say, which end behind the length of the value."""

    stamp: Ints
    delta: Ints
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints


def read_records(areas: Areas, spans: Spans) -> Records | None:
    """Return the records of a stretch; None if any of them is not valid, or does not take exactly its span."""
    starts, ends, counts = spans
    stretch = areas.stretch
    varints = Varints(stretch)
    heads = Heads(varints, stretch, starts)
    fields = _uniform_fields(heads, starts, ends) or _read_fields(varints, heads, ends)
    if fields is None or not _fits(fields.value_length, fields.value_start, ends):
        return None
    value_end = fields.value_start + np.maximum(fields.value_length, 0)
    headers, behind = None, value_end + 1
    if stretch[value_end].any():
        with_headers = _headers(varints, value_end, ends)
        if with_headers is None:
            return None
        headers, behind = with_headers
    if (behind != ends).any():
        return None
    offset = _offsets(areas, fields.delta, counts)
    times = _timestamps(areas, fields.stamp, counts)
    if offset is None or times is None:
        return None
    return Records(Entries(offset, *fields[2:], *times, 0), headers, ends)


def _uniform_fields(heads: Heads, starts: Ints, ends: Ints) -> _Fields | None:
    """Return the heads if they are `Uniform`, which most are of values of about the same size; else None."""
    found = uniform_heads(heads.gathered())
    if found is None or (starts + (found.length + found.length_bytes) != ends).any():
        return None
    no_key = np.full(len(starts), -1)
    key_start, value_start = starts + found.key_at, starts + found.value_at
    return _Fields(found.stamp, found.delta, key_start, no_key, value_start, found.value_length)


def _read_fields(varints: Varints, heads: Heads, ends: Ints) -> _Fields | None:
    """Return the heads, read from their start, up to the length of the value; None if any is not valid."""
    length = heads.read()
    if not varints.are_good() or (heads.at + length != ends).any():
        return None
    heads.skip_byte()  # the attributes
    stamp = heads.read(most_bytes=8)
    delta = heads.read()
    key_length = heads.read()
    key_start = heads.at
    if not varints.are_good() or not _fits(key_length, key_start, ends):
        return None
    if int(key_length.max()) > 0:
        value_length, value_start = varints.read(key_start + np.maximum(key_length, 0))
    else:
        value_length, value_start = heads.read(), heads.at
    return _Fields(stamp, delta, key_start, key_length, value_start, value_length) if varints.are_good() else None


def _fits(length: Ints, start: Ints, ends: Ints) -> bool:
    """Return whether keys or values are within their records, with a byte to spare."""
    return bool(int(length.min()) >= -1 and (start + length < ends).all())


def _offsets(areas: Areas, delta: Ints, counts: Ints) -> Ints | None:
    """Return absolute offsets; None if they do not ascend within the bounds of their batches."""
    offset: Ints = delta + np.repeat(areas.base, counts)
    if (offset[1:] <= offset[:-1]).any():
        return None
    if len(counts) == len(delta):
        first = last = delta
        floor, last_delta = areas.floor, areas.last_delta
    else:
        has_some = np.flatnonzero(counts)
        behind = np.cumsum(counts)[has_some]
        first, last = delta[behind - counts[has_some]], delta[behind - 1]
        floor, last_delta = areas.floor[has_some], areas.last_delta[has_some]
    fits = bool((first >= floor).all() and (last <= last_delta).all())
    return offset if fits else None


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


def _headers(varints: Varints, at: Ints, ends: Ints) -> tuple[HeaderFields | None, Ints] | None:
    """Return the headers of all records, None for none, and where they end; None if any is not valid.

    Args:
        at: Where the number of headers is.
    """
    counts, at = varints.read(at)
    if not varints.are_good():
        return None
    if not counts.any():
        return None, at
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
