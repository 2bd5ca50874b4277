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
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import current_task
from collections.abc import Iterator
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Any, Final, TypeVar

from simpleconsumer.types import TopicPartition
from zkconsumer.aio.loop_stream import LoopStream, NothingYet, complete
from zkconsumer.errors import ConcurrentStreamUse, ConsumerTimeout, ForeignEventLoop

__all__ = ["Reading", "calling_task"]

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
        stream: What is read.
        loop: Where.

    Attributes:
        stream: What is read.
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
        """Take note of an error: what it is about is in hand; what an interrupt held back is delivered again."""
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
                waiter = wakeup.expect()  # before the look: what comes behind it completes the future
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
