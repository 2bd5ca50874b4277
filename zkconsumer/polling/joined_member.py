"""Makes, starts and ends the membership of a consumer: in a broker group, in a ZooKeeper group, or in none.

The coordination of a consumer whose partitions the application assigns: there is none, but for offsets.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rebalance.assigned_coordinator import AssignedCoordinator
from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.ports import Member, MemberParts
from rebalance.rebalance_statistics import Counters
from rebalance.subscription import Partition, Subscription, thread_ids
from simpleconsumer.types import GenerationMember, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.cluster import Cluster, open_cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.member.coordination import Coordination
from zkconsumer.member.listening import HeldListener, ListenerThread
from zkconsumer.member.membership import MemberFaults, Membership
from zkconsumer.offsets.commits import CommitNotes
from zkconsumer.offsets.kafka_offsets import KafkaOffsets, KafkaOffsetTimes
from zkconsumer.offsets.member_offsets import MemberOffsets, NoOffsets
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetManager
from zkconsumer.polling.group_events import CommitReports, GroupEvents
from zkconsumer.polling.poll_reader import PollReader
from zkconsumer.polling.records import OffsetAndMetadata
from zkconsumer.polling.streams_settings import RESETS
from zkconsumer.polling.subscription_state import SubscriptionState
from zkconsumer.status import BlockedClaim
from zkconsumer.wakeup import Latch

if TYPE_CHECKING:
    from rebalance.brokers.coordinator import Coordinator

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
    """The coordination of a member without a group; see `zkconsumer.member.coordination.Coordination`.

    Args:
        config: Settings.
        consumer_id: Name of the consumer in messages.
        lease: Never ends by itself.
        cluster: Makes the way to the cluster, which is closed at the end.
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
            return NoOffsets(
                self._loop,
                "partitions that the application assigns have no registration in ZooKeeper "
                "that could fence their offsets: subscribe, or set offsets.storage=kafka",
            )
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


log = logging.getLogger(__name__)
_ANSWER_S: Final = 5.0
_LEAVE_LOOK_S: Final = 0.02
_BEYOND_LEAVE_S: Final = 0.5
Coordinated = Callable[[Loop, Counters, MemberFaults], Coordination]


