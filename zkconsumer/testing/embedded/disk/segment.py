"""One file of a partition's log: `<20-digit base offset>.log`, entries back to back, and its sparse index.

An entry is a message or wrapper of magic 0 or 1, or a record batch.

Source: kafka.log.LogSegment, kafka.log.FileMessageSet (0.8.2.2).

The index of a segment: a sparse table of positions in memory, and the `.index` file that the Java broker writes.

File: entries of 8 bytes, `int32 offset - base offset, int32 position`, ascending.

Source: kafka.log.OffsetIndex (0.8.2.2).

Writes to the end of a segment's file: all of the bytes, or none.

Offsets of the entries of a log: messages and wrappers of magic 0 and 1, record batches of magic 2.

A message or wrapper has the offset of its last message, a batch that of its first one and how many more it takes. The
magic stands at the same place in all of them.

Source: org.apache.kafka.common.record.RecordBatch, DefaultRecordBatch (2.8).
"""

from __future__ import annotations

import os
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final

from simpleconsumer.closing import Closing
from simpleconsumer.kafka011.batch_head import MAGIC, MAGIC_AT, has_batch_checksum
from zkconsumer.testing.embedded.disk.messages import ENTRY_OVERHEAD, SMALLEST_MESSAGE, Bytes

OFFSETS_BYTES: Final = 27
"""From how many bytes of an entry its offsets are known, whatever its magic."""
_OFFSET = Struct(">q")
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23


def last_offset(data: Bytes, at: int) -> int:
    """Return the last offset of the entry at a position, of which `OFFSETS_BYTES` are there, or all."""
    offset = int(_OFFSET.unpack_from(data, at)[0])
    if at + OFFSETS_BYTES <= len(data) and data[at + MAGIC_AT] == MAGIC:
        return offset + int(_LAST_DELTA.unpack_from(data, at + _LAST_DELTA_AT)[0])
    return offset


def append_bytes(fd: int, end: int, data: Bytes) -> None:
    """Write data after the first `end` bytes of a file.

    Raises:
        OSError: The disk refused; the file is cut back to `end` bytes.
    """
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], end + written)
    except OSError:
        os.ftruncate(fd, end)
        raise


class OffsetIndex:
    """Ascending pairs of an offset (relative to the segment) and the position of an entry that starts with it.

    Threads: none of its own; its log's lock guards it.
    """

    def __init__(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, relative_offset: int, position: int) -> None:
        """Add the next pair."""
        self._offsets.append(relative_offset)
        self._positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """Return a position from which a search for this offset can start; 0 before the first pair."""
        at = bisect_right(self._offsets, relative_offset) - 1
        return self._positions[at] if at >= 0 else 0

    def last_position(self) -> int:
        """Return the position of the last pair; 0 without one."""
        return self._positions[-1] if self._positions else 0

    def cut(self, size_bytes: int) -> None:
        """Drop pairs that point at a position or after it."""
        while self._positions and self._positions[-1] >= size_bytes:
            self._positions.pop()
            self._offsets.pop()

    def save(self, path: Path) -> None:
        """Write the file."""
        pairs = array("i", [0]) * (2 * len(self._offsets))
        pairs[0::2] = self._offsets
        pairs[1::2] = self._positions
        if sys.byteorder == "little":
            pairs.byteswap()
        path.write_bytes(pairs.tobytes())

    @classmethod
    def load(cls, path: Path, size_bytes: int) -> OffsetIndex | None:
        """Return the index of a segment of that size; None if there is no file, or none that fits."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        pairs = array("i")
        if len(data) % (2 * pairs.itemsize):
            return None
        pairs.frombytes(data)
        if sys.byteorder == "little":
            pairs.byteswap()
        index = cls()
        index._offsets, index._positions = pairs[0::2], pairs[1::2]
        for column in (index._offsets, index._positions):
            if any(left >= right for left, right in pairwise(column)) or min(column, default=0) < 0:
                return None
        return index if index.last_position() < max(size_bytes, 1) else None


_ENTRY = Struct(">qi")
_CRC = Struct(">I")
_WINDOW_BYTES = 64 * 1024
_SEARCH_BYTES = 8 * 1024
_LOG_SUFFIX = ".log"


class LogSlice(Closing):
    """A run of bytes of a segment, with a file descriptor of its own: retention may delete the file meanwhile.

    Close it, or use it in a `with` block.

    Attributes:
        fd: open for reading; -1 for an empty slice.
        position: where it starts in the file.
        length: bytes.
    """

    __slots__ = ("fd", "length", "position")

    def __init__(self, fd: int = -1, position: int = 0, length: int = 0) -> None:
        self.fd = fd
        self.position = position
        self.length = length

    def read(self) -> bytes:
        """Return the bytes."""
        return os.pread(self.fd, self.length, self.position) if self.length else b""

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def segment_files(folder: Path) -> list[Path]:
    """Return the log files of a folder, oldest first."""
    return sorted(path for path in folder.glob(f"*{_LOG_SUFFIX}") if path.stem.isdigit() and len(path.stem) == 20)


class SegmentFile:
    """The file of a segment, which is made if need be.

    Attributes:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    @property
    def last_modified_ms(self) -> int:
        """Time of the last write, from the file system; what retention and offsets by time go by."""
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def flip(self, at: int) -> None:
        """Flip the bits of one byte of the file."""
        os.pwrite(self._fd, bytes([os.pread(self._fd, 1, at)[0] ^ 0xFF]), at)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def delete(self) -> None:
        """Close the file and remove it."""
        self.close()
        self.path.unlink(missing_ok=True)


