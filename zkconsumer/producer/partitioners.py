"""Chooses the partition of a message from its key, as the producers of each Kafka version do. Pure.

A partitioner sees the key before it is encoded, and the number of partitions: text hashes as `String.hashCode`, bytes
as `Arrays.hashCode`, a number as `Integer.hashCode` or `Long.hashCode`. The versions differ in what they make of a
negative hash, so a key goes to another partition after a change of the producer's version.

Source: kafka.producer.DefaultPartitioner, ByteArrayPartitioner, kafka.utils.Utils.abs (0.7.0, 0.8.0, 0.8.2.2);
org.apache.kafka.common.utils.Utils.murmur2 (0.8.2.2); vectors of these classes in tests/golden/partitioners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from simpleconsumer import kernel

_INT_MIN: Final = -(2**31)
_POSITIVE: Final = 0x7FFFFFFF
_WORD: Final = 0xFFFFFFFF
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_FACTOR: Final = 0x5BD1E995
Partitioner = Callable[[Any, int], int]
"""Takes a key before it is encoded, never None, and the number of partitions, those without a leader included; returns
the index of one among all partitions of the topic, sorted by number."""


def array_hash(data: bytes) -> int:
    """Return `java.util.Arrays.hashCode(byte[])`: bytes count as -128 to 127, the sum wraps at 32 bits.

    >>> array_hash(b"abc")
    126145
    """
    if kernel.compiled is not None:
        return _signed(kernel.compiled.array_hash(data))
    value = 1
    for byte in data:
        value = (31 * value + (byte - 256 if byte > 127 else byte)) & _WORD
    return _signed(value)


def string_hash(text: str) -> int:
    """Return `String.hashCode()`, over UTF-16 units.

    >>> string_hash("polygenelubricants")
    -2147483648
    """
    data = text.encode("utf-16-be", "surrogatepass")
    if kernel.compiled is not None:
        return _signed(kernel.compiled.string_hash(data))
    value = 0
    for unit in Struct(f">{len(data) // 2}H").unpack(data):
        value = (31 * value + unit) & _WORD
    return _signed(value)


def java_hash(key: object) -> int:
    """Return the `hashCode()` that Java has for a key.

    Raises:
        TypeError: The key is neither text nor bytes nor an integer of 64 bits.
    """
    if isinstance(key, bytes):
        return array_hash(key)
    if isinstance(key, str):
        return string_hash(key)
    if isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key < 2**63:
        if _INT_MIN <= key <= _POSITIVE:
            return key
        return _signed((key ^ (key >> 32)) & _WORD)
    raise TypeError(f"no partition for a key of {type(key).__name__} ({key!r:.60}): give text, bytes or an integer "
                    "of at most 64 bits, or another partitioner")  # fmt: skip


def partition_082(key: object, partitions: int) -> int:
    """Return the partition of 0.8.2 and later: `|hash| % n`, and 0 for the hash without an absolute value."""
    value = java_hash(key)
    return 0 if value == _INT_MIN else abs(value) % partitions


def partition_08(key: object, partitions: int) -> int:
    """Return the partition of 0.8.0 and 0.8.1: `(hash & 0x7fffffff) % n`."""
    return (java_hash(key) & _POSITIVE) % partitions


def partition_07(key: object, partitions: int) -> int:
    """Return the partition of 0.7: `Math.abs(hash) % n`.

    Raises:
        ValueError: The hash has no absolute value: Java's producer has a negative partition then, which it refuses.
    """
    value = java_hash(key)
    if value == _INT_MIN and partitions & (partitions - 1):
        raise ValueError(f"Kafka 0.7 has no partition for the key {key!r:.60}: its hash is {_INT_MIN}, which has no "
                         "absolute value")  # fmt: skip
    return abs(value) % partitions


def partition_murmur2(key: object, partitions: int) -> int:
    """Return the partition of the producer that 0.8.2 brought: `(murmur2 & 0x7fffffff) % n`, of bytes or UTF-8."""
    if isinstance(key, str):
        key = key.encode()
    if not isinstance(key, bytes):
        raise TypeError(f"no partition for a key of {type(key).__name__} ({key!r:.60}): murmur2 needs bytes or text")
    return (murmur2(key) & _POSITIVE) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's 32 bits of murmur2, unsigned."""
    if kernel.compiled is not None:
        found: int = kernel.compiled.murmur2(data)
        return found
    whole = len(data) & ~3
    value = _MURMUR_SEED ^ len(data)
    for word in Struct(f"<{whole // 4}I").unpack_from(data):
        word = (word * _MURMUR_FACTOR) & _WORD
        word = ((word ^ (word >> 24)) * _MURMUR_FACTOR) & _WORD
        value = ((value * _MURMUR_FACTOR) & _WORD) ^ word
    if len(data) > whole:
        value = ((value ^ int.from_bytes(data[whole:], "little")) * _MURMUR_FACTOR) & _WORD
    value = ((value ^ (value >> 13)) * _MURMUR_FACTOR) & _WORD
    return value ^ (value >> 15)


PARTITIONERS: Final[Mapping[str, Callable[[object, int], int]]] = {
    "default": partition_082,
    "0.7": partition_07,
    "0.8.0": partition_08,
    "0.8.2": partition_082,
    "murmur2": partition_murmur2,
    "kafka.producer.DefaultPartitioner": partition_082,
    "kafka.producer.ByteArrayPartitioner": partition_082,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": partition_murmur2,
}
"""The partitioners that have a name: ours, and those of Java's classes, whose newest version is meant."""


def partition_of_key(key: bytes, partitions: Sequence[int]) -> int:
    """Return the partition that a key belongs to in 0.8.2: over all partitions, sorted by number.

    Partitions without a leader count too: where a key belongs must not depend on who is up.
    """
    return sorted(partitions)[partition_082(key, len(partitions))]


def _signed(value: int) -> int:
    return value - 2**32 if value & 0x80000000 else value
