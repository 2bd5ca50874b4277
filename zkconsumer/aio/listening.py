"""Runs the callbacks of an application on its event loop: the rebalance listener and `on_statistics`.

The member calls them on threads of its own, as for all applications, and waits there. Rules, and which failure each
prevents:
- A callback runs as a task of the loop, `def` and `async def` alike: it may use whatever belongs to the loop.
- The thread that waits for a callback looks from time to time whether the loop still exists: a loop that is closed
  before it ran the callback would let it wait for ever.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as WaitTimeout
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from simpleconsumer.types import TopicPartition
from zkconsumer.member.listening import LISTENER_METHODS

__all__ = ["AsyncRebalanceListener", "LoopCallbacks"]

_LOOK_AGAIN_S: Final = 0.2


class AsyncRebalanceListener:
    """Is notified of rebalances; every method is optional, and `async def` or `def`.

    Threads: called as a task of the connector's event loop, one call at a time.
    """

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """These are about to be released, also at shutdown: nothing more of them is delivered, commits still count."""

    async def on_partitions_assigned(
        self, positions: dict[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None] | None:
        """These are owned now; each will be delivered from the offset given, after this returns.

        A returned mapping gives other start offsets, as for `RebalanceListener.on_partitions_assigned`.
        """
        return None

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """These were lost with the session; a commit is no longer possible."""

    async def on_partitions_blocked(self, partitions: list[TopicPartition]) -> None:
        """Another member has held these for long; for information, the claim continues to wait."""


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
        return SimpleNamespace(**{
            name: partial(self._call, method, is_listener=True) for name, method in methods.items() if callable(method)
        })

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
