"""The coordination of a consumer whose partitions the application assigns: there is none, but for offsets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from rebalance.assigned_coordinator import AssignedCoordinator
from rebalance.counters import Counters
from rebalance.lease import Lease
from rebalance.loop import Loop
from rebalance.ports import Member, MemberParts
from rebalance.subscription import Subscription
from simpleconsumer.group_types import GenerationMember
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.offsets.commit_notes import CommitNotes
from zkconsumer.offsets.kafka_offsets import KafkaOffsets, KafkaOffsetTimes
from zkconsumer.offsets.member_offsets import MemberOffsets
from zkconsumer.offsets.no_offsets import NoOffsets
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetManager
from zkconsumer.status import BlockedClaim
from zkconsumer.wakeup import Latch

__all__ = ["AssignedCoordination", "channel_settings"]

_LONGEST_BACKOFF_S: Final = 10.0
_NO_GENERATION: Final = -1


def channel_settings(config: ConsumerConfig) -> ChannelSettings:
    """Return how the broker is spoken to that keeps the offsets of a group."""
    return ChannelSettings(
        config.client_id,
        Backoff.of_ms(config.offsets_channel_backoff_ms, _LONGEST_BACKOFF_S).first_s,
        config.offsets_channel_socket_timeout_ms / 1000,
        config.offsets_commit_max_retries,
        security=config.security,
    )


class AssignedCoordination:
    """What a member without a group needs; see `zkconsumer.member.coordination.Coordination`.

    Args:
        config: Settings.
        consumer_id: Name of the consumer in messages.
        lease: Never ends by itself.
        cluster: Makes the way to the cluster; what it opens is closed at the end.
        group_id: Whose offsets are read and committed; None for nobody's.
        resets: Where a partition without an offset starts.
        loop: The coordinator's.
        counters: Counts requests and errors.
    """

    coordinator: AssignedCoordinator

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        lease: Lease,
        cluster: Callable[[ExitStack], Cluster],
        group_id: str | None,
        resets: str,
        loop: Loop,
        counters: Counters,
    ) -> None:
        self._opened = ExitStack()
        self._loop = loop
        self._group_id = group_id
        self.notes = CommitNotes()
        self._lease = lease
        self._member = replace(
            Member(group_id or "", consumer_id, Subscription.static({})), auto_commit=config.auto_commit_enable,
            reset_policy=resets, resets_later_ones=True,
        )  # fmt: skip
        self._cluster = cluster(self._opened)
        self.directory = self._cluster.directory
        self.port = self
        self.offsets = self._new_offsets(config, group_id, counters)

    def _new_offsets(self, config: ConsumerConfig, group_id: str | None, counters: Counters) -> MemberOffsets:
        if group_id is None:
            return NoOffsets(self._loop, "group.id is not given, so nothing can be committed")
        if config.coordination == "zookeeper" and config.offsets_storage == "zookeeper":
            return NoOffsets(self._loop, "partitions that the application assigns have no registration in ZooKeeper "
                                         "that could fence their offsets: subscribe, or set offsets.storage=kafka")
        settings = channel_settings(config)
        times = KafkaOffsetTimes(settings.timeout_s, settings.timeout_s, settings.timeout_s, 0.0)
        committer = self if config.coordination == "brokers" else None
        manager = OffsetManager(group_id, self._cluster.brokers, settings, counters, committer)
        return KafkaOffsets(manager, self._loop, lambda: True, times)

    def coordinate(self, parts: MemberParts) -> None:
        """Make the coordinator."""
        self.coordinator = AssignedCoordinator(self._member, self._loop, parts, self._lease)

    # -- commits -------------------------------------------------------------------------------------------------------

    def member(self) -> GenerationMember:
        """Return who commits: nobody whom the group knows. Threads: any."""
        return GenerationMember(self._group_id or "", _NO_GENERATION, "")

    def refused(self, member: GenerationMember, code: int) -> None:
        """Do nothing: the group has members, which alone may commit."""

    # ------------------------------------------------------------------------------------------------------------------

    def connect(self, connected: Latch) -> None:
        """Do nothing: brokers are asked when something is wanted of them."""

    def check_cluster(self) -> None:
        """Do nothing: no group is joined."""

    def open(self) -> None:
        """Do nothing: nothing is held back."""

    def await_settled(self, settled: Latch) -> None:
        """Wait for nothing: positions are found while the consumer is polled."""

    def registrations(self) -> tuple[str, ...]:
        """Return nothing: there are no members."""
        return ()

    def generation(self) -> int:
        """Return 0: there is no group."""
        return 0

    def refused_nodes(self) -> list[str]:
        """Return nothing."""
        return []

    def blocked(self, now: float) -> tuple[BlockedClaim, ...]:
        """Return nothing."""
        return ()

    def close(self, timeout_s: float) -> None:
        """Close the way to the cluster, at the last call."""
        if timeout_s > 0.0:
            self._opened.close()
