"""AsyncKafkaConsumer: KafkaConsumer for the tasks of an event loop.

A shell over `KafkaConsumer`, whose calls are made on a thread of its own (`zkconsumer.aio.call_thread`). Rules, and
which failure each prevents:
- A poll that is cancelled returns its records to the consumer: the next poll has them.
- An iteration keeps the records of its polls, cancelled or not: to give them back would deliver some of them again.
- Topics to subscribe to at the first call are forgotten by the subscription itself, and not when it is asked for.
- Only one task polls at a time: the records of the one would be done when the other polls.
- A loop that ends takes the member out of its group: `asyncio.run` closes the asynchronous generators of its loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from simpleconsumer.types import TopicPartition
from zkconsumer.aio.call_thread import CallThread
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.config.typed.typed_settings import KafkaConsumerSettings
from zkconsumer.kafka_consumer import KafkaConsumer
from zkconsumer.member.listening import check_listener
from zkconsumer.polling.arguments import seconds_of, topics_of
from zkconsumer.polling.errors import ConcurrentConsumerUse, ConsumerClosed
from zkconsumer.polling.group_events import CommitDone, RebalanceCallbacks
from zkconsumer.polling.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from zkconsumer.streams.batches import MessageBatch

log = logging.getLogger(__name__)

_CLOSE_MS: Final = 30_000
_ITERATION_MS: Final = 1000
_CALLBACKS: Final = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")

T = TypeVar("T")
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class AsyncRebalanceCallbacks:
    """A base class for callbacks at a rebalance, called inside `poll`, `close` and `unsubscribe`.

    Threads: called as tasks of the consumer's event loop; they may await the consumer's calls.
    """

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called before partitions are revoked; they can still be committed."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called when partitions are assigned; their positions are known."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called after partitions were lost; they cannot be committed. By default it calls `on_partitions_revoked`."""
        await self.on_partitions_revoked(partitions)


