"""Chooses the partition of a message from its key, as Kafka 0.8.2 does.

Pure. Source: kafka.producer.ByteArrayPartitioner and kafka.utils.Utils.abs (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["array_hash", "partition_of_key"]

_INT_MIN = -(2**31)


def array_hash(data: bytes) -> int:
    """Return `java.util.Arrays.hashCode(byte[])`: bytes count as -128 to 127, the sum wraps at 32 bits.

    >>> array_hash(b"abc")
    126145
    """
    value = 1
    for byte in data:
        value = (31 * value + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value


def partition_of_key(key: bytes, partitions: Sequence[int]) -> int:
    """Return the partition that a key belongs to: `abs(hash) % n` over all partitions, sorted by number.

    Partitions without a leader count too: where a key belongs must not depend on who is up.
    """
    value = array_hash(key)
    absolute = 0 if value == _INT_MIN else abs(value)
    return sorted(partitions)[absolute % len(partitions)]
