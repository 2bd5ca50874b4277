"""A stream that an event loop reads: where a thread would wait, `next()` raises NothingYet, and messages wake the loop.

Rules, and which failure each prevents:
- *Store, then check.* The waiting task makes the future that `wake` completes before it looks for messages. A message
  that comes in between completes the future.
- `wake` takes no lock and never raises, as fetchers and the coordinator call it. After the loop was closed, nobody can
  read the stream any more: the member leaves, so that others get the partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from simpleconsumer.types import K, V
from zkconsumer.fetching.partition_queue import InHand
from zkconsumer.streams.stream import KafkaStream, StreamParts

__all__ = ["LoopStream", "LoopWakeup", "NothingYet"]


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

    def __init__(
        self, parts: StreamParts, loop: asyncio.AbstractEventLoop, loop_closed: Callable[[], None]
    ) -> None:
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
