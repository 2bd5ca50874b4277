"""One file of a log of Kafka 0.7: `<20-digit position>.kafka`, entries as they were received, back to back.

Source: kafka.message.FileMessageSet, kafka.log.LogSegment (0.7.2).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from zkconsumer.testing.embedded.disk.file_ends import append_bytes
from zkconsumer.testing.embedded.disk.segment import LogSlice, SegmentFile
from zkconsumer.testing.embedded.kafka07.messages import SIZE_FIELD, SMALLEST_MESSAGE, Bytes, is_intact
from zkconsumer.testing.embedded.kafka07.segment_list import Extent

_SUFFIX = ".kafka"
_SIZE = Struct(">i")
_WINDOW_BYTES = 64 * 1024


def segment_starts(folder: Path) -> list[int]:
    """Return the positions at which the segments in a folder start, oldest first."""
    return sorted(int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())


class Segment(SegmentFile):
    """Entries from one position on.

    Threads: written under its log's lock; `extent` and `slice` from any thread.

    Attributes:
        path: its file.
        start: position of its first byte in the log.
        written_bytes: size of what was appended.
        flushed_bytes: size of what readers see.
        first_append_ms: when the first set was appended since it was opened; None before.
    """

    def __init__(self, folder: Path, start: int) -> None:
        super().__init__(folder / f"{start:020d}{_SUFFIX}")
        self.start = start
        self.written_bytes = self.flushed_bytes = os.fstat(self._fd).st_size
        self.first_append_ms: int | None = None

    @property
    def extent(self) -> Extent:
        """Where it is, as readers see it."""
        return Extent(self.start, self.flushed_bytes, self.last_modified_ms)

    # ---- writing

    def recover(self) -> int:
        """Return how many bytes were cut off: everything from the first bad entry on.

        Bad: incomplete, a size below 5, an unknown magic, a wrong checksum.
        """
        good = 0
        for at, size in self.entries():
            if not is_intact(memoryview(os.pread(self._fd, size, at + SIZE_FIELD))):
                break
            good = at + SIZE_FIELD + size
        cut = self.written_bytes - good
        self.truncate(good)
        return cut

    def append(self, data: Bytes, now_ms: int) -> None:
        """Write entries to the end of the file; readers see them after `flush`.

        Raises:
            OSError: the disk refused; the file is cut back to what it held.
        """
        append_bytes(self._fd, self.written_bytes, data)
        self.written_bytes += len(data)
        if data and self.first_append_ms is None:
            self.first_append_ms = now_ms

    def flush(self) -> None:
        """Return when the file is on the disk, and readers see all of it."""
        os.fsync(self._fd)
        self.flushed_bytes = self.written_bytes

    def truncate(self, size_bytes: int) -> None:
        """Cut the file; what is left is seen by readers."""
        os.ftruncate(self._fd, size_bytes)
        self.written_bytes = self.flushed_bytes = size_bytes

    def touch(self) -> None:
        """Take the time of now for that of the last write."""
        os.utime(self._fd)

    # ---- reading

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield the byte of the file at which each whole entry starts, and the size of its message."""
        at = 0
        while at + SIZE_FIELD <= self.written_bytes:
            window = os.pread(self._fd, min(_WINDOW_BYTES, self.written_bytes - at), at)
            inside = 0
            while inside + SIZE_FIELD <= len(window):
                (size,) = _SIZE.unpack_from(window, inside)
                if size < SMALLEST_MESSAGE or at + inside + SIZE_FIELD + size > self.written_bytes:
                    return
                yield at + inside, size
                inside += SIZE_FIELD + size
            if inside == 0:
                return
            at += inside

    def slice(self, at: int, length: int) -> LogSlice:
        """Return so many bytes of the file, with a descriptor of their own."""
        return LogSlice(os.dup(self._fd), at, length) if length > 0 else LogSlice()
