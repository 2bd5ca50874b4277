"""The range and roundrobin strategies: which thread of a group gets which partition. Pure.

Members do not agree on an assignment: each computes all of it from the same registrations. One different sort order
means two claims on one partition. The orders are therefore named after the versions that define them, and tests compare
the results with those of the JVM.

Source: kafka/consumer/PartitionAssignor.scala (0.8.2.2, 0.9.0.1, 1.1.1), ZookeeperConsumerConnector.scala (0.7.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rebalance.errors import UnequalSubscriptions

Partition = tuple[str, int | str]
"""Topic and partition as the znode is named: an integer in 0.8, `broker-partition` in 0.7."""

_Partition = TypeVar("_Partition", int, str, int | str)

@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member should hold.

    Attributes:
        mine: partition -> thread id of this member.
        owners: partition -> thread id that should own it, for the partitions of this member's topics.
        frozen: why nothing may be claimed and what is held is kept, `None` if there is no reason.
        warnings: sentences for the log and the status.
        frozen_topics: topics of which nothing may be claimed, and what is held is kept.
    """

    mine: Mapping[Partition, str]
    owners: Mapping[Partition, str]
    frozen: str | None = None
    warnings: tuple[str, ...] = ()
    frozen_topics: frozenset[str] = frozenset()


_HASHED_TEXT = {"0.8": "[{},{}]", "1.0": "{}-{}"}


def java_string_hash(text: str) -> int:
    """Return `String.hashCode` of Java: h = 31 * h + unit over UTF-16 units, as a signed 32-bit number.

    >>> java_string_hash("[topic,0]")
    2068025637
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value


def sort_thread_ids(threads: Iterable[str]) -> list[str]:
    """Return distinct thread ids in the order of Java strings: by UTF-16 units, so `C-10` before `C-2`."""
    return sorted(set(threads), key=utf16_units)


def sort_partitions_07(partitions: Iterable[str]) -> list[str]:
    """Return the partitions of Kafka 0.7, `broker-partition`, in its order, that of strings: `10-0` before `2-0`."""
    return sorted(set(partitions), key=utf16_units)


def sort_partitions_08(partitions: Iterable[int]) -> list[int]:
    """Return partitions in the order of Kafka 0.8 and later: by number."""
    return sorted(set(partitions))


def assign_topic_range(partitions: Sequence[_Partition], threads: Sequence[str]) -> dict[_Partition, str]:
    """Return partition -> thread for one topic, both sequences sorted as their version demands.

    With n partitions and m threads each gets a run of n // m, the first n % m threads one more.
    """
    if not threads:
        return {}
    share, larger = divmod(len(partitions), len(threads))
    owners: dict[_Partition, str] = {}
    for index, thread in enumerate(threads):
        start = share * index + min(index, larger)
        for partition in partitions[start : start + share + (index < larger)]:
            owners[partition] = thread
    return owners


def sort_partitions(partitions: Iterable[int | str]) -> list[int | str]:
    """Return the partitions of one topic in the order of their generation: numbers by number, names as text."""
    found = set(partitions)
    names = sort_partitions_07(each for each in found if isinstance(each, str))
    return [*sort_partitions_08(each for each in found if isinstance(each, int)), *names]


def assign_range(
    partitions: Mapping[str, Iterable[int | str]], threads: Mapping[str, Iterable[str]]
) -> dict[Partition, str]:
    """Return (topic, partition) -> thread id, each topic by itself, `partition.assignment.strategy=range`.

    Args:
        partitions: Topic -> its partitions, in any order.
        threads: Topic -> thread ids of all members of the group subscribed to it, in any order.
    """
    return {
        (topic, partition): thread
        for topic in sorted(partitions.keys() & threads.keys())
        for partition, thread in assign_topic_range(
            sort_partitions(partitions[topic]), sort_thread_ids(threads[topic])
        ).items()
    }


def assign_roundrobin(
    partitions: Mapping[str, Iterable[int | str]], threads: Mapping[str, Iterable[str]], order: str = "0.8"
) -> dict[Partition, str]:
    """Return (topic, partition) -> thread id, in turns, `partition.assignment.strategy=roundrobin`.

    Partitions are sorted by the Java hash of a text; equal hashes by topic, then number. In Java a hash map
    decides the order of equal hashes, so in a group with Java members `hash_collisions` must be empty.

    Args:
        partitions: Topic -> its partitions, in any order.
        threads: Topic -> thread ids, for every topic that any member of the group subscribes to.
        order: "0.8" hashes `[topic,partition]` (Java 0.8.2 to 0.11), "1.0" `topic-partition` (Java 1.0, 1.1).

    Raises:
        UnequalSubscriptions: The topics do not all have the same threads.
        ValueError: Another order.
    """
    sets = {topic: frozenset(ids) for topic, ids in threads.items()}
    if len(set(sets.values())) > 1:
        raise UnequalSubscriptions(sets)
    receivers = sort_thread_ids(next(iter(sets.values()), ()))
    if not receivers:
        return {}
    subscribed = {topic: partitions[topic] for topic in partitions.keys() & threads.keys()}
    ordered = [found for _, found in _by_hash(subscribed, order)]
    return {found: receivers[index % len(receivers)] for index, found in enumerate(ordered)}


def hash_collisions(partitions: Mapping[str, Iterable[int | str]], order: str = "0.8") -> list[list[Partition]]:
    """Return the groups of partitions whose hashes are equal: round robin with Java members is undefined there.

    >>> hash_collisions({"Aa": [0], "BB": [0], "CC": [0]})
    [[('Aa', 0), ('BB', 0)]]
    """
    groups: dict[int, list[Partition]] = {}
    for value, found in _by_hash(partitions, order):
        groups.setdefault(value, []).append(found)
    return [group for group in groups.values() if len(group) > 1]


def _by_hash(partitions: Mapping[str, Iterable[int | str]], order: str) -> list[tuple[int, Partition]]:
    if order not in _HASHED_TEXT:
        raise ValueError(f"round robin order {order!r} is not one of {', '.join(_HASHED_TEXT)}")
    text = _HASHED_TEXT[order]
    return sorted(
        (java_string_hash(text.format(topic, partition)), (topic, partition))
        for topic, numbers in partitions.items()
        for partition in set(numbers)
    )


def utf16_units(text: str) -> bytes:
    """Return the UTF-16 units of a text, by which Java sorts strings."""
    return text.encode("utf-16-be", "surrogatepass")
