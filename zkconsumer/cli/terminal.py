"""The terminal of commands: streams, tables, errors, signals, a temporary folder.

Handles standard streams that the parent process has closed, or that cannot be written.

Prints tables: drawn and coloured on a terminal, plain columns anywhere else.

The errors of the command line, and the sentence in which a command reports an error, without a traceback.

Rule: an error that a package raises on purpose is reported by its message; every other exception is a fault of the
program, and the message says so.

Ends a command in order at Ctrl-C and SIGTERM, and at once at the second signal.

Python runs signal handlers between two steps of the main thread, also while it holds a lock. So once a command has
something to end in order, a handler only wakes the main thread up.

One temporary folder for everything that a command and its servers write; removed however the command ends.

A killed process cannot clean up. So another process does, in a session of its own: neither Ctrl-C nor a closed terminal
reaches it.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

import click

from zkconsumer_error import RemediedError, ZkConsumerError, printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

OUTPUT = "standard output"
"""The file name of errors of standard output."""
_STDOUT, _STDERR, _STREAMS = 1, 2, 3


def prepare_streams() -> None:
    """Make sure that no file of ours gets the number of a closed stream.

    From now on an error of standard output names it, and standard error raises no errors.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) < _STREAMS:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is not None:
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(_STDOUT, "wb", closefd=False)),
            encoding=sys.stdout.encoding, errors=sys.stdout.errors, line_buffering=sys.stdout.isatty(),
        )  # fmt: skip
    if sys.stderr is not None:
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_Errors(_STDERR, "wb", closefd=False)),
            encoding=sys.stderr.encoding, errors=sys.stderr.errors, line_buffering=True,
        )  # fmt: skip


def discard_output() -> None:
    """Discard everything that is printed from now on."""
    _discard(_STDOUT)


def is_output_closed() -> bool:
    """Return whether the reader of standard output has closed the pipe."""
    return _Output.closed_by_reader


def _discard(stream: int) -> None:
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), stream)


class _Output(io.FileIO):
    """Standard output; an error is raised once, not a second time when Python flushes it at the end.

    Attributes:
        closed_by_reader: Somebody has closed the pipe.
    """

    closed_by_reader = False

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                discard_output()
            else:
                _Output.closed_by_reader = True
            raise OSError(error.errno, error.strerror, OUTPUT) from error


class _Errors(io.FileIO):
    """Standard error; text that cannot be written is dropped, and the exit status has to suffice.

    Python would try again at its end and set the status to 120.
    """

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            _discard(_STDERR)
            return len(memoryview(data).cast("B"))


def cell(number: int | None) -> str:
    """Return a number as the text of a table; a question mark for one that is not known."""
    return "?" if number is None else str(number)


def shown_group(name: str) -> str:
    """Return the name of a group as a shell would be given it: a group without a name is one that brokers know."""
    return printable(name) or "''"


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    marked: Collection[int] = (),
) -> None:
    """Print a table; `right` are the columns with numbers, `marked` the rows with problems."""
    rows = [list(map(printable, row)) for row in rows]
    if not sys.stdout.isatty():
        click.echo(plain_table(headers, rows, right))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number in right else "left", overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(*row, style="red" if number in marked else None)
    Console(markup=False, highlight=False).print(table)


def print_problem(sentence: str, *details: str) -> None:
    """Print a problem on a line that starts with `!`, in red on a terminal (unless NO_COLOR is set); then details."""
    lines = "\n    ".join(map(printable, (sentence, *details)))
    click.secho(f"! {lines}", fg=None if os.environ.get("NO_COLOR") else "red")


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return the table as text: columns two spaces apart, no trailing spaces.

    >>> print(plain_table(["TOPIC", "LAG"], [["clicks", "7"]], right=[1]))
    TOPIC   LAG
    clicks    7
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = []
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


class CliError(RemediedError):
    """A problem that the user can solve."""


def sentence_of(error: Exception) -> str | None:
    """Return one sentence about an error that was raised on purpose, None for a fault of the program."""
    if isinstance(error, ZkConsumerError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return None


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


_SWEEPING_S = 15.0
_PROBE_BYTES = 1024 * 1024


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder, in which this process makes all its temporary files during the block.

    Raises:
        CliError: It cannot be made.

    Threads: The main thread.
    """
    try:
        folder, sweeper = _make(prefix)
    except OSError as error:
        where = tempfile.tempdir or os.environ.get("TMPDIR") or tempfile.gettempdir()
        raise CliError(
            f"no temporary folder can be created in {where}: {error.strerror}", "set TMPDIR to another folder"
        ) from error
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        assert sweeper.stdin is not None
        sweeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            sweeper.wait(_SWEEPING_S)


def refuse_if_full(folder: Path) -> None:
    """Raise if a scratch folder has no room; called after a failure, as any other message would mislead then.

    Raises:
        CliError: Less than one MiB can be written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(os.urandom(_PROBE_BYTES))  # nothing that a file system could compress
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise CliError(
            f"there is no space for the temporary files of ZooKeeper, brokers and members in {folder.parent} "
            f"({error.strerror or error})",
            "free space there, or set TMPDIR to another folder",
        ) from error


def _make(prefix: str) -> tuple[Path, subprocess.Popen[bytes]]:
    """Return the folder and the process that removes it; signals are blocked until both exist."""
    from zkconsumer.testing.temporary_folders import SWEEPER  # other commands do without the test kit

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            return folder, subprocess.Popen(
                [sys.executable, "-I", "-S", str(SWEEPER), str(os.getpid()), str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError:
            folder.rmdir()
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def say(line: str) -> None:
    """Print a line. When nobody reads any more (`| head`) the program goes on, and stops all that it started in order.

    Raises:
        OSError: Standard output cannot be written.
    """
    try:
        click.echo(line)
    except BrokenPipeError:
        discard_output()


def warn(line: str) -> None:
    """Print a line on stderr, if that can be written."""
    with suppress(OSError):
        click.echo(line, err=True)
