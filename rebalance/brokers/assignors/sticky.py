"""The sticky assignors: members keep what they had as far as an even division allows. Pure.

`sticky` revokes all before the group is assigned anew. With `cooperative-sticky` members go on reading: a partition
that moves is left out of the first round, its former owner gives it back, and a second round assigns it.

Source: StickyAssignor, CooperativeStickyAssignor (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rebalance.brokers.assignors.assignor import RebalanceProtocol, Subscriptions
from rebalance.brokers.assignors.balance import balanced
from rebalance.brokers.assignors.claims import (
    claims_of,
    encode_generation,
    encode_owned,
    owned_in_subscription,
    owned_in_user_data,
)
from rebalance.brokers.consumer_protocol import NO_GENERATION, Assignment, Partition

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]


class StickyAssignor:
    """Divides evenly and keeps what it can; members give back everything first.

    Threads: one at a time; it keeps what its member has got.
    """

    name = "sticky"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._had: Assignment | None = None
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return what the member had; nothing before its first assignment."""
        if self._had is None:
            return None
        return encode_owned(self._had.partitions, self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep what the member has got, for its next subscription."""
        self._had, self._generation = assignment, generation

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> dict[str, list[Partition]]:
        """Return the partitions of each member; see `Assignor.assign`."""
        claims = claims_of(owned_in_user_data(subscriptions))
        return balanced(partitions_per_topic, subscriptions, claims.owned)


class CooperativeStickyAssignor:
    """Divides evenly and keeps what it can; what stays is read on meanwhile.

    Threads: one at a time; it keeps the generation of its member.
    """

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes:
        """Return the generation of what the member owns, for leaders whose subscriptions have none."""
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
