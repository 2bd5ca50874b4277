"""The values of requests about groups that brokers coordinate: members, lists, states. They decide nothing. Pure."""

from __future__ import annotations

from typing import NamedTuple

from simpleconsumer.types import TopicPartition

__all__ = [
    "CONSUMER_PROTOCOL",
    "DescribedConsumer",
    "DescribedConsumerGroup",
    "DescribedGroup",
    "DescribedMember",
    "GenerationMember",
    "JoinedGroup",
    "JoinedMember",
    "JoiningMember",
    "LeavingMember",
    "ListedGroup",
]


CONSUMER_PROTOCOL = "consumer"
"""The protocol type of groups of consumers."""


class JoiningMember(NamedTuple):
    """A member that joins its group.

    Attributes:
        group: Name of the group.
        member_id: As the coordinator has named it; empty for the first time.
        instance_id: Of a static member, which needs Kafka 2.3; None for a dynamic one.
    """

    group: str
    member_id: str = ""
    instance_id: str | None = None


class GenerationMember(NamedTuple):
    """A member of a generation of its group.

    Attributes:
        group: Name of the group.
        generation: Of the group; -1 for an offset that no member commits.
        member_id: As the coordinator has named it.
        instance_id: Of a static member; None for a dynamic one.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves.

    Attributes:
        member_id: Its id; empty for a static member that is removed by its instance id.
        instance_id: Of a static member, which needs Kafka 2.4; None for a dynamic one.
    """

    member_id: str
    instance_id: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader sees it.

    Attributes:
        member_id: Its id.
        metadata: What it wrote for the protocol that was chosen.
        instance_id: Of a static member.
    """

    member_id: str
    metadata: bytes
    instance_id: str | None = None


class JoinedGroup(NamedTuple):
    """The answer to a member that joins.

    Attributes:
        error_code: 0, or why it has not joined; with code 79 the member id is the one to join with.
        generation: Of the group.
        protocol: The name of the assignor that all members know.
        leader: Member id of the leader.
        member_id: Of the member that asked.
        members: All members, for the leader alone.
    """

    error_code: int
    generation: int
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...]


class ListedGroup(NamedTuple):
    """A group as the broker that coordinates it lists it.

    Attributes:
        group: Its name.
        protocol_type: `consumer` for consumers; empty for a group that has stored offsets and never had a member.
        state: Such as `Stable`; None from brokers before Kafka 2.6.
        group_type: `classic`, or `consumer` for the protocol of KIP-848; None from brokers before Kafka 3.8.
    """

    group: str
    protocol_type: str
    state: str | None = None
    group_type: str | None = None


class DescribedMember(NamedTuple):
    """A member of a group of the classic protocol.

    Attributes:
        member_id: As the coordinator has named it.
        instance_id: Of a static member; None for a dynamic one, and from brokers before Kafka 2.4.
        client_id: Its `client.id`.
        client_host: Its address, as Java writes it: `/127.0.0.1`.
        metadata: What it wrote for the protocol that the group has chosen; empty while the group rebalances.
        assignment: What the leader gave it; empty while the group rebalances.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group of the classic protocol.

    Attributes:
        error_code: 0, or why nothing is said of it.
        group: Its name.
        state: Such as `Stable`; `Dead` for a group that the broker does not know.
        protocol_type: As in `ListedGroup`.
        protocol: The name of the assignor that its members have chosen; empty without members.
        members: All members.
        error_message: The error in words; None from brokers before Kafka 4.0.
    """

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    error_message: str | None = None


class DescribedConsumer(NamedTuple):
    """A member of a group of the protocol of KIP-848.

    Attributes:
        member_id: As the member, or for one of the classic protocol the coordinator, has named it.
        instance_id: Of a static member.
        rack: Where it runs; None if it does not say.
        epoch: Of the assignment that it has.
        client_id: Its `client.id`.
        client_host: Its address.
        topics: That it subscribes to by name.
        regex: By which it subscribes to topics; None without one.
        assigned: The partitions that it has.
        target: Those that it shall have; others than `assigned` until it and their owners have followed.
        is_classic: It speaks the classic protocol; None if the broker does not say (before Kafka 4.0).
    """

    member_id: str
    instance_id: str | None
    rack: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    is_classic: bool | None = None


class DescribedConsumerGroup(NamedTuple):
    """A group of the protocol of KIP-848.

    Attributes:
        error_code: 0, or why nothing is said of it; 69 also for a group of the classic protocol.
        group: Its name.
        state: Such as `Stable` or `Reconciling`.
        epoch: Of the group: rises with each change of its members and topics.
        assignment_epoch: Of the target assignment; lower than `epoch` until it is computed.
        assignor: The name of the assignor of the broker.
        members: All members.
        error_message: The error in words; None without one.
    """

    error_code: int
    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
    error_message: str | None = None
