"""Decoding that no interrupt cuts off, for readers that are interrupted again and again.

An exception that a signal handler raises, or that is sent to a thread, strikes the reader in the middle of its work.
What was decoded until then is lost, and where that happens every few milliseconds a batch, or a large wrapper, would
never be finished. So what was cut off once is decoded by a thread of its own, which no such exception reaches. The
reader waits for it, may be interrupted in that as often as it likes, and finds the outcome when it comes back.
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
        source: What decodes; an outcome is for whoever reads from the same one.
        position: Where in the chunk the messages begin.
        messages: Yields them.
        wake: Called when it is done, in that thread.

    Attributes:
        messages: Yields what is behind the outcome, once that is there.
        is_done: The outcome is there.

    Threads: Those of one reader. The thread of its own touches nothing of the stream's but `messages`.
    """

    def __init__(
        self, source: object, chunk: Chunk, position: int, messages: Iterator[Any], wake: Callable[[], None]
    ) -> None:
        self.messages = messages
        self.is_done = False
        self._source = source
        self._chunk = chunk
        self._position = position
        self._wake = wake
        self._begun = _thread.allocate_lock()
        self._found: InHand | None = None
        self._error: BaseException | None = None
        self._is_spent = False

    def is_next(self, source: object, chunk: Chunk, position: int) -> bool:
        """Return whether this is what comes next in a chunk from a position on."""
        if self._is_spent or self._source is not source or self._chunk is not chunk:
            return False
        return self._position <= position <= (self._position if self._found is None else self._found.offset)

    def begin(self) -> bool:
        """Have the thread started if it does not run yet; False if the system gives no thread.

        To be called from time to time until the outcome is there. An interrupt may have struck the reader before the
        start; or the new thread, which up to Python 3.11 has the reader's number until it runs.
        """
        # Without `threading.Thread`, whose start waits for the thread, and whose waits are not safe to interrupt.
        if not self._begun.locked():
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                return False
        return True

    def take(self, *_: object) -> Any:
        """Return the next message or batch, or None at the end of the chunk; in place of `next(messages, None)`.

        It may be taken again, by a reader who was interrupted with it.

        Raises:
            Whatever decoding raises, once: behind it this is not what comes next.
        """
        if self._error is None:
            return self._found
        self._is_spent = True  # first, as an interrupt may strike here, too
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._found = next(self.messages, None)
        except BaseException as error:  # noqa: BLE001 - it is the reader's, who takes it
            self._error = error
        self.is_done = True
        self._wake()
