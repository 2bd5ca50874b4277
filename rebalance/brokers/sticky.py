"""The sticky assignors: members keep their partitions as far as an even division allows. Pure.

`sticky` revokes all before the group is assigned anew. With `cooperative-sticky` members go on reading: a partition
that moves is left out of the first round, its former owner gives it back, and a second round assigns it.

Source: StickyAssignor, CooperativeStickyAssignor (Kafka 3.9).

Divides partitions evenly, and moves as few as that takes: the core of the sticky assignors.

Sizes differ by at most one as far as subscriptions allow. A member keeps as many of its partitions as that leaves it.

Source: AbstractStickyAssignor (Kafka 3.9): the sizes, and the partitions that stay, are its; which partition moves may
differ, as it does between versions of Kafka.

Finds the partitions that members of a sticky assignment had before, and the owner if two claim the same one.

Source: AbstractStickyAssignor, StickyAssignor, CooperativeStickyAssignor (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from struct import Struct
from typing import NamedTuple

from rebalance.brokers.assignor import RebalanceProtocol, Subscriptions, partitions_of
from rebalance.brokers.consumer_protocol import (
    NO_GENERATION,
    Assignment,
    Partition,
    Subscription,
    read_partitions,
    write_partitions,
)
from rebalance.errors import UnreadableMetadata
from rebalance.subscription import utf16_units


def balanced(
    partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions, owned: Mapping[str, Sequence[Partition]]
) -> dict[str, list[Partition]]:
    """Return the partitions of each member.

    Args:
        owned: The partitions that members had, each once at most. Deleted and unwanted ones are left out.
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


_INT32 = Struct(">i")


class Claims(NamedTuple):
    """Who had what.

    Attributes:
        owned: The partitions of each member, by topic and number; each has one owner at most.
        disputed: Partitions that two members of the same generation say they have, and so nobody's.
    """

    owned: Mapping[str, list[Partition]]
    disputed: frozenset[Partition]


def claims_of(had: Mapping[str, tuple[tuple[Partition, ...], int]]) -> Claims:
    """Return who had what: of two who claim a partition the one of the later generation.

    Args:
        had: Partitions and generation of each member.
    """
    owners: dict[Partition, tuple[int, str | None]] = {}
    for member, (partitions, generation) in had.items():
        for partition in set(partitions):
            known = owners.get(partition)
            if known is None or generation > known[0]:
                owners[partition] = generation, member
            elif generation == known[0]:
                owners[partition] = generation, None
    owned: dict[str, list[Partition]] = {member: [] for member in had}
    for partition, (_, owner) in sorted(owners.items()):
        if owner is not None:
            owned[owner].append(partition)
    return Claims(owned, frozenset(partition for partition, (_, owner) in owners.items() if owner is None))


# -- where members say it ----------------------------------------------------------------------------------------------


def owned_in_user_data(subscriptions: Subscriptions) -> dict[str, tuple[tuple[Partition, ...], int]]:
    """Return what members had by their user data, as the eager assignor `sticky` writes it; garbage means nothing."""
    return {member: _decoded(each.user_data) for member, each in subscriptions.items()}


def _decoded(data: bytes | None) -> tuple[tuple[Partition, ...], int]:
    """Partitions and generation; before Kafka 2.3 without generation."""
    if data is None:
        return (), NO_GENERATION
    try:
        partitions, end = read_partitions(data, 0)
    except UnreadableMetadata:
        return (), NO_GENERATION
    if len(data) - end < _INT32.size:
        return tuple(partitions), NO_GENERATION
    return tuple(partitions), int(_INT32.unpack_from(data, end)[0])


def encode_owned(partitions: tuple[Partition, ...], generation: int) -> bytes:
    """Return the user data of a member of `sticky`."""
    return write_partitions(partitions) + _INT32.pack(generation)


def owned_in_subscription(subscriptions: Subscriptions) -> dict[str, tuple[tuple[Partition, ...], int]]:
    """Return what members of `cooperative-sticky` had: they say it in the subscription itself."""
    return {member: (each.owned, _generation(each)) for member, each in subscriptions.items()}


def _generation(subscription: Subscription) -> int:
    """The generation of a member's partitions: subscriptions of version 1 have it in the user data alone."""
    data = subscription.user_data
    if subscription.generation == NO_GENERATION and data is not None and len(data) == _INT32.size:
        return int(_INT32.unpack(data)[0])
    return subscription.generation


def encode_generation(generation: int) -> bytes:
    """Return the user data of a member of `cooperative-sticky`."""
    return _INT32.pack(generation)


class StickyAssignor:
    """Divides evenly and moves as few partitions as it can; members give back everything first.

    Threads: one at a time; it keeps what its member has got.
    """

    name = "sticky"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._had: Assignment | None = None
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return the partitions that the member had; None before its first assignment."""
        if self._had is None:
            return None
        return encode_owned(self._had.partitions, self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the assignment of the member for its next subscription."""
        self._had, self._generation = assignment, generation

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> dict[str, list[Partition]]:
        """Return the partitions of each member; see `Assignor.assign`."""
        claims = claims_of(owned_in_user_data(subscriptions))
        return balanced(partitions_per_topic, subscriptions, claims.owned)


class CooperativeStickyAssignor:
    """Divides evenly and moves as few partitions as it can; members go on reading the others meanwhile.

    Threads: one at a time; it keeps the generation of its member.
    """

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes:
        """Return the generation of the member's partitions, for leaders whose subscriptions have none."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the generation."""
        self._generation = generation

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> dict[str, list[Partition]]:
        """Return what each member has after this round, without what another one still has to give back."""
        claims = claims_of(owned_in_subscription(subscriptions))
        found = balanced(partitions_per_topic, subscriptions, claims.owned)
        owners = {partition: member for member, mine in claims.owned.items() for partition in mine}

        def may_have(member: str, partition: Partition) -> bool:
            return owners.get(partition, member) == member and partition not in claims.disputed

        return {member: [each for each in mine if may_have(member, each)] for member, mine in found.items()}
