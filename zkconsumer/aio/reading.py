"""Takes the messages of one stream for the tasks of an event loop.

Messages that are there are handed over without suspending the task, and without another thread. Rules, and which
failure each prevents:
- A message is taken in the same step in which it is returned: a task that is cancelled while it waits has taken none.
- A task that never waits gives way to the others after `TURN_S`, before it takes the next message. Otherwise time-outs,
  cancellations and other tasks would starve while there are messages.
- A message whose task was cancelled, or has failed, before it asked for the next one is not done. The next task gets it
  again. A message whose task has returned is done when the next task asks.
- While a task waits, or works on its message, no other task may ask: it would make that message done.
- The task that asks is the one that calls `anext()`. If another task takes the message for it
  (`create_task(anext(stream))`), nobody may ever look at the result: no commit and no end counts that message, and if
  the task that asked has returned, the next one gets it again.

A stream that an event loop reads: where a thread would wait, `next()` raises NothingYet, and messages wake the loop.

Rules, and which failure each prevents:
- *Store, then check.* The waiting task makes the future that `wake` completes before it looks for messages. A message
  that comes in between completes the future.
- `wake` takes no lock and never raises, as fetchers and the coordinator call it. After the loop was closed, nobody can
  read the stream any more: the member leaves, so that others get the partitions.

The streams that tasks iterate: messages one by one, or batches.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import current_task
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Any, Final, Generic, Self, TypeVar, cast

from simpleconsumer.types import K, Message, TopicPartition, V
from zkconsumer.errors import ConcurrentStreamUse, ConsumerTimeout, ForeignEventLoop
from zkconsumer.fetching.partition_queue import InHand
from zkconsumer.streams.batches import MessageBatch, StreamBatches
from zkconsumer.streams.stream import KafkaStream, StreamParts


class NothingYet(Exception):  # noqa: N818 - no error: the task waits
    """There is no message to hand over now.

    Attributes:
        wait_s: After how many seconds to look again, whether woken or not; None for no limit.
    """

    def __init__(self, wait_s: float | None) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class LoopWakeup:
    """Wakes the task that waits for messages; it has the methods of `zkconsumer.wakeup.Wakeup`.

    Args:
        loop_closed: Called, on any thread, when there was something to read and the loop was closed.

    Threads: `wake` may be called from any thread and from signal handlers; the rest belongs to the loop.
    """

    __slots__ = ("_loop", "_loop_closed", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop, loop_closed: Callable[[], None]) -> None:
        self._loop = loop
        self._loop_closed = loop_closed
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """End the wait of the task."""
        waiter = self._waiter
        try:
            if waiter is not None:
                self._loop.call_soon_threadsafe(complete, waiter)
                return
        except RuntimeError:  # the loop was closed
            pass
        if self._loop.is_closed():
            self._loop_closed()

    def wait(self, timeout_s: float | None) -> bool:
        """Raise NothingYet: an event loop does not wait here."""
        raise NothingYet(timeout_s)

    def expect(self) -> asyncio.Future[None]:
        """Return a future that is completed by the next `wake`."""
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def forget(self) -> None:
        """Wake nobody any more."""
        self._waiter = None


def complete(waiter: asyncio.Future[None]) -> None:
    """Complete a future, unless it is completed or cancelled."""
    if not waiter.done():
        waiter.set_result(None)


class LoopStream(KafkaStream[K, V]):
    """A stream whose readers are the tasks of one event loop.

    Threads: the loop's, but for what may be called from any thread in `KafkaStream`.
    """

    def __init__(self, parts: StreamParts, loop: asyncio.AbstractEventLoop, loop_closed: Callable[[], None]) -> None:
        self._loop_wakeup = LoopWakeup(loop, loop_closed)
        super().__init__(parts, self._loop_wakeup)
        self._loop = loop
        self._wait_ms = self._timeout_ms
        self._timeout_ms = -1  # the reading task keeps the time
        # The message that another task took for the one that asked, which may not have looked at it.
        self._unseen: InHand | None = None

    def _is_being_read(self) -> bool:
        reader = self._reader
        if isinstance(reader, asyncio.Future):
            return not reader.done() and not self._loop.is_closed()
        return super()._is_being_read()

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        return hand is not self._unseen and super()._has_in_hand(reader, hand)

    def _settle(self, is_done: bool) -> None:
        super()._settle(is_done and self._queue.in_hand is not self._unseen)

    def _has_open_hand(self) -> bool:
        """Return whether a message is in hand, and not stored by an explicit commit."""
        hand = self._queue.in_hand
        if hand is None or hand is not self.handed:
            return False
        return hand.next_offset > self._queue.committed or hand._done_in_entry > 0

    def _finish(self) -> None:
        """Take note that the message in hand is done, before the next one is looked for."""
        self._finish_hand(None)
        self.handed = self._unseen = None

    def _put_back(self) -> None:
        """Take note that what is in hand is not done: it is delivered again, to the task that reads next."""
        hand = self._queue.in_hand
        self._leave_chunk()
        self._finish_hand(hand)
        self.handed = self._unseen = None

    def _end_reading(self) -> None:
        """End the iteration at once, though messages of the open chunk are left."""
        self._end()
        self._leave_chunk()

    def _leave_chunk(self) -> None:
        self._source = _NO_MESSAGES
        self._cursor.leave()


_NO_MESSAGES: Any = iter(())


TURN_S: Final = 0.01
"""Longest time for which a task takes messages without giving way to other tasks."""
_NOBODY: Final = object()
T = TypeVar("T")
_Task = asyncio.Task[Any]


def calling_task() -> _Task | None:
    """Return the task that runs now; None outside of tasks."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs: `loop.run_until_complete(anext(stream))`
        return None


