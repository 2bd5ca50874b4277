"""What the coordination needs of the rest of a member: delivery, offsets, and whoever wants to be told.

These are protocols: `rebalance` decides who owns what and has never heard of fetch requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rebalance.assignment import Partition
from rebalance.claims import Fence
from rebalance.machine import RebalanceTimes
from rebalance.snapshot import Strategy
from rebalance.subscription import Subscription

__all__ = ["Delivery", "Listener", "Member", "Offsets", "Starts"]


@dataclass(frozen=True, slots=True)
class Starts:
    """What the listener answered to an assignment.

    Attributes:
        chosen: where reading is to begin, instead of at the position that was told.
        refused: what was said in vain about a partition, as a sentence: nothing of it may be delivered.
    """

    chosen: Mapping[Partition, int] = field(default_factory=dict)
    refused: Mapping[Partition, str] = field(default_factory=dict)


class Delivery(Protocol):
    """What streams messages. Every call returns at once; `done` may come from any thread."""

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
    """Where positions are kept. Every call returns at once; `done` comes on the coordinator's thread."""

    def is_stored(self, partition: Partition, position: int, explicit: bool = False) -> bool: ...

    def load(self, partition: Partition, done: Callable[[int | None], None], created_zxid: int = 0) -> None: ...

    def forget_topic(self, topic: str) -> None: ...

    def commit(
        self,
        positions: Mapping[Partition, int],
        done: Callable[[Mapping[Partition, str]], None],
        explicit: bool = False,
    ) -> None: ...

    def commit_start(
        self, partition: Partition, offset: int, done: Callable[[Mapping[Partition, str]], None]
    ) -> None: ...

    def remember(self, partition: Partition, position: int) -> None: ...

    def start_at(self, partition: Partition, position: int) -> None: ...

    def session_opened(self, fence: Fence) -> None: ...

    def session_over(self) -> None: ...


class Listener(Protocol):
    """Who is told. `done` may come from any thread, once; the others are information only."""

    def revoked(self, partitions: list[Partition], done: Callable[[], None]) -> None: ...

    def assigned(self, positions: dict[Partition, int], done: Callable[[Starts], None]) -> None: ...

    def lost(self, partitions: list[Partition]) -> None: ...

    def blocked(self, partitions: list[Partition]) -> None: ...


@dataclass(frozen=True, slots=True)
class Member:
    """What a member is, and its waits in seconds."""

    group: str
    consumer_id: str
    subscription: Subscription
    strategy: Strategy
    chroot: str = ""
    auto_commit: bool = True
    reset_policy: str = "largest"
    drain_timeout_s: float = 3.0
    blocked_after_s: float = 8.0
    blocked_audit_s: float = 10.0
    audit_s: float = 30.0
    max_processing_s: float | None = None
    times: RebalanceTimes = field(default_factory=RebalanceTimes)
