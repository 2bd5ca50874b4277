"""Partitions of whole columns of keys, as the partitioners of Java choose them.

Bytes of all keys are hashed at once, position by position, with numpy. Keys for which that is not possible go one by
one to the partitioner: text that is not ASCII, very long keys, and those of other partitioners.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zkconsumer.producer.partitioners import (
    Partitioner,
    partition_07,
    partition_08,
    partition_082,
    partition_murmur2,
)

_LONGEST: Final = 1024
_INT_MIN: Final = -(2**31)
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_FACTOR: Final = np.uint32(0x5BD1E995)


class KeyColumn(NamedTuple):
    """The keys of a column.

    Attributes:
        keys: Each key, encoded; None for none.
        data: The bytes of all keys.
        offsets: Where each key starts in these, then the end of the last one.
        is_text: The partitioner gets text.
    """

    keys: Sequence[bytes | None]
    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    is_text: bool


def partition_indexes(column: KeyColumn, partitioner: Partitioner, partitions: int) -> list[int]:
    """Return for each key the index of its partition, and -1 for no key.

    Raises:
        ValueError, TypeError: The partitioner's own error for a key; or it chose a partition that does not exist.
    """
    hashed = _hashed(column, partitioner)
    if hashed is None:
        return [_one(column, row, partitioner, partitions) for row in range(len(column.keys))]
    indexes, rest = hashed(partitions)
    for row in rest:
        indexes[row] = _one(column, row, partitioner, partitions)
    found: list[int] = indexes.tolist()
    if None in column.keys:
        return [-1 if key is None else index for key, index in zip(column.keys, found, strict=True)]
    return found


def _one(column: KeyColumn, row: int, partitioner: Partitioner, partitions: int) -> int:
    key = column.keys[row]
    if key is None:
        return -1
    found = partitioner(key.decode() if column.is_text else key, partitions)
    if not 0 <= found < partitions:
        raise ValueError(f"the partitioner chose {found} for the key {key!r:.60}, of {partitions} partitions")
    return found


_Indexes = Callable[[int], tuple[NDArray[np.int64], Sequence[int]]]


def _hashed(column: KeyColumn, partitioner: Partitioner) -> _Indexes | None:
    """Return what makes indexes of the hashes of all keys, and which ones have to be done one by one; or None."""
    lengths = np.diff(column.offsets)
    if not len(lengths) or lengths.max() > _LONGEST:
        return None
    if partitioner is partition_murmur2:
        return lambda partitions: ((_murmur2(column.data, column.offsets, lengths) & 0x7FFFFFFF) % partitions, ())
    if partitioner not in (partition_07, partition_08, partition_082):
        return None
    if column.is_text and np.any(column.data[column.offsets[0] : column.offsets[-1]] > 127):
        return None
    values = _java_hash(column, lengths)
    if partitioner is partition_08:
        return lambda partitions: ((values & 0x7FFFFFFF) % partitions, ())
    rest: list[int] = np.flatnonzero(values == _INT_MIN).tolist()
    return lambda partitions: (np.abs(values) % partitions, rest)


def _java_hash(column: KeyColumn, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `String.hashCode` of ASCII text, or `Arrays.hashCode` of bytes, of each key."""
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = column.offsets[:-1][order], lengths[order]
    values = np.full(len(order), 0 if column.is_text else 1, np.uint32)
    signed = column.data.view(np.int8)
    for position, count in _active(sizes):
        values[:count] = values[:count] * np.uint32(31) + signed[starts[:count] + position].astype(np.uint32)
    found = np.empty(len(order), np.int64)
    found[order] = values.view(np.int32)
    return found


def _murmur2(data: NDArray[np.uint8], offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return Kafka's murmur2 of each key."""
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = offsets[:-1][order], lengths[order]
    values = np.uint32(_MURMUR_SEED) ^ sizes.astype(np.uint32)
    for number, count in _active(sizes // 4):
        word = np.zeros(count, np.uint32)
        for byte in range(4):
            word |= data[starts[:count] + 4 * number + byte].astype(np.uint32) << np.uint32(8 * byte)
        word *= _MURMUR_FACTOR
        word = (word ^ (word >> np.uint32(24))) * _MURMUR_FACTOR
        values[:count] = (values[:count] * _MURMUR_FACTOR) ^ word
    left = sizes & 3
    tail = np.zeros(len(order), np.uint32)
    for byte in range(3):
        rows = np.flatnonzero(left > byte)
        tail[rows] |= data[(starts + (sizes & ~3))[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    values = np.where(left > 0, (values ^ tail) * _MURMUR_FACTOR, values)
    values = (values ^ (values >> np.uint32(13))) * _MURMUR_FACTOR
    found = np.empty(len(order), np.int64)
    found[order] = values ^ (values >> np.uint32(15))
    return found


def _active(sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return each position, and how many of the sizes, which descend, are larger than it."""
    longest = int(sizes[0])
    counts = len(sizes) - np.searchsorted(sizes[::-1], np.arange(longest), side="right")
    return list(enumerate(counts.tolist()))