class Reading:
    """Which task reads a stream, and how it waits.

    Args:
        stream: The stream that is read.
        loop: Where.

    Attributes:
        stream: The stream that is read.
        loop: Where.
        thread: The thread in which the loop ran when a task began to read; 0 before that.

    Threads: the loop's.
    """

    def __init__(self, stream: LoopStream[Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.stream = stream
        self.loop = loop
        self.thread = 0
        self._turn_ends_at = 0.0
        # The task that read last; while a task waits none, so that one comparison finds all that is not usual.
        self._task: object = _NOBODY
        self._waiting: _Task | None = None
        # The message about which an error was raised last: it is in hand, and not handed over.
        self._reported: object = None
        # The message that was delivered again last, because its task had returned: that happens once.
        self._repeated: tuple[TopicPartition, int] | None = None

    async def take(self, caller: _Task | None, items: Iterator[T]) -> T:
        """Return the next message or batch to a task."""
        task: Any = caller
        if task is not self._task:
            task = self._begin(task)
        if monotonic() >= self._turn_ends_at:
            await self._give_way(task)
        stream = self.stream
        try:
            item = next(items)
        except NothingYet:
            return await self._wait(task, items)
        except StopIteration:
            raise StopAsyncIteration from None
        except BaseException as error:
            self._raised(task, error)
            raise
        if current_task(self.loop) is not task:
            self._took_for(task)
        stream._reader = task
        return item

    def _took_for(self, task: _Task) -> None:
        """Take note that the running task took the message for another one, `task`."""
        if not _waits_for(task, current_task(self.loop)):
            self.stream._unseen = self.stream.handed

    def _begin(self, task: _Task | None) -> _Task:
        """Check a task that did not read last; if that one has failed, its message is delivered again."""
        name = self.stream.thread_id
        if asyncio.get_running_loop() is not self.loop:
            raise ForeignEventLoop(f"stream {name}")
        task = task or asyncio.current_task()
        if task is None:
            raise RuntimeError(f"stream {name} is read outside a task; start a task with asyncio.create_task")
        if self._waiting is not None:
            raise ConcurrentStreamUse(name, "task")
        before = self._task
        if isinstance(before, asyncio.Task) and before is not task and self._is_open():
            if not before.done():
                raise ConcurrentStreamUse(name, "task")
            if _has_failed(before) or self._is_left_behind(before):
                self.stream._put_back()
        self._task = task
        self.thread = get_ident()
        return task

    def _is_open(self) -> bool:
        return self.stream._has_open_hand() and self.stream.handed is not self._reported

    def _is_left_behind(self, task: _Task) -> bool:
        """Return whether a task has returned, perhaps without a look at the message that another task took for it."""
        hand = self.stream.handed
        if hand is None or hand is not self.stream._unseen or task.result() is hand:
            return False
        place = self.stream._queue.partition, hand.offset
        if place == self._repeated:
            return False  # or a program with a new task for each message would get the same one for ever
        self._repeated = place
        return True

    def _raised(self, task: _Task, error: BaseException) -> None:
        """Take note of an error: its message is in hand; a message that an interrupt held back is delivered again."""
        self.stream._reader = task
        if isinstance(error, Exception):
            self._reported = self.stream.handed
        elif self._is_open():
            self.stream._put_back()

    async def _give_way(self, task: _Task) -> None:
        self.stream._finish()
        self._task, self._waiting = _NOBODY, task
        try:
            await asyncio.sleep(0)
        finally:
            self._task, self._waiting = task, None
            self._turn_ends_at = monotonic() + TURN_S

    async def _wait(self, task: _Task, items: Iterator[T]) -> T:
        timeout_ms = self.stream._wait_ms
        deadline = None if timeout_ms < 0 else self.loop.time() + timeout_ms / 1000
        wakeup = self.stream._loop_wakeup
        self._task, self._waiting = _NOBODY, task
        try:
            while True:
                waiter = wakeup.expect()  # before the look: a later message completes the future
                try:
                    item = next(items)
                except NothingYet as nothing:
                    wait_s = nothing.wait_s
                except StopIteration:
                    raise StopAsyncIteration from None
                except BaseException as error:
                    self._raised(task, error)
                    raise
                else:
                    if current_task(self.loop) is not task:
                        self._took_for(task)
                    self.stream._reader = task
                    return item
                await self._sleep(waiter, wait_s, deadline, timeout_ms)
        finally:
            wakeup.forget()
            self._task, self._waiting = task, None
            self._turn_ends_at = monotonic() + TURN_S

    async def _sleep(
        self, waiter: asyncio.Future[None], wait_s: float | None, deadline: float | None, timeout_ms: int
    ) -> None:
        """Wait until woken, for `wait_s` at most.

        Raises:
            ConsumerTimeout: The deadline is over.
        """
        if deadline is not None:
            left_s = deadline - self.loop.time()
            if left_s <= 0.0:
                await asyncio.sleep(0)  # a loop that asks again and again must let the others run
                raise ConsumerTimeout(timeout_ms)
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        timer = None if wait_s is None else self.loop.call_later(wait_s, complete, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()


def _has_failed(task: _Task) -> bool:
    # Not by `exception()`: it would count as looked at, and asyncio would not log it any more.
    return task.cancelled() or getattr(task, "_exception", None) is not None


def _waits_for(task: _Task, taker: _Task | None) -> bool:
    """Return whether a task gets the result of another one for certain: it waits for it in `asyncio.wait_for`.

    In Python 3.11 `wait_for` runs a coroutine in a task of its own, and returns its result even when the time-out or a
    cancellation comes at the same moment. Later versions run it in the task that calls.
    """
    if sys.version_info >= (3, 12):
        return False
    return any(
        _task_of(waker) is task
        for callback in _callbacks(taker)
        if isinstance(callback, partial) and getattr(callback.func, "__name__", "") == "_release_waiter"
        for waker in _callbacks(callback.args[0])
    )


def _callbacks(future: object) -> list[Any]:
    return [callback for callback, _ in getattr(future, "_callbacks", None) or ()]


def _task_of(waker: object) -> object:
    return getattr(waker, "__self__", None)


class AsyncKafkaStream(Generic[K, V]):
    """A stream of messages: `async for message in stream`.

    `AsyncConsumerConnector.create_message_streams` returns streams; applications do not create them. A message is done
    when its task asks for the next one. A message whose task is cancelled, or fails, before that is not done: the next
    task that reads the stream gets it again. The last message of a task that has returned is done when another
    task asks for the next one. If the same task catches the cancellation (`asyncio.timeout`) and goes on, its message
    is done; `handed` says what it was.

    "Its task" is the one that calls `anext(stream)`. With `create_task(anext(stream))` another task takes the message
    for it. The first one may never look at the result. So this message is done when the next one is asked for, and no
    clean end and no `commit_offsets()` counts it before that.

    The iteration ends for ever when the connector shuts down. `break` leaves it, and it can be continued. With
    `consumer.timeout.ms` of 0 or more, ConsumerTimeout is raised when no message came in time; iterate again.

    `AsyncKafkaStream[K, V]` yields `Message[K, V]`: K and V are what the decoders of keys and values return, `bytes`
    without decoders.

    Raises by `anext()`:
        ConsumerTimeout, MessageError, DecoderFailed, PartitionStopped, StreamFailed: As for `KafkaStream`.
        ConcurrentStreamUse: Another task waits for a message of this stream, or still works on one.
        ForeignEventLoop: The stream belongs to another event loop.

    Threads: that of its event loop; one task at a time.
    """

    # `owner` is kept alive: a connector that is collected leaves its group.
    def __init__(self, reading: Reading, owner: object) -> None:
        self._reading = reading
        self._owner = owner

    @property
    def thread_id(self) -> str:
        """Identity in the group, `<consumer id>-<number>`."""
        return self._reading.stream.thread_id

    @property
    def handed(self) -> Message[K, V] | MessageBatch | None:
        """The message or batch that the stream returned last and that is not done yet; None if there is none."""
        return cast("Message[K, V] | MessageBatch | None", self._reading.stream.handed)

    def __repr__(self) -> str:
        return f"AsyncKafkaStream({self.thread_id!r})"

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message[K, V]]:
        """Return the next message, and wait for it as long as `consumer.timeout.ms` allows."""
        # The task that calls, and not the one in which the coroutine runs: `asyncio.wait_for` makes one in Python 3.11.
        # `current_task()` without a loop asks the operating system for the process at each call, to notice a fork. In
        # the thread of the loop, which runs one loop at a time, the task of this loop is the same one.
        reading = self._reading
        task = current_task(reading.loop) if get_ident() == reading.thread else calling_task()
        return reading.take(task, reading.stream)

    def batches(
        self, *, max_messages: int | None = None, max_bytes: int | None = None, columns: Sequence[str] | None = None
    ) -> AsyncStreamBatches:
        """Return an asynchronous iterator of the same messages as `MessageBatch`es, each of one partition.

        Arguments and errors are those of `KafkaStream.batches`. A batch is decoded on the event loop, which takes some
        milliseconds for each MiB; `max_bytes` limits that. The first call in a process imports numpy and pyarrow, which
        takes about half a second: where that is too long, `import simpleconsumer.columns` before the loop runs.
        """
        stream = self._reading.stream
        return AsyncStreamBatches(
            self._reading, stream.batches(max_messages=max_messages, max_bytes=max_bytes, columns=columns), self._owner
        )


class AsyncStreamBatches:
    """Asynchronous iterator of the batches of one stream, as `AsyncKafkaStream.batches` returns it."""

    def __init__(self, reading: Reading, batches: StreamBatches, owner: object) -> None:
        self._reading = reading
        self._batches = batches
        self._owner = owner

    def __aiter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __anext__(self) -> Coroutine[Any, Any, MessageBatch]:
        """Return the next batch, and wait for it as long as `consumer.timeout.ms` allows."""
        return self._reading.take(calling_task(), self._batches)
