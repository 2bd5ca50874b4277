"""Splits input into lines.

Pure. A line ends with LF; the last one may lack it. CR is kept: it belongs to the user's bytes.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LineSplitter", "LongLine"]


class LongLine(NamedTuple):
    """A line that is longer than the limit, and was not kept.

    Attributes:
        size: Its bytes.
    """

    size: int


class LineSplitter:
    """Cuts pieces of input into lines, across the pieces.

    Args:
        max_line_bytes: Most bytes that are kept of an unfinished line.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    @property
    def has_rest(self) -> bool:
        """Whether a line has begun that has no end yet."""
        return self._rest_bytes > 0

    def feed(self, piece: bytes) -> list[bytes | LongLine]:
        """Return the lines that are complete with this piece."""
        first, *others = piece.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [self._take(), *others[:-1]]
        self._keep(others[-1])
        return lines

    def finish(self) -> list[bytes | LongLine]:
        """Return the last line, if it lacks its LF."""
        return [self._take()] if self.has_rest else []

    def _keep(self, part: bytes) -> None:
        self._rest_bytes += len(part)
        if self._rest_bytes > self._max_line_bytes:
            self._rest.clear()
        else:
            self._rest.append(part)

    def _take(self) -> bytes | LongLine:
        size, rest = self._rest_bytes, self._rest
        self._rest, self._rest_bytes = [], 0
        return b"".join(rest) if size <= self._max_line_bytes else LongLine(size)
