"""Polls: joins the group or delivers assigned partitions, follows their positions, and takes records.

The subscription state says what is subscribed to, where positions are and what may be returned; the membership behind
it (`zkconsumer.member.membership`) claims, fetches and commits. Both meet here, on the thread that polls:
- A queue that has started is compared with the state: its position is taken, or it is set to that of the state.
- Positions that are to be reset are asked for here, within the time of the poll.
- Records of a poll are in hand until the next one; the membership gives up no partition before that, within its time.

Source: docs/SEMANTICS.md, "KafkaConsumer"; ClassicKafkaConsumer.poll (Kafka 3.9).
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from rebalance.assigned_coordinator import AssignedCoordinator
from rebalance.brokers.coordinator import Coordinator
from rebalance.counters import Counters
from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.subscription import Subscription, thread_ids
from rebalance.zookeeper.znodes import WHITE_LIST
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.opening import open_cluster
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.errors import NotSupported
from zkconsumer.fetching.partition_queue import PartitionQueue
from zkconsumer.member.broker_coordination import BrokerCoordination
from zkconsumer.member.coordination import Coordination
from zkconsumer.member.listening import ListenerThread
from zkconsumer.member.membership import MemberFaults, Membership
from zkconsumer.member.zookeeper_coordination import ZooKeeperCoordination
from zkconsumer.polling.assigned_coordination import AssignedCoordination
from zkconsumer.polling.cluster_questions import ClusterQuestions
from zkconsumer.polling.commit_thread import CommitDone, CommitThread
from zkconsumer.polling.consumer_errors import ConsumerWokenUp
from zkconsumer.polling.errors import NoOffsetForPartition, NotSubscribed
from zkconsumer.polling.group_events import GroupEvents
from zkconsumer.polling.interceptors import ConsumerInterceptors
from zkconsumer.polling.partition_position import OffsetReset, PositionState
from zkconsumer.polling.poll_reader import PollReader, Taken
from zkconsumer.polling.records import ConsumerRecords, OffsetAndMetadata
from zkconsumer.polling.streams_settings import RESETS, streams_settings
from zkconsumer.polling.subscription_state import SubscriptionKind, SubscriptionState

__all__ = ["Poller"]

log = logging.getLogger(__name__)

_RESET_AGAIN_S: Final = 0.2
_LOOK_AGAIN_S: Final = 0.2
"""Longest sleep: what the coordinator's thread has done is then seen."""
_POSITIONS_S: Final = 1.0
"""How long the listener is not called about some partitions of an assignment while others have no position yet."""
_ANSWER_S: Final = 5.0
_POLICIES: Final = {"earliest": OffsetReset.EARLIEST, "latest": OffsetReset.LATEST, "none": None}

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Poller:
    """The part of a consumer that belongs to the thread which polls.

    Args:
        config: Its settings.

    Attributes:
        config, settings: The settings, and what they are for the parts below.
        state: What is subscribed to, and the positions.
        questions: Asks the cluster.

    Threads: One at a time; `wake` any.
    """

    def __init__(self, config: KafkaConsumerConfig) -> None:
        self.config = config
        self.settings = streams_settings(config)
        is_committed = config.isolation_level == "read_committed"
        self.state = SubscriptionState(_POLICIES[config.auto_offset_reset], read_committed=is_committed)
        self.questions = ClusterQuestions(self.settings, is_committed=is_committed)
        self.interceptors = ConsumerInterceptors(config.interceptor_classes)  # type: ignore[arg-type]
        name = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
        self.consumer_id = f"{self.settings.group_id}_{name}"
        self._events = GroupEvents(self.state, self._is_held)
        self._member: Membership | None = None
        self._coordination: Coordination | None = None
        self._reader = self._new_reader(Lease())
        self._listening = ListenerThread(None)
        self._commits = CommitThread(self.wake)
        self._join_error: BaseException | None = None
        self._has_joined = False
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._is_woken = False
        self._unreported_since: float | None = None

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], callbacks: object | None) -> None:
        """Subscribe to topics, in place of those before."""
        self._need_group("subscribe")
        if self.state.subscribe(topics):
            self._events.callbacks = callbacks
            if self.state.kind is SubscriptionKind.NONE:
                self._leave(self._close_s, in_hand_is_done=True)
            else:
                self._follow(Subscription.static(dict.fromkeys(sorted(self.state.topics), 1)))
        else:
            self._events.callbacks = callbacks

    def subscribe_to_pattern(self, pattern: re.Pattern[str], callbacks: object | None) -> None:
        """Subscribe to the topics whose whole name matches."""
        self._need_group("subscribe")
        if self.config.coordination == "zookeeper":
            if not isinstance(pattern.pattern, str) or {" ", ","} & set(pattern.pattern):
                raise NotSupported(f"pattern {pattern.pattern!r}", "filters in ZooKeeper have no blanks, and commas "
                                   "separate alternatives there")  # fmt: skip
            subscription = Subscription.white_list(pattern.pattern)
        else:
            subscription = Subscription(WHITE_LIST, ((pattern.pattern, 1),), pattern)
        is_change = self.state.subscribe_to_pattern(pattern)
        self._events.callbacks = callbacks
        if is_change:
            self._follow(subscription)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver these partitions, without a group."""
        self.state.assign(TopicPartition(*each) for each in partitions)
        if self.state.kind is SubscriptionKind.NONE:
            self._leave(self._close_s, in_hand_is_done=True)
            return
        if self._member is None:
            policy = RESETS[self.config.auto_offset_reset]
            lease = Lease()

            def coordinated(loop: Loop, counters: Counters, faults: MemberFaults) -> Coordination:
                return AssignedCoordination(
                    self.settings, self.consumer_id, lease, self._open, self.config.group_id, policy, loop, counters
                )

            self._make_member(lease, coordinated)
            self._start()
        # What the last poll has returned of partitions that go is done: nobody waits for them.
        self._rewind(self._reader.begin())
        coordinator = self._assigned_coordinator()
        wanted = [(topic, number) for topic, number in self.state.assigned]
        self._call(lambda: coordinator.assign(wanted, self._reader.thread_id))
        self._reader.end_poll()

    def unsubscribe(self) -> None:
        """Leave the group, and deliver nothing any more."""
        self._leave(self._close_s, in_hand_is_done=True)
        self.state.unsubscribe()

    def _need_group(self, call: str) -> None:
        if self.config.group_id is None:
            raise NotSubscribed(f"{call} without group.id", "groups assign partitions to their members")

    def _follow(self, subscription: Subscription) -> None:
        """Have the group assign partitions of these topics."""
        coordinator = None if self._member is None else self._member.coordinator
        if isinstance(coordinator, Coordinator) and coordinator.error is None:
            self._call(lambda: coordinator.subscribe(subscription))
            return
        self._leave(self._close_s, in_hand_is_done=True)
        lease, policy = Lease(), RESETS[self.config.auto_offset_reset]
        make: Callable[[Loop, Counters, MemberFaults], Coordination]
        if self.config.coordination == "brokers":
            make = partial(BrokerCoordination, self.settings, self.consumer_id, subscription, lease, resets=policy)
        else:
            make = partial(
                ZooKeeperCoordination, self.settings, self.consumer_id, subscription, lease, _take_any, resets=policy
            )
        self._make_member(lease, make)

    def _make_member(self, lease: Lease, coordinated: Callable[[Loop, Counters, MemberFaults], Coordination]) -> None:
        self._reader = self._new_reader(lease)
        self._listening = ListenerThread(self._events, self._reader._wake)
        self._has_joined, self._join_error = False, None
        self._queues = {}
        self._member = Membership(
            self.settings, self.consumer_id, lease, {("", self._reader.thread_id): self._reader}, self._listening,
            coordinated, policy=RESETS[self.config.auto_offset_reset],
        )  # fmt: skip
        self._coordination = self._member.coordination

    def _new_reader(self, lease: Lease) -> PollReader:
        config = self.config
        [thread_id] = thread_ids(self.consumer_id, 1)
        return PollReader(thread_id, lease, lease_clock, (config.key_deserializer, config.value_deserializer),
                          config.decoded_max_bytes)  # fmt: skip

    def _open(self, stack: ExitStack) -> Cluster:
        return stack.enter_context(open_cluster(self.settings, self.settings.socket_timeout_ms / 1000)).cluster

    def _assigned_coordinator(self) -> AssignedCoordinator:
        coordinator = None if self._member is None else self._member.coordinator
        assert isinstance(coordinator, AssignedCoordinator)
        return coordinator

    def _start(self) -> None:
        """Join, on a thread of its own: a poll may end before that is over."""
        member = self._member
        if member is None or self._has_joined:
            return
        self._has_joined = True

        def join() -> None:
            try:
                member.join()
            except BaseException as error:  # noqa: BLE001 - the next poll raises it
                if self._member is member:
                    self._join_error = error
            self.wake()

        threading.Thread(target=join, name=f"zkconsumer-{self.consumer_id}-start", daemon=True).start()

    # -- polling -------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let a waiting poll look again. Threads: any."""
        self._reader._wake()

    def wakeup(self) -> None:
        """End the present poll, or the next one, with an error. Threads: any."""
        self._is_woken = True
        self.wake()

    def poll(self, timeout_s: float) -> ConsumerRecords[Any, Any]:
        """Return records, as soon as there are some, or none after the time."""
        if self.state.kind is SubscriptionKind.NONE:
            raise NotSubscribed("poll", self.state.kind.value)
        deadline = lease_clock() + timeout_s
        self._start()
        self._rewind(self._reader.begin())
        try:
            while True:
                self.step(deadline)
                taken = self._reader.take(self.config.max_poll_records, self._may_read)
                self._advance(taken)
                if any(each.records for each in taken):
                    return self._records(taken)
                left_s = deadline - lease_clock()
                if left_s <= 0:
                    return ConsumerRecords({}, self._moved(taken))
                if not taken:
                    self._reader.wait(min(left_s, _LOOK_AGAIN_S))
        finally:
            self._reader.end_poll()

    def step(self, deadline: float) -> None:
        """Do what is due beside taking records: callbacks, positions, errors."""
        self._listening.run_waiting()
        if self._events.unreported and self._is_all_there():
            self._events.report_assigned()
        self._raise_what_failed()
        self._report_commits()
        self._compare_queues()
        self._reset_positions(deadline)
        if self._is_woken:
            self._is_woken = False
            raise ConsumerWokenUp

    def _is_all_there(self) -> bool:
        """Return whether all partitions of the assignment have positions; those without a leader are not waited for."""
        now = lease_clock()
        if self._unreported_since is None:
            self._unreported_since = now
        member = self._member
        wanted = [] if member is None else list(member.held())
        if all(name in self.state.assigned for name in wanted) or now >= self._unreported_since + _POSITIONS_S:
            self._unreported_since = None
            return True
        return False

    def _raise_what_failed(self) -> None:
        error, self._events.error = self._events.error, None
        if error is not None:
            raise error
        failed = self._join_error or self._reader.error
        if failed is None and self._member is not None:
            failed = self._member.error
        if failed is not None:
            raise failed.with_traceback(None)

    def _report_commits(self) -> None:
        for offsets, error, done in self._commits.results():
            if error is None:
                self.interceptors.on_commit(offsets)
            if done is not None:
                done(offsets, error)

    def _may_read(self, queue: PartitionQueue) -> bool:
        name = queue.partition
        if name in self._events.unreported:
            return False  # the listener may still seek
        return self._queues.get(name) is queue and self.state.assigned.is_fetchable(name)

    def _advance(self, taken: Collection[Taken]) -> None:
        assigned = self.state.assigned
        for each in taken:
            name = each.queue.partition
            if each.reset_to is not None:
                assigned.seek(name, each.reset_to)
            if each.next_offset >= 0:
                assigned.advance(name, each.next_offset)
            if each.log_end is not None:
                assigned.log_known(name, high_watermark=each.log_end)

    def _records(self, taken: Collection[Taken]) -> ConsumerRecords[Any, Any]:
        records = {each.queue.partition: each.records for each in taken}
        found: ConsumerRecords[Any, Any] = ConsumerRecords(records, self._moved(taken))
        return self.interceptors.on_consume(found) if self.interceptors else found

    @staticmethod
    def _moved(taken: Collection[Taken]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each.queue.partition: OffsetAndMetadata(each.next_offset) for each in taken if each.next_offset >= 0}

    def _rewind(self, lost: Mapping[TopicPartition, int]) -> None:
        """Read again what an interrupted poll had taken and not returned."""
        for name, offset in lost.items():
            if name in self.state.assigned:
                self.seek(name, offset)

    # -- positions -----------------------------------------------------------------------------------------------------

    def _compare_queues(self) -> None:
        """Take the positions of queues that have started; set those that are elsewhere to the state's."""
        member, assigned = self._member, self.state.assigned
        if member is None:
            return
        refused: list[TopicPartition] = []
        for name in assigned:
            queue = member.delivery.queue_of(name)
            if queue is None or queue.is_settled or self._queues.get(name) is queue:
                continue
            if assigned.state(name) is PositionState.INITIALIZING:
                if _refusal(queue):
                    refused.append(name)
                    continue
                assigned.take_committed({name: OffsetAndMetadata(queue.position)}, assigned.assignment_id)
            position = assigned.position(name)
            if position is None:
                continue
            if position.offset == queue.position and not _refusal(queue):
                self._queues[name] = queue
            else:
                self._set_position(name, position.offset)
        self._queues = {name: queue for name, queue in self._queues.items() if name in assigned}
        refused += self._unknown_refusals()
        if refused:
            raise NoOffsetForPartition(refused)

    def _unknown_refusals(self) -> list[TopicPartition]:
        """Return partitions of the group without an offset that were never reported, as they do not start."""
        found = [queue.partition for queue in dict.fromkeys(tuple(self._reader._ready))
                 if queue.is_live and queue.partition not in self.state.assigned and _refusal(queue)]  # fmt: skip
        if found and self.state.is_of_group:
            self.state.assigned_from_group([*self.state.assigned, *found], cooperative=True)
        return found

    def _reset_positions(self, deadline: float) -> None:
        """Ask for the ends of logs to which positions are to be reset."""
        assigned = self.state.assigned
        now = lease_clock()
        waiting = assigned.awaiting_reset(now)
        for first in (True, False):
            policy = OffsetReset.EARLIEST if first else OffsetReset.LATEST
            wanted = {name: request for name, request in waiting.items() if request.policy is policy}
            if not wanted:
                continue
            longest_s = min(self.settings.socket_timeout_ms / 1000, max(deadline - now, _RESET_AGAIN_S))
            found, _ = self.questions.known_ends(list(wanted), longest_s, first=first)
            for name, offset in found.items():
                if assigned.reset_answered(name, wanted[name], offset):
                    self._set_position(name, offset)
            assigned.postpone([name for name in wanted if name not in found], lease_clock() + _RESET_AGAIN_S)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set a position."""
        self.state.assigned.seek(partition, offset)
        self._set_position(partition, offset)

    def _set_position(self, name: TopicPartition, offset: int) -> None:
        """Have the membership fetch from another offset; a partition that has not started is set when it has."""
        self._queues.pop(name, None)
        member = self._member
        if member is None:
            return

        def seek() -> None:
            member.offsets.start_at((name.topic, name.partition), offset)
            member.delivery.seek((name.topic, name.partition), offset)

        self._call(seek)

    def await_position(self, partition: TopicPartition, timeout_s: float) -> int | None:
        """Return a position, None if it is not known in time."""
        deadline = lease_clock() + timeout_s
        self._start()
        while True:
            self.step(deadline)
            position = self.state.assigned.position(partition)
            if position is not None:
                return position.offset
            left_s = deadline - lease_clock()
            if left_s <= 0:
                return None
            self._reader.wait(min(left_s, 0.02))

    # -- pauses --------------------------------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return nothing of partitions."""
        names = [TopicPartition(*each) for each in partitions]
        self.state.assigned.pause(names)
        for name in names:
            self._queues.pop(name, None)
        if self._member is not None and names:
            self._member.pause(names)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End a pause; what was returned of the partitions and is in hand is not returned again."""
        names = [TopicPartition(*each) for each in partitions]
        self.state.assigned.resume(names)
        member = self._member
        if member is None or not names:
            return
        # Fetching goes on behind what is in hand, when that is done.
        member.resume(names)

    # -- commits -------------------------------------------------------------------------------------------------------

    def offsets_to_commit(self, offsets: Mapping[Any, Any] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a commit stores: the offsets given, or all positions."""
        if offsets is None:
            return self.state.assigned.consumed()
        return {
            TopicPartition(*name): each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
            for name, each in offsets.items()
        }

    def prepare_commit(self, offsets: Offsets) -> Callable[[], None]:
        """Decide what a commit stores; the result stores it, and waits."""
        self._need_group("commit")
        member = self._member
        if member is None:
            raise NotSubscribed("commit", self.state.kind.value)
        notes = getattr(self._coordination, "notes", None)
        if notes is not None:
            notes.update({(name, each.offset): each.metadata for name, each in offsets.items() if each.metadata})
        return member.prepare_commit({name: each.offset for name, each in offsets.items()}, threading.get_ident())

    def commit_async(self, offsets: Offsets, done: CommitDone | None) -> None:
        """Commit behind all earlier ones; `done` is called by a later poll."""
        self._commits.ask(self.prepare_commit(offsets), offsets, done)

    def _is_held(self, name: TopicPartition) -> bool:
        return self._member is not None and self._member.commits.holds((name.topic, name.partition))

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def member(self) -> Membership | None:
        """The membership; None while there is none."""
        return self._member

    @property
    def _close_s(self) -> float:
        return min(self.config.default_api_timeout_ms, 30_000) / 1000

    def close(self, timeout_s: float, *, in_hand_is_done: bool) -> dict[TopicPartition, str]:
        """Leave, and end all threads; return the partitions whose positions are not stored, with reasons."""
        until = lease_clock() + timeout_s
        unstored = self._leave(timeout_s, in_hand_is_done=in_hand_is_done)
        self._commits.close(until - lease_clock())
        self._report_commits()
        self.interceptors.close()
        self.questions.close()
        return unstored

    def _leave(self, timeout_s: float, *, in_hand_is_done: bool) -> dict[TopicPartition, str]:
        member = self._member
        if member is None:
            return {}
        until = lease_clock() + timeout_s
        me = threading.current_thread()
        member.leave(timeout_s, reader=threading.get_ident(), in_hand_is_done=in_hand_is_done, caller=me)
        # The callbacks of the application run here, as everywhere.
        while not member.has_left and lease_clock() < until + 0.5:
            self._listening.run_waiting()
            self._reader.wait(0.02)
        self._listening.run_waiting()
        unstored = member.unstored()
        self._member = self._coordination = None
        self._reader.forget()
        self._queues = {}
        if self.state.is_of_group:
            self.state.assigned_from_group((), cooperative=False)
        error, self._events.error = self._events.error, None
        if error is not None:
            log.error("a callback about partitions has failed: %r", error)
        return unstored

    def _call(self, call: Callable[[], Any]) -> None:
        """Run a call on the coordinator's thread, and wait for it."""
        assert self._member is not None
        self._member.call(call, _ANSWER_S)


def _refusal(queue: PartitionQueue) -> bool:
    """Return whether a queue only says why its partition does not start."""
    try:
        return isinstance(queue.chunks[0].error, ValueError)
    except IndexError:
        return False


def _take_any(generation: str) -> None:
    """Read a cluster of any generation: each chunk names what decodes it."""
