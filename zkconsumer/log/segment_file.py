"""Reads a file of a log: for reading only, never mapped, and only as long as it stays the file that was opened."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from zkconsumer.log.values import LogFailed

PAGE_BYTES: Final = 4096
_MOST_HINT_BYTES: Final = 64 * 1024 * 1024
"""Checkpoints are small, and an index has 10 MB by default."""


class ReadOnlyFile:
    """A file that is open for reading.

    Attributes:
        size: Of the file when it was opened.
        unreadable: The pages that the disk cannot read; they are read as zeros.

    Raises:
        LogFailed: The file is not there, or may not be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable: list[int] = []
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _failed(path, error) from error
        self._stat = os.fstat(self._fd)
        self.size = self._stat.st_size

    def read(self, position: int, size: int) -> bytes:
        """Return so many bytes from a position on.

        Raises:
            LogFailed: The file has become shorter.
        """
        try:
            found = self._read(position, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise _failed(self.path, error) from error
            found = self._page_by_page(position, size)
        if len(found) < size:
            raise LogFailed(f"{self.path} has become shorter while it was read", STOP_IT)
        return found

    def _read(self, position: int, size: int) -> bytes:
        pieces = []
        while size > 0:
            piece = os.pread(self._fd, size, position)
            if not piece:
                break
            pieces.append(piece)
            position += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _page_by_page(self, position: int, size: int) -> bytes:
        """Return the bytes with zeros for the pages that cannot be read."""
        pieces = []
        end = position + size
        while position < end:
            stop = min(end, position // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES)
            try:
                piece = self._read(position, stop - position)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise _failed(self.path, error) from error
                self.unreadable.append(position // PAGE_BYTES * PAGE_BYTES)
                piece = bytes(stop - position)
            pieces.append(piece)
            position = stop
        return b"".join(pieces)

    def is_unreadable(self, start: int, end: int) -> bool:
        """Return whether some of these bytes were read as zeros because the disk cannot read them."""
        return any(start < page + PAGE_BYTES and page < end for page in self.unreadable)

    def unreadable_ranges(self) -> list[tuple[int, int]]:
        """Return the bytes that the disk cannot read: pages that follow each other as one range."""
        found: list[tuple[int, int]] = []
        for page in sorted(set(self.unreadable)):
            start = found.pop()[0] if found and found[-1][1] == page else page
            found.append((start, page + PAGE_BYTES))
        return found

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def check(self) -> None:
        """Check that the file is the one that was opened.

        Raises:
            LogFailed: It has another size now, or it is gone.
        """
        try:
            now = os.stat(self.path)
        except OSError as error:
            raise LogFailed(f"{self.path} was removed while it was read", STOP_IT) from error
        if (now.st_ino, now.st_dev) != (self._stat.st_ino, self._stat.st_dev):
            raise LogFailed(f"{self.path} was replaced while it was read", STOP_IT)
        if now.st_size != self.size:
            grown = "grown" if now.st_size > self.size else "become shorter"
            raise LogFailed(f"{self.path} has {grown} while it was read", STOP_IT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


STOP_IT: Final = "a broker still writes there: stop it, or read a copy"


def _failed(path: Path, error: OSError) -> LogFailed:
    if isinstance(error, FileNotFoundError):
        return LogFailed(f"{path} no longer exists", STOP_IT)
    return LogFailed(f"{path} cannot be read: {error.strerror or error}")


def read_hint(path: Path) -> bytes:
    """Return the bytes of a file that is only a hint; none if it is not there, is too large or cannot be read."""
    try:
        with open(path, "rb") as file:
            found = file.read(_MOST_HINT_BYTES + 1)
    except OSError:
        return b""
    return found if len(found) <= _MOST_HINT_BYTES else b""
