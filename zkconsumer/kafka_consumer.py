"""KafkaConsumer: the consumer of newer Kafka clients, on groups of brokers or in ZooKeeper, and without a group.

Names, defaults and behaviour are those of Java's consumer of Kafka 3.9, in the spelling of PEP 8.

Source: org.apache.kafka.clients.consumer.KafkaConsumer (3.9).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from simpleconsumer.types import TopicPartition
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.errors import NotSupported
from zkconsumer.polling.arguments import (
    checked_offset,
    checked_offsets,
    one_partition,
    pattern_of,
    seconds_of,
    several_partitions,
    topics_of,
)
from zkconsumer.polling.errors import (
    NEEDS_GROUP,
    ConcurrentConsumerUse,
    ConsumerClosed,
    ForkedConsumer,
    NotSubscribed,
    PollTimeout,
)
from zkconsumer.polling.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    UnreadRecords,
)
from zkconsumer.wakeup import notify_after_fork

if TYPE_CHECKING:  # what reads is loaded for the first consumer, which halves the time of this import
    from zkconsumer.config.typed.typed_settings import KafkaConsumerSettings
    from zkconsumer.polling.group_events import CommitDone
    from zkconsumer.polling.poller import Poller
    from zkconsumer.streams.batches import MessageBatch

_CLOSE_MS: Final = 30_000
_ITERATION_S: Final = 1.0


class KafkaConsumer:
    """A consumer whose application polls for records, like `KafkaConsumer` of Java.

    Args:
        *topics: Subscribed to at once; or none, and `subscribe` or `assign` is called.
        config: Settings; in their place `**settings`.
        **settings: As Kafka names them, with underscores for dots (`bootstrap_servers="b1:9092"`, `group_id="g"`,
            `auto_offset_reset="earliest"`); docs/CONFIGURATION.md lists all.

    Raises:
        ConfigError: A setting is missing, or has a value that is not allowed.

    The records that `poll` returns are done when `poll` is called again: then auto-commit commits them, and partitions
    that move to other members are revoked after them. Callbacks and interceptors run inside of `poll`, `close` and
    `unsubscribe`. As a context manager it closes at the end of the block; after an exception the records of the last
    poll are not committed.

    Threads: One at a time, any; another one that calls raises ConcurrentConsumerUse. `wakeup` may be called from any.
    """

    def __init__(
        self, *topics: str, config: KafkaConsumerConfig | None = None, **settings: Unpack[KafkaConsumerSettings]
    ) -> None:
        topics_of("KafkaConsumer", topics)
        if config is not None and not isinstance(config, KafkaConsumerConfig):
            raise TypeError(f"config is {config!r}; it must be a KafkaConsumerConfig(bootstrap_servers=..., ...)")
        if config is not None and settings:
            raise TypeError(f"both config and settings are given: {', '.join(settings)}")
        self.config = config if config is not None else KafkaConsumerConfig(**settings)
        self._forked: ForkedConsumer | None = None
        self._is_ended_by_shell: Callable[[], bool] = bool
        from zkconsumer.member.leaving import end_dropped
        from zkconsumer.polling.poller import Poller

        self._end_dropped = end_dropped  # a finalizer may not import
        self._poller = Poller(self.config)
        self._inside: dict[str, threading.Thread] = {}
        self._unread = UnreadRecords()
        self._pid = os.getpid()
        notify_after_fork(self)
        if topics:
            self.subscribe(topics)

    def __del__(self) -> None:
        """End a consumer that was dropped without `close`: no thread keeps it alive."""
        poller = getattr(self, "_poller", None)  # there is none if the constructor has failed
        if poller is not None and self._forked is None and poller.has_begun and not self._is_ended_by_shell():
            self._end_dropped("KafkaConsumer", self.config.group_id, "close()", poller.end_dropped)

    def _on_fork(self) -> None:
        """This process is a fork of the one that made the consumer: every call but `close` raises from now on."""
        self._forked = ForkedConsumer(self._pid, os.getpid())
        self._poller.on_fork()

    @contextmanager
    def _alone(self, *, moves: bool = False, closes: bool = False) -> Iterator[Poller]:
        """Refuse a second thread, see `_enter`; leave at the end."""
        is_outer = self._enter(moves=moves, closes=closes)
        try:
            yield self._poller
        finally:
            if is_outer:
                self._inside.clear()

    def _enter(self, *, moves: bool = False, closes: bool = False) -> bool:
        """Refuse a second thread; a thread may call again from its callbacks and signal handlers.

        Args:
            moves: Whether records that an iteration has not returned yet are to be read again.
            closes: Whether a poll that this call interrupts returns no records.

        Returns:
            Whether this call is no callback's, so that its end has to clear `_inside`.
        """
        if self._forked is not None:
            raise self._forked.with_traceback(None)
        me = threading.current_thread()
        owner = self._inside.setdefault("thread", me)  # one atomic step
        if owner is not me:
            raise ConcurrentConsumerUse(owner.name)
        is_outer = "depth" not in self._inside
        self._inside["depth"] = me
        try:
            poller = self._poller
            if poller.is_closed and (is_outer or moves or poller.has_left):  # callbacks of `close` may commit
                raise ConsumerClosed
            if poller.is_taken and (is_outer or closes):
                poller.give_back()  # an interrupt has ended the poll that had taken it, or a signal handler ends it
                self._unread.drop()
            if moves and (unread := self._unread.positions()):
                poller.give_back(unread)
                self._unread.drop()
        except BaseException:
            if is_outer:
                self._inside.clear()
            raise
        return is_outer

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
    ) -> None:
        """Subscribe to topics, or to those whose whole name matches a pattern; the group assigns their partitions.

        Until the next `poll` the current partitions stay assigned.

        Args:
            topics: The topics; they replace the earlier subscription.
            pattern: A regular expression of Python; on groups in ZooKeeper, of Java.
            listener: Any object with some of the methods of `RebalanceCallbacks`, which get collections of partitions.

        Raises:
            SubscriptionConflict: The other kind is subscribed to, or partitions are assigned.
            NotSubscribed: There is no `group.id`.
            ListenerRefused: The listener has no method that would be called, or one that never would.
        """
        from zkconsumer.member.listening import check_listener

        with self._alone(moves=True) as poller:
            if listener is not None:
                check_listener(listener)
            if pattern is None:
                poller.subscribe(topics_of("subscribe", topics), listener)
            elif topics:
                raise TypeError("both topics and a pattern are given; subscribe to only one of them")
            else:
                poller.subscribe_to_pattern(pattern_of("subscribe", pattern), listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions instead of earlier ones, without joining a group; with `group.id`, use its offsets."""
        with self._alone(moves=True) as poller:
            poller.assign(several_partitions("assign", partitions))

    def unsubscribe(self) -> None:
        """Leave the group, and read nothing any more."""
        with self._alone(moves=True) as poller:
            poller.unsubscribe()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned now."""
        with self._alone() as poller:
            return frozenset(poller.state.assigned)

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed to; with a pattern, those of the current assignment."""
        with self._alone() as poller:
            if poller.state.pattern is not None:
                return frozenset(topic for topic, _ in poller.state.assigned)
            return poller.state.topics

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0) -> ConsumerRecords[Any, Any]:
        """Return records as soon as there are some, up to `max.poll.records`; none after `timeout_ms`.

        Raises:
            NotSubscribed: Nothing is subscribed to, and nothing assigned.
            NoOffsetForPartition, OffsetOutOfRange: There is no position, and `auto.offset.reset` is `none`.
            MessageError, DecoderFailed: The next record cannot be read; the position stays, and `seek` goes past it.
            ConsumerWokenUp: `wakeup` was called.
            RebalanceError, ZkConsumerError: The group cannot be joined.
        """
        is_outer = self._enter(moves=True)
        try:  # no `with`: a second interrupt could keep its end from running
            found = self._poller.poll(seconds_of("poll", timeout_ms))
        finally:
            if is_outer:
                self._inside.clear()
        if self._poller.is_closed:
            raise ConsumerClosed
        # Between here and the caller Python handles no signal: an interrupt leaves it set, or the caller has them.
        self._poller.is_taken = False
        return found

    def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None, columns: Sequence[str] | None = None
    ) -> list[MessageBatch]:
        """Return records as Arrow batches; otherwise it does the same as `poll`. Interceptors do not see these records.

        Args:
            timeout_ms: Longest wait for records.
            max_records: Most records of all batches together; None for `max.poll.records`.
            columns: Names of the columns of `KafkaStream.batches`; None for all of them.

        Raises:
            ImportError: numpy or pyarrow is missing: `pip install 'zkconsumer[columns]'`.
            ValueError: `max_records` is less than 1, or there is no such column.
            Other errors: As `poll`.
        """
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}; it must be 1 or more")
        is_outer = self._enter(moves=True)
        try:
            found = self._poller.poll_batches(seconds_of("poll_batches", timeout_ms), max_records, columns)
        finally:
            if is_outer:
                self._inside.clear()
        if self._poller.is_closed:
            raise ConsumerClosed
        self._poller.is_taken = False
        return found

    def __iter__(self) -> Self:
        """Return the consumer itself: an iterator of records that never ends by itself."""
        return self

    def __next__(self) -> ConsumerRecord[Any, Any]:
        """Return the next record, polling as long as there is none; ends when the consumer is closed."""
        while True:
            for record in self._unread.rows:
                return record
            if self._poller.is_closed:
                raise StopIteration
            try:
                is_outer = self._enter()
                try:
                    rows = iter(self._poller.poll(_ITERATION_S))
                finally:
                    if is_outer:
                        self._inside.clear()
            except ConsumerClosed:  # by a callback, or a signal handler
                raise StopIteration from None
            if self._poller.is_closed:
                raise StopIteration
            self._unread.rows = rows
            self._poller.is_taken = False

    def wakeup(self) -> None:
        """End the current or next `poll` with ConsumerWokenUp. Threads: any."""
        self._poller.wakeup()

    # -- positions -----------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the offset at which the next `poll` starts to return records of a partition.

        Raises:
            NotAssigned: The partition is not assigned.
            ValueError: The offset is negative, or larger than any.
        """
        name = one_partition("seek", partition)
        at = checked_offset("seek", name, offset.offset if isinstance(offset, OffsetAndMetadata) else offset)
        with self._alone(moves=True) as poller:
            poller.positions.seek(name, at)

    def seek_to_beginning(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Move to the first offset of partitions (all, if none is named); the next `poll` or `position` looks it up."""
        with self._alone(moves=True) as poller:
            poller.state.assigned.seek_to_beginning(several_partitions("seek_to_beginning", *partitions))

    def seek_to_end(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Move to the end of partitions (all, if none is named); the next `poll` or `position` looks it up."""
        with self._alone(moves=True) as poller:
            poller.state.assigned.seek_to_end(several_partitions("seek_to_end", *partitions))

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that `poll` returns of a partition.

        Raises:
            NotAssigned: The partition is not assigned.
            NoOffsetForPartition: It has none, and `auto.offset.reset` is `none`.
            PollTimeout: It is not known in time.
        """
        name = one_partition("position", partition)
        with self._alone() as poller:
            timeout_s = self._api_s(timeout_ms)
            found = poller.await_position(name, timeout_s)
            if found is None:
                raise PollTimeout(f"the position of {name.topic}-{name.partition}", timeout_s)
            return self._unread.positions().get(name, found)

    def pause(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return no records of partitions until `resume`; they stay assigned."""
        with self._alone(moves=True) as poller:
            poller.positions.pause(several_partitions("pause", *partitions))

    def resume(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """End a pause."""
        with self._alone() as poller:
            poller.positions.resume(several_partitions("resume", *partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        with self._alone() as poller:
            return frozenset(poller.state.assigned.paused())

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit_sync(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit offsets, by default those after all records that `poll` has returned, and wait for the result.

        They are stored after all earlier commits, whose callbacks are called before this returns.

        Args:
            offsets: Partition -> next offset to consume.
            timeout_ms: Longest wait; None for as long as the requests may take.

        Raises:
            CommitFailed: Names each partition whose offset is not stored, and why.
            NotSubscribed: There is no group.
        """
        with self._alone() as poller:
            wanted = self._to_commit(poller, offsets)
            poller.commit_sync(wanted, None if timeout_ms is None else seconds_of("commit_sync", timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        callback: CommitDone | None = None,
    ) -> None:
        """Commit offsets after all earlier commits, without waiting.

        A later `poll`, `commit_sync`, `unsubscribe` or `close` calls `callback(offsets, error)`; None is no error.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"commit_async: callback is {callback!r}; it must be callable with offsets and an error")
        with self._alone() as poller:
            poller.commit_async(self._to_commit(poller, offsets), callback)

    def _to_commit(
        self, poller: Poller, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = poller.offsets_to_commit(None if offsets is None else checked_offsets("commit", offsets))
        if offsets is None:
            wanted |= {name: OffsetAndMetadata(at) for name, at in self._unread.positions().items() if name in wanted}
        return wanted

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None for a partition without one.

        Raises:
            NotSupported: The offsets of the group are in ZooKeeper, where only those of assigned partitions are known.
            PollTimeout: Some are not known in time.
        """
        names = several_partitions("committed", partitions)
        with self._alone() as poller:
            if self.config.group_id is None:
                raise NotSubscribed("read committed offsets without group.id", "there is no group", NEEDS_GROUP)
            if self.config.coordination == "zookeeper" and self.config.offsets_storage == "zookeeper":
                return self._committed_in_zookeeper(poller, names)
            return poller.questions.committed(names, self._api_s(timeout_ms))

    def _committed_in_zookeeper(
        self, poller: Poller, names: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        missing = [f"{name.topic}-{name.partition}" for name in names if name not in poller.state.assigned]
        if missing or poller.member is None:
            raise NotSupported(
                f"the committed offset of {', '.join(missing)}",
                "the offsets of this group are in "
                "ZooKeeper, and a member only knows "
                "those of its own partitions: see "
                "zkconsumer.admin",
            )
        known = poller.member.offsets.committed()
        found = {name: known.get((name.topic, name.partition)) for name in names}
        return {name: None if at is None else OffsetAndMetadata(at) for name, at in found.items()}

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        with self._alone() as poller:
            names = several_partitions("beginning_offsets", partitions)
            return poller.questions.ends(names, self._api_s(timeout_ms), first=True)

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each log that this consumer may see."""
        with self._alone() as poller:
            names = several_partitions("end_offsets", partitions)
            return poller.questions.ends(names, self._api_s(timeout_ms), first=False)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time in milliseconds; None if there is none.

        With `isolation_level=read_committed`, records from the first open transaction on do not count.

        Raises:
            ValueError: A time is negative.
            NotSupported: Brokers before Kafka 0.10.1.
        """
        wanted = {name: each.offset for name, each in checked_offsets("offsets_for_times", timestamps).items()}
        with self._alone() as poller:
            return poller.questions.offsets_for_times(wanted, self._api_s(timeout_ms))

    def partitions_for_topic(self, topic: str) -> frozenset[int | str]:
        """Return the partitions of a topic; none if it does not exist."""
        with self._alone() as poller:
            return frozenset(poller.questions.partitions(topic))

    def list_topics(self) -> dict[str, tuple[int | str, ...]]:
        """Return all topics that this consumer may see, and their partitions."""
        with self._alone() as poller:
            return poller.questions.topics()

    # -- state ---------------------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return what identifies this member, for a producer that commits offsets in a transaction."""
        with self._alone() as poller:
            if self.config.group_id is None:
                raise NotSubscribed("read group metadata without group.id", "there is no group", NEEDS_GROUP)
            coordinator = None if poller.member is None else poller.member.coordinator
            generation = getattr(coordinator, "last_generation", -1)
            member_id = getattr(coordinator, "member_id", "")
            return ConsumerGroupMetadata(self.config.group_id, generation, member_id, self.config.group_instance_id)

    def enforce_rebalance(self, reason: str = "the application has asked for it") -> None:
        """Trigger a rebalance of the group; it happens in later polls.

        Raises:
            NotSupported: The group is in ZooKeeper, or there is none.
        """
        with self._alone() as poller:
            poller.rejoin(reason)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of a partition at its last fetch: the end of its log minus the position; None if not known.

        Raises:
            NotAssigned: The partition is not assigned.
        """
        name = TopicPartition(*partition)
        with self._alone() as poller:
            poller.state.assigned.state(name)
            poller.positions.note_log_ends()
            return poller.state.assigned.lag(name)

    def metrics(self) -> dict[str, float]:
        """Return figures by Kafka's names: lags of partitions, rebalances, requests, throttles and errors."""
        with self._alone() as poller:
            assigned = poller.state.assigned
            poller.positions.note_log_ends()
            lags = {name: lag for name in assigned if (lag := assigned.lag(name)) is not None}
            found: dict[str, float] = {"assigned-partitions": len(assigned)}
            found |= {f"records-lag.{topic}-{number}": lag for (topic, number), lag in lags.items()}
            if lags:
                found["records-lag-max"] = max(lags.values())
            if poller.member is not None:
                figures = poller.member.statistics(poller.member.status())
                found["rebalance-total"] = figures.rebalances.count
                found["rebalance-latency-total"] = figures.rebalances.total_s
                found |= {f"requests.{kind}": count for kind, count in figures.broker_requests.items()}
                found |= {f"throttled.{kind}": count for kind, count in figures.throttled.items()}
                found |= {f"throttle-time-ms.{kind}": total for kind, total in figures.throttle_ms.items()}
                found |= {f"errors.{kind}": count for kind, count in figures.errors.items()}
            return found

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: float = _CLOSE_MS) -> dict[TopicPartition, str]:
        """Commit (with auto-commit on), leave the group at once, and end all threads.

        Returns:
            Partition -> why its position is not stored; empty when all are.
        """
        return self._close(timeout_ms, in_hand_is_done=True)

    def _close(self, timeout_ms: float, *, in_hand_is_done: bool) -> dict[TopicPartition, str]:
        if self._poller.is_closed or self._forked is not None:
            return {}
        with self._alone(moves=in_hand_is_done, closes=True) as poller:
            return poller.close(seconds_of("close", timeout_ms), in_hand_is_done=in_hand_is_done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(_CLOSE_MS, in_hand_is_done=kind is None)

    def _api_s(self, timeout_ms: float | None) -> float:
        return seconds_of("the call", self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    # The spellings of the JVM.
    seekToBeginning = seek_to_beginning  # noqa: N815
    seekToEnd = seek_to_end  # noqa: N815
    commitSync = commit_sync  # noqa: N815
    commitAsync = commit_async  # noqa: N815
    beginningOffsets = beginning_offsets  # noqa: N815
    endOffsets = end_offsets  # noqa: N815
    offsetsForTimes = offsets_for_times  # noqa: N815
    partitions_for = partitionsFor = partitions_for_topic  # noqa: N815
    listTopics = list_topics  # noqa: N815
    groupMetadata = group_metadata  # noqa: N815
    enforceRebalance = enforce_rebalance  # noqa: N815
    currentLag = current_lag  # noqa: N815
