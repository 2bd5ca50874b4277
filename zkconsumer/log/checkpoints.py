"""The content of a log folder other than messages: names of folders and files, checkpoints, and indexes. Pure.

All of it is a hint. A checkpoint may be older than the log, and is never newer than what the log has had.

Source: kafka.server.checkpoints, kafka.log.LogManager, UnifiedLog, OffsetIndex (0.8.2 to 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import Struct, iter_unpack
from typing import Final, NamedTuple

CHECKPOINTS: Final[Mapping[str, str]] = {
    "high_watermark": "replication-offset-checkpoint",
    "log_start": "log-start-offset-checkpoint",
    "cleaned": "cleaner-offset-checkpoint",
}
_FOLDER: Final = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)(?:\.(?P<id>[0-9a-f]{32})-(?P<state>delete|future|stray))?"
)
_SEGMENT: Final = re.compile(
    r"(?P<base>\d{20})\.(?P<kind>log|kafka|index|timeindex|txnindex|snapshot)(?P<state>\.\w+)?"
)
_KNOWN: Final = frozenset({"leader-epoch-checkpoint", "partition.metadata", ".lock"})
_NUMBER: Final = re.compile(r"-?\d+")


class FolderName(NamedTuple):
    """The name of a partition's folder.

    Attributes:
        state: `delete`, `future` or `stray` for a folder that is no longer, or not yet, that of the partition.
    """

    topic: str
    partition: int
    state: str


class SegmentName(NamedTuple):
    """The name of a file in a partition's folder.

    Attributes:
        base: The offset after which it is named.
        kind: Its extension.
        state: `deleted`, `cleaned` or `swap` for a file that the broker was replacing.
    """

    base: int
    kind: str
    state: str


class Checkpoint(NamedTuple):
    """The values in the checkpoints of a log folder for one partition; None for missing ones.

    Attributes:
        high_watermark: The offset after the last message that was on all replicas.
        log_start: The first offset that was not deleted.
        cleaned: The cleaner has been below it.
    """

    high_watermark: int | None = None
    log_start: int | None = None
    cleaned: int | None = None


def folder_name(name: str) -> FolderName | None:
    """Return what the name of a folder says, None if it is not that of a partition.

    >>> folder_name("a-b-3")
    FolderName(topic='a-b', partition=3, state='')
    """
    found = _FOLDER.fullmatch(name)
    return None if found is None else FolderName(found["topic"], int(found["partition"]), found["state"] or "")


def segment_name(name: str) -> SegmentName | None:
    """Return what the name of a file says, None if it is none of a partition's files.

    >>> segment_name("00000000000000000042.log.swap")
    SegmentName(base=42, kind='log', state='swap')
    """
    found = _SEGMENT.fullmatch(name)
    return None if found is None else SegmentName(int(found["base"]), found["kind"], (found["state"] or ".")[1:])


def is_known(name: str) -> bool:
    """Return whether brokers write files of that name into the folder of a partition."""
    return name in _KNOWN or name.startswith(("leader-epoch-checkpoint", "partition.metadata", "remote_log"))


def offsets_of(text: str) -> dict[tuple[str, int], int]:
    """Return the offsets of a checkpoint file by topic and partition: a version, a count, then lines of three fields.

    Lines that cannot be read are passed by: a hint that is damaged is none.
    """
    found: dict[tuple[str, int], int] = {}
    for line in text.splitlines()[2:]:
        fields = line.split()
        if len(fields) == 3 and _NUMBER.fullmatch(fields[1]) and _NUMBER.fullmatch(fields[2]):
            found[fields[0], int(fields[1])] = int(fields[2])
    return found


def epochs_of(text: str) -> dict[int, int]:
    """Return the first offset of each epoch, of a leader-epoch-checkpoint."""
    found: dict[int, int] = {}
    for line in text.splitlines()[2:]:
        fields = line.split()
        if len(fields) == 2 and all(map(_NUMBER.fullmatch, fields)):
            found[int(fields[0])] = int(fields[1])
    return found


def index_end(index: bytes) -> tuple[int, int]:
    """Return the last entry of an offset index, relative offset and byte in the segment; zeros for none.

    The index of an active segment ends in zeros, and so does one that was not flushed.
    """
    data = index[: len(index) // 8 * 8].rstrip(b"\0")
    data = index[: (len(data) + 7) // 8 * 8]
    if not data:
        return 0, 0
    relative, position = Struct(">ii").unpack_from(data, len(data) - 8)
    return int(relative), int(position)


def index_entry_before(index: bytes, end: int) -> int:
    """Return the last byte of a segment that an index names and that is before another one; 0 for none."""
    found = 0
    for _, position in iter_unpack(">ii", index[: len(index) // 8 * 8]):
        if found < position < end:
            found = position
    return found
