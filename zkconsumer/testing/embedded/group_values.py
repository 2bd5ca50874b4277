"""The requests and answers of members of a group, as plain values, and how brokers of several ages differ. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

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
        stores_new_groups: The record of an Empty group is written when its first member comes; from 4.0 on.
        takes_no_protocol_type: Members of the first join need not say of which kind they are; before 1.0.
        no_protocols_code: The answer to members without protocols; 0.9 and 0.10 have no word for it.
        looks_at_state_first: A commit while the group waits for its leader is refused whoever it is from; before 2.0.
        beats_look_at_state_first: A heartbeat while the group rebalances is answered so whoever it is from; in 0.9.
        dead_code: The answer for a group that is being removed.
    """

    min_session_s: float = 6.0
    max_session_s: float = 1800.0
    initial_delay_s: float = 3.0
    max_size: int | None = None
    renews_while_completing: bool = True
    ends_without_sync: bool = True
    keeps_empty_groups: bool = True
    stores_new_groups: bool = False
    takes_no_protocol_type: bool = False
    no_protocols_code: int = 23
    looks_at_state_first: bool = False
    beats_look_at_state_first: bool = False
    dead_code: int = 15


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
        protocol_type: Of which kind the members of the group are.
        leads_again: A static leader that comes back leads: from version 9 on.
        host: Where it is, as Java writes addresses.
    """

    member_id: str
    protocols: Mapping[str, bytes]
    session_s: float
    rebalance_s: float
    instance_id: str | None = None
    client_id: str = ""
    names_members_first: bool = True
    protocol_type: str = "consumer"
    leads_again: bool = False
    host: str = "/127.0.0.1"


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to JoinGroup; `members` for the leader alone, which assigns nothing with `skips_assignment`."""

    code: int
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skips_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request.

    Attributes:
        assignments: Member id -> assignment, of the leader; empty of others.
        protocol_type: As the member knows it: from version 5 on.
        protocol: The same of the assignor.
    """

    who: Who
    assignments: Mapping[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None


class Synced(NamedTuple):
    """The answer to SyncGroup; kind and assignor of the group without an error alone."""

    code: int
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


class Reply(NamedTuple):
    """An answer to a request, which may have waited.

    Attributes:
        request: The value that the caller gave with the request.
        answer: The answer to it.
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
        assignment: The assignment that the leader gave it.
        join: Its JoinGroup request that waits for the others.
        sync: Its SyncGroup request that waits for the leader.
        client_id: Of its connection.
        host: Where it is.
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
    client_id: str = ""
    host: str = "/127.0.0.1"

    @property
    def waits(self) -> bool:
        """Whether a request of it has no answer yet."""
        return self.join is not None or self.sync is not None

    def refuse(self, code: int) -> list[Reply]:
        """Return the answers with a code to its requests that wait, which wait no longer."""
        join, sync, self.join, self.sync = self.join, self.sync, None, None
        joins = [] if join is None else [Reply(join, Joined(code, member_id=self.member_id))]
        return joins if sync is None else [*joins, Reply(sync, Synced(code))]
