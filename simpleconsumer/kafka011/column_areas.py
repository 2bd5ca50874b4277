"""The records of several batches in one stretch, and the heads of these batches as arrays.

Heads of plain batches are read many at once: `plain_areas` accepts a run of them if everything about them is right, or
refuses it. It never reports what is wrong, as `batch_reading` does that exactly, one batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints, checksums_match, joined
from simpleconsumer.column_walk import entry_positions
from simpleconsumer.crc32c import crc32c
from simpleconsumer.entry_walk import EntryLayout
from simpleconsumer.kafka011.batch_head import (
    CODEC_MASK,
    CRC_BODY_AT,
    HEAD_BYTES,
    IS_CONTROL,
    IS_TRANSACTIONAL,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    SMALLEST_SIZE,
)
from simpleconsumer.kafka011.batch_order import why_batch_is_damaged
from simpleconsumer.kafka011.batch_reading import BatchReading
from simpleconsumer.kafka011.records import OpenBatch
from simpleconsumer.kafka08.message_shapes import Level

__all__ = ["PADDING", "Areas", "PlainRun", "areas_of", "plain_areas"]

PADDING: Final = 32
"""Bytes of 0 that follow a stretch, so that 16 bytes may be read where a damaged record ends too late."""
_HEAD: Final = np.dtype(
    {
        "names": ["base", "magic", "crc", "attributes", "last_delta", "base_time", "append_time", "records"],
        "formats": [">i8", "u1", ">u4", ">i2", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [0, 16, 17, 21, 23, 27, 35, 57],
        "itemsize": HEAD_BYTES,
    }
)
_LAYOUT: Final = EntryLayout(8, OVERHEAD, SMALLEST_SIZE, mark_at=12, mark_bytes=4, has_offset=True)
"""Marked by the leader epoch."""
_CLOSING: Final = bytes(13) + bytes.fromhex("42380d41")
"""As `column_arrays.CLOSING`, of CRC-32C."""
_CODEC_AT: Final = 22
"""The lower byte of the attributes; a set whose first batch is compressed need not be copied to be refused."""
_SIZE: Final = Struct(">8xi").unpack_from
_SKIP_HEAD: Final = 2 * (HEAD_BYTES - 1)
"""The length of a record, as a varint of one byte, that with it takes as many bytes as a head."""
_LONG_SKIP: Final = 8192
"""From so many bytes on the length of a skip takes more than two."""
_LARGEST_OFFSET: Final = 2**62
_WORTH_ARRAYS: Final = 2


class Areas(NamedTuple):
    """Records of batches in a stretch, which is a chain of records; one item of each array for each batch.

    In the chain may be *skips*: what is no record of these batches, such as heads, and has a length as if it were one.

    Attributes:
        stretch: The chain, and `PADDING` bytes.
        size: Bytes of the chain.
        skips: Where skips start.
        start, end: Where the records of a batch start, and where they end.
        records: How many there must be; -1 for any number.
        base, floor, last_delta, base_time: As in `OpenBatch`.
        append_time: Timestamp of all records of the batch, if `is_appended`.
        is_appended: Whether the batch has log append time.
        number: About how many records there are.
    """

    stretch: NDArray[np.uint8]
    size: int
    skips: Ints
    start: Ints
    end: Ints
    records: Ints
    base: Ints
    floor: Ints
    last_delta: Ints
    base_time: Ints
    append_time: Ints
    is_appended: NDArray[np.bool_]
    number: int


class PlainRun(NamedTuple):
    """Plain batches that follow each other in a set.

    Attributes:
        areas: Those of which records are wanted; None for none.
        end: Where the last one ends in the set.
        floor: Behind the last offset of all.
        is_end: Whether the next batch is behind the offsets that are wanted.
    """

    areas: Areas | None
    end: int
    floor: int
    is_end: bool

    def move(self, level: Level) -> None:
        """Move the place in the set behind the batches."""
        level.position, level.floor = self.end, self.floor


def areas_of(batches: Sequence[OpenBatch], most_bytes: int | None = None) -> Areas:
    """Return what is left of some batches; of a single one `most_bytes`, so that the last record may be cut off."""
    pieces = [memoryview(batch.data)[batch.position : batch.end][:most_bytes] for batch in batches]
    append = [batch.append_time for batch in batches]
    records = [batch.count - batch.index for batch in batches]
    size = sum(map(len, pieces))
    count = sum(records)
    if most_bytes is not None:
        count = count * size // max(1, batches[0].end - batches[0].position)
        records = [-1]
    ends = np.cumsum([0, *map(len, pieces)])
    return Areas(
        stretch=joined(pieces, PADDING),
        size=size,
        skips=np.empty(0, np.int64),
        start=ends[:-1],
        end=ends[1:],
        records=np.array(records),
        base=np.array([batch.base for batch in batches]),
        floor=np.array([batch.floor for batch in batches]),
        last_delta=np.array([batch.last_delta for batch in batches]),
        base_time=np.array([batch.base_time for batch in batches]),
        append_time=np.array([time or 0 for time in append]),
        is_appended=np.array([time is not None for time in append]),
        number=count,
    )


def plain_areas(reading: BatchReading, window_bytes: int, end_offset: int | None) -> PlainRun | None:
    """Return the plain batches at the place of a reading; None if one of them must be looked at by itself.

    Args:
        window_bytes: Of how many bytes of the set batches are taken.
        end_offset: Records from there on are not wanted; None for no limit.
    """
    level = reading.level
    if level.position + HEAD_BYTES > len(level.buffer) or level.buffer[level.position + _CODEC_AT] & CODEC_MASK:
        return None
    window, positions = _window(level, window_bytes)
    if len(positions) <= _WORTH_ARRAYS:
        return None
    starts, sizes = positions[:-1], positions[1:] - positions[:-1]
    smallest = int(sizes.min())
    if smallest < HEAD_BYTES:
        return None
    size = int(positions[-1])
    data = joined([window[:size]], PADDING)
    anywhere: NDArray[Any] = np.ndarray((len(data) - HEAD_BYTES + 1,), f"V{HEAD_BYTES}", data, 0, (1,))
    heads = anywhere[starts].view(_HEAD)
    attributes = heads["attributes"].astype(np.int64)
    left_out = CODEC_MASK if reading.has_no_aborted() else CODEC_MASK | IS_CONTROL | IS_TRANSACTIONAL
    if attributes.any() and (attributes & left_out).any():
        return None
    base, last_delta, base_time, append_time, records = (
        heads[name].astype(np.int64) for name in ("base", "last_delta", "base_time", "append_time", "records")
    )
    if int(base.max()) > _LARGEST_OFFSET or (records < 0).any() or (records > last_delta + 1).any():
        return None
    if (heads["magic"] != MAGIC).any() or (records == 0)[sizes != HEAD_BYTES].any():
        return None  # also a marker without a record, and records that are not counted
    last = base + last_delta
    if not _are_in_order(reading, base, last, positions):
        return None
    crc = heads["crc"].astype(np.uint32)
    step = smallest if smallest == int(sizes.max()) else 0
    if not checksums_match(data[:size], starts, crc, step, CRC_BODY_AT, _CLOSING, crc32c):
        return None
    is_wanted = (attributes & IS_CONTROL == 0) & (last >= reading.start_offset) & (records > 0)
    is_end = False
    if end_offset is not None:
        is_end = int(base[-1]) >= end_offset
        is_wanted &= base < end_offset
    areas = None
    if is_wanted.any():
        which: Any = slice(None) if is_wanted.all() else np.flatnonzero(is_wanted)
        skips = _write_skips(data, positions, which)
        areas = Areas(
            data, size, skips, starts[which] + HEAD_BYTES, positions[1:][which], records[which], base[which],
            np.zeros(len(starts), np.int64)[which], last_delta[which], base_time[which], append_time[which],
            (attributes & LOG_APPEND_TIME != 0)[which], int(records[which].sum()),
        )  # fmt: skip
    return PlainRun(areas, level.position + size, int(last[-1]) + 1, is_end)


def _window(level: Level, window_bytes: int) -> tuple[memoryview, Ints]:
    """Return what follows in a set, and where batches start in it, that have that many bytes of records together.

    The heads of small batches take as much as their records. So the set is looked at a little further, by the size of
    the first batch.
    """
    (size,) = _SIZE(level.buffer, level.position)
    first_bytes = max(size - SMALLEST_SIZE, 1)
    heads_bytes = min(window_bytes // first_bytes * HEAD_BYTES, 2 * window_bytes)
    window = memoryview(level.buffer)[level.position : level.position + window_bytes + heads_bytes]
    positions = entry_positions(window, _LAYOUT)
    records_bytes = positions - HEAD_BYTES * np.arange(len(positions))
    return window, positions if records_bytes[-1] <= window_bytes else positions[records_bytes <= window_bytes]


def _write_skips(data: NDArray[np.uint8], positions: Ints, wanted: Ints | slice) -> Ints:
    """Make skips of the heads of wanted batches, and of all others as a whole; return where the skips start."""
    data[positions[:-1][wanted]] = _SKIP_HEAD
    if not isinstance(wanted, slice):
        for index in np.setdiff1d(np.arange(len(positions) - 1), wanted).tolist():
            start, end = positions[index : index + 2].tolist()
            length_bytes = 2 if end - start < _LONG_SKIP else 5
            length = 2 * (end - start - length_bytes)
            groups = [length >> 7 * byte & 0x7F | 0x80 for byte in range(length_bytes)]
            data[start : start + length_bytes] = [*groups[:-1], groups[-1] & 0x7F]
    return positions[:-1]


def _are_in_order(reading: BatchReading, base: Ints, last: Ints, positions: Ints) -> bool:
    """Return whether offsets ascend, and the first and the last batch fit what is before and behind them."""
    level = reading.level
    if (base[1:] <= last[:-1]).any() or int(last[-1]) >= level.limit:
        return False
    start = level.position
    if why_batch_is_damaged(level, int(base[0]), int(last[0]), start + int(positions[1])) is not None:
        return False
    floor, level.floor = level.floor, int(last[-2]) + 1
    reason = why_batch_is_damaged(level, int(base[-1]), int(last[-1]), start + int(positions[-1]))
    level.floor = floor
    return reason is None
