"""Handles standard streams that the parent process has closed, or that cannot be written."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OUTPUT", "discard_output", "is_output_closed", "prepare_streams"]

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
