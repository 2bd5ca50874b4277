"""Makes the calls of one consumer on a thread of its own, one after the other, and its callbacks on the event loop.

Rules, and which failure each prevents:
- A call begins when the task of the one before has its result: what a cancelled call returned is given back before
  another call could count it as done.
- A call that waits for something is cut short when another one is asked for; who asked for it asks again.
- While a callback runs on the loop, the thread makes the calls that the callback awaits, and those of other tasks: the
  callback may wait for these tasks, and the call in which it runs waits for the callback. Calls that were asked for
  before come first: a commit of the callback must not overtake them.
- A callback is over when its task is, even if that was cancelled before its first step.
- The thread that waits for a callback looks from time to time whether the loop still exists.

Runs calls that wait, such as a commit or the end of a member, outside the event loop.

Each call has a daemon thread of its own. The executor of the event loop is not used: it may be full of the
application's own calls, and `asyncio.run` would wait for it. All calls that are made here end by a deadline.

Runs the callbacks of an application on its event loop: the rebalance listener and `on_statistics`.

The member calls them on threads of its own, as for all applications, and waits there. Rules, and which failure each
prevents:
- A callback runs as a task of the loop, `def` and `async def` alike: it may use whatever belongs to the loop.
- The thread that waits for a callback looks from time to time whether the loop still exists: a loop that is closed
  before it ran the callback would let it wait for ever.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as WaitTimeout
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from simpleconsumer.types import TopicPartition
from zkconsumer.errors import ForeignEventLoop
from zkconsumer.member.listening import LISTENER_METHODS
from zkconsumer.polling.errors import ConsumerClosed
from zkconsumer_error import shown

log = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 0.2
_BEYOND_LIMIT_S: Final = 1.0
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Call:
    """One call: what to do, who waits for it, and what to do with a result that nobody waits for.

    Attributes:
        waits: Whether it waits for the end of callbacks of others.
    """

    function: Callable[[], Any]
    future: asyncio.Future[Any]
    dropped: Callable[[], None] | None = None
    cut: Callable[[], None] | None = None
    waits: bool = False
    is_made: bool = False


@dataclass(eq=False, slots=True)
class _Callback:
    """A callback that runs on the loop: the calls that are made meanwhile; None is its end."""

    calls: queue.SimpleQueue[_Call | None] = field(default_factory=queue.SimpleQueue)
    task: asyncio.Task[None] | None = None
    answer: object = None
    error: BaseException | None = None


_callback: ContextVar[_Callback | None] = ContextVar("zkconsumer_callback", default=None)


class CallThread:
    """A thread that makes calls for the tasks of one event loop.

    Args:
        name: Whose calls, for errors and the name of the thread.

    Threads: the methods are the loop's, `on_loop` excepted, whose functions are the thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[_Call] = deque()
        self._running: _Call | None = None
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._callbacks: list[_Callback] = []
        self._limit: asyncio.TimerHandle | None = None
        self._is_ending = self._has_ended = False

    def check_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which is that of the first call.

        Raises:
            ForeignEventLoop: It is another one.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            threading.Thread(target=self._run, name="zkconsumer-aio-calls", daemon=True).start()
        elif self._loop is not loop:
            raise ForeignEventLoop(self._name)
        return loop

    async def call(
        self,
        function: Callable[[], T],
        dropped: Callable[[], None] | None = None,
        cut: Callable[[], None] | None = None,
        *,
        waits: bool = False,
    ) -> T:
        """Return what a function returns on the thread.

        Args:
            function: The call to make.
            dropped: Called on the loop when it has returned without an error, if the task was cancelled meanwhile.
            cut: Ends its wait early; called on the loop when the task is cancelled, or another call is asked for.
            waits: Whether it waits for the end of callbacks of others.

        Raises:
            ConsumerClosed: After `end`.
        """
        call = self._ask(function, dropped, cut, waits=waits)
        with self._awaited(call):
            result: T = await call.future
            return result

    def call_unawaited(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Make a call for no task, which could be cancelled; return the future of its result."""
        call = self._ask(function, waits=True)
        call.future.add_done_callback(lambda _: self._go_on_after(call))
        return call.future

    async def at_rest(self, look: Callable[[], T]) -> T:
        """Return what a function returns on the loop, while no call is under way."""
        if self._running is None:
            return look()
        call = self._ask(int)
        with self._awaited(call):
            await call.future
            return look()

    def _ask(
        self,
        function: Callable[[], Any],
        dropped: Callable[[], None] | None = None,
        cut: Callable[[], None] | None = None,
        *,
        waits: bool = False,
    ) -> _Call:
        loop = self.check_loop()
        if self._has_ended:
            raise ConsumerClosed
        call = _Call(function, loop.create_future(), dropped, cut, waits)
        if self._callbacks and (not waits or self.is_in_callback()):
            self._callbacks[-1].calls.put(call)
        else:
            self._waiting.append(call)
            self._cut_running()
            self._begin()
        return call

    @contextmanager
    def _awaited(self, call: _Call) -> Iterator[None]:
        """Take note of a task that is cancelled while it awaits a call; in the end have the next call begin."""
        try:
            yield
        except BaseException:
            self._give_up(call)
            raise
        finally:
            self._go_on_after(call)

    def _give_up(self, call: _Call) -> None:
        if call in self._waiting:
            self._waiting.remove(call)
        elif not call.is_made:
            if call is self._running:
                self._cut_running()
        elif not call.future.cancelled() and call.future.exception() is None and call.dropped is not None:
            call.dropped()  # the task was cancelled after it had the result, and before it ran

    def _go_on_after(self, call: _Call) -> None:
        if call is self._running and call.is_made:
            self._running = None
            self._begin()

    def is_in_callback(self) -> bool:
        """Return whether the running task is a callback, or was started by one that still runs."""
        return _callback.get() in self._callbacks

    def has_callback(self) -> bool:
        """Return whether a callback runs."""
        return bool(self._callbacks)

    def limit_callbacks(self, timeout_s: float) -> None:
        """Cancel the callbacks that run when the time is over, and the next ones as long after that, until the end."""
        for callback in self._callbacks if self._limit is not None else ():
            if callback.task is not None:
                callback.task.cancel()
        if not self._has_ended:
            self._limit = self.check_loop().call_later(timeout_s + _BEYOND_LIMIT_S, self.limit_callbacks, timeout_s)

    def end(self) -> None:
        """End the thread when the calls so far are made."""
        self._is_ending = True
        self._begin()

    def _cut_running(self) -> None:
        if self._running is not None and not self._running.is_made and self._running.cut is not None:
            self._running.cut()

    def _begin(self) -> None:
        if self._running is not None:
            return
        if self._waiting:
            self._running = self._waiting.popleft()
            if self._waiting:
                self._cut_running()
            self._queue.put(self._running)
        elif self._is_ending and not self._has_ended:
            self._has_ended = True
            if self._limit is not None:
                self._limit.cancel()
            self._queue.put(None)

    def _settle(self, call: _Call, result: object, error: BaseException | None) -> None:
        """Hand over a result, on the loop; the next call begins when the task has it."""
        call.is_made = True
        if call.future.done():
            if error is not None:
                log.warning("a call of %s failed after its task was cancelled: %s", self._name, error)
            elif call.dropped is not None:
                call.dropped()
            self._go_on_after(call)
        elif error is None:
            call.future.set_result(result)
        elif isinstance(error, StopIteration):  # no future takes it
            call.future.set_exception(RuntimeError(f"a callback has raised {shown(error)}"))
        else:
            call.future.set_exception(error)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            self._make(call)
            del call  # it knows the consumer, which may be dropped before the next call

    def _make(self, call: _Call) -> None:
        assert self._loop is not None
        result, error = None, None
        try:
            result = call.function()
        except BaseException as raised:  # noqa: BLE001 - it is raised in the task
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._settle, call, result, error)
        except RuntimeError:  # the loop was closed meanwhile
            pass

    def on_loop(self, function: Callable[..., object]) -> Callable[..., Any]:
        """Return a function for the thread, which runs `function`, `async def` or `def`, as a task of the loop."""

        def run(*arguments: object) -> Any:
            callback = _Callback()
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._start, function, arguments, callback)
            self._serve(callback)
            if callback.error is not None:
                raise callback.error
            return callback.answer

        return run

    def _start(self, function: Callable[..., object], arguments: tuple[object, ...], callback: _Callback) -> None:
        """Start the task of a callback, on the loop."""
        assert self._loop is not None

        def is_over(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                name = getattr(function, "__name__", function)
                callback.error = RuntimeError(f"the task of callback {name!r} was cancelled")
            self._callbacks.remove(callback)
            callback.calls.put(None)

        context = copy_context()
        context.run(_callback.set, callback)
        self._callbacks.append(callback)
        for call in [each for each in self._waiting if not each.waits]:
            self._waiting.remove(call)
            callback.calls.put(call)
        callback.task = self._loop.create_task(_answer(function, arguments, callback), context=context)
        callback.task.add_done_callback(is_over)

    def _serve(self, callback: _Callback) -> None:
        """Make the calls of a callback until it is over."""
        assert self._loop is not None
        while True:
            try:
                call = callback.calls.get(timeout=_LOOK_AGAIN_S)
            except queue.Empty:
                if self._loop.is_closed():
                    raise RuntimeError("the event loop was closed before the callback had returned") from None
                continue
            if call is None:
                return
            self._make(call)


async def _answer(function: Callable[..., object], arguments: tuple[object, ...], callback: _Callback) -> None:
    try:
        answer = function(*arguments)
        callback.answer = await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the call in which it runs raises it
        callback.error = error


async def off_loop(call: Callable[[], T]) -> T:
    """Return the result of `call`, which runs on a thread of its own.

    If the task is cancelled meanwhile, the call continues, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - it is raised in the task
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop was closed meanwhile
            pass

    threading.Thread(target=run, name="zkconsumer-call", daemon=True).start()
    return await future


class AsyncRebalanceListener:
    """Is notified of rebalances; every method is optional, and `async def` or `def`.

    Threads: called as a task of the connector's event loop, one call at a time.
    """

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Called before partitions are released, also at shutdown; nothing more is delivered, commits still count."""

    async def on_partitions_assigned(
        self, positions: dict[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None] | None:
        """Called when partitions are owned; each is delivered from the offset given, after this returns.

        A returned mapping gives other start offsets, as for `RebalanceListener.on_partitions_assigned`.
        """
        return None

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Called when partitions were lost with the session; a commit is no longer possible."""

    async def on_partitions_blocked(self, partitions: list[TopicPartition]) -> None:
        """Called when another member has held assigned partitions for a long time; the claim continues to wait."""


class LoopCallbacks:
    """Calls functions of the application as tasks of its loop, and waits for their results.

    Attributes:
        loop: The loop; set before the first call.
        listener_task: The task in which a method of the listener runs now.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.listener_task: asyncio.Task[Any] | None = None

    def listener(self, listener: object) -> object:
        """Return a listener with the same methods, which runs them on the loop."""
        methods = {name: getattr(listener, name, None) for name in LISTENER_METHODS}
        return SimpleNamespace(
            **{
                name: partial(self._call, method, is_listener=True)
                for name, method in methods.items()
                if callable(method)
            }
        )

    def function(self, function: Callable[[Any], object]) -> Callable[[Any], object]:
        """Return a function that runs `function` on the loop."""
        return partial(self._call, function, is_listener=False)

    def _call(self, function: Callable[[Any], object], argument: Any, *, is_listener: bool) -> object:
        assert self.loop is not None
        coroutine = self._run(function, argument, is_listener)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise
        while True:
            try:
                return future.result(_LOOK_AGAIN_S)
            except WaitTimeout:
                if future.done():
                    return future.result()
                if self.loop.is_closed():
                    raise RuntimeError("the event loop was closed before the callback had returned") from None

    async def _run(self, function: Callable[[Any], object], argument: Any, is_listener: bool) -> object:
        if is_listener:
            self.listener_task = asyncio.current_task()
        try:
            answer = function(argument)
            return await answer if inspect.isawaitable(answer) else answer
        finally:
            if is_listener:
                self.listener_task = None
