"""Reads many uncompressed messages at once: heads, lengths and checksums as arrays.

`read_entries` accepts a stretch of entries if all of them are valid, or refuses it. It never reports what is wrong, as
`message_set` does that exactly, one message at a time. So what is accepted here must equal what `message_set` yields.

All checksums are compared by one call (`column_arrays`); between two bodies are offset, size and CRC, 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Fields, Ints, checksums_match
from simpleconsumer.kafka08.message_set import LOG_APPEND_TIME, SMALLEST_OF_MAGIC
from simpleconsumer.kafka08.message_shapes import CODEC_MASK, ENTRY_OVERHEAD, NO_TIMESTAMP, Level
from simpleconsumer.types import MAX_INT64, Buffer

__all__ = ["APPEND_TIME", "CREATE_TIME", "NO_TIME", "Entries", "Part", "read_entries", "wrappers_among"]

NO_TIME: Final = -1
CREATE_TIME: Final = 0
APPEND_TIME: Final = 1

_HEAD_BYTES = 16
_MIN_INT64: Final = -(2**63)


class Part(NamedTuple):
    """Entries of one level within a stretch: the byte of the stretch where they start, and their bytes."""

    start: int
    level: Level
    data: Buffer


class Entries(NamedTuple):
    """The messages of a stretch, by position in it.

    Attributes:
        offset: Absolute, not relative to a wrapper.
        key_length, value_length: -1 for null.
        timestamp_ms: -1 for none.
        timestamp_type: NO_TIME, CREATE_TIME or APPEND_TIME.
        step: Size of each entry if all have the same size and all keys the same length; else 0.
    """

    offset: Ints
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints
    timestamp_ms: Ints
    timestamp_type: NDArray[np.int32]
    step: int


def wrappers_among(buffer: Buffer, positions: Ints) -> Ints:
    """Return the indexes of entries whose attributes name a codec; none if some entry is too small for attributes."""
    starts = positions[:-1]
    if not len(starts) or int(np.diff(positions).min()) < ENTRY_OVERHEAD + SMALLEST_OF_MAGIC[0]:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.frombuffer(buffer, np.uint8)[starts + 17] & CODEC_MASK)


def read_entries(
    stretch: NDArray[np.uint8], positions: Ints, parts: Sequence[Part], floor: int
) -> Entries | None:
    """Return the messages of a stretch of whole entries; None if any entry is not a valid uncompressed message.

    Args:
        stretch: A copy; the heads of its entries are overwritten, their bodies are kept.
        positions: As `entry_positions` returns them: one more than there are entries.
        parts: In their order; the first starts at byte 0.
        floor: Least offset that the first entry can have.
    """
    starts, ends = positions[:-1], positions[1:]
    sizes = ends - starts
    smallest = int(sizes.min())
    if smallest < ENTRY_OVERHEAD + SMALLEST_OF_MAGIC[0]:
        return None
    counts = _counts(positions, parts)
    if counts is None:
        return None
    fields = Fields(stretch, starts, smallest if smallest == int(sizes.max()) else 0)
    magic, attributes = fields.at(16, np.uint8), fields.at(17, np.uint8)
    newest = int(magic.max())
    if newest > 1 or (attributes & CODEC_MASK).any() or not _magic_fits(magic, parts, counts):
        return None
    is_mixed = newest != int(magic.min())
    if newest == 1 and (sizes < ENTRY_OVERHEAD + SMALLEST_OF_MAGIC[1])[magic == 1].any():
        return None
    offset = _offsets(fields.at(0, ">i8"), parts, counts)
    if offset is None or not _ascends(offset, parts, counts, floor):
        return None
    crc = fields.at(12, ">u4").astype(np.uint32)
    timestamp_ms, timestamp_type = _timestamps(fields, magic, attributes, parts, counts)
    ahead: Any = 18 + 8 * magic.astype(np.int64) if is_mixed else 18 + 8 * newest
    lengths = _lengths(fields, ahead, starts, ends)
    if lengths is None or not checksums_match(stretch, starts, crc, fields.step, _HEAD_BYTES):
        return None
    key_start, key_length, value_start, value_length, is_regular = lengths
    step = fields.step if is_regular and not is_mixed else 0
    return Entries(offset, key_start, key_length, value_start, value_length, timestamp_ms, timestamp_type, step)


def _counts(positions: Ints, parts: Sequence[Part]) -> Ints | None:
    """Return how many entries each part has; None if an entry reaches from one part into the next."""
    if len(parts) == 1:
        return np.array([len(positions) - 1])
    starts = np.array([part.start for part in parts])
    first = np.searchsorted(positions, starts)
    if (positions[first] != starts).any():
        return None
    return np.diff(first, append=len(positions) - 1)


def _magic_fits(magic: NDArray[np.uint8], parts: Sequence[Part], counts: Ints) -> bool:
    wanted = [255 if part.level.magic is None else part.level.magic for part in parts]
    if len(parts) == 1:
        return wanted[0] == 255 or bool((magic == wanted[0]).all())
    each = np.repeat(wanted, counts)
    return bool(((each == magic) | (each == 255)).all())


def _offsets(found: NDArray[np.int64], parts: Sequence[Part], counts: Ints) -> Ints | None:
    """Return absolute offsets; None if an invalid wrapper makes one exceed 64 bits."""
    bases = [part.level.base for part in parts]
    offset = found.astype(np.int64)
    if not any(bases):
        return offset
    lowest, highest = int(offset.min()), int(offset.max())
    if lowest + min(bases) < _MIN_INT64 or highest + max(bases) > MAX_INT64:
        return None
    if any(not _MIN_INT64 <= base <= MAX_INT64 for base in bases):
        return None
    return offset + np.repeat(np.array(bases, np.int64), counts)


def _ascends(offset: Ints, parts: Sequence[Part], counts: Ints, floor: int) -> bool:
    """Return whether offsets ascend, including those of wrappers, and are below the limit of their part."""
    if offset[0] < floor or (offset[1:] <= offset[:-1]).any():
        return False
    ends = np.cumsum(counts)
    for part, count, end in zip(parts, counts.tolist(), ends.tolist(), strict=True):
        level = part.level
        if count and offset[end - 1] >= level.limit + level.base:
            return False
        if level.magic is not None and end > count and level.wrapper_offset <= offset[end - count - 1]:
            return False
    return True


def _timestamps(
    fields: Fields, magic: NDArray[np.uint8], attributes: NDArray[np.uint8], parts: Sequence[Part], counts: Ints
) -> tuple[Ints, NDArray[np.int32]]:
    """Return timestamps and their types; that of a wrapper with LogAppendTime holds for all messages in it."""
    if not magic.any():
        return np.full(len(magic), NO_TIMESTAMP), np.full(len(magic), NO_TIME, np.int32)
    timestamp_ms = np.where(magic == 1, fields.at(18, ">i8").astype(np.int64), NO_TIMESTAMP)
    is_appended = (attributes & LOG_APPEND_TIME) != 0
    given = [part.level.timestamp_ms for part in parts]
    if any(stamp is not None for stamp in given):
        is_given = np.repeat([stamp is not None for stamp in given], counts)
        stamps = np.repeat(np.array([NO_TIMESTAMP if stamp is None else stamp for stamp in given], np.int64), counts)
        timestamp_ms = np.where(is_given, stamps, timestamp_ms)
        is_appended |= is_given
    kind = np.where(timestamp_ms == NO_TIMESTAMP, NO_TIME, np.where(is_appended, APPEND_TIME, CREATE_TIME))
    return timestamp_ms, kind.astype(np.int32)


def _lengths(fields: Fields, ahead: Any, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints, Ints, bool] | None:
    """Return where keys and values start, their lengths, and whether all lengths are equal; None if they do not fit.

    Args:
        ahead: Bytes before the length of the key.
    """
    key_length = fields.at(ahead, ">i4").astype(np.int64)
    shortest, longest = int(key_length.min()), int(key_length.max())
    if shortest < -1:
        return None
    key_start = starts + (ahead + 4)
    key_end = key_start if longest <= 0 else key_start + np.maximum(key_length, 0)
    if (key_end > ends - 4).any():
        return None
    is_regular = shortest == longest and isinstance(ahead, int)
    behind_key = ahead + 4 + max(shortest, 0) if is_regular else key_end - starts
    value_length = fields.at(behind_key, ">i4").astype(np.int64)
    value_start = key_end + 4
    if int(value_length.min()) < -1 or (value_start + np.maximum(value_length, 0) != ends).any():
        return None
    # A null value takes as many bytes as an empty one.
    is_regular = is_regular and int(value_length.min()) == int(value_length.max())
    return key_start, key_length, value_start, value_length, is_regular
