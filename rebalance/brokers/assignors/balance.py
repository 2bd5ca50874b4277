"""Divides partitions evenly, and moves as few as that takes: the core of the sticky assignors. Pure.

Sizes differ by at most one as far as subscriptions allow. Of what a member had it keeps as much as that leaves it.

Source: AbstractStickyAssignor (Kafka 3.9): the sizes, and what stays, are its; which partition moves may differ, as it
does between versions of Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from rebalance.assignment import utf16_units
from rebalance.brokers.assignors.assignor import Subscriptions, partitions_of
from rebalance.brokers.consumer_protocol import Partition

__all__ = ["balanced"]


def balanced(
    partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions, owned: Mapping[str, Sequence[Partition]]
) -> dict[str, list[Partition]]:
    """Return the partitions of each member.

    Args:
        owned: What members had, each partition once at most. What is gone, or wanted no more, is left out.
    """
    known = frozenset(partitions_per_topic)
    wanted = {member: known.intersection(each.topics) for member, each in subscriptions.items()}
    members = sorted(subscriptions, key=utf16_units)
    partitions = partitions_of(partitions_per_topic, chain.from_iterable(wanted.values()))
    there = frozenset(partitions)
    kept = {
        member: sorted((each for each in owned.get(member, ()) if each in there and each[0] in wanted[member]),
                       key=lambda partition: (partition[1], partition[0]))
        for member in members
    }  # fmt: skip
    if len(set(wanted.values())) <= 1:
        return _equal(members, partitions, kept)
    return _by_load(members, partitions, kept, wanted)


# -- all members want the same -----------------------------------------------------------------------------------------


def _equal(
    members: Sequence[str], partitions: Sequence[Partition], kept: Mapping[str, list[Partition]]
) -> dict[str, list[Partition]]:
    """Return the partitions of members that all want the same topics."""
    smallest, larger = divmod(len(partitions), len(members)) if members else (0, 0)
    found: dict[str, list[Partition]] = {}
    for member in members:
        size = smallest
        if larger and len(kept[member]) > smallest:
            size, larger = smallest + 1, larger - 1
        found[member] = kept[member][:size]
    taken = frozenset(chain.from_iterable(found.values()))
    free = iter([partition for partition in partitions if partition not in taken])
    below = [member for member in members if len(found[member]) < smallest]
    while below:  # in turn, as one after the other would get runs of one topic
        for member in below:
            found[member].append(next(free))
        below = [member for member in below if len(found[member]) < smallest]
    exactly = [member for member in members if len(found[member]) == smallest]
    for member, partition in zip(exactly, free, strict=False):
        found[member].append(partition)
    return found


# -- members want different topics -------------------------------------------------------------------------------------


def _by_load(
    members: Sequence[str],
    partitions: Sequence[Partition],
    kept: Mapping[str, list[Partition]],
    wanted: Mapping[str, frozenset[str]],
) -> dict[str, list[Partition]]:
    """Return the partitions of members that want different topics."""
    found = {member: list(kept[member]) for member in members}
    takers = {topic: [member for member in members if topic in wanted[member]] for topic, _ in partitions}
    taken = frozenset(chain.from_iterable(found.values()))
    free = [partition for partition in partitions if partition not in taken]
    for partition in sorted(free, key=lambda each: len(takers[each[0]])):  # where the choice is smallest comes first
        found[_least_loaded(takers[partition[0]], found)].append(partition)
    former = {partition: member for member, mine in kept.items() for partition in mine}
    while _move_some(partitions, takers, found, former):
        pass
    return found


def _move_some(
    partitions: Sequence[Partition],
    takers: Mapping[str, Sequence[str]],
    found: dict[str, list[Partition]],
    former: Mapping[Partition, str],
) -> bool:
    """Move partitions to members that have fewer by two or more; return whether there were any.

    Each move makes the sum of the squares of the sizes smaller, so moves come to an end.
    """
    owners = {partition: member for member, mine in found.items() for partition in mine}
    moved = False
    for partition in partitions:
        owner, candidates = owners[partition], takers[partition[0]]
        target = former.get(partition)
        if target is None or len(found[owner]) <= len(found[target]) + 1:
            target = _least_loaded(candidates, found)
        if len(found[owner]) > len(found[target]) + 1:
            found[owner].remove(partition)
            found[target].append(partition)
            owners[partition] = target
            moved = True
    return moved


def _least_loaded(members: Sequence[str], found: Mapping[str, Sequence[Partition]]) -> str:
    return min(members, key=lambda member: len(found[member]))
