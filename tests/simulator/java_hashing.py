"""The order in which Scala's mutable maps give out what was put in: that of hashes, the same in every JVM. Pure.

It decides in which order a Java member reads offsets and claims partitions, alike in all members of a group.

Source: scala.collection.mutable.HashTable, scala.util.hashing, scala.runtime.Statics (2.11.5); Kafka of 2.10 is alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from rebalance.subscription import java_string_hash

__all__ = ["in_map_order", "partition_hash", "topic_hash"]

K = TypeVar("K")

_MASK: Final = 0xFFFFFFFF
_INITIAL_SIZE: Final = 16
_SEED: Final = 4
"""Bits of the mask of the initial size; it stays when the table grows."""


def topic_hash(topic: str) -> int:
    """`hashCode` of a topic's name, unsigned."""
    return java_string_hash(topic) & _MASK


def partition_hash(partition: tuple[str, int | str]) -> int:
    """`hashCode` of the case class TopicAndPartition, unsigned."""
    mixed = _mix(_mix(0xCAFEBABE, topic_hash(partition[0])), int(partition[1]) & _MASK) ^ 2
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    return mixed ^ mixed >> 16


def in_map_order(keys: Iterable[K], hash_code: Callable[[K], int]) -> list[K]:
    """Distinct keys, put into a `mutable.HashMap` one after the other, in the order in which it gives them out."""
    table: list[list[K]] = [[] for _ in range(_INITIAL_SIZE)]
    for count, key in enumerate(keys, 1):
        table[_index(hash_code(key), len(table))].insert(0, key)
        if count > len(table) * 3 // 4:
            old, table = table, [[] for _ in range(2 * len(table))]
            for chain in reversed(old):
                for each in chain:
                    table[_index(hash_code(each), len(table))].insert(0, each)
    return [key for chain in reversed(table) for key in chain]


def _index(hash_code: int, size: int) -> int:
    bits = (size - 1).bit_count()
    swapped = hash_code * 0x9E3775CD & _MASK
    swapped = int.from_bytes(swapped.to_bytes(4, "little"), "big") * 0x9E3775CD & _MASK
    return _rotate_right(swapped, _SEED) >> 32 - bits


def _mix(mixed: int, value: int) -> int:
    value = _rotate_right(value * 0xCC9E2D51 & _MASK, 17) * 0x1B873593 & _MASK
    return (_rotate_right(mixed ^ value, 19) * 5 + 0xE6546B64) & _MASK


def _rotate_right(value: int, bits: int) -> int:
    return (value >> bits | value << 32 - bits) & _MASK
