"""The interfaces of what differs between a member that ZooKeeper coordinates and one that brokers coordinate.

`zkconsumer.member.membership` runs either of them: it owns the threads, the delivery, the commits and the leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from rebalance.assignment import Partition
from rebalance.fence import Fence
from rebalance.lease import Lease
from rebalance.member_partition import MemberPartition
from rebalance.ports import Member, MemberParts
from rebalance.rebalance_statistics import RebalanceStatistics
from zkconsumer.cluster.leaders import LeaderDirectory
from zkconsumer.offsets.commit_notes import CommitNotes
from zkconsumer.offsets.member_offsets import MemberOffsets
from zkconsumer.status import BlockedClaim
from zkconsumer.wakeup import Latch

__all__ = ["ClosingPort", "Coordination", "GroupCoordinator"]


class ClosingPort(Protocol):
    """Connections whose end ends the membership."""

    def close(self, timeout_s: float) -> None:
        """End the membership at once; wait so long for what is under way. Threads: any, also more than once."""


class GroupCoordinator(Protocol):
    """Runs one member of one group on the loop's thread.

    Attributes:
        error: Why the member is out of its group for good; None while it is not.
        fence: The membership that stands; None without one. Threads: any.
        lease: Until when the streams may deliver.
        state: What the member does, as docs/REBALANCE.md names it.
        since: When that began, on the loop's clock.
        session_timeout_s: After which a member that is not heard of is out of its group.
        settled: Whether each assigned partition is being delivered or blocked, or the member has failed.
        warnings: What the application should know about the group, as sentences.
    """

    error: Exception | None

    @property
    def member(self) -> Member: ...

    @property
    def fence(self) -> Fence | None: ...

    @property
    def lease(self) -> Lease: ...

    @property
    def partitions(self) -> Mapping[Partition, MemberPartition]: ...

    @property
    def rebalance_statistics(self) -> RebalanceStatistics: ...

    @property
    def state(self) -> str: ...

    @property
    def since(self) -> float: ...

    @property
    def session_timeout_s(self) -> float: ...

    @property
    def settled(self) -> bool: ...

    @property
    def warnings(self) -> frozenset[str]: ...

    def start(self) -> None:
        """Start to take part."""

    def when_settled(self, call: Callable[[], None]) -> None:
        """Run `call` as soon as `settled` is true."""

    def close(self) -> None:
        """Take no further part."""


class Coordination(Protocol):
    """How the group of one member is coordinated.

    Attributes:
        coordinator: Runs the member, once `coordinate` was called.
        offsets: Keeps its positions.
        notes: What is stored beside them, where brokers coordinate.
        directory: Finds leaders.
        port: Its end ends the membership.

    Threads: As each method says.
    """

    @property
    def coordinator(self) -> GroupCoordinator: ...

    @property
    def offsets(self) -> MemberOffsets: ...

    @property
    def notes(self) -> CommitNotes: ...

    @property
    def directory(self) -> LeaderDirectory: ...

    @property
    def port(self) -> ClosingPort: ...

    def coordinate(self, parts: MemberParts) -> None:
        """Make the coordinator. Threads: the one that makes the member."""

    def connect(self, connected: Latch) -> None:
        """Wait until the cluster can be asked; `connected` is set when that is given up. Threads: the joining one.

        Raises:
            ZkConsumerError: It cannot be asked.
        """

    def check_cluster(self) -> None:
        """Check that the group can be joined; nothing of it is written before. Threads: the joining one."""

    def open(self) -> None:
        """Let the coordinator, which has started, take part. Threads: the joining one."""

    def await_settled(self, settled: Latch) -> None:
        """Wait as long as a join may take. Threads: the joining one."""

    def registrations(self) -> tuple[str, ...]:
        """Return the members of the group, as far as this one knows them. Threads: the coordinator's."""

    def generation(self) -> int:
        """Return a number that is equal in members that see the same group. Threads: the coordinator's."""

    def refused_nodes(self) -> list[str]:
        """Return what is not known of the cluster, as sentences, and matters while leaders are looked for."""

    def blocked(self, now: float) -> tuple[BlockedClaim, ...]:
        """Return the claims that wait for other members. Threads: the coordinator's."""
