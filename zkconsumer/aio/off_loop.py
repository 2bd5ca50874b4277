"""Runs calls that wait, such as a commit or the end of a member, beside the event loop.

Each call has a daemon thread of its own. The executor of the event loop is not used: it may be full of the
application's own calls, and `asyncio.run` would wait for it. All calls that are made here end by a deadline.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["off_loop"]

T = TypeVar("T")


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
