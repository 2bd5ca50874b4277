"""The interfaces between the coordination and the rest of a member, and the fence of a decision. Pure.

The interfaces through which the coordination directs the rest of a member: delivery, offsets and listener.

They are protocols: `rebalance` decides who owns which partition and knows nothing about fetch requests.

The fence of a decision: a decision under one membership is never carried out under a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from rebalance import partition as steps
from rebalance.subscription import Partition, Subscription


class Fence(Protocol):
    """The membership under which a commit, load or claim was decided; equal ones are the same."""

    @property
    def session_id(self) -> int:
        """The membership: a session with ZooKeeper, or an uninterrupted membership in a broker group."""

    def __hash__(self) -> int: ...


def is_same_session(one: Fence | None, other: Fence | None) -> bool:
    """Whether two fences are of one session, or there is neither."""
    return (one.session_id if one is not None else None) == (other.session_id if other is not None else None)


Report = Callable[[steps.Event], None]
"""Takes the answer about a claim."""
NO_START: Final = -1
"""Stands for the position of a partition that has none: no offset is stored, and no policy names an end of the log."""
OwnerChanged = Callable[[Partition], None]
"""Is called, on any thread, when the owner of a partition may have changed."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The result of the listener for an assignment.

    Attributes:
        chosen: the offset at which delivery starts, instead of the position that was reported to the listener.
        refused: why a partition may not be delivered, as a sentence: the listener returned no usable offset for it.
    """

    chosen: Mapping[Partition, int] = field(default_factory=dict)
    refused: Mapping[Partition, str] = field(default_factory=dict)


class Delivery(Protocol):
    """Delivers messages to streams. Every call returns at once; `done` may come from any thread."""

    def resolve(self, partition: Partition, policy: str, done: Callable[[int], None]) -> None: ...

    def bounds(self, partition: Partition, done: Callable[[int, int], None]) -> None: ...

    def start(self, partition: Partition, thread_id: str, offset: int) -> None: ...

    def refuse(self, partition: Partition, thread_id: str, offset: int, reason: str) -> None: ...

    def drain(self, partition: Partition, done: Callable[[int], None]) -> None: ...

    def expire_drain(self, partition: Partition) -> int: ...

    def abandon(self, partition: Partition) -> int | None: ...

    def fail(self, error: Exception) -> None: ...

    def stuck_streams(self, now: float) -> list[str]: ...


class Offsets(Protocol):
    """Stores positions. Every call returns at once; `done` comes on the coordinator's thread.

    A load or commit carries the fence under which the caller decided on it, and ends when that fence is over: a load
    without an answer, a commit with a failure. It is never carried out under a later session. The answers to commits
    come in the order of the calls, also to a commit without positions.

    Attributes:
        release_tries: How often a failed commit is worth another attempt before the partition is released.
    """

    @property
    def release_tries(self) -> int: ...

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool: ...

    def load(self, fence: Fence | None, partition: Partition, done: Callable[[int | None], None]) -> None: ...

    def forget_topic(self, topic: str, incarnation: int, partitions: Collection[int | str]) -> None: ...

    def commit(
        self,
        fence: Fence | None,
        positions: Mapping[Partition, int],
        done: Callable[[Mapping[Partition, str]], None],
        explicit: bool = False,
    ) -> None: ...

    def commit_start(
        self,
        fence: Fence | None,
        partition: Partition,
        offset: int,
        done: Callable[[Mapping[Partition, str]], None],
    ) -> None: ...

    def remember(self, partition: Partition, position: int) -> None: ...

    def start_at(self, partition: Partition, position: int) -> None: ...

    def released(self, partition: Partition) -> None: ...

    def session_opened(self, fence: Fence) -> None: ...

    def session_over(self) -> None: ...


class Listener(Protocol):
    """Is notified of rebalances. `done` may come from any thread, once; the other calls are information only.

    A position may be `NO_START` where the application may choose one later (`Member.resets_later_ones`).
    """

    def revoked(self, partitions: list[Partition], done: Callable[[], None]) -> None: ...

    def assigned(self, positions: dict[Partition, int], done: Callable[[Starts], None]) -> None: ...

    def lost(self, partitions: list[Partition]) -> None: ...

    def blocked(self, partitions: list[Partition]) -> None: ...


class Claims(Protocol):
    """Makes partitions this member's own, so that no other member delivers them; how is the coordination's matter.

    Each `report` is called once, on the coordinator's thread, after the call has returned; that of `inspect` only if
    there is something to report.

    Attributes:
        fence: The membership that stands; None without one.
    """

    @property
    def fence(self) -> Fence | None: ...

    def claim(self, partition: Partition, thread_id: str, report: Report, *, is_vacant: bool) -> None:
        """Claim a partition: `Claimed`, `ClaimRefused`, `ClaimPutOff`, `Fenced` or `ResultUnknown`."""

    def await_end(
        self, partition: Partition, report: Report, changed: OwnerChanged, is_awaited: Callable[[], bool]
    ) -> None:
        """Report `OwnerGone` when the claim of another member ends, else whose it is, while `is_awaited`."""

    def inspect(self, partition: Partition, report: Report, changed: OwnerChanged, *, after_event: bool) -> None:
        """Find out who owns a partition, and call `changed` when that changes: `OwnerRead`, `OwnerGone`, or unknown.

        Args:
            after_event: Something has happened to the claim: one that may not be seen any more is another member's.
        """

    def find_out(self, partition: Partition, report: Report) -> None:
        """Find out what became of a claim or release whose result is unknown."""

    def move_to_thread(self, partition: Partition, thread_id: str, version: int, report: Report) -> None:
        """Give a claim to another thread of this member: `MovedToThread`, or why not."""

    def release(self, partition: Partition, report: Report) -> None:
        """End a claim: `Released`, `ReleaseRefused`, `Fenced` or `ResultUnknown`."""


@dataclass(frozen=True, slots=True)
class MemberParts:
    """The parts of a member that the coordination directs."""

    delivery: Delivery
    offsets: Offsets
    listener: Listener


@dataclass(frozen=True, slots=True)
class Member:
    """The identity and the settings of a member that both coordinations need; times in seconds.

    Attributes:
        resets_later_ones: Whether `reset_policy` is also for partitions that appear later; else they start at their
            smallest offset. The listener then also hears of partitions that have no start.
    """

    group: str
    consumer_id: str
    subscription: Subscription
    auto_commit: bool = True
    reset_policy: str = "largest"
    drain_timeout_s: float = 3.0
    max_processing_s: float | None = None
    resets_later_ones: bool = False
