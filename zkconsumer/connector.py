"""ConsumerConnector: a member of a consumer group, in ZooKeeper or of the brokers, that delivers messages to streams.

It creates the streams and a member (`zkconsumer.member.membership`), and owns their lifecycle; it makes no decision
itself. Rule: every call ends, and `shutdown` leaves nothing behind.

Source: kafka.consumer.ZookeeperConsumerConnector, 0.8.2.2; docs/SEMANTICS.md.

`Consumer`: the name under which Java's own examples make a connector.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self

from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.rebalance_statistics import Counters
from rebalance.subscription import Subscription, thread_ids
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import CommitFailed, ConnectorClosed, ForkedConnector, MessageStreamsExist, PauseFailed
from zkconsumer.filters import TopicFilter
from zkconsumer.member.asked_commit import called_by_signal_handler
from zkconsumer.member.connector_checks import (
    check_config,
    check_statistics,
    check_topic_counts,
    checked_offsets,
    checked_timeout,
)
from zkconsumer.member.coordination import Coordination
from zkconsumer.member.leaving import end_dropped
from zkconsumer.member.listening import HeldListener, ListenerThread, check_listener
from zkconsumer.member.membership import MemberFaults, Membership
from zkconsumer.member.pausing import checked_partitions
from zkconsumer.member.status_reading import StatisticsThread
from zkconsumer.status import ConnectorStatistics, ConnectorStatus
from zkconsumer.streams.cursor import DecodedKey, DecodedValue
from zkconsumer.streams.stream import DecoderChoice, KafkaStream, StreamParts
from zkconsumer.wakeup import notify_after_fork

_CALLBACK_S = 0.4
"""Longest wait for a call of `on_statistics` that is under way at the end, beyond the time-out."""


def new_consumer_id(config: ConsumerConfig) -> str:
    """The id of a member: `<group>_<consumer.id>`, or `<group>_<host>-<millis>-<8 hex>` without a configured one."""
    name = config.consumer_id or f"{socket.gethostname()}-{int(time.time() * 1000)}-{os.urandom(4).hex()}"
    return f"{config.group_id}_{name}"


class ConsumerConnector:
    """A member of a consumer group.

    Args:
        config: settings.
        listener: any object with some of the methods of `RebalanceListener`, and no other method `on_...`; called on a
            thread of its own.
        on_statistics: called with the statistics every `statistics.interval.ms`, on a thread of its own, from the
            creation of the streams to the shutdown. Its first error is logged.

    Raises:
        ListenerRefused: the listener has no method that would be called, or one that never would.
        NotSupported: this release does not serve the settings.

    Nothing is connected before streams are created. As a context manager it shuts down at the end of the block: a
    clean end counts the message in hand as done, an exception does not.

    It belongs to the process that made it; in a forked child streams and methods raise ForkedConnector.
    `createMessageStreams`, `createMessageStreamsByFilter` and `commitOffsets` are the names of Java's consumer for the
    same methods.

    Attributes:
        config: The settings.
        consumer_id: The id in the group, `<group>_<consumer.id>`, or `<group>_<host>-<millis>-<8 hex>`.

    Threads: every method may be called from any thread, `shutdown` from signal handlers and from the loop over a
        stream too.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        listener: object | None = None,
        on_statistics: Callable[[ConnectorStatistics], object] | None = None,
    ) -> None:
        check_config(config)
        check_statistics(config, on_statistics)
        if listener is not None:
            check_listener(listener)
        self.config = config
        self.consumer_id = new_consumer_id(config)
        self._listener = None if listener is None else HeldListener(listener)
        self._on_statistics = on_statistics
        self._statistics_thread: StatisticsThread | None = None
        self._search_s: float | None = None
        self._decoders: DecoderChoice | None = None
        self._state = threading.RLock()
        self._created = False
        self._closing = False
        self._has_returned = False
        self._member: Membership | None = None
        self._streams: tuple[KafkaStream, ...] = ()
        self._pid = os.getpid()
        self._forked: ForkedConnector | None = None
        notify_after_fork(self)

    def __del__(self) -> None:
        """Leave the group if connector and streams were dropped without `shutdown`: no thread keeps them alive."""
        self._leave_dropped()

    def _leave_dropped(self) -> None:
        member = getattr(self, "_member", None)  # there is none if the constructor has failed
        if member is None or self._closing or self._forked is not None or member.has_left:
            return
        self._close()
        leave = partial(member.leave, self._drain_s, reader=None, in_hand_is_done=False, caller=None)
        end_dropped(type(self).__name__.lstrip("_"), self.config.group_id, "shutdown()", leave)

    def _on_fork(self) -> None:
        """This process is a fork of the one that made the connector: every call but `shutdown` raises from now on."""
        self._forked = ForkedConnector(self._pid, os.getpid())
        if self._member is not None:
            self._member.on_fork()
        for stream in self._streams:
            stream._on_fork(self._forked)

    def _refuse_fork(self) -> None:
        if self._forked is not None:
            raise self._forked.with_traceback(None)

    # -- streams -----------------------------------------------------------------------------------------------------

    def create_message_streams(
        self,
        topic_counts: Mapping[str, int],
        decoder: Callable[[bytes], DecodedKey] | None = None,
        value_decoder: Callable[[bytes], DecodedValue] | None = None,
        *,
        key_decoder: Callable[[bytes], DecodedKey] | None = None,
    ) -> dict[str, list[KafkaStream[DecodedKey, DecodedValue]]]:
        """Create streams for each topic; returns when each assigned partition is positioned or blocked.

        Args:
            topic_counts: topic -> number of streams (at least 1). Empty is fine: a member that owns nothing.
            decoder: `key_decoder` by position, as in Java. In Kafka 0.7, which has no keys, a single decoder decodes
                values, as it does there.
            value_decoder: bytes -> object, for values that are not null.
            key_decoder: bytes -> object, for keys that are not null.

        Returns:
            Topic -> its streams. Type checkers take K and V of `KafkaStream[K, V]` from what the decoders return.

        Raises:
            MessageStreamsExist: streams were created before.
            TypeError: a decoder is not callable, or a key decoder is given for a cluster of Kafka 0.7.
            ConfigError: a file, or the library, that the settings need cannot be used.
            ZooKeeperUnavailable: no ZooKeeper within `zookeeper.connection.timeout.ms`; names what was found.
            BrokersSilent: no broker answers; its subclass CoordinatorSilent: the broker that coordinates the
                group has not answered for `socket.timeout.ms`.
            ZooKeeperRefused: ZooKeeper refuses the credentials, or access to a node.
            RebalanceError: the group cannot be joined (missing chroot, another version of Kafka; a consumer id that
                another session still has after one and a half session time-outs, 5 s at least).
        """
        check_topic_counts(topic_counts)
        decoders = DecoderChoice.of(decoder, key_decoder, value_decoder)
        subscription = Subscription.static(topic_counts)

        def build(lease: Lease) -> dict[tuple[str, str], KafkaStream]:
            return {
                (topic, thread_id): self._stream(thread_id, lease, decoders)
                for topic, count in topic_counts.items()
                for thread_id in thread_ids(self.consumer_id, count)
            }

        streams = self._join(subscription, build, decoders)
        return {
            topic: [streams[topic, thread_id] for thread_id in thread_ids(self.consumer_id, count)]
            for topic, count in topic_counts.items()
        }

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        decoder: Callable[[bytes], DecodedKey] | None = None,
        value_decoder: Callable[[bytes], DecodedValue] | None = None,
        *,
        key_decoder: Callable[[bytes], DecodedKey] | None = None,
    ) -> list[KafkaStream[DecodedKey, DecodedValue]]:
        """Create streams that share all topics that the filter allows, now and later.

        Args and Raises as for `create_message_streams`.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise TypeError(f"topic_filter is {topic_filter!r}; it must be a Whitelist or a Blacklist")
        decoders = DecoderChoice.of(decoder, key_decoder, value_decoder)
        ids = thread_ids(self.consumer_id, num_streams)

        def build(lease: Lease) -> dict[tuple[str, str], KafkaStream]:
            return {("", thread_id): self._stream(thread_id, lease, decoders) for thread_id in ids}

        streams = self._join(topic_filter.subscription(num_streams), build, decoders)
        return [streams["", thread_id] for thread_id in ids]

    def _stream(self, thread_id: str, lease: Lease, decoders: DecoderChoice) -> KafkaStream:
        return KafkaStream(
            StreamParts(thread_id, self.config, lease, lease_clock, decoders.key_decoder, decoders.value_decoder)
        )

    def _join(
        self,
        subscription: Subscription,
        build: Callable[[Lease], dict[tuple[str, str], KafkaStream]],
        decoders: DecoderChoice,
    ) -> dict[tuple[str, str], KafkaStream]:
        self._refuse_fork()
        with self._state:
            if self._closing:
                raise ConnectorClosed
            if self._created:
                raise MessageStreamsExist
            self._created = True
        lease = Lease()
        streams = build(lease)
        self._streams = tuple(streams.values())
        for stream in self._streams:
            stream._owner = self
        try:
            self._decoders = decoders
            held = weakref.WeakMethod(self._use_generation)

            def use_generation(generation: str) -> None:
                if (use := held()) is not None:
                    use(generation)

            member = self._new_member(subscription, lease, streams, use_generation)
            # Set before it is checked whether a shutdown has started, which checks in the opposite order.
            self._member = member
            if self._closing:
                raise ConnectorClosed
            member.join()
        except BaseException:
            self._shutdown(0.0, in_hand_is_done=False)
            raise
        self._start_statistics(member)
        return streams

    def _new_member(
        self,
        subscription: Subscription,
        lease: Lease,
        streams: Mapping[tuple[str, str], KafkaStream],
        on_generation: Callable[[str], None],
    ) -> Membership:
        coordinated: Callable[[Loop, Counters, MemberFaults], Coordination]
        if self.config.coordination == "brokers":
            from zkconsumer.member.broker_coordination import BrokerCoordination  # each is loaded where it is used

            coordinated = partial(
                BrokerCoordination, self.config, self.consumer_id, subscription, lease, search_s=self._search_s
            )
        else:
            from zkconsumer.member.zookeeper_coordination import ZooKeeperCoordination

            coordinated = partial(
                ZooKeeperCoordination, self.config, self.consumer_id, subscription, lease, on_generation
            )
        return Membership(self.config, self.consumer_id, lease, streams, ListenerThread(self._listener), coordinated)

    def _use_generation(self, generation: str) -> None:
        """Take note of the generation of the cluster, before the member registers."""
        if generation == "0.7" and self._decoders is not None:
            chosen = self._decoders.for_07()
            for stream in self._streams:
                stream._set_decoders(chosen.key_decoder, chosen.value_decoder)
                stream._use_dialect(KAFKA07)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Store positions and wait for the result.

        With offsets in ZooKeeper it waits for the session time-out at most. With `offsets.storage=kafka` it waits as
        long as the attempts may take: `offsets.channel.socket.timeout.ms` and `offsets.commit.max.retries` times
        `offsets.channel.backoff.ms`, and one time-out more for the last of them.

        Args:
            offsets: partition -> next offset to consume, owned partitions only; may lower an offset. Without it all
                done messages, and the message in hand of each stream that this thread was the last to read.

        Raises:
            CommitFailed: names each partition that was not stored, and why.
            ValueError: an offset that is no integer from 0 to 2^63-1.
            ConnectorClosed: after shutdown.
        """
        member = self._member
        is_listener = member is not None and member.is_on_listener(threading.current_thread())
        self._ask_commit(offsets, threading.get_ident(), is_listener)()

    def _ask_commit(
        self, offsets: Mapping[TopicPartition, int] | None, reader: object, is_listener: bool
    ) -> Callable[[], None]:
        """Ask for a commit after all earlier ones, with the messages in hand of `reader`; the result waits for it."""
        self._refuse_fork()
        member = self._member
        # Until shutdown is over the listener may still commit what is revoked.
        if self._closing and not (self._is_leaving and is_listener):
            raise ConnectorClosed
        if member is not None:
            return member.ask_commit(offsets, reader).wait
        if offsets is not None and checked_offsets(offsets):
            raise CommitFailed(dict.fromkeys(offsets, "this member has not joined the group; create its streams first"))
        return lambda: None

    # -- pauses ------------------------------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver and fetch nothing of these partitions until `resume`; they stay owned, and commits continue.

        Fetched messages are dropped, and fetched again later. A `next()` that is called after this has returned
        delivers no message of them. A rebalance that revokes a partition ends its pause. One that is paused already
        stays paused.

        Raises:
            PauseFailed: names each partition that this member does not own; then none is paused.
            TypeError: `partitions` is no collection of partitions.
            ConnectorClosed: after shutdown.

        Threads: any, the listener's too; in `on_partitions_assigned` it holds before the first message.
        """
        self._member_for("paused", wanted := checked_partitions(partitions)).pause(wanted)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver paused partitions again, from their done position; partitions that are not paused do not change.

        A partition of which the application has a message in hand is resumed when that is done.

        Raises:
            PauseFailed: names each partition that this member does not own; then none is resumed.
            TypeError, ConnectorClosed: as for `pause`.
        """
        self._member_for("resumed", wanted := checked_partitions(partitions)).resume(wanted)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        self._refuse_fork()
        member = self._member
        return frozenset() if member is None or self._is_closed else member.paused()

    def _member_for(self, wanted: str, partitions: Collection[tuple[str, int | str]]) -> Membership:
        self._refuse_fork()
        if self._closing:
            raise ConnectorClosed
        if self._member is None:
            reason = "this member has not joined the group; create its streams first"
            raise PauseFailed(wanted, dict.fromkeys(partitions, reason))
        return self._member

    # -- state -------------------------------------------------------------------------------------------------------

    def status(self) -> ConnectorStatus:
        """Return the status of this member, as a frozen value."""
        self._refuse_fork()
        member = self._member
        if member is None or self._is_closed:
            state = "closed" if self._closing else "created"
            error = str(member.error) if member is not None and member.error else None
            return ConnectorStatus(self.consumer_id, state, 0.0, 0, (), (), (), None, 0.0, (), error)
        return member.status()

    def statistics(self) -> ConnectorStatistics:
        """The status, and what this member has counted since its streams were created, as a frozen value."""
        status = self.status()
        if self._member is None:
            return ConnectorStatistics(self.config.group_id, 0.0, status)
        return self._member.statistics(status)

    def _start_statistics(self, member: Membership) -> None:
        interval_ms = self.config.statistics_interval_ms
        if self._on_statistics is None or interval_ms is None:
            return
        held = weakref.ref(self)

        def report() -> None:
            connector = held()
            if connector is not None and connector._on_statistics is not None:
                connector._on_statistics(connector.statistics())

        statistics_thread = StatisticsThread(report, interval_ms / 1000, lambda: member.count_error("on_statistics"))
        with self._state:
            if not self._closing:  # the listener may have left already
                self._statistics_thread = statistics_thread
                statistics_thread.start()

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def _is_closed(self) -> bool:
        return self._closing and (self._has_returned or not self._is_leaving)

    @property
    def _is_leaving(self) -> bool:
        return self._closing and self._member is not None and not self._member.has_left

    def shutdown(self, timeout: float | None = None) -> dict[TopicPartition, str]:
        """Leave the group: finish, commit (with auto-commit on), release everything. Never raises.

        Waits for the messages in hand of other threads' streams; messages still in hand at the time-out stay
        uncommitted and is delivered again elsewhere. The message in hand of a stream that this thread last read
        counts as done. A signal handler that interrupts the work on a message returns at once instead, and the consumer
        leaves when the loop asks for the next message, at the end of the `with` block, or at the time-out. A second
        call waits for the first and does nothing more; in a callback of the listener it returns at once. In a forked
        child nothing is done: the session is the parent's.

        It returns within the time-out and half a second, whatever ZooKeeper, brokers and callbacks do; work that is not
        finished by then ends by itself.

        Args:
            timeout: seconds, for messages in hand, the listener and the last commit together; by default
                `rebalance.drain.timeout.ms`.

        Returns:
            Partition -> why its position is not stored, or not known to be: its last messages may be delivered
            again. Empty when all positions are stored. Without auto-commit only positions count for which
            `commit_offsets` was called.
        """
        wait_s = self._drain_s if timeout is None else checked_timeout(timeout)
        in_work = [stream for stream in self._read_by(threading.get_ident()) if stream.handed is not None]
        if in_work and self._forked is None and called_by_signal_handler():
            return self._leave_after_hand(in_work, wait_s)
        return self._shutdown(wait_s)

    @property
    def _drain_s(self) -> float:
        return self.config.rebalance_drain_timeout_ms / 1000

    def _read_by(self, reader: object) -> list[KafkaStream]:
        """The streams of which this thread, or task, was the last to read."""
        return [stream for stream in self._streams if stream._reader == reader]

    def _leave_after_hand(self, in_work: list[KafkaStream], wait_s: float) -> dict[TopicPartition, str]:
        """Leave without waiting for the end of it: it waits for the message in hand, whose work continues on return.

        If that work fails, the message is not committed.
        """
        member = self._close()
        if member is None:
            return {}

        def wait() -> None:
            member.wait_left(wait_s)

        for stream in in_work:
            stream._end_after_hand(wait)
        member.leave(wait_s, reader=None, in_hand_is_done=False, caller=None)
        return member.unstored()

    def _close(self) -> Membership | None:
        """Take no further calls; the member that has to leave, if there is one."""
        if self._forked is not None:
            return None
        with self._state:
            self._closing = True
            statistics_thread = self._statistics_thread
        if statistics_thread is not None:
            statistics_thread.stop()
        return self._member

    def _shutdown(self, wait_s: float, *, in_hand_is_done: bool = True) -> dict[TopicPartition, str]:
        return self._start_leave(wait_s, threading.get_ident(), threading.current_thread(), in_hand_is_done)()

    def _start_leave(
        self, wait_s: float, reader: object, caller: threading.Thread | None, in_hand_is_done: bool
    ) -> Callable[[], dict[TopicPartition, str]]:
        """Start to leave on behalf of `reader`; the result waits for the end, and returns what is not stored."""
        until = lease_clock() + wait_s
        member = self._close()
        if member is None:
            return dict
        is_first = member.leave(wait_s, reader=reader, in_hand_is_done=in_hand_is_done, caller=caller)
        if not is_first:
            for stream in self._read_by(reader):
                stream._settle(in_hand_is_done)

        def wait() -> dict[TopicPartition, str]:
            member.wait_left(until - lease_clock())
            self._has_returned |= is_first
            if self._statistics_thread is not None:
                self._statistics_thread.join(until + _CALLBACK_S - lease_clock())
            return member.unstored()

        return wait

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._shutdown(self._drain_s, in_hand_is_done=kind is None)

    # The spellings of the JVM.
    createMessageStreams = create_message_streams  # noqa: N815
    createMessageStreamsByFilter = create_message_streams_by_filter  # noqa: N815
    commitOffsets = commit_offsets  # noqa: N815


class Consumer:
    """Creates connectors, like `kafka.consumer.Consumer` of Java.

        Consumer.create(config).createMessageStreams({"clicks": 1}, decoder)

    `createJavaConsumerConnector` is another name of `create`. Source: the quick starts of Kafka 0.7 and 0.8.
    """

    @staticmethod
    def create(config: ConsumerConfig) -> ConsumerConnector:
        """Return a connector; arguments and errors are those of `ConsumerConnector`."""
        return ConsumerConnector(config)

    createJavaConsumerConnector = create  # noqa: N815
