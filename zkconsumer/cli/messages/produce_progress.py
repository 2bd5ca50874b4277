"""One line on a terminal that says how far `zkconsumer produce` is."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from typing import Final

__all__ = ["ProduceProgress"]

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
