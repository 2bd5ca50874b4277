"""Polls: joins the group or delivers assigned partitions, follows their positions, and takes records.

The subscription state has the subscription, the positions and the records that may be returned; the membership
(`zkconsumer.member.membership`) claims, fetches and commits. Both meet here, on the thread that polls. Records of a
poll are in hand until the next one; the membership gives up no partition before that, within its time.

Source: docs/SEMANTICS.md, "KafkaConsumer"; ClassicKafkaConsumer.poll (Kafka 3.9).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rebalance.lease import lease_clock
from rebalance.subscription import Subscription
from rebalance.zookeeper.znodes import WHITE_LIST
from simpleconsumer.types import TopicPartition
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.errors import NotSupported
from zkconsumer.member.asked_commit import AskedCommit
from zkconsumer.member.membership import Membership
from zkconsumer.polling.cluster_questions import ClusterQuestions
from zkconsumer.polling.errors import NEEDS_GROUP, ConsumerClosed, ConsumerWokenUp, NotSubscribed
from zkconsumer.polling.followed_positions import FollowedPositions, ResetThread
from zkconsumer.polling.group_events import CommitDone, CommitReports, Offsets
from zkconsumer.polling.joined_member import JoinedMember
from zkconsumer.polling.poll_reader import Taken
from zkconsumer.polling.records import ConsumerInterceptors, ConsumerRecords, OffsetAndMetadata
from zkconsumer.polling.streams_settings import streams_settings
from zkconsumer.polling.subscription_state import SubscriptionKind, SubscriptionState
from zkconsumer.polling.taken_items import TakenBatches, TakenItems, TakenRecords
from zkconsumer.streams.batches import MessageBatch

_LOOK_AGAIN_S: Final = 0.2
"""Longest sleep: what the coordinator's thread has done is then seen."""
_POSITIONS_S: Final = 1.0
"""How long the listener is not called about some partitions of an assignment while others have no position yet."""


