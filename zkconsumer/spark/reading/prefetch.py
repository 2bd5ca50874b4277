"""Fetches one step ahead: while a task decodes an answer, a thread of its own sends the next request.

At most one item waits. The next one is requested when it is taken.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["Prefetcher"]

T = TypeVar("T")
_JOIN_S: Final = 5.0


class Prefetcher(Generic[T]):
    """An iterator whose items are produced one step ahead. An error in producing one is raised in its place.

    Args:
        items: Runs in the thread.
        interrupt: Ends a wait inside `items`; called by `close`.

    Threads: one iterates and closes.
    """

    def __init__(self, items: Generator[T, None, None], interrupt: Callable[[], None], name: str) -> None:
        self._items = items
        self._interrupt = interrupt
        self._ready: queue.SimpleQueue[tuple[bool, T | BaseException | None]] = queue.SimpleQueue()
        self._permits = threading.Semaphore(1)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __iter__(self) -> Iterator[T]:
        self._thread.start()
        while True:
            is_item, value = self._ready.get()
            if not is_item:
                if value is not None:
                    raise value  # type: ignore[misc]
                return
            self._permits.release()
            yield value  # type: ignore[misc]

    def close(self) -> None:
        """End the thread; return when it has ended, or after a few seconds."""
        self._is_closed = True
        self._interrupt()
        self._permits.release()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            while True:
                self._permits.acquire()
                if self._is_closed:
                    break
                try:
                    item = next(self._items)
                except StopIteration:
                    break
                self._ready.put((True, item))
                del item  # it may be large, and the next one takes a while
            self._ready.put((False, None))
        except BaseException as error:  # noqa: BLE001 - raised again where the items are taken
            self._ready.put((False, error))
        finally:
            self._items.close()
