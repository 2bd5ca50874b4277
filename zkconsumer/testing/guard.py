"""Runs one command as a child process, and kills it with all that it has started when the parent has ended.

Started by `zkconsumer.testing.processes` as `python -I -S guard.py CONTROL_FD PARENT_PID COMMAND...`; imports nothing
of the project.

Why a process of its own: Linux can kill a child together with its parent (PR_SET_PDEATHSIG), but "parent" there means
the *thread* that forked. A server started from a pool thread would be killed when that thread ends. Here the only
thread of this process is the parent, so the signal comes exactly when this process ends, by whatever means. This
process in turn ends when the control socket closes, which the kernel does for a parent that was killed by SIGKILL too.
It then kills its whole process group: a JVM that the command has started would go on otherwise, until its work is done.

The command starts with no signal ignored or blocked, whatever the parent was started with (`nohup`, `&` in a script,
cron): a server ends on SIGTERM. No terminal reaches it, as this process leads a session of its own.

Control socket, one line each way: a number asks for that signal to be sent, the answer is `sent`; `pid N` is reported
once, `exit N` last (negative: ended by that signal).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1
PARENT_CHECK_S = 1.0  # a forked copy of the parent can keep the socket open: the parent's id is looked at as well


def _become(command: list[str], guard_pid: int) -> None:
    """Turn the forked child into the command; never returns."""
    try:
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != guard_pid:  # the guard died before the line above: no signal would ever come
                os._exit(126)
        for number in signal.valid_signals():
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


class Guard:
    """The one child and its state."""

    def __init__(self, child_pid: int, control: socket.socket) -> None:
        self.child_pid = child_pid
        self.control = control
        self.stopped = False
        self.exit_code: int | None = None

    def reap(self, flags: int) -> None:
        """Record that the child has ended (or, with WUNTRACED, stopped)."""
        pid, status = os.waitpid(self.child_pid, flags)
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            self.stopped = True
        else:
            self.exit_code = os.waitstatus_to_exitcode(status)

    def deliver(self, number: int) -> None:
        """Send a signal; SIGSTOP is answered only when the child has really stopped."""
        os.kill(self.child_pid, number)
        if number == signal.SIGSTOP and not self.stopped:
            self.reap(os.WUNTRACED)
        elif number == signal.SIGCONT:
            self.stopped = False

    def run(self, wake_fd: int, parent: int) -> None:
        """Serve until the child or the parent is gone.

        The parent's id comes from the parent itself: asked for here, it could be that of its heir already.
        """
        poll = select.poll()  # the parent may have so many files open that `select.select` takes no more
        for fd in (self.control.fileno(), wake_fd):
            poll.register(fd, select.POLLIN)
        while self.exit_code is None:
            ready = dict(poll.poll(PARENT_CHECK_S * 1000))
            if wake_fd in ready:
                os.read(wake_fd, 512)
            self.reap(os.WNOHANG)
            if self.exit_code is None and (os.getppid() != parent or not self._serve(ready)):
                os.killpg(0, signal.SIGKILL)  # this process too
        self.control.sendall(f"exit {self.exit_code}\n".encode())

    def _serve(self, ready: dict[int, int]) -> bool:
        """Carry out one command of the parent; False when there is no parent any more."""
        if self.control.fileno() not in ready:
            return True
        asked = self.control.recv(64)
        for word in asked.split():
            if self.exit_code is None:
                self.deliver(int(word))
            if self.exit_code is None:
                self.control.sendall(b"sent\n")
        return bool(asked)


def main(control_fd: int, parent: int, command: list[str]) -> None:
    """Fork, report the child's id, serve."""
    os.set_inheritable(control_fd, False)
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    guard_pid = os.getpid()
    child_pid = os.fork()
    if child_pid == 0:
        _become(command, guard_pid)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # else this process would keep the child's pipes open
    os.dup2(null, 1)
    with socket.socket(fileno=control_fd) as control:
        try:
            control.sendall(f"pid {child_pid}\n".encode())
            Guard(child_pid, control).run(wake_read, parent)
        except (BrokenPipeError, ConnectionResetError):  # the parent ended while a line was sent to it
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
