"""The coordination of a member by brokers: its requests, the topics, the offsets.

Source: docs/REBALANCE.md, "Groups that brokers coordinate".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from rebalance.brokers.coordinator import AWAY, Coordinator
from rebalance.brokers.events import Fence
from rebalance.brokers.group_member import BrokerGroupMember
from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.ports import MemberParts
from rebalance.rebalance_statistics import Counters
from rebalance.subscription import Subscription
from simpleconsumer.types import Broker, GenerationMember
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.metadata_reader import BrokersSilent, MetadataReader
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.tables.kinds import assignors_of
from zkconsumer.member.broker_group_port import BrokerGroupPort
from zkconsumer.member.membership import MemberFaults
from zkconsumer.member.request_thread import BrokerTopics
from zkconsumer.offsets.commits import CommitNotes
from zkconsumer.offsets.kafka_offsets import KafkaOffsets, KafkaOffsetTimes
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetManager
from zkconsumer.status import BlockedClaim
from zkconsumer.wakeup import Latch

_LONGEST_BACKOFF_S: Final = 10.0
_BEYOND_REBALANCE_S: Final = 10.0
"""How much longer than a rebalance a join is waited for: the coordinator is looked up, and offsets are read."""
_LOOK_S: Final = 0.1
_LEFT_S: Final = 5.0
"""Longest wait for the answer to LeaveGroup: a coordinator that does not answer ends the session by itself."""
_REFUSED_COMMIT_WAIT_S: Final = 10.0
"""How long a commit waits while the next generation is being made."""


class CoordinatorSilent(BrokersSilent):
    """A group cannot be joined: no broker that coordinates it has answered in time.

    Attributes:
        group: Its name.
        waited_s: For how many seconds none has answered.
        reason: Why, as last seen.
    """

    remedy = ("check that the group's coordinator runs and leads its partition of __consumer_offsets; then create a "
              "new connector")  # fmt: skip

    def __init__(self, group: str, waited_s: float, reason: str) -> None:
        super().__init__(group, waited_s, reason)
        self.group = group
        self.waited_s = waited_s
        self.reason = reason

    def __str__(self) -> str:
        return (f"{AWAY} {self.group} has not answered for {self.waited_s:.0f} s: {self.reason}; "
                f"{self.remedy}")  # fmt: skip


class BrokerCoordination:
    """How brokers coordinate the group of a member; see `zkconsumer.member.coordination.Coordination`.

    Args:
        config: Settings, with `bootstrap.servers`.
        consumer_id: The name of the member in messages, and of its threads and streams.
        subscription: The subscription of the member.
        lease: Until when the streams may deliver.
        loop: The coordinator's.
        counters: Counts requests and errors.
        faults: The callbacks for faults.
        resets: Replaces `auto.offset.reset`, and applies also for partitions that appear later.
        search_s: How long a join waits for a coordinator that does not answer, in seconds; None: `socket.timeout.ms`.
    """

    coordinator: Coordinator

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        subscription: Subscription,
        lease: Lease,
        loop: Loop,
        counters: Counters,
        faults: MemberFaults,
        *,
        resets: str | None = None,
        search_s: float | None = None,
    ) -> None:
        self._search_s = config.socket_timeout_ms / 1000 if search_s is None else search_s
        self._member = member_of(config, consumer_id, subscription)
        if resets is not None:
            self._member = replace(self._member, reset_policy=resets, resets_later_ones=True)
        self._config = config
        self._lease = lease
        self._loop = loop
        timeout_s = config.socket_timeout_ms / 1000
        addresses = [(each.host, each.port) for each in config.bootstrap_servers or ()]

        def reader(on_recreated: Callable[[], None] | None = None) -> MetadataReader:
            return MetadataReader(addresses, config.client_id, timeout_s, counters, security=config.security,
                                  on_recreated=on_recreated)  # fmt: skip

        self.notes = CommitNotes()
        self._reader = reader(self._topic_recreated)
        cluster = Cluster(self._reader, config.client_id, timeout_s, counters=counters, security=config.security)
        self.directory = cluster.directory
        self._requests = BrokerGroupPort(
            self._member, config.client_id, timeout_s, self.brokers, counters, self._failed, faults.thread_died,
            config.security,
        )  # fmt: skip
        self._topics = BrokerTopics(
            reader(), f"zkconsumer-{consumer_id}-topics", self._failed,
            lambda error: faults.thread_died("the thread that reads topics", error),
        )  # fmt: skip
        self.offsets = self._new_offsets(counters)
        self.port = _LeavingPort(self)

    def _new_offsets(self, counters: Counters) -> KafkaOffsets:
        config = self._config
        settings = ChannelSettings(
            config.client_id,
            Backoff.of_ms(config.offsets_channel_backoff_ms, _LONGEST_BACKOFF_S).first_s,
            config.offsets_channel_socket_timeout_ms / 1000,
            config.offsets_commit_max_retries,
            security=config.security,
        )
        times = KafkaOffsetTimes(
            load_s=settings.timeout_s,
            commit_s=settings.timeout_s + settings.max_retries * settings.backoff_s,
            answer_s=settings.timeout_s,
            lease_s=_REFUSED_COMMIT_WAIT_S,
        )
        manager = OffsetManager(config.group_id, self.brokers, settings, counters, self)
        return KafkaOffsets(manager, self._loop, self._may_commit, times, is_fenced=True)

    def coordinate(self, parts: MemberParts) -> None:
        """Make the coordinator."""
        self.coordinator = Coordinator(self._member, self._loop, self._requests, self._topics, parts, self._lease)

    def brokers(self) -> Sequence[Broker]:
        """Return the brokers of the cluster. Threads: any."""
        return self._reader.brokers()

    def _topic_recreated(self) -> None:
        """Have the topics read again: an answer about leaders shows that one was created again. Threads: any."""
        self._loop.post(lambda: self.coordinator.topics.look_now())

    def _failed(self, error: Exception) -> None:
        """End the member for good: brokers refuse its credentials. Threads: any."""
        self._loop.post(lambda: self.coordinator.fail(error))

    # -- commits -------------------------------------------------------------------------------------------------------

    def _may_commit(self) -> bool:
        return lease_clock() < self._lease.until and self.coordinator.generation is not None

    def member(self) -> GenerationMember | None:
        """Return who commits now; None without a lease, and while the next generation is being made. Threads: any."""
        generation = self.coordinator.generation
        if generation is None or lease_clock() >= self._lease.until:
            return None
        return self._requests.member_of(generation)

    def refused(self, member: GenerationMember, code: int) -> None:
        """Take note that the coordinator takes no commits of this generation. Threads: any."""
        self.coordinator.write_refused(Fence(member.generation, member.member_id), code)

    # -- joining -------------------------------------------------------------------------------------------------------

    def connect(self, connected: Latch) -> None:
        """Find the brokers; a consumer that is polled looks for them until they are there."""
        if not self._member.resets_later_ones:
            self._reader.brokers()

    def check_cluster(self) -> None:
        """Refuse names and positions of Kafka 0.7."""
        self._reader.find_generation(self._config.group_id, self._config.kafka_generation)

    def open(self) -> None:
        """Do nothing: the coordinator joins when it starts."""

    def await_settled(self, settled: Latch) -> None:
        """Wait as long as a rebalance may take; for a coordinator that does not answer, as long as one is looked for.

        Raises:
            CoordinatorSilent: None has answered in time. A consumer that is polled goes on asking.
        """
        until = lease_clock() + self._member.rebalance_s + _BEYOND_REBALANCE_S
        while not settled.wait(_LOOK_S):
            away, now = self.coordinator.away, lease_clock()
            if away is not None and not self._member.resets_later_ones and now >= min(until, away[0] + self._search_s):
                raise CoordinatorSilent(self._config.group_id, now - away[0], away[1])
            if now >= until:
                return

    # -- for the status ------------------------------------------------------------------------------------------------

    def registrations(self) -> tuple[str, ...]:
        """Return the members of the group for its leader; of others, the member itself."""
        return self.coordinator.members

    def generation(self) -> int:
        """Return the generation of the group; 0 without one."""
        return max(self.coordinator.last_generation, 0)

    def refused_nodes(self) -> list[str]:
        """Return nothing: brokers refuse no nodes."""
        return []

    def blocked(self, now: float) -> tuple[BlockedClaim, ...]:
        """Return nothing: assigned partitions are free."""
        return ()

    # -- the end -------------------------------------------------------------------------------------------------------

    def leave(self, left: Callable[[], None]) -> None:
        """Leave the group; `left` is called when the coordinator knows. Threads: any."""
        self.coordinator.leave_group(left)

    def close(self, timeout_s: float) -> None:
        """End connections and threads. Threads: any."""
        until = lease_clock() + timeout_s
        self._topics.close()
        self._requests.close(timeout_s)
        self._topics.close(until - lease_clock())

    def end_questions(self) -> None:
        """End the questions about the cluster that are under way: what they are for is over. Threads: any."""
        self._reader.close()
        self._topics.close()
        self._requests.end_heartbeats()


class _LeavingPort:
    """Its first close starts to leave the group, a later one waits for that and ends the connections."""

    def __init__(self, coordination: BrokerCoordination) -> None:
        self._coordination = coordination
        self._left = Latch()
        self._lock = threading.Lock()
        self._is_leaving = False

    def close(self, timeout_s: float) -> None:
        with self._lock:
            is_first, self._is_leaving = not self._is_leaving, True
        if is_first:
            self._coordination.end_questions()
            self._coordination.leave(self._left.set)
        if timeout_s > 0.0:
            until = lease_clock() + timeout_s
            self._left.wait(min(timeout_s, _LEFT_S))
            self._coordination.close(until - lease_clock())


def member_of(config: ConsumerConfig, consumer_id: str, subscription: Subscription) -> BrokerGroupMember:
    """Return the member that these settings describe: milliseconds become seconds."""
    return BrokerGroupMember(
        group=config.group_id,
        consumer_id=consumer_id,
        subscription=subscription,
        auto_commit=config.auto_commit_enable,
        reset_policy=config.auto_offset_reset,
        drain_timeout_s=config.rebalance_drain_timeout_ms / 1000,
        max_processing_s=(
            None if config.max_processing_interval_ms is None else config.max_processing_interval_ms / 1000
        ),
        assignors=assignors_of(config.partition_assignment_strategy),
        instance_id=config.group_instance_id,
        session_s=config.session_timeout_ms / 1000,
        rebalance_s=config.rebalance_timeout_ms / 1000,
        heartbeat_s=config.heartbeat_interval_ms / 1000,
        retry_s=max(config.refresh_leader_backoff_ms / 1000, 0.05),
        metadata_age_s=config.metadata_max_age_ms / 1000,
        exclude_internal_topics=config.exclude_internal_topics,
        rack=config.client_rack,
    )
