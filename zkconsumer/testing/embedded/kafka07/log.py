"""The log of one partition of Kafka 0.7: segments by byte position, which readers see as far as they are flushed.

Source: kafka.log.Log, kafka.log.LogManager (0.7.2).

One file of a log of Kafka 0.7: `<20-digit position>.kafka`, entries as they were received, back to back.

Source: kafka.message.FileMessageSet, kafka.log.LogSegment (0.7.2).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct

from zkconsumer.testing.embedded.broker import NoAnswer
from zkconsumer.testing.embedded.disk.segment import LogSlice, SegmentFile, append_bytes
from zkconsumer.testing.embedded.kafka07.requests import SIZE_FIELD, SMALLEST_MESSAGE, Bytes, check, is_intact
from zkconsumer.testing.embedded.kafka07.segment_list import (
    Extent,
    count_expired,
    count_surplus,
    find,
    positions_before,
)
from zkconsumer.testing.embedded.kafka07.settings import LogSettings07
from zkconsumer.testing.errors import KitError

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
        """Cut the file; readers see the rest."""
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


class LogClosed(KitError, NoAnswer):  # noqa: N818
    """The broker of a log has ended."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ByteLog:
    """One partition on disk, in `<folder>/<topic>-<partition>/`.

    Threads: every method from any thread. A change of the log holds one lock; reading holds another one, which keeps
    files open meanwhile, so a flush holds no reader up.

    Attributes:
        topic: its topic.
        partition: its number on the broker.
        settings: its settings.
        folder: holds its files.
    """

    def __init__(
        self,
        folder: Path,
        topic: str,
        partition: int,
        settings: LogSettings07 | None = None,
        *,
        recover: bool = False,
        clock: Callable[[], int] = _now_ms,
    ) -> None:
        """Open a log, or make a new one.

        Args:
            folder: the data folder that holds the partition's own.
            recover: the broker did not end in order: the last segment is scanned, and cut at its first bad entry.
            clock: wall clock in milliseconds.

        Raises:
            KitError: a segment does not start where the one before it ends.
        """
        self.topic = topic
        self.partition = partition
        self.settings = settings or LogSettings07()
        self.folder = folder / f"{topic}-{partition}"
        self._clock = clock
        self._lock = threading.RLock()
        self._reading = threading.Lock()
        self._closed = False
        self._unflushed = 0
        self._flushed_ms = clock()
        self.folder.mkdir(parents=True, exist_ok=True)
        starts = segment_starts(self.folder)
        self._segments = tuple(Segment(self.folder, start) for start in starts or [0])
        try:
            self._check_order()
        except KitError:
            self._close_files()
            raise
        if recover and starts:
            self._active.recover()

    def __repr__(self) -> str:
        return f"ByteLog({self.topic}-{self.partition}, {self.start}..{self.end})"

    def _check_order(self) -> None:
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            if segment.start + segment.written_bytes != following.start:
                raise KitError(
                    f"{segment.path} ends at {segment.start + segment.written_bytes}, and {following.path.name} "
                    f"follows it: a file was cut or lost; remove one of the two"
                )

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    # ---- state

    @property
    def start(self) -> int:
        """Smallest position that can be read."""
        return self._segments[0].start

    @property
    def end(self) -> int:
        """Position after the last byte that readers see."""
        return self._active.start + self._active.flushed_bytes

    @property
    def written_end(self) -> int:
        """Position after the last byte that was appended; bytes between `end` and here are not flushed."""
        return self._active.start + self._active.written_bytes

    @property
    def size_bytes(self) -> int:
        """Size of what readers see."""
        return sum(segment.flushed_bytes for segment in self._segments)

    @property
    def segment_paths(self) -> list[Path]:
        """The files, oldest first."""
        return [segment.path for segment in self._segments]

    def _extents(self) -> list[Extent]:
        return [segment.extent for segment in self._segments]

    # ---- writing

    def append(self, message_set: Bytes) -> int:
        """Return the position of the first entry of a set, once its whole entries are in the file as they are.

        Raises:
            InvalidSet, TooLarge: nothing is stored.
            LogClosed: the broker has ended.
        """
        checked = check(message_set, self.settings.max_payload_bytes)
        with self._lock:
            self._require_open()
            if self._must_roll():
                self._roll()
            first = self.written_end
            self._active.append(checked.data, self._clock())
            self._unflushed += checked.messages
            if self._unflushed >= self.settings.flush_messages:
                self.flush()
            return first

    def _must_roll(self) -> bool:
        active = self._active
        if active.written_bytes > self.settings.file_bytes:
            return True
        return active.first_append_ms is not None and self._clock() - active.first_append_ms > self.settings.roll_ms

    def _roll(self) -> None:
        self.flush()
        self._segments = (*self._segments, Segment(self.folder, self.written_end))

    def roll(self) -> None:
        """Start a new segment, unless the active one is empty."""
        with self._lock:
            self._require_open()
            if self._active.written_bytes:
                self._roll()

    def flush(self) -> None:
        """Return when everything appended is on the disk, and readers see it."""
        with self._lock:
            self._require_open()
            if self._active.written_bytes > self._active.flushed_bytes:
                self._active.flush()
            self._unflushed = 0
            self._flushed_ms = self._clock()

    def flush_if_due(self) -> None:
        """Flush if the last flush was `flush_ms` ago."""
        with self._lock:
            if not self._closed and self._unflushed and self._clock() - self._flushed_ms >= self.settings.flush_ms:
                self.flush()

    # ---- reading

    def read(self, position: int, max_bytes: int) -> tuple[LogSlice, int]:
        """Return the flushed bytes from a position on, within one segment, and the length that the answer names.

        That length differs from the slice's for a negative `max_bytes` alone, as in the Java broker.

        Raises:
            OutOfRange: the position is not within the log.
            LogClosed: the broker has ended.
        """
        with self._reading:
            self._require_open()
            segments = self._segments
            extents = [segment.extent for segment in segments]
            number = find(extents, position)
            if number is None:
                return LogSlice(), 0
            at = position - extents[number].start
            length = min(max_bytes, extents[number].size_bytes - at)
            return segments[number].slice(at, length), length

    def positions_before(self, time_ms: int, most: int) -> list[int]:
        """Return starts of segments, and the end, that were written by a time, the largest first; -1 end, -2 start."""
        with self._reading:
            self._require_open()
            return positions_before(self._extents(), time_ms, most, self._clock())

    # ---- shrinking

    def apply_retention(self) -> int:
        """Return how many segments were deleted, by age first, then by size; the last one, too."""
        with self._lock:
            if self._closed:
                return 0
            expired = self._drop(count_expired(self._extents(), self._clock(), self.settings.retention_ms))
            return expired + self._drop(count_surplus(self._extents(), self.settings.retention_bytes))

    def _drop(self, count: int) -> int:
        """Delete the oldest segments; how many. A log always has a segment, and it starts at the end."""
        if count == len(self._segments):
            if self._active.flushed_bytes:
                self._roll()
            else:
                self._active.touch()
                count -= 1
        dropped, self._segments = self._segments[:count], self._segments[count:]
        self._delete(dropped)
        return count

    def _delete(self, segments: Sequence[Segment]) -> None:
        """Remove files that are not in the list any more."""
        with self._reading:
            for segment in segments:
                segment.delete()

    def delete_head(self, position: int) -> int:
        """Return the new start after whole segments before a position were deleted, as retention does."""
        with self._lock:
            self._require_open()
            self._drop(sum(segment.start <= position for segment in self._segments[1:]))
            return self.start

    def truncate(self, position: int) -> None:
        """Drop this position and everything after it, as the recovery of a damaged log does."""
        with self._lock:
            self._require_open()
            while len(self._segments) > 1 and self._active.start > position:
                *kept, last = self._segments
                self._segments = tuple(kept)
                self._delete([last])
            self._active.truncate(max(position - self._active.start, 0))

    def corrupt(self, position: int) -> None:
        """Damage the stored entry that holds a position: its checksum is wrong from now on.

        Raises:
            ValueError: the log does not hold that position.
        """
        with self._lock:
            self._require_open()
            for segment in self._segments:
                for at, size in segment.entries():
                    if segment.start + at <= position < segment.start + at + SIZE_FIELD + size:
                        segment.flip(at + SIZE_FIELD + size - 1)
                        return
            raise ValueError(f"{self!r} does not hold position {position}")

    # ---- end

    def close(self, *, flush: bool = True) -> None:
        """Close the files; without `flush` as a crash leaves them. Then writing and reading raise LogClosed."""
        with self._lock:
            if self._closed:
                return
            if flush:
                self.flush()
            with self._reading:
                self._closed = True
                self._close_files()

    def _close_files(self) -> None:
        for segment in self._segments:
            segment.close()

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.topic}-{self.partition} is closed: its broker has ended")
