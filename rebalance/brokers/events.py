"""The events and actions of the machine of a member in a group that brokers coordinate, as plain values. Pure.

`rebalance.brokers.machine` decides which actions follow from which events. Each request has a number, which its answer
carries: answers to others are dropped.

The interfaces through which a member of a group of brokers asks its coordinator, and about topics.

`rebalance` knows no requests of Kafka: whoever builds a member gives it a port. Every call returns at once; `done` is
called once, on any thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rebalance.brokers.reactions import Asked


@dataclass(frozen=True, slots=True)
class Fence:
    """A member of one generation: a decision under one generation is never carried out under another.

    Generations are compared for equality alone: a coordinator that has lost the last one goes back to the one before.

    Attributes:
        generation: Of the group.
        member_id: As the coordinator has named the member.
    """

    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader sees it.

    Attributes:
        member_id: Its id.
        metadata: Its subscription for the assignor that was chosen, as it wrote it.
        instance_id: Of a static member.
    """

    member_id: str
    metadata: bytes
    instance_id: str | None = None


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The member is to be in its group."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The group has to be assigned anew: the subscription has changed, or the topics as the leader knows them."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The member is to be out of its group."""

    reason: str


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The request of `GiveBack` is done."""


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """A coordinator can be asked."""

    request: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request has no usable answer: an error code, or none at all.

    Attributes:
        request: Its number.
        asked: Its kind.
        code: The error code; None if nobody answered.
        reason: The reason, as a clause.
    """

    request: int
    asked: Asked
    code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    """The member has joined a generation.

    Attributes:
        request: Its number.
        fence: Generation and member id.
        protocol: The assignor that was chosen.
        leader: Member id of the leader.
        members: All members, for the leader.
    """

    request: int
    fence: Fence
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberIdGiven:
    """The coordinator has named the member, which joins again under that id."""

    request: int
    member_id: str


@dataclass(frozen=True, slots=True)
class AssignmentsMade:
    """The leader has assigned the partitions: member id -> assignment."""

    fence: Fence
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    """The member has got its assignment."""

    request: int
    sent_at: float
    assignment: bytes


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """A heartbeat was answered without an error."""

    request: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class HeartbeatRefused:
    """A heartbeat was answered with an error; see `RequestFailed`."""

    request: int
    sent_at: float
    code: int


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """A commit was refused: the code says that its generation is over, or that the group rebalances."""

    fence: Fence
    code: int


@dataclass(frozen=True, slots=True)
class LeaveAnswered:
    """The coordinator has taken the member out, or was asked in vain."""

    request: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    """`next_timer` is due."""


Event = (
    Start
    | Rejoin
    | Leave
    | GivenBack
    | CoordinatorFound
    | RequestFailed
    | JoinAnswered
    | MemberIdGiven
    | AssignmentsMade
    | SyncAnswered
    | HeartbeatAnswered
    | HeartbeatRefused
    | WriteRefused
    | LeaveAnswered
    | TimerFired
)


# -- actions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Look up the coordinator of the group, at any broker."""

    request: int


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Ask to be in the next generation; the one before, if any, still counts for partitions that are held."""

    request: int
    member_id: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign the partitions of the group: this member is its leader."""

    fence: Fence
    protocol: str
    members: tuple[JoinedMember, ...]


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Ask for the assignment; the leader hands over those of all members."""

    request: int
    fence: Fence
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SetAssignment:
    """Hold these partitions from now on."""

    fence: Fence
    protocol: str
    assignment: bytes
    is_leader: bool


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Tell the coordinator that the member is alive."""

    request: int
    fence: Fence


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Leave the group; a JoinGroup that waits for an answer is given up."""

    request: int
    member_id: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Finish the messages in hand and commit them, then report `GivenBack`.

    Attributes:
        everything: Also what could be kept while the group is assigned anew.
    """

    everything: bool


@dataclass(frozen=True, slots=True)
class Lose:
    """Deliver and commit nothing more of the held partitions: they may be others' by now."""

    reason: str


@dataclass(frozen=True, slots=True)
class RenewLease:
    """The coordinator has proved that the member was in its group when this was sent.

    Attributes:
        fence: The membership that was proved.
        sent_at: When the request was sent that has proved it.
        no_later_than: When the lease ends at the latest: a member that does not come along while the group is assigned
            anew is removed then, whatever answers it gets until that moment. Infinite while nothing is.
    """

    fence: Fence
    sent_at: float
    no_later_than: float = math.inf


@dataclass(frozen=True, slots=True)
class EndLease:
    """Nothing proves any more that the member is in its group."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The member is out of its group for good."""

    asked: Asked
    code: int
    reason: str


Action = (
    FindCoordinator
    | JoinGroup
    | Assign
    | SyncGroup
    | SetAssignment
    | SendHeartbeat
    | LeaveGroup
    | GiveBack
    | Lose
    | RenewLease
    | EndLease
    | Fail
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A request has no usable answer.

    Attributes:
        code: The error code; None if nobody answered.
        reason: The reason, as a clause.
    """

    code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class NamedMember:
    """The coordinator has named a member that has not joined yet."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The member has joined a generation; see `rebalance.brokers.events.JoinAnswered`."""

    fence: Fence
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """The member has its assignment."""

    assignment: bytes


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """Topics as brokers have just named them.

    Attributes:
        partitions: Topic -> how many partitions it has; topics that exist alone.
        internal: The topics among them that are topics of Kafka's own.
        incarnations: Topic -> its id as a number, for topics that have one: Kafka 2.8 and later.
    """

    partitions: Mapping[str, int]
    internal: frozenset[str] = frozenset()
    incarnations: Mapping[str, int] = field(default_factory=dict)


class GroupPort(Protocol):
    """Asks the coordinator of one group on behalf of one member.

    Of two requests of one kind only the later one has to be answered. `sent_at` is when a request was sent, on the
    clock of the lease: an answer proves nothing about the time before.

    Attributes:
        rebalance_is_session: Whether the coordinator waits for members as long as their sessions last, and knows no
            rebalance time-out (before Kafka 0.10.1).
    """

    @property
    def rebalance_is_session(self) -> bool: ...

    def find_coordinator(self, done: Callable[[Refused | None], None]) -> None: ...

    def join_group(
        self,
        member_id: str,
        protocols: Sequence[tuple[str, bytes]],
        done: Callable[[Joined | NamedMember | Refused], None],
    ) -> None: ...

    def sync_group(
        self, fence: Fence, assignments: Mapping[str, bytes], done: Callable[[float, Synced | Refused], None]
    ) -> None: ...

    def heartbeat(self, fence: Fence, done: Callable[[float, Refused | None], None]) -> None: ...

    def leave_group(self, member_id: str, reason: str, done: Callable[[], None]) -> None:
        """Take a member out of the group.

        Args:
            member_id: Its id; empty for the member that a JoinGroup in flight is about to name, if there is one.
        """


class TopicPort(Protocol):
    """Reads topics in the metadata of brokers."""

    def read(self, topics: Collection[str] | None, done: Callable[[TopicsRead | str], None]) -> None:
        """Read some topics, or all; `done` gets them, or why they cannot be read, a clause."""
