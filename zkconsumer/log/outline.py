"""Says what a partition's log holds without reading its messages: names, the heads of its first and last entries.

The offset index of a segment is a hint where the last entries are. Where it is missing or wrong, all heads are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkconsumer.log.checking import format_of
from zkconsumer.log.checkpoints import index_end
from zkconsumer.log.heads import BATCH, LOG_FILE, LogFile, head_fields
from zkconsumer.log.partition_log import DiskPartition, DiskSegment
from zkconsumer.log.segment_file import ReadOnlyFile, read_hint

_PIECE_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 61


@dataclass
class PartitionOutline:
    """The facts that the heads of a partition's log show.

    Attributes:
        topic, partition: Whose log it is.
        state: Empty, or why the folder is not that of the partition.
        folder: Where it is.
        segments, size_bytes: Its files, and their bytes.
        first_offset: Its start, in Kafka 0.7 a position.
        next_offset: The offset after its last whole entry.
        high_watermark: Up to where messages were on all replicas; None if no checkpoint says so.
        first_ms, last_ms: Times of the first and the last entry; -1 for none.
        formats: Formats and codecs of the first and the last entries.
        problems: The problems, a clause each.
    """

    topic: str
    partition: int
    state: str
    folder: str
    segments: int
    size_bytes: int
    first_offset: int
    next_offset: int
    high_watermark: int | None = None
    first_ms: int = -1
    last_ms: int = -1
    formats: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class _Ends(NamedTuple):
    """The first and last head of a segment; `next_offset` is None if it has no whole entry."""

    first: tuple[int, int, int] | None
    next_offset: int | None
    last_ms: int
    kinds: set[tuple[int, int]]
    end: int
    problem: str


def outline_of(log: DiskPartition) -> PartitionOutline:
    """Return what the heads of a log show.

    Raises:
        LogFailed: A file cannot be read.
    """
    found = PartitionOutline(
        log.topic, log.partition, log.state, str(log.folder), len(log.segments), log.size_bytes, log.start, log.start,
        log.checkpoint.high_watermark,
    )  # fmt: skip
    kinds: set[tuple[int, int]] = set()
    cleaned = log.checkpoint.cleaned or 0
    for number, segment in enumerate(log.segments):
        base, is_last = segment.name.base, number == len(log.segments) - 1
        if number and base > found.next_offset >= cleaned:
            found.problems.append(f"offsets {found.next_offset} to {base - 1} before {segment.path.name} are missing")
        ends = _ends_07(segment) if log.is_07 else _ends(segment)
        if ends.first is not None and not log.is_07 and ends.first[0] < base and ends.first[1] == BATCH:
            found.problems.append(f"{segment.path.name} starts with offset {ends.first[0]}")
        if ends.problem and not is_last:
            found.problems.append(f"{segment.path.name}, byte {ends.end}: {ends.problem}")
        if ends.first is not None and found.first_ms < 0:
            found.first_ms = ends.first[2]
        found.last_ms = max(found.last_ms, ends.last_ms)
        kinds |= ends.kinds
        found.next_offset = max(found.next_offset, base if ends.next_offset is None else ends.next_offset)
    mark = log.checkpoint.high_watermark
    if mark is not None and mark > found.next_offset and not log.is_07:
        found.problems.append(f"offsets {found.next_offset} to {mark - 1} at its end are missing")
    found.formats = sorted(format_of(magic, codec, is_07=log.is_07) for magic, codec in kinds)
    return found


def _ends_07(segment: DiskSegment) -> _Ends:
    """Return where a segment of Kafka 0.7 ends, which its name and size say; of entries the first one is read."""
    with ReadOnlyFile(segment.path) as file:
        head = file.read(0, min(6, file.size))
        kinds = {(head[4], head[5] & 3 if head[4] else 0)} if len(head) > 5 and head[4] <= 1 else set()
        return _Ends(None, segment.name.base + file.size, -1, kinds, file.size, "")


def _ends(segment: DiskSegment) -> _Ends:
    with ReadOnlyFile(segment.path) as file:
        if not file.size:
            return _Ends(None, None, -1, set(), 0, "")
        start = index_end(read_hint(segment.path.with_suffix(".index")))[1]
        found = _walked(file, start, LOG_FILE) if 0 < start < file.size else None
        if found is None or found.problem or found.next_offset is None:
            return _walked(file, 0, LOG_FILE)
        first = _walked(file, 0, LOG_FILE, most=1)
        return found._replace(first=first.first, kinds=found.kinds | first.kinds)


def _walked(file: ReadOnlyFile, start: int, layout: LogFile, most: int = -1) -> _Ends:
    """Return the ends of a segment, from heads alone, from one entry on."""
    position, behind, last_ms = start, None, -1
    first: tuple[int, int, int] | None = None
    kinds: set[tuple[int, int]] = set()
    piece, piece_at = b"", 0
    problem = ""
    while position < file.size and most:
        if position + layout.overhead + layout.smallest > file.size:
            problem = f"{file.size - position} bytes are too few for an entry"
            break
        if position < piece_at or position + _HEAD_BYTES > piece_at + len(piece):
            piece, piece_at = file.read(position, min(_PIECE_BYTES, file.size - position)), position
        view, at = memoryview(piece), position - piece_at
        size = layout.size_at(view, at)
        end = position + layout.overhead + size
        magic = view[at + 16]
        if size < layout.smallest or end > file.size or magic > BATCH:
            problem = f"an entry has the size {size} and the magic {magic}"
            break
        if magic == BATCH and len(view) - at < _HEAD_BYTES:
            problem = f"{size} bytes are too few for a batch"
            break
        own, next_offset, attributes, first_ms, ms = head_fields(view, at)
        if first is None:
            first = own, magic, first_ms
        behind, last_ms = next_offset, max(last_ms, ms)
        kinds.add((magic, attributes & 7))
        position, most = end, most - 1
    return _Ends(first, behind, last_ms, kinds, position, problem)
