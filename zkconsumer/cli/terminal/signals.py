"""Ends a command in order at Ctrl-C and SIGTERM, and at once at the second signal.

Python runs signal handlers between two steps of the main thread, also while it holds a lock. So once a command has
something to end in order, a handler only wakes the main thread up.
"""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

__all__ = ["Interrupted", "LeaveSignals", "unblock_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def unblock_signals() -> None:
    """Receive the signals to leave, also if the parent process had blocked them.

    A signal that the parent ignores stays ignored: `nohup`, and `&` in a script, have a command go on. A signal that
    the parent has blocked is an oversight, and the command could only be killed then.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


class Interrupted(BaseException):
    """A signal came before there was anything to end in order; like KeyboardInterrupt, but also for SIGTERM."""


class LeaveSignals:
    """For its block, turns signals to leave into a readable file descriptor.

    Until `wait_quietly()` is called a signal raises `Interrupted`. Afterwards the first signal makes `fd` readable, and
    the second one ends the process with status 130. Signals that the parent had ignored (`nohup`, `&`) stay ignored.

    Attributes:
        fd: Readable after a signal, or after `wake()`.
        came: A signal came.

    Threads: The main thread; `wake` from any.
    """

    def __init__(self) -> None:
        self.came = False
        self._quiet = False
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        self._before: dict[int, object] = {}
        self._wakeup_before = -1

    def wait_quietly(self) -> None:
        """Let signals only make `fd` readable from now on."""
        self._quiet = True

    def wake(self) -> None:
        """Make `fd` readable."""
        try:
            os.write(self._write_fd, b".")
        except (BlockingIOError, OSError):  # full: it is readable already; closed: nobody waits any more
            pass

    def drain(self) -> None:
        """Read what made `fd` readable."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            os._exit(130)
        self.came = True
        self.wake()
        if not self._quiet:
            raise Interrupted

    def __enter__(self) -> LeaveSignals:
        # Python runs a handler when the main thread goes on: for a signal just before a wait, that is after the wait.
        # The byte that is written here ends the wait.
        self._wakeup_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self.fd)
        write_fd, self._write_fd = self._write_fd, -1
        os.close(write_fd)
