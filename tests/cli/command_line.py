"""Runs `zkconsumer` as a process, as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.cli.forked_commands import commands
from zkconsumer.testing.waiting import wait_until

TIMEOUT_S = 30.0


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "zkconsumer.cli", *arguments]


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command that ends by itself."""
    return commands().run(arguments, stdin=stdin, timeout_s=TIMEOUT_S)


class Running:
    """A command that is ended by the test, and by the end of the block at the latest.

    Its stdout goes to a file, or to a pipe that nobody reads (`pipe`); its temporary files go to `scratch`. It is
    started through another command, such as `nohup`, which then becomes it.
    """

    def __init__(
        self, *arguments: str, pipe: bool = False, scratch: Path | None = None, through: Sequence[str] = ()
    ) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the block
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [*through, *command(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else self._output,
            stderr=self._errors,
            env=None if scratch is None else {**os.environ, "TMPDIR": str(scratch)},
            start_new_session=True,
        )

    def lines(self) -> list[str]:
        """The complete lines on stdout so far."""
        return _text(self._output).split("\n")[:-1]

    def errors(self) -> str:
        """What stands on stderr so far."""
        return _text(self._errors)

    def wait_lines(self, count: int) -> list[str]:
        """The lines on stdout, once there are so many."""
        wait_until(
            lambda: len(self.lines()) >= count or self.process.poll() is not None, TIMEOUT_S, f"{count} lines",
            state=lambda: (self.lines()[-5:], self.errors()),
        )  # fmt: skip
        return self.lines()

    def end(self, number: int = signal.SIGTERM) -> int:
        """The exit status after a signal."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._output.close()
        self._errors.close()


def _text(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")
