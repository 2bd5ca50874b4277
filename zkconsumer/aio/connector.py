"""AsyncConsumerConnector: a member of a consumer group whose streams are read by the tasks of an event loop.

A shell over `ConsumerConnector`. Long calls run outside the loop (`zkconsumer.aio.call_thread`); what a call
counts as in hand is decided on the loop, when it is called. Rules, and which failure each prevents:
- The leave starts before anything is awaited: a task that is cancelled again in `async with` cannot keep its member in
  the group.
- A loop that ends takes its member out of the group: `asyncio.run` closes the asynchronous generators of its loop, and
  one of them waits here for just that. A connector that is collected while the loop goes on leaves in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from rebalance.lease import Lease, lease_clock
from simpleconsumer.types import TopicPartition
from zkconsumer.aio.call_thread import LoopCallbacks, off_loop
from zkconsumer.aio.reading import AsyncKafkaStream, LoopStream, Reading, calling_task
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ConsumerConnector
from zkconsumer.errors import ForeignEventLoop
from zkconsumer.filters import TopicFilter
from zkconsumer.member.connector_checks import check_statistics, checked_timeout
from zkconsumer.member.listening import check_listener
from zkconsumer.status import ConnectorStatistics, ConnectorStatus
from zkconsumer.streams.cursor import DecodedKey, DecodedValue
from zkconsumer.streams.stream import DecoderChoice, KafkaStream, StreamParts

log = logging.getLogger(__name__)

T = TypeVar("T")


class _LoopConnector(ConsumerConnector):
    """A connector whose streams are read by an event loop."""

    _loop: asyncio.AbstractEventLoop | None = None

    def _stream(self, thread_id: str, lease: Lease, decoders: DecoderChoice) -> KafkaStream:
        assert self._loop is not None
        parts = StreamParts(thread_id, self.config, lease, lease_clock, decoders.key_decoder, decoders.value_decoder)
        leave = weakref.WeakMethod(self._leave_closed_loop)

        def loop_closed() -> None:
            if (call := leave()) is not None:  # else the connector was dropped, and has left
                call()

        return LoopStream(parts, self._loop, loop_closed)

    def __del__(self) -> None:
        """Leave if nothing else does: `AsyncConsumerConnector` leaves as long as its loop runs."""
        if self._loop is not None and self._loop.is_closed():
            self._leave_dropped()

    def _leave_closed_loop(self) -> None:
        """Leave without committing what is in hand: the event loop was closed. Threads: any."""
        if not self._closing:
            log.warning("%s leaves its group: its event loop was closed without shutdown()", self.consumer_id)
            self._start_leave(0.0, None, None, in_hand_is_done=False)

    def _leave(
        self, wait_s: float, task: asyncio.Task[Any] | None, *, in_hand_is_done: bool, is_listener: bool
    ) -> Callable[[], dict[TopicPartition, str]]:
        """Start to leave; the result waits for the end of it."""
        member = self._member
        if is_listener and self._closing and member is not None:
            return member.unstored  # the leave waits for the listener
        for stream in self._streams:
            if isinstance(stream, LoopStream):
                stream._end_reading()
        caller: threading.Thread | None = None
        if is_listener and member is not None:
            caller = member.listener_thread
        return self._start_leave(wait_s, task, caller, in_hand_is_done)


class AsyncConsumerConnector:
    """A member of a consumer group, for asyncio.

    Args:
        config: The settings, as for `ConsumerConnector`.
        listener: Any object with some of the methods of `AsyncRebalanceListener`, each `async def` or `def`; they are
            called on the event loop.
        on_statistics: Called with the statistics every `statistics.interval.ms`, on the event loop; `async def` or
            `def`. Its first error is logged.

    As an asynchronous context manager it shuts down at the end of the block: a clean end counts the message in hand of
    the task as done; an exception and a cancellation do not. It belongs to the event loop that creates its streams, and
    leaves its group if `asyncio.run` ends without a shutdown.

    Attributes:
        config: The settings.
        consumer_id: The id in the group, `<group>_<consumer.id>`, or `<group>_<host>-<millis>-<8 hex>`.

    Threads: that of its event loop. No call blocks it: long calls run on threads of their own.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        listener: object | None = None,
        on_statistics: Callable[[ConnectorStatistics], object] | None = None,
    ) -> None:
        self._callbacks = LoopCallbacks()
        if listener is not None:
            check_listener(listener, may_await=True)
            listener = self._callbacks.listener(listener)
        if on_statistics is not None:
            check_statistics(config, on_statistics)
            on_statistics = self._callbacks.function(on_statistics)
        self._connector = _LoopConnector(config, listener, on_statistics)
        self.config = config
        self.consumer_id = self._connector.consumer_id
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_end: AsyncGenerator[None] | None = None
        self._is_dropped = False

    def __del__(self) -> None:
        # `_leave_with_loop`, which is closed for the same reason, still runs after this.
        self._is_dropped = True

    def __repr__(self) -> str:
        return f"AsyncConsumerConnector({self.consumer_id!r})"

    def _refuse_other_loop(self) -> None:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise ForeignEventLoop(f"connector {self.consumer_id}")

    # -- streams -----------------------------------------------------------------------------------------------------

    async def create_message_streams(
        self,
        topic_counts: Mapping[str, int],
        decoder: Callable[[bytes], DecodedKey] | None = None,
        value_decoder: Callable[[bytes], DecodedValue] | None = None,
        *,
        key_decoder: Callable[[bytes], DecodedKey] | None = None,
    ) -> dict[str, list[AsyncKafkaStream[DecodedKey, DecodedValue]]]:
        """Create streams for each topic; returns when each assigned partition is positioned or blocked.

        Arguments and errors are those of `ConsumerConnector.create_message_streams`; decoders run on the event loop. If
        the task is cancelled, the connector is closed and leaves the group.
        """
        create = self._connector.create_message_streams
        join = partial(create, topic_counts, decoder, value_decoder, key_decoder=key_decoder)
        streams = await self._join(join)
        return {topic: [self._wrapped(stream) for stream in each] for topic, each in streams.items()}

    async def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        decoder: Callable[[bytes], DecodedKey] | None = None,
        value_decoder: Callable[[bytes], DecodedValue] | None = None,
        *,
        key_decoder: Callable[[bytes], DecodedKey] | None = None,
    ) -> list[AsyncKafkaStream[DecodedKey, DecodedValue]]:
        """Create streams that share all topics that the filter allows, now and later.

        Arguments and errors as for `create_message_streams`.
        """
        streams = await self._join(partial(
            self._connector.create_message_streams_by_filter, topic_filter, num_streams, decoder, value_decoder,
            key_decoder=key_decoder,
        ))  # fmt: skip
        return [self._wrapped(stream) for stream in streams]

    async def _join(self, join: Callable[[], T]) -> T:
        self._refuse_other_loop()
        if self._loop is None:
            self._loop = self._connector._loop = self._callbacks.loop = asyncio.get_running_loop()
            self._loop_end = self._leave_with_loop()
            await anext(self._loop_end)
        try:
            return await off_loop(join)
        except asyncio.CancelledError:
            self._connector._leave(0.0, None, in_hand_is_done=False, is_listener=False)
            raise

    async def _leave_with_loop(self) -> AsyncGenerator[None]:
        """Leave the group when the loop ends or the connector is dropped: either closes this generator."""
        try:
            yield
        finally:
            if not self._connector._closing:
                what = "its connector and streams were dropped" if self._is_dropped else "its event loop ends"
                log.warning("%s leaves its group: %s without shutdown()", self.consumer_id, what)
                warnings.warn(f"AsyncConsumerConnector of group {self.config.group_id} was dropped without shutdown()",
                              ResourceWarning, stacklevel=1)  # fmt: skip
                await self._leave(self._connector._drain_s, in_hand_is_done=False)

    def _wrapped(self, stream: KafkaStream[Any, Any]) -> AsyncKafkaStream[Any, Any]:
        assert isinstance(stream, LoopStream)
        assert self._loop is not None
        return AsyncKafkaStream(Reading(stream, self._loop), self)

    # -- offsets and pauses ------------------------------------------------------------------------------------------

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> Coroutine[Any, Any, None]:
        """Store positions and wait for the result, for the session time-out at most; to be awaited.

        The offsets are chosen when this is called, and stored after all earlier commits. A
        commit whose task is cancelled meanwhile may still be stored.

        Args:
            offsets: partition -> next offset to consume, owned partitions only; may lower an offset. Without it all
                that is done, and the message in hand of streams that the calling task was the last to read. A message
                that another task took for it (`create_task(anext(stream))`) is not counted: nobody may have seen it.

        Raises:
            CommitFailed: names each partition that was not stored, and why.
            ValueError: an offset that is no integer from 0 to 2^63-1.
            ConnectorClosed: after shutdown.
        """
        task = calling_task()
        if task is None:
            return self._commit_in_task(offsets)
        self._refuse_other_loop()
        return off_loop(self._connector._ask_commit(offsets, task, self._is_listener()))

    async def _commit_in_task(self, offsets: Mapping[TopicPartition, int] | None) -> None:
        await self.commit_offsets(offsets)

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver and fetch nothing of these partitions until `resume`, as `ConsumerConnector.pause` does."""
        await self._beside(partial(self._connector.pause, partitions))

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver partitions again, from their done position, as `ConsumerConnector.resume` does."""
        await self._beside(partial(self._connector.resume, partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._connector.paused()

    # -- state -------------------------------------------------------------------------------------------------------

    async def status(self) -> ConnectorStatus:
        """Return the status of this member, as a frozen value."""
        return await self._beside(self._connector.status)

    async def statistics(self) -> ConnectorStatistics:
        """The status, and what this member has counted since its streams were created, as a frozen value."""
        return await self._beside(self._connector.statistics)

    async def _beside(self, call: Callable[[], T]) -> T:
        self._refuse_other_loop()
        return await off_loop(call)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def shutdown(self, timeout: float | None = None) -> dict[TopicPartition, str]:
        """Leave the group: finish, commit (with auto-commit on), release everything.

        All streams end. Waits for the messages in hand of other tasks; messages still in hand at the time-out stay
        uncommitted and is delivered again elsewhere. The message in hand of a stream that this task last read counts as
        done, unless another task took it for this one (`create_task(anext(stream))`). A message whose task has returned
        is not waited for, and is not done. A second call waits for the first and does nothing more. If the task is
        cancelled meanwhile, the member leaves all the same.

        Args:
            timeout: seconds, for messages in hand, the listener and the last commit together; by default
                `rebalance.drain.timeout.ms`.

        Returns:
            Partition -> why its position is not stored, as for `ConsumerConnector.shutdown`.
        """
        self._refuse_other_loop()
        wait_s = self._connector._drain_s if timeout is None else checked_timeout(timeout)
        return await self._leave(wait_s, in_hand_is_done=True)

    async def _leave(self, wait_s: float, *, in_hand_is_done: bool) -> dict[TopicPartition, str]:
        return await off_loop(self._connector._leave(
            wait_s, asyncio.current_task(), in_hand_is_done=in_hand_is_done, is_listener=self._is_listener()
        ))  # fmt: skip

    def _is_listener(self) -> bool:
        task = asyncio.current_task()
        return task is not None and task is self._callbacks.listener_task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(self._connector._drain_s, in_hand_is_done=kind is None)
