"""The groups that brokers coordinate, as administration sees them, whichever protocol they have. Pure.

There are two protocols. In the classic one (Kafka 0.9) a member leads, and the coordinator passes on what members wrote
without reading it; only in state Stable does it show that. In that of KIP-848 (Kafka 4.0) the coordinator assigns.

Source: org.apache.kafka.clients.admin.ConsumerGroupDescription, org.apache.kafka.common.GroupState (4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rebalance.brokers.consumer_protocol import decode_assignment, decode_subscription
from rebalance.errors import UnreadableMetadata
from simpleconsumer.group_types import CONSUMER_PROTOCOL, DescribedConsumerGroup, DescribedGroup, DescribedMember
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer_error import first_few

__all__ = [
    "CLASSIC", "CONSUMER", "DEAD", "STABLE", "STATES", "CoordinatedGroup", "CoordinatedMember", "of_classic_protocol",
    "of_newest_protocol", "shown_members",
]  # fmt: skip

CLASSIC: Final = "classic"
"""The type of groups whose members join, and of whom one assigns."""
CONSUMER: Final = "consumer"
"""The type of groups of the protocol of KIP-848."""
STATES: Final = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "AwaitingSync", "Assigning", "Reconciling", "Stable", "Dead",
    "NotReady", "Unknown",
)  # fmt: skip
"""The states of groups, of every type and version; `AwaitingSync` is the older name of `CompletingRebalance`."""
STABLE: Final = "Stable"
DEAD: Final = "Dead"
_UNDER_WAY: Final = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "AwaitingSync", "Assigning", "Reconciling"}
)


@dataclass(frozen=True)
class CoordinatedMember:
    """A member of a group that brokers coordinate.

    Attributes:
        member_id: As its coordinator, or in the protocol of KIP-848 the member itself, has named it.
        instance_id: Of a static member; None for a dynamic one, and where the broker does not say (before Kafka 2.4).
        client_id: Its `client.id`.
        host: The address from which it came.
        topics: That it subscribes to by name; None if that is not known, as while the group rebalances.
        regex: By which it subscribes to topics; None without one.
        assigned: The partitions that it has.
        target: Those that the coordinator wants it to have; None where a member assigns.
        epoch: Of its assignment; None in the classic protocol.
        rack: Where it runs; None if it does not say.
        problem: Why its subscription or assignment cannot be understood, a clause.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    regex: str | None
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    rack: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class CoordinatedGroup:
    """A group that brokers coordinate.

    Attributes:
        group: Its name.
        state: As the coordinator names it; `Dead` for a group that it does not know.
        protocol_type: `consumer` for consumers; empty for a group that has stored offsets and never had a member.
        group_type: `classic` or `consumer`; others, such as `share`, are listed alone.
        assignor: By which partitions are assigned; None while nothing is assigned.
        coordinator: The broker that coordinates it.
        members: By client id and member id; None if they were not asked for.
        epoch: Of a group of the protocol of KIP-848; None for others.
        assignment_epoch: Of its target assignment; lower than `epoch` until it is computed.
        reason: What the coordinator says of a group that it does not know, in words; None if it says nothing.
    """

    group: str
    state: str
    protocol_type: str
    group_type: str
    assignor: str | None
    coordinator: Broker
    members: tuple[CoordinatedMember, ...] | None
    epoch: int | None = None
    assignment_epoch: int | None = None
    reason: str | None = None

    @property
    def is_rebalancing(self) -> bool:
        """Whether its partitions are being assigned anew."""
        return self.state in _UNDER_WAY

    @property
    def owners(self) -> dict[TopicPartition, list[CoordinatedMember]]:
        """Partition -> the members that have it: one, if nothing is wrong."""
        found: dict[TopicPartition, list[CoordinatedMember]] = {}
        for member in self.members or ():
            for name in member.assigned:
                found.setdefault(name, []).append(member)
        return found

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that members subscribe to by name, or have partitions of."""
        members = self.members or ()
        named = {topic for member in members for topic in member.topics or ()}
        return tuple(sorted(named | {name.topic for name in self.owners}))


def of_classic_protocol(found: DescribedGroup, coordinator: Broker) -> CoordinatedGroup:
    """Return a group of the classic protocol."""
    shows_all = found.state == STABLE
    members = [_member(each, found.protocol_type, shows_all) for each in found.members]
    return CoordinatedGroup(
        found.group, found.state, found.protocol_type, CLASSIC, found.protocol or None, coordinator,
        tuple(sorted(members, key=_place)), reason=found.error_message,
    )  # fmt: skip


def of_newest_protocol(found: DescribedConsumerGroup, coordinator: Broker) -> CoordinatedGroup:
    """Return a group of the protocol of KIP-848."""
    members = [
        CoordinatedMember(
            each.member_id, each.instance_id, each.client_id, _host(each.client_host), tuple(sorted(each.topics)),
            each.regex or None, tuple(sorted(each.assigned)), tuple(sorted(each.target)), each.epoch, each.rack,
        )
        for each in found.members
    ]  # fmt: skip
    return CoordinatedGroup(
        found.group, found.state, CONSUMER_PROTOCOL, CONSUMER, found.assignor or None, coordinator,
        tuple(sorted(members, key=_place)), found.epoch, found.assignment_epoch, found.error_message,
    )  # fmt: skip


def shown_members(members: tuple[CoordinatedMember, ...]) -> str:
    """Return how many members there are and the first of them, for the sentence of an error."""
    return first_few(*[f"{each.member_id} of {each.host}" for each in members])


def _member(found: DescribedMember, protocol_type: str, shows_all: bool) -> CoordinatedMember:
    topics: tuple[str, ...] | None = None
    assigned: tuple[TopicPartition, ...] = ()
    problem: str | None = None
    if shows_all and protocol_type == CONSUMER_PROTOCOL:
        try:
            topics = tuple(sorted(decode_subscription(found.metadata).topics))
        except UnreadableMetadata as error:
            problem = f"its subscription cannot be read: {error}"
        try:
            assigned = tuple(sorted(TopicPartition(*each) for each in decode_assignment(found.assignment).partitions))
        except UnreadableMetadata as error:
            problem = f"its assignment cannot be read: {error}"
    return CoordinatedMember(
        found.member_id, found.instance_id, found.client_id, _host(found.client_host), topics, None, assigned,
        problem=problem,
    )  # fmt: skip


def _place(member: CoordinatedMember) -> tuple[str, str]:
    return member.client_id, member.member_id


def _host(address: str) -> str:
    """Return an address without the slash that Java writes before it."""
    return address.removeprefix("/")
