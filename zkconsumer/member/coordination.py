"""The interfaces of what differs between a member that ZooKeeper coordinates and one that brokers coordinate.

`zkconsumer.member.membership` runs either of them: it owns the threads, the delivery, the commits and the leave.

Makes the settings of a member for the coordination from those of the consumer: milliseconds become seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from rebalance.lease import Lease
from rebalance.ports import Fence, Member, MemberParts
from rebalance.rebalance_statistics import RebalanceStatistics
from rebalance.subscription import Partition, Subscription
from rebalance.takeover import MemberPartition
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.snapshot import Strategy
from rebalance.zookeeper.waits import RebalanceTimes
from zkconsumer.cluster.leaders import LeaderDirectory
from zkconsumer.config import ConsumerConfig
from zkconsumer.offsets.commits import CommitNotes
from zkconsumer.offsets.member_offsets import MemberOffsets
from zkconsumer.status import BlockedClaim
from zkconsumer.wakeup import Latch


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
        state: The state of the member, as docs/REBALANCE.md names it.
        since: When that began, on the loop's clock.
        session_timeout_s: After which a member that is not heard of is out of its group.
        settled: Whether each assigned partition is being delivered or blocked, or the member has failed.
        warnings: Warnings about the group for the application, as sentences.
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
        notes: The metadata that is stored with them, where brokers coordinate.
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


def member_of(config: ConsumerConfig, consumer_id: str, subscription: Subscription) -> RegisteredMember:
    """The member that these settings describe."""
    backoff_s = config.rebalance_backoff_ms / 1000
    # Java members need all their tries, and the obstacle to them may last as long.
    order_wait_s = max(10.0, 2 * config.rebalance_max_retries * backoff_s)
    return RegisteredMember(
        group=config.group_id,
        consumer_id=consumer_id,
        subscription=subscription,
        strategy=Strategy(
            str(config.partition_assignment_strategy), config.roundrobin_order, config.exclude_internal_topics
        ),
        chroot=config.zookeeper_address.chroot,
        auto_commit=config.auto_commit_enable,
        reset_policy=config.auto_offset_reset,
        drain_timeout_s=config.rebalance_drain_timeout_ms / 1000,
        blocked_after_s=max(0.1, config.rebalance_max_retries * backoff_s),
        max_processing_s=(
            None if config.max_processing_interval_ms is None else config.max_processing_interval_ms / 1000
        ),
        times=RebalanceTimes(
            quiet_s=config.rebalance_quiet_ms / 1000,
            quiet_max_s=config.rebalance_quiet_max_ms / 1000,
            order_wait_s=order_wait_s,
            # A drain, and the listener for as long again.
            order_dissent_s=2 * order_wait_s + 4 * config.rebalance_drain_timeout_ms / 1000,
        ),
    )