class JoinedMember:
    """The membership of one consumer, as long as it has one.

    Args:
        config: Settings of the consumer.
        settings: The same for the parts below.
        state: The subscription.
        commits: Hears of what the member commits by itself; None for nobody.

    Attributes:
        member: The membership; None while there is none.
        coordination: Its coordination.
        reader: Takes its records.
        events: Changes the state, and calls the application, when partitions come and go.
        listening: Runs these calls on the thread that polls.
        join_error: Why it could not be joined; None if nothing is wrong.
        wake: Lets a waiting poll look again.

    Threads: That of the application which polls; `wake` any.
    """

    def __init__(
        self, config: KafkaConsumerConfig, settings: ConsumerConfig, state: SubscriptionState,
        commits: CommitReports | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._commits = commits
        self._settings = settings
        self._state = state
        self._policy = RESETS[config.auto_offset_reset]
        self.consumer_id = f"{settings.group_id}_{socket.gethostname()}-{os.urandom(6).hex()}"
        self.events = GroupEvents(state, self._is_held)
        self._held_events = HeldListener(self.events)
        self.wake = _waker(self)
        self.member: Membership | None = None
        self.coordination: Coordination | None = None
        self.reader = self._new_reader(Lease())
        self.listening = ListenerThread(None)
        self.join_error: BaseException | None = None
        self._has_joined = self._is_leaving = False
        self._due: Subscription | None = None
        self._joining: threading.Thread | None = None

    def broker_coordinator(self) -> Coordinator | None:
        """Return what coordinates the member of a group of brokers; None elsewhere, and while there is no member."""
        if self.member is None or self._config.coordination != "brokers":
            return None
        from rebalance.brokers.coordinator import Coordinator  # such a member has loaded it

        coordinator = self.member.coordinator
        return coordinator if isinstance(coordinator, Coordinator) else None

    # -- making one ----------------------------------------------------------------------------------------------------

    def follow(self, subscription: Subscription) -> None:
        """Have the group assign partitions of these topics.

        A member that has to leave for that, and to join again, does so in the next poll: callbacks run there.
        """
        coordinator = self.broker_coordinator()
        if coordinator is not None and coordinator.error is None:
            self.call(lambda: coordinator.subscribe(subscription))
        elif self.member is not None:
            self._due = subscription
        else:
            self._make_for(subscription)

    def leave_due(self) -> None:
        """Leave the group, if the subscription has changed so that the member has to join again."""
        if self._due is not None:
            self.leave(self.close_s, in_hand_is_done=True)

    def forget_due(self) -> None:
        """Do not join again: the subscription is over."""
        self._due = None

    def _make_for(self, subscription: Subscription) -> None:
        lease = Lease()
        made: Coordinated
        if self._config.coordination == "brokers":
            from zkconsumer.member.broker_coordination import BrokerCoordination  # each is loaded where it is used

            made = partial(
                BrokerCoordination, self._settings, self.consumer_id, subscription, lease, resets=self._policy
            )
        else:
            from zkconsumer.member.zookeeper_coordination import ZooKeeperCoordination

            made = partial(
                ZooKeeperCoordination, self._settings, self.consumer_id, subscription, lease, _take_any,
                resets=self._policy,
            )  # fmt: skip
        self._make(lease, made)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver these partitions, and no others, without a group; commits of them are taken when it returns."""
        if self.member is None:
            lease = Lease()

            def made(loop: Loop, counters: Counters, faults: MemberFaults) -> Coordination:
                return AssignedCoordination(
                    self._settings, self.consumer_id, lease, partial(_open, self._settings), self._config.group_id,
                    self._policy, loop, counters,
                )  # fmt: skip

            self._make(lease, made)
            self.start()
            if self._joining is not None:
                self._joining.join(_ANSWER_S)  # no server is asked
        assert self.member is not None
        coordinator = self.member.coordinator
        assert isinstance(coordinator, AssignedCoordinator)
        wanted = [(topic, number) for topic, number in partitions]
        self.call(lambda: coordinator.assign(wanted, self.reader.thread_id))
        self.call(lambda: None)  # the claims are granted in the step after

    def _make(self, lease: Lease, coordinated: Coordinated) -> None:
        self.reader = self._new_reader(lease)
        self.listening = ListenerThread(self._held_events, self.reader._wakeup.wake)
        self._has_joined, self.join_error = False, None
        self.member = Membership(
            self._settings, self.consumer_id, lease, {("", self.reader.thread_id): self.reader}, self.listening,
            coordinated, policy=self._policy,
        )  # fmt: skip
        self.coordination = self.member.coordination
        if self._commits is not None:
            self.member.offsets.on_commit = partial(self._committed, self._commits, self.member.notes)

    @staticmethod
    def _committed(commits: CommitReports, notes: CommitNotes, positions: Mapping[Partition, int]) -> None:
        """Report what the member has committed by itself. Threads: the coordinator's."""
        rows = {name: notes.to_store(name, at) for name, at in (
            (TopicPartition(*partition), position) for partition, position in positions.items()
        )}  # fmt: skip
        commits.stored({
            name: OffsetAndMetadata(row.offset, row.metadata, None if row.leader_epoch < 0 else row.leader_epoch)
            for name, row in rows.items()
        })  # fmt: skip

    def _new_reader(self, lease: Lease) -> PollReader:
        [thread_id] = thread_ids(self.consumer_id, 1)
        return PollReader(thread_id, lease, lease_clock, self._config.decoded_max_bytes)

    def start(self) -> None:
        """Join, on a thread of its own: a poll may end before that is over."""
        due = self._due
        if self.member is None and due is not None:
            self._due = None
            self._make_for(due)
        member = self.member
        if member is None or self._has_joined:
            return
        self._has_joined = True
        joined, wake = weakref.ref(self), self.wake

        def join() -> None:
            try:
                member.join()
            except BaseException as error:  # noqa: BLE001 - the next poll raises it
                owner = joined()
                if owner is not None and owner.member is member:
                    owner.join_error = error
            wake()

        self._joining = threading.Thread(target=join, name=f"zkconsumer-{self.consumer_id}-start", daemon=True)
        self._joining.start()

    # -- asking it -----------------------------------------------------------------------------------------------------

    def run_callbacks(self) -> None:
        """Take note of what came and went, and call the application about it."""
        try:
            self.listening.run_waiting()
        finally:
            self.events.report_lost()

    def call(self, call: Callable[[], Any]) -> None:
        """Run a call on the coordinator's thread, and wait for it."""
        assert self.member is not None
        self.member.call(call, _ANSWER_S)

    def _is_held(self, name: TopicPartition) -> bool:
        return self.member is not None and self.member.commits.holds((name.topic, name.partition))

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to end."""
        return self.member is not None and self._has_joined

    # -- ending it -----------------------------------------------------------------------------------------------------

    @property
    def close_s(self) -> float:
        """How long a leave may take that no caller has limited, in seconds."""
        return min(self._config.default_api_timeout_ms, 30_000) / 1000

    def leave(self, timeout_s: float, *, in_hand_is_done: bool) -> dict[TopicPartition, str]:
        """Leave the group; return partition -> why its position is not stored.

        The callbacks of the application run here, as everywhere. An interrupt does not stop the leave; it is raised at
        the end, a second one at once.
        """
        member = self.member
        if member is None:
            return {}
        if self._is_leaving:
            return member.unstored()  # the leave waits for the callback, or is interrupted by the handler, that calls
        self._is_leaving = True
        try:
            return self._leave(member, timeout_s, in_hand_is_done)
        finally:
            self._is_leaving = False

    def _leave(self, member: Membership, timeout_s: float, in_hand_is_done: bool) -> dict[TopicPartition, str]:
        until = lease_clock() + timeout_s
        me = threading.current_thread()
        member.leave(timeout_s, reader=self.reader, in_hand_is_done=in_hand_is_done, caller=me)
        interrupt: BaseException | None = None
        try:
            while not member.has_left and lease_clock() < until + _BEYOND_LEAVE_S:
                try:
                    self.run_callbacks()
                    self.reader.wait(_LEAVE_LOOK_S)
                except BaseException as error:
                    if interrupt is not None:
                        raise
                    interrupt = error
            self.run_callbacks()
            if self._joining is not None and self._joining is not me:
                self._joining.join(max(until - lease_clock(), 0.0))
            unstored = member.unstored()
        finally:
            self._forget()
        if interrupt is not None:
            raise interrupt
        return unstored

    def _forget(self) -> None:
        self.member = self.coordination = self._joining = None
        self.reader.forget()
        self.events.unreported = ()
        if self._state.is_of_group:
            self._state.assigned_from_group((), cooperative=False)
        error, self.events.error = self.events.error, None
        if error is not None:
            log.error("a rebalance callback has failed: %r", error)


def _waker(joined: JoinedMember) -> Callable[[], None]:
    """Return what lets a poll look again, for threads, which must not keep the consumer alive."""
    held = weakref.ref(joined)

    def wake() -> None:
        owner = held()
        if owner is not None:
            owner.reader._wake()

    return wake


def _open(settings: ConsumerConfig, stack: ExitStack) -> Cluster:
    return stack.enter_context(open_cluster(settings, settings.socket_timeout_ms / 1000)).cluster


def _take_any(generation: str) -> None:
    """Read a cluster of any generation: each chunk names what decodes it."""
