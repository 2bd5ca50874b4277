"""Runs calls that wait for brokers at the same time, on threads that never keep a program from ending.

`concurrent.futures.ThreadPoolExecutor` waits for its threads at the end of its block and of the program: with a broker
that does not answer, Ctrl-C and SIGTERM would wait for its time-out.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["run_together"]

T = TypeVar("T")


def run_together(calls: Sequence[Callable[[], T]], most: int, name: str) -> list[T]:
    """Return the results of the calls, in their order; raises what one of them raises.

    Args:
        calls: Each has its own deadline.
        most: Most calls that run at the same time.
        name: That of the threads.
    """
    waiting: queue.SimpleQueue[tuple[Callable[[], T], Future[T]]] = queue.SimpleQueue()
    futures: list[Future[T]] = [Future() for _ in calls]
    for each in zip(calls, futures, strict=True):
        waiting.put(each)
    for _ in range(min(most, len(calls))):
        threading.Thread(target=_run, args=(waiting,), name=name, daemon=True).start()
    return [future.result() for future in futures]


def _run(waiting: queue.SimpleQueue[tuple[Callable[[], T], Future[T]]]) -> None:
    """Make one call after the other, until none is left."""
    while True:
        try:
            call, future = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            future.set_exception(error)
