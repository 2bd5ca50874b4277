"""Child processes that never outlive their parent, with log files, deadlines, and SIGSTOP."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from zkconsumer.testing.errors import KitError, StartFailed, WaitTimeout
from zkconsumer.testing.waiting import Deadline

GUARD = Path(__file__).with_name("guard.py")
GUARD_TIMEOUT_S = 30.0
WAIT_SLICE_S = 0.2
_LOWEST_PORT = 15_000


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nothing listened a moment ago.

    Another process may take it before it is used; the caller that starts a server on it tries again with a new one.
    """
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """`count` different free ports of 127.0.0.1.

    They lie below the ports that the system gives to outgoing connections: a server that is stopped finds its port
    again when it comes back, and not some client's connection on it.
    """
    lowest_outgoing = _lowest_outgoing_port()
    listeners: list[socket.socket] = []
    try:
        while len(listeners) < count:
            listener = socket.socket()
            try:
                listener.bind(("127.0.0.1", random.randrange(_LOWEST_PORT, lowest_outgoing)))
            except OSError:
                listener.close()
            else:
                listeners.append(listener)
        return [int(listener.getsockname()[1]) for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


def _lowest_outgoing_port() -> int:
    """The lowest of the system's outgoing ports; 32768 where that cannot be read or leaves too little below."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
    return lowest if lowest > _LOWEST_PORT + 5000 else 32768


class ChildProcess:
    """A running command under a guard process: when this Python process ends, by whatever means, the command ends too.

    So do the processes that the command has started, unless they lead sessions or process groups of their own.

    Standard error goes to `log_path`; standard output goes there as well, or to `output_path`.

    Threads: may be started from any thread, and the child survives that thread; every method may be called from any
    thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        *,
        output_path: Path | None = None,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: bool = False,
    ) -> None:
        """Start the command.

        Args:
            name: what errors call it.
            stdin: keep a pipe to its standard input, for `write_stdin()` and `close_stdin()`.

        Raises:
            StartFailed: the guard did not report a process within 30 s.
        """
        self.name = name
        self.log_path = log_path
        self._lock = threading.RLock()
        self._buffer = b""
        self._asked = 0
        self._sent = 0
        self._exit_code: int | None = None
        self._paused = False
        self.pid = 0
        ours, theirs = socket.socketpair()
        self._control = ours
        with theirs, log_path.open("ab") as log:
            output: IO[bytes] = output_path.open("ab") if output_path else log
            try:
                self._guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(GUARD), str(theirs.fileno()), str(os.getpid()), *command],
                    stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    cwd=directory,
                    env=dict(environment) if environment is not None else None,
                    pass_fds=(theirs.fileno(),),
                    # Ctrl-C in a terminal is for the tests, which then stop their servers in order
                    start_new_session=True,
                )
            finally:
                if output is not log:
                    output.close()
        self._read_until(lambda: self.pid > 0, Deadline(GUARD_TIMEOUT_S))
        if self.pid == 0:
            self.kill()
            raise StartFailed(f"{name}: no process was reported within {GUARD_TIMEOUT_S:g} s\n{self.tail()}")

    # ---- lines of the guard

    def _read_until(self, wanted: Callable[[], bool], deadline: Deadline) -> None:
        """Take the guard's lines until `wanted()` is true, the child is gone, or the deadline passes.

        The lock is not held while waiting: another thread must be able to kill what this one waits for.
        """
        while True:
            with self._lock:
                self._drain()
                if self._exit_code is not None or wanted():
                    return
            if deadline.expired:
                return
            try:
                poll = select.poll()  # `select.select` takes no descriptor above 1023
                poll.register(self._control, select.POLLIN)
                poll.poll(min(deadline.remaining_s, WAIT_SLICE_S) * 1000)
            except (OSError, ValueError):
                pass  # another thread saw the end first and closed the socket

    def _drain(self) -> None:
        """Read what the guard has written so far, without waiting."""
        while self._exit_code is None:
            try:
                chunk = self._control.recv(256, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if chunk:
                self._take(chunk)
            else:
                self._gone(-int(signal.SIGKILL))  # the guard was killed, and the child with it

    def _take(self, chunk: bytes) -> None:
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"pid":
                self.pid = int(number)
            elif word == b"sent":
                self._sent += 1
            elif word == b"exit":
                self._gone(int(number))

    def _gone(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._control.close()
        self._guard.wait()
        self.close_stdin()

    # ---- state

    @property
    def returncode(self) -> int | None:
        """Exit code, negative for a signal; None while the process runs."""
        with self._lock:
            self._drain()
            return self._exit_code

    @property
    def running(self) -> bool:
        """True while the process exists, paused or not."""
        return self.returncode is None

    @property
    def paused(self) -> bool:
        """True between `pause()` and `resume()`."""
        return self._paused and self.running

    def wait(self, timeout_s: float) -> int:
        """Exit code of the process once it ended.

        Raises:
            WaitTimeout: it still runs after `timeout_s` seconds.
        """
        self._read_until(lambda: False, Deadline(timeout_s))
        if self._exit_code is None:
            raise WaitTimeout(f"waited {timeout_s:g} s for {self.name} (process {self.pid}) to end")
        return self._exit_code

    def tail(self, lines: int = 30) -> str:
        """The last lines of its log."""
        try:
            text = self.log_path.read_text(errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.splitlines()[-lines:])

    # ---- control

    def signal(self, number: int) -> None:
        """Send a signal; returns when it was sent (for SIGSTOP: when the process has stopped).

        No effect on a process that ended.
        """
        with self._lock:
            if not self.running:
                return
            self._asked += 1
            turn = self._asked
            try:
                self._control.sendall(f"{int(number)}\n".encode())
            except OSError:
                return  # it ended in between
        self._read_until(lambda: self._sent >= turn, Deadline(GUARD_TIMEOUT_S))
        if self._exit_code is None and self._sent < turn:
            raise KitError(f"{self.name}: its guard did not send signal {int(number)} within {GUARD_TIMEOUT_S:g} s")

    def pause(self) -> None:
        """SIGSTOP: the process stops with all its sockets open, like one in a long garbage collection."""
        self.signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        self.signal(signal.SIGCONT)
        self._paused = False

    def kill(self, timeout_s: float = 10.0) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.signal(signal.SIGKILL)
        self.wait(timeout_s)

    def kill_group(self, timeout_s: float = 10.0) -> None:
        """SIGKILL for the process and all that it has started, and wait until the process is gone."""
        try:
            os.killpg(self._guard.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.wait(timeout_s)

    def write_stdin(self, data: bytes) -> None:
        """Write to its standard input, which must have been asked for."""
        if self._guard.stdin is None:
            raise KitError(f"{self.name} has no pipe to its standard input")
        self._guard.stdin.write(data)
        self._guard.stdin.flush()

    def close_stdin(self) -> None:
        """Close the pipe to its standard input, if there is one."""
        if self._guard.stdin is not None:
            try:
                self._guard.stdin.close()
            except BrokenPipeError:
                pass

    def end_in_order(self, ask: Callable[[], None], timeout_s: float) -> int:
        """Exit code after it was asked to end; one that is paused goes on first.

        Args:
            ask: asks it, for example by a signal.

        Raises:
            WaitTimeout: it still runs after `timeout_s` seconds.
        """
        if self._paused:
            self.resume()
        ask()
        return self.wait(timeout_s)

    def stop(self, timeout_s: float = 15.0) -> int:
        """Exit code after SIGTERM, or after SIGKILL where SIGTERM did not help within `timeout_s` seconds."""
        try:
            return self.end_in_order(lambda: self.signal(signal.SIGTERM), timeout_s)
        except WaitTimeout:
            self.kill()
            return self.wait(0)
