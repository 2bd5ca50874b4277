"""The requests and answers of members of a group, as plain values, and how brokers of several ages differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "GroupRules",
    "GroupState",
    "Join",
    "Joined",
    "JoinedMember",
    "Member",
    "Reply",
    "Sync",
    "Synced",
    "Who",
]

NO_GENERATION: Final = -1


class GroupState(Enum):
    """The states of a group, by their names on the wire."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How a broker coordinates; the defaults are those of Kafka 2.8 and later. Times in seconds.

    Attributes:
        min_session_s: Shortest session time-out that is allowed (`group.min.session.timeout.ms`).
        max_session_s: Longest one (`group.max.session.timeout.ms`).
        initial_delay_s: How long the first rebalance of an empty group waits for more members
            (`group.initial.rebalance.delay.ms`).
        max_size: Most members (`group.max.size`); None for any number.
        renews_while_completing: Heartbeats count, and are answered without an error, while the group waits for its
            leader; from 2.6 on.
        ends_without_sync: Members that do not ask for their assignment in time are removed; from 2.8 on.
        keeps_empty_groups: A group without members is Empty; before 0.10.1 it is Dead.
    """

    min_session_s: float = 6.0
    max_session_s: float = 1800.0
    initial_delay_s: float = 3.0
    max_size: int | None = None
    renews_while_completing: bool = True
    ends_without_sync: bool = True
    keeps_empty_groups: bool = True


class Who(NamedTuple):
    """A member as it names itself in Heartbeat, SyncGroup and OffsetCommit.

    Attributes:
        generation: -1 for nobody's commit.
        member_id: As the coordinator has named it.
        instance_id: Of a static member.
    """

    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request.

    Attributes:
        member_id: Empty for the first time.
        protocols: Name -> metadata, in the order of preference.
        session_s: Session time-out.
        rebalance_s: Rebalance time-out.
        instance_id: Of a static member.
        client_id: Of the connection; the first part of a member id.
        names_members_first: A member without an id is only given one: from version 4 on.
    """

    member_id: str
    protocols: Mapping[str, bytes]
    session_s: float
    rebalance_s: float
    instance_id: str | None = None
    client_id: str = ""
    names_members_first: bool = True


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to JoinGroup; `members` for the leader alone."""

    code: int
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request: member id -> assignment, of the leader; empty of others."""

    who: Who
    assignments: Mapping[str, bytes]


class Synced(NamedTuple):
    """The answer to SyncGroup."""

    code: int
    assignment: bytes = b""


class Reply(NamedTuple):
    """An answer to a request, which may have waited.

    Attributes:
        request: What the caller gave with the request.
        answer: What it is answered.
    """

    request: object
    answer: Joined | Synced


@dataclass(slots=True)
class Member:
    """A member of a group.

    Attributes:
        member_id: Its id.
        instance_id: Of a static member; None for a dynamic one.
        protocols: Name -> metadata, in the order of preference.
        session_s: Session time-out.
        rebalance_s: Rebalance time-out.
        ends_at: When its session ends, unless a request of it waits.
        assignment: What the leader has assigned to it.
        join: Its JoinGroup request that waits for the others.
        sync: Its SyncGroup request that waits for the leader.
    """

    member_id: str
    instance_id: str | None
    protocols: Mapping[str, bytes]
    session_s: float
    rebalance_s: float
    ends_at: float
    assignment: bytes = b""
    join: object = None
    sync: object = None
    client_id: str = field(default="")

    @property
    def waits(self) -> bool:
        """Whether a request of it has no answer yet."""
        return self.join is not None or self.sync is not None
