"""Standard streams that were closed by whoever started us, and a standard output that cannot be written."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["discard_output", "prepare_streams"]

_STDOUT, _STREAMS = 1, 3


def prepare_streams() -> None:
    """Have errors of standard output say whose they are, and no file of ours get the number of a closed stream."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < _STREAMS:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is not None:
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(_STDOUT, "wb", closefd=False)),
            encoding=sys.stdout.encoding, errors=sys.stdout.errors, line_buffering=sys.stdout.isatty(),
        )  # fmt: skip


def discard_output() -> None:
    """From now on nothing comes of what is printed."""
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), _STDOUT)


class _Output(io.FileIO):
    """Standard output; when it cannot be written that is said once, not again by what flushes it at the end."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                discard_output()
            raise OSError(error.errno, error.strerror, "standard output") from error
