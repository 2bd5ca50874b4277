"""One step ahead: while a task decodes what came, the next request is under way, in a thread of its own.

Bounded: at most one item waits, and the next is asked for when that one is taken.
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
    """An iterator whose items are made one step ahead; what making them raises, is raised where it belongs.

    Args:
        items: Runs in the thread.
        interrupt: Ends a wait inside of `items`; called by `close`.

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
        """End the thread; returns when it has ended, or after a few seconds."""
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
