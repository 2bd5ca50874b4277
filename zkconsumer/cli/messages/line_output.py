"""Writes lines to a file descriptor, and keeps the offsets of the messages whose lines are written.

Lines are written one by one while they come slowly, and in blocks while they come fast. Rules:
- A message counts as printed when the operating system has accepted its line, not before; only then may its offset be
  committed.
- The reader of the lines may go away (`| head -1`) at any time. That is no error.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence

from simpleconsumer.types import Message, TopicPartition

__all__ = ["LineOutput"]

BLOCK_BYTES = 64 * 1024
LINGER_S = 0.05
"""Longest time that a line waits for others to be written with it."""


class LineOutput:
    """The lines of messages, written to a file descriptor.

    Args:
        fd: Where the lines go.
        format_line: Message -> line.
        max_messages: Number after which no more are accepted, None for no limit.
        notify: Called when a line waits for `flush_if_due`, and once at the end; must return at once.

    Attributes:
        count: Messages printed.
        taken: Messages accepted, printed or waiting.
        last_taken_s: When the last one was accepted (`time.monotonic()`); 0 before the first.
        reader_gone: Nobody reads the lines any more.
        failure: Why lines cannot be written, such as a full disk.

    Threads: Any.
    """

    def __init__(
        self,
        fd: int,
        format_line: Callable[[Message], bytes],
        max_messages: int | None,
        notify: Callable[[], None],
    ) -> None:
        self.count = 0
        self.taken = 0
        self.last_taken_s = 0.0
        self.reader_gone = False
        self.failure: OSError | None = None
        self._fd = fd
        self._format = format_line
        self._max_messages = max_messages
        self._notify = notify
        self._is_terminal = os.isatty(fd)
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._size = 0
        self._last_flush = 0.0
        self._pending: dict[TopicPartition, int] = {}
        self._printed: dict[TopicPartition, int] = {}
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether no more messages are accepted."""
        return self._closed

    def put(self, message: Message) -> bool:
        """Accept a message; return False when this and all later messages are not wanted any more."""
        line = self._format(message)
        with self._lock:
            if self._closed:
                return False
            self._lines.append(line)
            self._size += len(line)
            self.taken += 1
            self._pending[TopicPartition(message.topic, message.partition)] = message.next_offset
            self._closed = self.taken == self._max_messages
            now = self.last_taken_s = time.monotonic()
            if self._is_due(now):
                self._flush(now)
            elif len(self._lines) == 1:
                self._notify()
            if self._closed:
                self._notify()
        return True

    def put_all(self, messages: Sequence[Message]) -> bool:
        """Accept messages of one partition, in their order; return as `put` does."""
        lines = list(map(self._format, messages))
        with self._lock:
            if self._closed:
                return False
            if self._max_messages is not None:
                del lines[self._max_messages - self.taken :]
            was_empty = not self._lines
            self._lines += lines
            self._size += sum(map(len, lines))
            self.taken += len(lines)
            last = messages[len(lines) - 1]
            self._pending[TopicPartition(last.topic, last.partition)] = last.next_offset
            self._closed = self.taken == self._max_messages
            now = self.last_taken_s = time.monotonic()
            if self._is_due(now):
                self._flush(now)
            elif was_empty:
                self._notify()
            if self._closed:
                self._notify()
        return True

    def _is_due(self, now: float) -> bool:
        return self._is_terminal or self._closed or self._size >= BLOCK_BYTES or now - self._last_flush >= LINGER_S

    def _flush(self, now: float) -> None:
        """Write the waiting lines; the lock is held."""
        try:
            _write_all(self._fd, b"".join(self._lines))
        except BrokenPipeError:
            self.reader_gone = self._closed = True
        except OSError as error:
            self.failure, self._closed = error, True
        else:
            self.count += len(self._lines)
            self._printed.update(self._pending)
        self._lines.clear()
        self._pending.clear()
        self._size = 0
        self._last_flush = now

    def flush_if_due(self) -> float | None:
        """Write lines that have waited long enough; return the seconds until lines are due, None when none waits."""
        if not self._lock.acquire(blocking=False):
            return LINGER_S
        try:
            now = time.monotonic()
            if not self._lines:
                return None
            if not self._is_due(now):
                return max(0.0, self._last_flush + LINGER_S - now)
            self._flush(now)
            return None
        finally:
            self._lock.release()

    def flush(self, timeout_s: float, close: bool = False) -> bool:
        """Write the waiting lines, and accept no more with `close`; return False when the reader is too slow."""
        if not self._lock.acquire(timeout=timeout_s):
            self._closed = self._closed or close
            return False
        try:
            self._closed = self._closed or close
            if self._lines:
                self._flush(time.monotonic())
        finally:
            self._lock.release()
        return True

    def printed(self) -> dict[TopicPartition, int]:
        """Return the offsets behind the last printed messages: partition -> offset."""
        return dict(self._printed)

    def forget(self, partition: TopicPartition) -> None:
        """Forget what was printed of a partition, because it is claimed anew."""
        self._printed.pop(partition, None)


def _write_all(fd: int, data: bytes) -> None:
    """Write all data, also to a non-blocking descriptor."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view):]
        except BlockingIOError:
            select.select([], [fd], [])