class Poller:
    """The part of a consumer that belongs to the thread which polls.

    Args:
        config: Its settings.

    Attributes:
        config, settings: The settings, and what they are for the parts below.
        state: The subscription and the positions.
        positions: Changes the positions.
        questions: Asks the cluster.
        is_taken: Whether a poll has taken records that have not reached the application; who hands them over clears it.
        is_closed: Whether `close` was called.
        has_left: Whether it has left its group: until then callbacks may commit.
        is_cut_short: Whether polls return at once; who has called `cut_short` clears it.

    Threads: One at a time; `wakeup` and `cut_short` any.
    """

    def __init__(self, config: KafkaConsumerConfig) -> None:
        self.config = config
        self.settings = streams_settings(config)
        is_committed = config.isolation_level == "read_committed"
        self.state = SubscriptionState()
        self.questions = ClusterQuestions(self.settings, is_committed=is_committed)
        self.interceptors = ConsumerInterceptors(config.interceptor_classes)  # type: ignore[arg-type]
        self.is_taken = self.is_closed = self.has_left = self.is_cut_short = False
        self._commits = CommitReports(self.interceptors, lambda: self._joined.wake())
        self._joined = JoinedMember(config, self.settings, self.state, self._commits if self.interceptors else None)
        self._events = self._joined.events
        questions = ClusterQuestions(self.settings, is_committed=is_committed)
        self._resets = ResetThread(questions, self._joined.wake, self.settings.socket_timeout_ms / 1000)
        self.positions = FollowedPositions(self.state, self._joined, self._resets)
        self._records = TakenRecords(config.key_deserializer, config.value_deserializer)
        self._batches: tuple[object, TakenBatches] | None = None
        self._is_woken = False
        self._unreported_since: float | None = None

    @property
    def leased_until(self) -> float:
        """Until when no other member can have the partitions of this one, in seconds of `lease_clock`."""
        return self._joined.reader.leased_until

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], callbacks: object | None) -> None:
        """Subscribe to topics instead of the earlier ones."""
        self._need_group("subscribe")
        wanted = topics if isinstance(topics, str) else tuple(topics)
        if not wanted:
            self.unsubscribe()
            return
        is_change = self.state.subscribe(wanted)
        self._events.callbacks = callbacks
        if is_change:
            self._joined.follow(Subscription.static(dict.fromkeys(sorted(self.state.topics), 1)))

    def subscribe_to_pattern(self, pattern: re.Pattern[str], callbacks: object | None) -> None:
        """Subscribe to the topics whose whole name matches."""
        self._need_group("subscribe")
        if self.config.coordination == "zookeeper":
            if not isinstance(pattern.pattern, str) or {" ", ","} & set(pattern.pattern):
                raise NotSupported(f"pattern {pattern.pattern!r}",
                    "filters in ZooKeeper cannot have blanks, and commas separate alternatives")  # fmt: skip
            subscription = Subscription.white_list(pattern.pattern)
        else:
            subscription = Subscription(WHITE_LIST, ((pattern.pattern, 1),), pattern)
        is_change = self.state.subscribe_to_pattern(pattern)
        self._events.callbacks = callbacks
        if is_change:
            self._joined.follow(subscription)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver these partitions, without a group."""
        self.state.assign(TopicPartition(*each) for each in partitions)
        if self.state.kind is SubscriptionKind.NONE:
            self.unsubscribe()
            return
        # The records of the last poll are done for partitions that go: nobody waits for them.
        self._joined.reader.begin()
        self._joined.assign(tuple(self.state.assigned))
        self._joined.reader.end_poll()

    def unsubscribe(self) -> None:
        """Leave the group, and deliver nothing any more."""
        self._joined.forget_due()
        try:
            self._joined.leave(self._joined.close_s, in_hand_is_done=True)
        finally:
            self.state.unsubscribe()
            self._events.callbacks = None  # partitions that are assigned next are none of theirs
        self._commits.report()

    def rejoin(self, reason: str) -> None:
        """Have the group assigned anew."""
        coordinator = self._joined.broker_coordinator()
        if coordinator is None:
            raise NotSupported("enforce_rebalance", "members of groups in ZooKeeper rebalance by themselves, and "
                                                    "assigned partitions belong to no group")  # fmt: skip
        self._joined.call(lambda: coordinator.rejoin(reason))

    def _need_group(self, call: str) -> None:
        if self.config.group_id is None:
            raise NotSubscribed(f"{call} without group.id", "groups assign partitions to their members", NEEDS_GROUP)

    # -- polling -------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End the present poll, or the next one, with an error. Threads: any."""
        self._is_woken = True
        self._joined.wake()

    def cut_short(self) -> None:
        """Have the present poll return what there is, without waiting any more. Threads: any."""
        self.is_cut_short = True
        self._joined.wake()

    def poll(self, timeout_s: float) -> ConsumerRecords[Any, Any]:
        """Return records, as soon as there are some, or none after the time."""
        taken = self._poll(timeout_s, self.config.max_poll_records, self._records)
        records = {each.queue.partition: each.records for each in taken}
        self._note_epochs(taken)
        moved = {each.queue.partition: OffsetAndMetadata(each.next_offset) for each in taken if each.next_offset >= 0}
        found: ConsumerRecords[Any, Any] = ConsumerRecords(records, moved)
        return self.interceptors.on_consume(found) if self.interceptors and records else found

    def _note_epochs(self, taken: Iterable[Taken]) -> None:
        """Have the leader epochs of records stored with the offsets after them."""
        coordination = self._joined.coordination
        for each in taken:
            if each.records and coordination is not None:
                epochs = each.records[0].leader_epoch, each.records[-1].leader_epoch
                coordination.notes.returned(each.queue.partition, each.first_offset, each.next_offset, epochs)

    def poll_batches(
        self, timeout_s: float, max_records: int | None, columns: Sequence[str] | None
    ) -> list[MessageBatch]:
        """Return batches, as soon as there are some, or none after the time."""
        most = self.config.max_poll_records if max_records is None else max_records
        wanted = most, None if columns is None else tuple(columns)
        if self._batches is None or self._batches[0] != wanted:
            self._batches = wanted, TakenBatches(*wanted)
        return [batch for each in self._poll(timeout_s, most, self._batches[1]) for batch in each.records]

    def _poll(self, timeout_s: float, limit: int, items: TakenItems) -> list[Taken]:
        if self.state.kind is SubscriptionKind.NONE:
            raise NotSubscribed("poll", self.state.kind.value)
        deadline = lease_clock() + timeout_s
        try:
            self._joined.leave_due()
            if self.is_closed:
                raise ConsumerClosed  # by one of the callbacks
            self._joined.start()
            self._joined.reader.begin()
            while True:
                self._step()
                reader = self._joined.reader  # another one, if a callback has subscribed anew
                self.is_taken = True
                taken = reader.take(limit, items, self.positions.may_read)
                self.positions.advance(taken)
                left_s = deadline - lease_clock()
                if left_s <= 0 or self.is_cut_short or any(each.records for each in taken):
                    return taken
                if not taken:
                    reader.wait(min(left_s, _LOOK_AGAIN_S))
        except Exception:
            if self.is_closed:  # by a signal handler, in the midst of some step
                raise ConsumerClosed from None
            raise
        finally:
            self._joined.reader.end_poll()

    def _step(self) -> None:
        """Do the due work other than taking records: callbacks, positions, errors."""
        self._joined.run_callbacks()
        if self._events.unreported and self._is_all_there():
            self._events.report_assigned()
        self._commits.report()
        if self.is_closed:
            raise ConsumerClosed  # by one of them
        error, self._events.error = self._events.error, None
        if error is not None:
            raise error
        self._follow_positions()

    def _follow_positions(self) -> None:
        """Do what is due about positions; raise why there will be none."""
        failed = self._joined.join_error or self._joined.reader.error
        if failed is None and self.member is not None:
            failed = self.member.error
        if failed is not None:
            raise failed.with_traceback(None)
        self.positions.compare()
        self.positions.reset_due()
        if self._is_woken:
            self._is_woken = False
            raise ConsumerWokenUp

    def _is_all_there(self) -> bool:
        """Return whether all partitions of the assignment have positions; those without a leader are not waited for."""
        now = lease_clock()
        if self._unreported_since is None:
            self._unreported_since = now
        wanted = frozenset() if self.member is None else self.member.held() | self.member.claiming()
        if all(name in self.state.assigned for name in wanted) or now >= self._unreported_since + _POSITIONS_S:
            self._unreported_since = None
            return True
        return False

    def give_back(self, unread: Mapping[TopicPartition, int] | None = None) -> None:
        """Read again what was taken and did not reach the application, from these offsets on; None for all of it."""
        reader = self._joined.reader
        self.positions.rewind(reader.give_back(unread))
        reader.forget_hands()
        self.is_taken = False

    def await_position(self, partition: TopicPartition, timeout_s: float) -> int | None:
        """Return a position, None if it is not known in time; nothing comes or goes, as callbacks wait for a poll."""
        deadline = lease_clock() + timeout_s
        while True:
            position = self.state.assigned.position(partition)
            if position is not None:
                return position
            if not self.state.is_of_group:
                self._joined.run_callbacks()  # none of the application's: a partition starts when it is taken note of
            self._follow_positions()
            left_s = deadline - lease_clock()
            if left_s <= 0:
                return None
            if self.state.assigned.position(partition) is None:
                self._joined.reader.wait(min(left_s, 0.02))

    # -- commits -------------------------------------------------------------------------------------------------------

    def offsets_to_commit(self, offsets: Mapping[Any, Any] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a commit stores: the offsets given, or all positions."""
        if offsets is None:
            return self.state.assigned.consumed()
        return {
            TopicPartition(*name): each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
            for name, each in offsets.items()
        }

    def commit_sync(self, offsets: Offsets, wait_s: float | None) -> None:
        """Commit after all earlier ones, and wait for it: callbacks and interceptors hear of those first."""
        error = self._ask_commit(offsets, None).failure(wait_s)
        try:
            self._commits.report()
        finally:
            if error is not None:
                raise error

    def commit_async(self, offsets: Offsets, done: CommitDone | None) -> None:
        """Commit after all earlier ones; `done` is called by a later poll, commit_sync or close."""
        self._ask_commit(offsets, done)

    def _ask_commit(self, offsets: Offsets, done: CommitDone | None) -> AskedCommit:
        self._need_group("commit")
        member, reader = self.member, self._joined.reader
        if member is None:
            raise NotSubscribed("commit", self.state.kind.value)
        if member.error is not None:
            # It holds nothing any more: a commit of all that it holds would store nothing, and raise nothing.
            raise member.error
        given = {(name, each.offset): (each.metadata, each.leader_epoch) for name, each in offsets.items()}
        wanted = {name: each.offset for name, each in offsets.items()}
        return self._commits.ask(
            offsets, done, lambda answered: member.ask_commit(wanted, reader, given=given, answered=answered)
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def member(self) -> Membership | None:
        """The membership; None while there is none."""
        return self._joined.member

    def close(self, timeout_s: float, *, in_hand_is_done: bool) -> dict[TopicPartition, str]:
        """Leave, and end all threads; return the partitions whose positions are not stored, with reasons."""
        self.is_closed = True
        self._joined.forget_due()
        until = lease_clock() + timeout_s
        try:
            self._commits.finish(timeout_s / 2)
            return self._joined.leave(until - lease_clock(), in_hand_is_done=in_hand_is_done)
        finally:
            self.has_left = True
            self._resets.close(until - lease_clock())
            self.questions.close()
            try:
                self._commits.report()
            finally:
                self.interceptors.close()

    @property
    def has_begun(self) -> bool:
        """Whether there are threads or connections that `close` ends."""
        return not self.is_closed and (self._joined.has_begun or self.questions.is_open)

    def end_dropped(self) -> None:
        """Close without calling the application, which has dropped its consumer."""
        self._events.callbacks = None
        self.close(self._joined.close_s, in_hand_is_done=False)

    def on_fork(self) -> None:
        """Deliver nothing: this process is a fork of the one that polls. Takes no lock."""
        if self.member is not None:
            self.member.on_fork()