class Segment(SegmentFile):
    """Entries from one base offset on.

    Threads: guarded by its log's lock, all but `LogSlice`s, which are independent once made.
    """

    def __init__(self, folder: Path, base_offset: int, created_ms: int, index_interval_bytes: int) -> None:
        super().__init__(folder / f"{base_offset:020d}{_LOG_SUFFIX}")
        self.base_offset = base_offset
        self.created_ms = created_ms
        self._interval_bytes = index_interval_bytes
        self.size_bytes = os.fstat(self._fd).st_size
        self._index = OffsetIndex()
        self._since_index = 0

    @property
    def index_path(self) -> Path:
        """Where its index is kept."""
        return self.path.with_suffix(".index")

    # ---- opening

    def load(self) -> int:
        """Return the offset after the last entry, by way of the index file where there is a good one."""
        index = OffsetIndex.load(self.index_path, self.size_bytes)
        if index is None:
            return self._scan(0, check_crc=False)
        self._index = index
        return self._scan(index.last_position(), check_crc=False)

    def recover(self) -> int:
        """Return the offset after the last good entry, after everything from the first bad one on was cut off.

        Bad: incomplete, a size below 14, a wrong checksum.
        """
        self._index = OffsetIndex()
        return self._scan(0, check_crc=True)

    def _scan(self, position: int, *, check_crc: bool) -> int:
        """Index the entries from `position` on, cut the file after the last whole one, return the next offset."""
        next_offset = self.base_offset
        self._since_index = 0
        for at, offset, size in self.walk(position):
            if check_crc and not self._crc_is_right(at, size):
                break
            self._note(offset, at, ENTRY_OVERHEAD + size)
            position, next_offset = at + ENTRY_OVERHEAD + size, offset + 1
        if position < self.size_bytes:
            os.ftruncate(self._fd, position)
            self.size_bytes = position
        self._index.cut(position)
        return next_offset

    def _note(self, offset: int, position: int, size_bytes: int) -> None:
        """Count an entry, and put it into the index if the last indexed one is far enough away."""
        if self._since_index > self._interval_bytes and position > self._index.last_position():
            self._index.append(offset - self.base_offset, position)
            self._since_index = 0
        self._since_index += size_bytes

    def walk(self, position: int = 0) -> Iterator[tuple[int, int, int]]:
        """Yield position, last offset and size (without its 12 bytes in front) of the whole entries from there on."""
        while position + ENTRY_OVERHEAD <= self.size_bytes:
            window = self._window(position, _WINDOW_BYTES)
            at = 0
            while at + self._needed(position, window) <= len(window):
                size = _ENTRY.unpack_from(window, at)[1]
                if size < SMALLEST_MESSAGE or position + at + ENTRY_OVERHEAD + size > self.size_bytes:
                    return
                yield position + at, last_offset(window, at), size
                at += ENTRY_OVERHEAD + size
            if at == 0:
                return
            position += at

    def _window(self, position: int, size_bytes: int) -> bytes:
        return os.pread(self._fd, min(size_bytes, self.size_bytes - position), position)

    def _needed(self, position: int, window: bytes) -> int:
        """How many bytes of an entry a window must hold, so that its offsets are known."""
        return ENTRY_OVERHEAD if position + len(window) >= self.size_bytes else OFFSETS_BYTES

    def entry(self, position: int, size: int) -> bytes:
        """Return the entry at a position, with its 12 bytes in front."""
        return os.pread(self._fd, ENTRY_OVERHEAD + size, position)

    def _crc_is_right(self, position: int, size: int) -> bool:
        entry = self.entry(position, size)
        if len(entry) < ENTRY_OVERHEAD + size:
            return False
        if entry[MAGIC_AT] == MAGIC:
            return has_batch_checksum(entry, 0, len(entry))
        return bool(zlib.crc32(memoryview(entry)[ENTRY_OVERHEAD + 4 :]) == _CRC.unpack_from(entry, ENTRY_OVERHEAD)[0])

    # ---- writing

    def append(self, offsets: Sequence[int], data: Bytes, positions: Sequence[int]) -> None:
        """Write entries to the end of the file.

        Args:
            offsets: of the first message of each entry.
            positions: where each entry starts in `data`.

        Raises:
            OSError: the disk refused; the file is cut back to what it held.
        """
        append_bytes(self._fd, self.size_bytes, data)
        ends = [*positions[1:], len(data)]
        for offset, start, end in zip(offsets, positions, ends, strict=True):
            self._note(offset, self.size_bytes + start, end - start)
        self.size_bytes += len(data)

    def flush(self) -> None:
        """Return when the file is on the disk."""
        os.fsync(self._fd)

    def save_index(self) -> None:
        """Write the index file, so that the next opening need not scan."""
        self._index.save(self.index_path)

    def truncate(self, offset: int) -> None:
        """Cut off the first entry with this offset or a later one, and all that follow."""
        position = self.find(offset)
        if position is not None:
            os.ftruncate(self._fd, position)
            self.size_bytes = position
            self._index.cut(position)

    def corrupt(self, offset: int) -> bool:
        """Flip the bits of the last byte of the entry that holds an offset; False if none does."""
        for at, last, size in self.walk():
            if last >= offset:
                self.flip(at + ENTRY_OVERHEAD + size - 1)
                return True
        return False

    def write_offset(self, offset: int, found: int) -> bool:
        """Write `found` over the offset of the entry that holds `offset`; False if none does."""
        for at, last, _ in self.walk():
            if last >= offset:
                os.pwrite(self._fd, _OFFSET.pack(found), at)
                return True
        return False

    def remove(self, offsets: Collection[int]) -> None:
        """Take the entries with these last offsets out, as compaction does; slices handed out stay as they are."""
        kept = b"".join(self.entry(at, size) for at, last, size in self.walk() if last not in offsets)
        cleaned = self.path.with_suffix(".cleaned")
        cleaned.write_bytes(kept)
        cleaned.replace(self.path)
        os.close(self._fd)
        self._fd = os.open(self.path, os.O_RDWR)
        self.size_bytes = len(kept)
        self._index = OffsetIndex()
        self._scan(0, check_crc=False)

    # ---- reading

    def find(self, offset: int) -> int | None:
        """Return the position of the first entry that holds this offset or a later one; None after the last."""
        position = self._index.lookup(offset - self.base_offset)
        while position + ENTRY_OVERHEAD <= self.size_bytes:
            window = self._window(position, _SEARCH_BYTES)
            at = 0
            while at + self._needed(position, window) <= len(window):
                if last_offset(window, at) >= offset:
                    return position + at
                at += ENTRY_OVERHEAD + max(_ENTRY.unpack_from(window, at)[1], 0)
            if at == 0:
                return None
            position += at
        return None

    def slice(self, position: int, max_bytes: int) -> LogSlice:
        """Return at most `max_bytes` from a position on; the last entry may be cut."""
        length = min(self.size_bytes - position, max_bytes)
        return LogSlice(os.dup(self._fd), position, length) if length > 0 else LogSlice()

    # ---- end

    def delete(self) -> None:
        """Close the file and remove it with its index."""
        super().delete()
        self.index_path.unlink(missing_ok=True)
