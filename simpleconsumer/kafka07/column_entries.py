"""Reads many uncompressed messages of Kafka 0.7 at once: heads and checksums as arrays.

`read_entries` accepts a stretch of entries if all of them are valid and of one magic, or refuses it. It never reports
what is wrong, as `message_set` does that exactly, one message at a time. So what is accepted here must equal what
`message_set` yields. All checksums are compared by one call (`column_arrays`): between two payloads is the head of an
entry, 10 bytes (9 in magic 0), which ends with the CRC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Fields, Ints, checksums_match
from simpleconsumer.kafka07.message_set import SMALLEST_MESSAGE
from simpleconsumer.kafka07.message_shapes import CODEC_MASK, ENTRY_OVERHEAD
from simpleconsumer.types import Buffer

__all__ = ["Entries", "compressed_among", "read_entries"]

_MAGIC_AT: Final = 4
_ATTRIBUTES_AT: Final = 5
_HEAD_BYTES: Final = (9, 10)  # by magic


class Entries(NamedTuple):
    """The messages of a stretch, by position in it.

    Attributes:
        start: Where each payload starts.
        length: How long it is.
        step: Size of each entry if all have the same; else 0.
        counts: How many messages each part has.
    """

    start: Ints
    length: Ints
    step: int
    counts: Sequence[int]


def compressed_among(buffer: Buffer, positions: Ints) -> Ints:
    """Return the indexes of entries whose attributes name a codec; none if some entry is too small for a message."""
    starts = positions[:-1]
    if not len(starts) or int(np.diff(positions).min()) < ENTRY_OVERHEAD + SMALLEST_MESSAGE:
        return np.empty(0, np.int64)
    data = np.frombuffer(buffer, np.uint8)
    # In magic 0 the byte is one of the CRC, and every entry has it.
    return np.flatnonzero((data[starts + _MAGIC_AT] == 1) & (data[starts + _ATTRIBUTES_AT] & CODEC_MASK != 0))


def read_entries(stretch: NDArray[np.uint8], positions: Ints, part_starts: Sequence[int]) -> Entries | None:
    """Return the messages of a stretch of whole entries; None if any entry is not a valid uncompressed message.

    Args:
        stretch: A copy; the heads of its entries are overwritten, their payloads are kept.
        positions: As `entry_positions` returns them: one more than there are entries.
        part_starts: Where the parts start, in their order; the first starts at byte 0.
    """
    starts, ends = positions[:-1], positions[1:]
    sizes = ends - starts
    smallest = int(sizes.min())
    if smallest < ENTRY_OVERHEAD + SMALLEST_MESSAGE:
        return None
    counts = _counts(positions, part_starts)
    if counts is None:
        return None
    fields = Fields(stretch, starts, smallest if smallest == int(sizes.max()) else 0)
    magics = fields.at(_MAGIC_AT, np.uint8)
    magic = int(magics[0])
    if magic > 1 or (magics != magic).any():
        return None
    head_bytes = _HEAD_BYTES[magic]
    if smallest < head_bytes or (magic and (fields.at(_ATTRIBUTES_AT, np.uint8) & CODEC_MASK).any()):
        return None
    crc = fields.at(head_bytes - 4, ">u4").astype(np.uint32)
    if not checksums_match(stretch, starts, crc, fields.step, head_bytes):
        return None
    return Entries(starts + head_bytes, sizes - head_bytes, fields.step, counts)


def _counts(positions: Ints, part_starts: Sequence[int]) -> list[int] | None:
    """Return how many entries each part has; None if an entry reaches from one part into the next."""
    if len(part_starts) == 1:
        return [len(positions) - 1]
    starts = np.array(part_starts)
    first = np.searchsorted(positions, starts)
    if (positions[first] != starts).any():
        return None
    counts: list[int] = np.diff(first, append=len(positions) - 1).tolist()
    return counts
