"""Writes lines to a file descriptor, and keeps the offsets of the messages whose lines are written.

Lines are written one by one while they come slowly, and in blocks while they come fast. Rules:
- A message counts as printed when the operating system has accepted its line, not before; only then may its offset be
  committed.
- The reader of the lines may go away (`| head -1`) at any time. That is no error.

Commits printed messages: none whose line is not written yet, and at a handover every one whose line is.

The connector counts a message as done when the next one is asked for; its line may still be in a buffer then. So the
auto-commit of the connector is off, and this class commits instead, every `auto.commit.interval.ms`.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence

from rebalance.takeover import by_reason
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.connector import ConsumerConnector
from zkconsumer.errors import CommitFailed, ConnectorClosed

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
        """Return the offsets after the last printed messages: partition -> offset."""
        return dict(self._printed)

    def forget(self, partition: TopicPartition) -> None:
        """Forget what was printed of a partition, because it is claimed anew."""
        self._printed.pop(partition, None)


def _write_all(fd: int, data: bytes) -> None:
    """Write all data, also to a non-blocking descriptor."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


log = logging.getLogger(__name__)
_FLUSH_S = 1.0
"""Longest wait at a handover for a reader of the lines that is slow."""


class PrintedOffsets:
    """The rebalance listener of `zkconsumer consume`, and its commits.

    Args:
        output: Knows what was printed.
        interval_s: Time between two commits, in seconds; None: never commit.

    Threads: Any.
    """

    def __init__(self, output: LineOutput, interval_s: float | None) -> None:
        self._output = output
        self._interval_s = interval_s
        self._connector: ConsumerConnector | None = None
        self._lock = threading.Lock()
        self._stored: dict[TopicPartition, int] = {}
        self._stop = threading.Event()

    def attach(self, connector: ConsumerConnector) -> None:
        """Commit through this connector; called before it creates streams."""
        self._connector = connector
        if self._interval_s is not None:
            threading.Thread(target=self._run, args=(self._interval_s,), name="commit-printed", daemon=True).start()

    def stop(self) -> None:
        """End the periodic commits."""
        self._stop.set()

    def _run(self, interval_s: float) -> None:
        while not self._stop.wait(interval_s):
            for names, reason in by_reason(self._failed()):
                log.warning("offset of %s is not committed: %s", names, reason)

    # -- the listener ------------------------------------------------------------------------------------------------

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        """Store the positions at which the partitions start: the next owner must not choose a start of its own."""
        self._output.flush(_FLUSH_S)
        for partition in positions:
            self._output.forget(partition)
        with self._lock:
            self._stored.update(positions)
        if self._interval_s is not None and self._connector is not None:
            try:
                self._connector.commit_offsets(positions)
            except (CommitFailed, ConnectorClosed) as error:
                log.warning("first positions: %s", error)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Print and commit the delivered messages of the partitions, so that the next owner continues after them."""
        # A closed output was flushed already, or its reader hangs: do not wait for it a second time.
        self._output.flush(0.0 if self._output.is_closed else _FLUSH_S)
        for names, reason in by_reason(self._failed(partitions)):
            log.warning("offset of %s is not committed, messages may be delivered again: %s", names, reason)
        self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Forget partitions that another member owns now."""
        with self._lock:
            for partition in partitions:
                self._stored.pop(partition, None)

    # -- commits -----------------------------------------------------------------------------------------------------

    def _failed(self, partitions: list[TopicPartition] | None = None) -> dict[tuple[str, int | str], str]:
        return {(name.topic, name.partition): str(reason) for name, reason in self.commit(partitions).items()}

    def commit(self, partitions: list[TopicPartition] | None = None) -> dict[TopicPartition, object]:
        """Commit the printed messages of some partitions, or of all; return the failed partitions, with reasons."""
        if self._connector is None or self._interval_s is None:
            return {}
        printed = self._output.printed()
        with self._lock:
            # A partition may have been lost and claimed again: lines printed before that may lie after its new start.
            wanted = {
                partition: printed[partition]
                for partition, stored in self._stored.items()
                if printed.get(partition, -1) > stored and (partitions is None or partition in partitions)
            }
        if not wanted:
            return {}
        failed: dict[TopicPartition, object] = {}
        try:
            self._connector.commit_offsets(wanted)
        except CommitFailed as error:
            failed = {TopicPartition(*partition): reason for partition, reason in error.reasons.items()}
        except ConnectorClosed as error:
            failed = dict.fromkeys(wanted, error)
        with self._lock:
            for partition, offset in wanted.items():
                if partition in self._stored and partition not in failed:
                    self._stored[partition] = offset
            return {partition: reason for partition, reason in failed.items() if partition in self._stored}
