"""Reads lines from a descriptor, sends them with a producer, and counts what became of each.

Rules, and which failure each prevents:
- A line that cannot be sent fails alone; its number and the reason are kept. The following lines are sent.
- Lines leave at once when the input pauses, and in batches otherwise: a terminal sends each line.
- After many failures in a row without a success nothing more is read: a cluster that is gone does not use up the input.
- After a line that has a time, which the brokers do not store, nothing more is read: each of millions would fail.
- A signal ends the reading. The lines read so far are sent for some seconds; lines left after that count as failed.

Threads: the main thread reads and adds; another one shows progress, and closes the producer some time after a signal.

One line on a terminal with the progress of `zkconsumer produce`.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from simpleconsumer.types import Headers
from zkconsumer.cli.messages.message_lines import LineParser, LineSplitter, LongLine, UnstoredTimeError
from zkconsumer.cli.terminal import LeaveSignals
from zkconsumer.producer.batching.bulk import BulkSend
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.produce_codes import TIMES_SINCE

_FIRST_S: Final = 1.0
_INTERVAL_S: Final = 0.5
_TO_END_OF_LINE: Final = "\x1b[K"


class ProduceProgress:
    """The line; nothing is shown where stderr is no terminal, or the lines are typed at one.

    Args:
        input_fd: Where the lines come from; of a regular file the share that was read is shown.
        counts: Returns how many lines were sent, and how many failed.

    Threads: one at a time.
    """

    def __init__(self, input_fd: int, counts: Callable[[], tuple[int, int]]) -> None:
        self._fd = input_fd
        self._counts = counts
        self._is_shown = _is_terminal() and not os.isatty(input_fd)
        self._size = _size(input_fd)
        self._started_at = time.monotonic()
        self._next_at = self._started_at + _FIRST_S
        self._is_dirty = False

    def show(self) -> None:
        """Show where it is, if it is time for that."""
        now = time.monotonic()
        if not self._is_shown or now < self._next_at:
            return
        self._next_at = now + _INTERVAL_S
        self._is_dirty = True
        self._write(f"\r{self.text(now - self._started_at)}{_TO_END_OF_LINE}")

    def text(self, seconds: float) -> str:
        """Return the line after so many seconds."""
        sent, failed = self._counts()
        parts = [f"{sent:,} sent"]
        if failed:
            parts.append(f"{failed:,} failed")
        parts.append(f"{sent / seconds:,.0f}/s")
        if self._size:
            parts.append(f"{100 * os.lseek(self._fd, 0, os.SEEK_CUR) / self._size:.0f} % read")
        return ", ".join(parts)

    def clear(self) -> None:
        """Remove the line."""
        if self._is_dirty:
            self._is_dirty = False
            self._write(f"\r{_TO_END_OF_LINE}")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._is_shown = False


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _size(fd: int) -> int:
    found = os.fstat(fd)
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


_PIECE_BYTES: Final = 256 * 1024
_POLL_S: Final = 0.2
_LEAVE_S: Final = 10.0
_MOST_IN_A_ROW: Final = 1000


class LineTarget(NamedTuple):
    """The target of a line.

    Attributes:
        topic: Its topic.
        partition: Its partition; None to choose one.
        parse: Line -> key, value, headers and time; None: the line is the value.
        max_message_bytes: Most bytes of key and value.
        max_line_bytes: Most bytes of a line that may be such a message.
        headers: The headers of every message, after those of its line.
    """

    topic: str
    partition: int | str | None
    parse: LineParser | None
    max_message_bytes: int
    max_line_bytes: int
    headers: Headers = ()


class Produced(NamedTuple):
    """The outcome of the input.

    Attributes:
        lines: How many lines were read.
        sent: How many were acknowledged (with acks 0: written to a socket).
        failed: How many were not.
        failures: Number, from 1, and reason of the first hundred that failed.
        ended: Why not all of the input was read, a clause; empty if it was.
        is_whole: Nothing is known to be left: the input ended, or a signal ended a pipe or a terminal.
    """

    lines: int
    sent: int
    failed: int
    failures: tuple[tuple[int, Exception], ...]
    ended: str
    is_whole: bool


class Production:
    """Sends the lines of one input.

    Args:
        producer: It is closed by the caller.
        target: The target of the lines.
        fd: Where the lines come from.
        signals: Ends the reading.
        report: Called with number and reason of each line that fails, on a terminal; None: they are kept alone.
    """

    def __init__(
        self,
        producer: Producer,
        target: LineTarget,
        fd: int,
        signals: LeaveSignals,
        report: Callable[[int, Exception], None] | None,
    ) -> None:
        self._producer = producer
        self._bulk: BulkSend = producer.bulk(spreads=True)
        self._bulk.on_failure = self._look_for_times
        self._unstored_time: int | None = None
        self._target = target
        self._fd = fd
        self._signals = signals
        self._report = report
        self._reported = 0
        self._splitter = LineSplitter(target.max_line_bytes)
        self._lines = 0
        self._ended = ""
        self._is_whole = True
        self._sent_before = 0
        self._failed_before = 0
        self._is_over = threading.Event()

    def run(self) -> Produced:
        """Send everything, and return what became of it."""
        self._signals.wait_quietly()
        progress = ProduceProgress(self._fd, lambda: (self._bulk.sent, self._bulk.failed))
        watch = threading.Thread(target=self._watch, args=[progress], name="produce-watch", daemon=True)
        watch.start()
        try:
            self._read()
            found = self._bulk.finish()
        finally:
            self._is_over.set()
            watch.join()
            progress.clear()
        self._report_new()
        return Produced(self._lines, found.sent, found.failed, found.failures, self._ended, self._is_whole)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            if not self._wait_for_input():
                if not self._ended:
                    self._interrupted()
                return
            try:
                piece = os.read(self._fd, _PIECE_BYTES)
            except OSError as error:
                self._ended = f"standard input cannot be read: {error.strerror or error}"
                self._is_whole = False
                return
            self._add(self._splitter.feed(piece) if piece else self._splitter.finish())
            if not piece or self._gives_up():
                return

    def _wait_for_input(self) -> bool:
        """Wait until there is something to read, or its end; False after a signal, and when nothing more is read."""
        fds = [self._fd, self._signals.fd]
        timeout_s = 0.0
        while not self._signals.came:
            ready = select.select(fds, [], [], timeout_s)[0]
            if self._signals.fd in ready:
                self._signals.drain()
                continue
            if self._fd in ready:
                return True
            if not timeout_s:
                self._bulk.flush()  # the input pauses: the lines read so far leave now
            timeout_s = _POLL_S
            self._bulk.count_finished()
            self._report_new()
            if self._gives_up():
                return False
        return False

    def _add(self, lines: list[bytes | LongLine]) -> None:
        add, fail, (topic, partition, parse, *_) = self._bulk.add, self._bulk.fail, self._target
        headers = self._target.headers
        for number, line in enumerate(lines, self._lines + 1):
            if isinstance(line, LongLine):
                fail(number, self._too_long(line))
            elif parse is None:
                add(number, topic, line, None, partition, headers)
            else:
                try:
                    key, value, of_line, time_ms = parse(line)
                except ValueError as error:
                    fail(number, error)
                else:
                    add(number, topic, value, key, partition, of_line + headers, time_ms)
        self._lines += len(lines)

    def _too_long(self, line: LongLine) -> ValueError:
        return ValueError(f"it has {line.size} bytes, more than message.max.bytes = {self._target.max_message_bytes}")

    def _gives_up(self) -> bool:
        """Return whether nothing more is to be read, and keep why."""
        if self._unstored_time is not None:
            self._ended = f"line {self._unstored_time} has a time, and {TIMES_SINCE}"
        elif self._goes_wrong():
            self._ended = f"{_MOST_IN_A_ROW} or more lines failed in a row"
        if self._ended:
            self._is_whole = False
        return bool(self._ended)

    def _goes_wrong(self) -> bool:
        """Return whether nothing but failures came for some time."""
        sent, failed = self._bulk.sent, self._bulk.failed
        if sent != self._sent_before:
            self._sent_before, self._failed_before = sent, failed
        return failed - self._failed_before >= _MOST_IN_A_ROW

    def _look_for_times(self, number: int, error: Exception) -> None:
        """Keep the number of the first line that failed for its time, which the brokers do not store."""
        if self._unstored_time is None and is_about_unstored_times(error):
            self._unstored_time = number

    def _interrupted(self) -> None:
        self._ended = "interrupted"
        self._is_whole = not self._splitter.has_rest and not _has_more(self._fd)

    # -- the other thread ----------------------------------------------------------------------------------------------

    def _watch(self, progress: ProduceProgress) -> None:
        """Show progress; some time after a signal, fail what is not acknowledged by then."""
        close_at: float | None = None
        while not self._is_over.wait(_POLL_S):
            progress.show()
            if close_at is None and self._signals.came:
                close_at = time.monotonic() + _LEAVE_S
            if close_at is not None and time.monotonic() >= close_at:
                self._producer.close(0.0)
                return

    def _report_new(self) -> None:
        if self._report is None:
            return
        failures = self._bulk.failures
        for number, error in failures[self._reported :]:
            self._report(number, error)
        self._reported = len(failures)


def is_about_unstored_times(error: Exception) -> bool:
    """Return whether a line failed since it has a time, and the brokers store none."""
    return isinstance(error, UnstoredTimeError) or TIMES_SINCE in str(error)


def _has_more(fd: int) -> bool:
    """Return whether a regular file was not read to its end."""
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and os.lseek(fd, 0, os.SEEK_CUR) < found.st_size
