"""The interfaces through which a member of a group of brokers asks its coordinator, and about topics. Pure.

`rebalance` knows no requests of Kafka: whoever builds a member gives it a port. Every call returns at once; `done` is
called once, on any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rebalance.brokers.events import Fence, JoinedMember

__all__ = ["GroupPort", "Joined", "NamedMember", "Refused", "Synced", "TopicPort", "TopicsRead"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A request has no usable answer.

    Attributes:
        code: The error code; None if nobody answered.
        reason: What happened, a clause.
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
        partitions: Topic -> how many partitions it has, of those that exist.
        internal: Those of them that are topics of Kafka's own.
        incarnations: Topic -> its id as a number, of those that have one: Kafka 2.8 and later.
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
