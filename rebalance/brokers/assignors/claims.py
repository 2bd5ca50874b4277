"""What members of a sticky assignment had before, and which of them had it if two say so. Pure.

Source: AbstractStickyAssignor, StickyAssignor, CooperativeStickyAssignor (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from rebalance.brokers.assignors.assignor import Subscriptions
from rebalance.brokers.consumer_protocol import (
    NO_GENERATION,
    Partition,
    Subscription,
    read_partitions,
    write_partitions,
)
from rebalance.errors import UnreadableMetadata

__all__ = ["Claims", "claims_of", "encode_generation", "encode_owned", "owned_in_subscription", "owned_in_user_data"]

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
    """The generation of what a member owns: subscriptions of version 1 have it in the user data alone."""
    data = subscription.user_data
    if subscription.generation == NO_GENERATION and data is not None and len(data) == _INT32.size:
        return int(_INT32.unpack(data)[0])
    return subscription.generation


def encode_generation(generation: int) -> bytes:
    """Return the user data of a member of `cooperative-sticky`."""
    return _INT32.pack(generation)