class AsyncKafkaConsumer:
    """`KafkaConsumer` for asyncio: the same calls, with the same errors, awaited.

    Args:
        *topics: Subscribed to at the first call; or none, and `subscribe` or `assign` is called.
        config: Settings; in their place `**settings`.
        **settings: As for `KafkaConsumer`.

    Iterating with `async for` returns record after record. As an asynchronous context manager it closes at the end of
    the block; after an exception the records of the last poll are not committed.

    Attributes:
        config: The settings.

    Threads: that of its event loop, which no call blocks. One task at a time polls or iterates; other calls may come
        from any task: a poll that waits gives way to them. Deserializers and interceptors run on the thread that makes
        the calls.
    """

    def __init__(
        self, *topics: str, config: KafkaConsumerConfig | None = None, **settings: Unpack[KafkaConsumerSettings]
    ) -> None:
        topics_of("AsyncKafkaConsumer", topics)
        self._consumer = KafkaConsumer(config=config, **settings)
        self.config = self._consumer.config
        self._topics = topics
        self._calls = CallThread("this AsyncKafkaConsumer")
        self._poller: asyncio.Task[Any] | None = None
        self._closing: asyncio.Future[dict[TopicPartition, str]] | None = None
        self._loop_end: AsyncGenerator[None] | None = None

    async def _call(self, call: Callable[[], T], *, waits: bool = False) -> T:
        await self._open()
        return await self._calls.call(call, waits=waits)

    async def _open(self, *, subscribes: bool = True) -> None:
        """Refuse another event loop, and a consumer that is closed; subscribe at the first call."""
        self._calls.check_loop()
        if self._consumer._forked is not None:
            raise self._consumer._forked.with_traceback(None)
        if self._closing is not None and not self._calls.has_callback():  # during callbacks of `close` one may commit
            raise ConsumerClosed
        if self._loop_end is None:
            self._loop_end = self._close_with_loop()
            await anext(self._loop_end)
            loop = asyncio.get_running_loop()
            self._consumer._is_ended_by_shell = lambda: not loop.is_closed()
        if self._topics and subscribes:
            await self._calls.call(self._subscribe_first)

    def _subscribe_first(self) -> None:
        """Subscribe to the topics of the constructor, unless another call was first. Threads: that of the calls."""
        if self._topics:
            self._consumer.subscribe(self._topics)
            self._topics = ()

    async def _subscribe_by(self, call: Callable[[], None]) -> None:
        """Make a call that subscribes to something else than the topics of the constructor."""

        def subscribe() -> None:
            call()
            self._topics = ()

        await self._open(subscribes=False)
        await self._calls.call(subscribe, waits=True)

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        """Leave the group when the loop ends or the consumer is dropped: either closes this generator."""
        try:
            yield
        finally:
            if self._closing is not None:
                await asyncio.wait([self._closing])
            else:
                log.warning("a member of group %s leaves: its event loop ends, or it was dropped, without close()",
                            self.config.group_id)  # fmt: skip
                warnings.warn(f"AsyncKafkaConsumer of group {self.config.group_id} was dropped without close()",
                              ResourceWarning, stacklevel=1)  # fmt: skip
                await self._close(_CLOSE_MS, in_hand_is_done=False)

    # -- subscriptions -------------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
    ) -> None:
        """Subscribe to topics or a pattern, as `KafkaConsumer.subscribe` does.

        Args:
            topics: The topics; they replace the earlier subscription.
            pattern: A regular expression.
            listener: Any object with some of the methods of `AsyncRebalanceCallbacks`, `async def` or `def`.
        """
        wrapped = None if listener is None else self._wrapped(listener)
        await self._subscribe_by(partial(self._consumer.subscribe, topics, pattern, wrapped))

    def _wrapped(self, listener: object) -> object:
        """Return a listener for the thread, whose methods run on the loop."""
        check_listener(listener, may_await=True)
        found = {name: method for name in _CALLBACKS if callable(method := getattr(listener, name, None))}
        lost = found.get("on_partitions_lost")
        if getattr(lost, "__func__", None) is RebalanceCallbacks.on_partitions_lost:
            del found["on_partitions_lost"]  # it would not await `on_partitions_revoked`, which is called without it
        return SimpleNamespace(**{name: self._calls.on_loop(method) for name, method in found.items()})

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read partitions without a group, as `KafkaConsumer.assign` does."""
        await self._subscribe_by(partial(self._consumer.assign, partitions))

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing any more."""
        await self._subscribe_by(self._consumer.unsubscribe)

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned now."""
        return await self._call(self._consumer.assignment)

    async def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed to; with a pattern, those of the current assignment."""
        return await self._call(self._consumer.subscription)

    # -- records -------------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: float = 0) -> ConsumerRecords[Any, Any]:
        """Return records as soon as there are some, up to `max.poll.records`; none after `timeout_ms`.

        If the task is cancelled meanwhile, the next poll has the records. Errors are those of `KafkaConsumer.poll`.

        Raises:
            ConcurrentConsumerUse: Another task polls.
        """
        return await self._poll("poll", timeout_ms, self._consumer.poll, self._give_back)

    async def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None, columns: Sequence[str] | None = None
    ) -> list[MessageBatch]:
        """Return records as batches of Arrow, as `KafkaConsumer.poll_batches` does."""
        poll = self._consumer.poll_batches
        once: Callable[[float], list[MessageBatch]] = lambda left_ms: poll(left_ms, max_records, columns)  # noqa: E731
        return await self._poll("poll_batches", timeout_ms, once, self._give_back)

    async def _poll(
        self, name: str, timeout_ms: float, poll: Callable[[float], T], dropped: Callable[[], None] | None = None
    ) -> T:
        """Poll until there are records or the time is over, however often other calls cut it short.

        Args:
            dropped: Called if the task was cancelled when there were records; None if the consumer keeps them itself.
        """
        loop = self._calls.check_loop()
        until = loop.time() + seconds_of(name, timeout_ms)
        self._check_poller()
        self._poller = asyncio.current_task()
        try:
            await self._open()
            while True:
                left_ms = max(0.0, (until - loop.time()) * 1000)
                once = partial(self._poll_once, poll, left_ms)
                found = await self._calls.call(once, dropped, self._cut, waits=True)
                if found or loop.time() >= until:
                    return found
        finally:
            self._poller = None

    def _check_poller(self) -> None:
        if self._poller is not None and self._poller is not asyncio.current_task():
            raise ConcurrentConsumerUse(self._poller.get_name(), "task")

    def _poll_once(self, poll: Callable[[float], T], left_ms: float) -> T:
        try:
            return poll(left_ms)
        finally:
            self._consumer._poller.is_cut_short = False

    def _cut(self) -> None:
        self._consumer._poller.cut_short()

    def _give_back(self) -> None:
        """Have the next call give back what a cancelled poll has taken. No call is under way."""
        self._consumer._poller.is_taken = True

    def __aiter__(self) -> Self:
        """Return the consumer itself: an iterator of records that never ends by itself."""
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """Return the next record, polling as long as there is none; ends when the consumer is closed."""
        self._calls.check_loop()
        self._check_poller()
        while True:
            # A commit counts what was returned before it.
            record = await self._calls.at_rest(lambda: next(self._consumer._unread.rows, None))
            if record is not None:
                return record
            if self._closing is not None:
                raise StopAsyncIteration
            try:
                await self._poll("anext", _ITERATION_MS, self._poll_unread)
            except ConsumerClosed:
                raise StopAsyncIteration from None

    def _poll_unread(self, timeout_ms: float) -> ConsumerRecords[Any, Any]:
        """Poll, and keep the records: calls that come next know that the iteration has returned none of them."""
        found = self._consumer.poll(timeout_ms)
        self._consumer._unread.rows = iter(found)
        return found

    def wakeup(self) -> None:
        """End the current or next `poll` with ConsumerWokenUp. Threads: any."""
        self._consumer.wakeup()

    # -- positions -----------------------------------------------------------------------------------------------------

    async def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the offset at which the next `poll` starts to return records of a partition."""
        await self._call(partial(self._consumer.seek, partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Move to the first offset of partitions (all, if none is named)."""
        await self._call(partial(self._consumer.seek_to_beginning, *partitions))

    async def seek_to_end(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Move to the end of partitions (all, if none is named)."""
        await self._call(partial(self._consumer.seek_to_end, *partitions))

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that `poll` returns of a partition."""
        return await self._call(partial(self._consumer.position, partition, timeout_ms))

    async def pause(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return no records of partitions until `resume`; they stay assigned."""
        await self._call(partial(self._consumer.pause, *partitions))

    async def resume(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """End a pause."""
        await self._call(partial(self._consumer.resume, *partitions))

    async def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return await self._call(self._consumer.paused)

    # -- commits -------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Store offsets, as `KafkaConsumer.commit_sync` does; if the task is cancelled, they may be stored anyway."""
        await self._call(partial(self._consumer.commit_sync, offsets, timeout_ms))

    async def commit_async(self, offsets: Offsets | None = None, callback: CommitDone | None = None) -> None:
        """Commit offsets after all earlier commits, without waiting.

        A later `poll`, `commit`, `unsubscribe` or `close` calls `callback(offsets, error)`, on the loop.
        """
        wrapped: Any = self._calls.on_loop(callback) if callable(callback) else callback
        await self._call(partial(self._consumer.commit_async, offsets, wrapped))

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None for a partition without one."""
        return await self._call(partial(self._consumer.committed, partitions, timeout_ms))

    # -- the cluster ---------------------------------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        return await self._call(partial(self._consumer.beginning_offsets, partitions, timeout_ms))

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each log that this consumer may see."""
        return await self._call(partial(self._consumer.end_offsets, partitions, timeout_ms))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time in milliseconds; None if there is none."""
        return await self._call(partial(self._consumer.offsets_for_times, timestamps, timeout_ms))

    async def partitions_for_topic(self, topic: str) -> frozenset[int | str]:
        """Return the partitions of a topic; none if it does not exist."""
        return await self._call(partial(self._consumer.partitions_for_topic, topic))

    async def list_topics(self) -> dict[str, tuple[int | str, ...]]:
        """Return all topics that this consumer may see, and their partitions."""
        return await self._call(self._consumer.list_topics)

    # -- state ---------------------------------------------------------------------------------------------------------

    async def group_metadata(self) -> ConsumerGroupMetadata:
        """Return what identifies this member."""
        return await self._call(self._consumer.group_metadata)

    async def enforce_rebalance(self, reason: str = "the application has asked for it") -> None:
        """Trigger a rebalance of the group; it happens in later polls."""
        await self._call(partial(self._consumer.enforce_rebalance, reason))

    async def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of a partition at its last fetch: the end of its log minus the position; None if not known."""
        return await self._call(partial(self._consumer.current_lag, partition))

    async def metrics(self) -> dict[str, float]:
        """Return figures by Kafka's names: lags of partitions, rebalances, requests and errors."""
        return await self._call(self._consumer.metrics)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self, timeout_ms: float = _CLOSE_MS) -> dict[TopicPartition, str]:
        """Commit (with auto-commit on), leave the group at once, and end all threads.

        If the task is cancelled meanwhile, the member leaves all the same. Callbacks that take longer are cancelled.

        Returns:
            Partition -> why its position is not stored; empty when all are.
        """
        return await self._close(timeout_ms, in_hand_is_done=True)

    def _close(self, timeout_ms: float, *, in_hand_is_done: bool) -> Awaitable[dict[TopicPartition, str]]:
        """Ask for the end at once, before anything is awaited: a task that is cancelled again cannot prevent it."""
        self._calls.check_loop()
        if self._closing is not None or self._consumer._forked is not None:
            return self._closed()
        timeout_s = seconds_of("close", timeout_ms)
        self._closing = self._calls.call_unawaited(
            partial(self._consumer._close, timeout_ms, in_hand_is_done=in_hand_is_done)
        )
        self._closing.add_done_callback(lambda _: self._calls.end())
        self._calls.limit_callbacks(timeout_s)
        return asyncio.shield(self._closing)

    async def _closed(self) -> dict[TopicPartition, str]:
        """Wait until another task's `close` is over; a callback of it does not."""
        if self._closing is not None and not self._calls.is_in_callback():
            await asyncio.wait([self._closing])
        return {}

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(_CLOSE_MS, in_hand_is_done=kind is None)
