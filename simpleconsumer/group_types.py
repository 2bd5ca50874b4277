"""The values of the requests of members of groups that brokers coordinate. They decide nothing."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CONSUMER_PROTOCOL", "GenerationMember", "JoinedGroup", "JoinedMember", "JoiningMember", "LeavingMember"]

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
