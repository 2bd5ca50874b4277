"""Makes the calls of one consumer on a thread of its own, one after the other, and its callbacks on the event loop.

Rules, and which failure each prevents:
- A call begins when the loop has seen the end of the one before: what a cancelled call returned is given back before
  another call could count it as done.
- A call that waits for something is cut short when another one is asked for; who asked for it asks again.
- While a callback runs on the loop, the thread makes the calls that the callback awaits: they would wait for ever for
  the call in which the callback runs.
- The thread that waits for a callback looks from time to time whether the loop still exists.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from zkconsumer.errors import ForeignEventLoop
from zkconsumer.polling.consumer_errors import ConsumerClosed

__all__ = ["CallThread"]

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 0.2

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Call:
    """One call: what to do, who waits for it, and what to do with a result that nobody waits for."""

    function: Callable[[], Any]
    future: asyncio.Future[Any]
    dropped: Callable[[], None] | None = None
    cut: Callable[[], None] | None = None


@dataclass(eq=False, slots=True)
class _Callback:
    """A callback that runs on the loop: the calls that it awaits; None is its end."""

    thread: CallThread
    calls: queue.SimpleQueue[_Call | None] = field(default_factory=queue.SimpleQueue)
    is_over: bool = False
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
        self, function: Callable[[], T], dropped: Callable[[], None] | None = None,
        cut: Callable[[], None] | None = None,
    ) -> T:
        """Return what a function returns on the thread.

        Args:
            function: What to do.
            dropped: Called on the loop when it has returned without an error, if the task was cancelled meanwhile.
            cut: Ends its wait early; called on the loop when the task is cancelled, or another call is asked for.

        Raises:
            ConsumerClosed: After `end`.
        """
        loop = self.check_loop()
        if self._has_ended:
            raise ConsumerClosed
        call = _Call(function, loop.create_future(), dropped, cut)
        callback = _callback.get()
        if callback is not None and self.is_in_callback():
            callback.calls.put(call)
        else:
            self._waiting.append(call)
            self._cut_running()
            self._begin()
        try:
            result: T = await call.future
        except asyncio.CancelledError:
            if call in self._waiting:
                self._waiting.remove(call)
            elif call is self._running:
                self._cut_running()
            raise
        return result

    def is_in_callback(self) -> bool:
        """Return whether the running task is a callback, or was started by one that still runs."""
        callback = _callback.get()
        return callback is not None and callback.thread is self and not callback.is_over

    async def idle(self) -> None:
        """Wait until no call is under way."""
        while self._running is not None:
            await self.call(int)

    def end(self) -> None:
        """End the thread when the calls so far are made."""
        self._is_ending = True
        self._begin()

    def _cut_running(self) -> None:
        if self._running is not None and self._running.cut is not None:
            self._running.cut()

    def _begin(self) -> None:
        if self._running is not None:
            return
        if self._waiting:
            self._running = self._waiting.popleft()
            self._queue.put(self._running)
        elif self._is_ending:
            self._has_ended = True
            self._queue.put(None)

    def _settle(self, call: _Call, result: object, error: BaseException | None) -> None:
        """Hand over a result, on the loop; then begin the next call."""
        if call.future.done():
            if error is not None:
                log.warning("a call of %s failed after its task was cancelled: %s", self._name, error)
            elif call.dropped is not None:
                call.dropped()
        elif error is None:
            call.future.set_result(result)
        elif isinstance(error, StopIteration):  # no future takes it
            call.future.set_exception(RuntimeError(f"a callback has raised {error!r}"))
        else:
            call.future.set_exception(error)
        if call is self._running:
            self._running = None
            self._begin()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            self._make(call)

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
            callback = _Callback(self)
            context = copy_context()
            context.run(_callback.set, callback)
            coroutine = _answer(function, arguments, callback)
            loop = self._loop
            assert loop is not None
            try:
                loop.call_soon_threadsafe(lambda: loop.create_task(coroutine, context=context))
            except RuntimeError:  # the loop is closed
                coroutine.close()
                raise
            self._serve(callback)
            if callback.error is not None:
                raise callback.error
            return callback.answer

        return run

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
        callback.error = RuntimeError(f"the task of callback {getattr(function, '__name__', function)!r} was cancelled")
        raise
    except BaseException as error:  # noqa: BLE001 - the call in which it runs raises it
        callback.error = error
    finally:
        callback.is_over = True
        callback.calls.put(None)
