"""Decoding in a thread of its own, for readers that are interrupted again and again.

An exception that a signal handler raises, or that is sent to a thread, interrupts the reader in the middle of its work.
What was decoded until then is lost. If that happens every few milliseconds, a batch, or a large wrapper, would never be
finished. So after an interrupt a thread of its own decodes, which no such exception reaches. The reader waits for it.
It may be interrupted in that any number of times, and finds the result when it asks again.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator
from typing import Any

from zkconsumer.fetching.partition_queue import Chunk, InHand

__all__ = ["UninterruptedDecoding"]


class UninterruptedDecoding:
    """What comes next in a chunk, decoded in a thread of its own.

    Args:
        source: The reader of batches that asks, None for messages; the result is for the same one only.
        position: Where in the chunk the messages start.
        messages: Yields them.
        wake: Called in that thread when the result is there.

    Attributes:
        messages: Yields what is behind the result, once that is there.
        is_done: The result is there.

    Threads: The reader's. The thread of its own uses nothing of the stream but `messages`.
    """

    def __init__(
        self, source: object, chunk: Chunk, place: tuple[int, int], messages: Iterator[Any], wake: Callable[[], None]
    ) -> None:
        self.messages = messages
        self.is_done = False
        self._source = source
        self._chunk = chunk
        self._place = place
        self._wake = wake
        self._started = _thread.allocate_lock()
        self._found: InHand | None = None
        self._error: BaseException | None = None
        self._is_spent = False

    def is_next(self, source: object, chunk: Chunk, place: tuple[int, int]) -> bool:
        """Return whether this is what comes next in a chunk from a place on, position and index of its queue."""
        if self._is_spent or self._source is not source or self._chunk is not chunk:
            return False
        found = self._found
        return self._place <= place <= (self._place if found is None else (found.offset, found.index))

    def start(self) -> bool:
        """Start the thread if it does not run yet; return False if the system gives no thread.

        To be called from time to time until the result is there. An interrupt may have come before the start; or it may
        have hit the new thread, which up to Python 3.11 has the reader's number until it runs.
        """
        # Not by `threading.Thread`: its start waits for the thread, and these waits are not safe to interrupt.
        if not self._started.locked():
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                return False
        return True

    def take(self, *_: object) -> Any:
        """Return the next message or batch, or None at the end of the chunk, as `next(messages, None)` would.

        A reader that was interrupted with it may take it again.

        Raises:
            Whatever decoding raises, once: behind it another decoding is needed.
        """
        if self._error is None:
            return self._found
        self._is_spent = True  # first, as an interrupt may come here, too
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _run(self) -> None:
        if not self._started.acquire(blocking=False):
            return
        try:
            self._found = next(self.messages, None)
        except BaseException as error:  # noqa: BLE001 - `take` raises it in the reader
            self._error = error
        self.is_done = True
        self._wake()
