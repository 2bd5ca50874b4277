"""Checks the log of a partition: every checksum, the order of offsets, and that none is missing without a reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkconsumer.log.heads import BATCH, CODEC, TRANSACTIONAL
from zkconsumer.log.partition_log import DiskPartition, Placed
from zkconsumer.log.reading import LogReading
from zkconsumer.log.transactions import LoggedTransactions
from zkconsumer.log.values import Damage, DiskEntry, Gap, LogTail

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS: Final = {"log": "magic", "kafka": "0.7 magic"}


class FileNote(NamedTuple):
    """Something about a file that is neither damage nor a gap.

    Attributes:
        file: Its name.
        reason: What is to be said, as a clause.
    """

    file: str
    reason: str


@dataclass
class CheckedPartition:
    """What a check of a partition has counted.

    Attributes:
        topic, partition: Whose log it is.
        segments, size_bytes: Its files, and their bytes.
        entries: Entries whose checksum fits.
        messages: Messages in them; those that were deleted, and are still there, included.
        first_offset: The start of the log.
        next_offset: The offset behind the last entry.
        first_ms, last_ms: The earliest and the latest time; -1 for none.
        formats: Formats and codecs of the entries.
        open_transactions: How many transactions have not ended.
        damaged: How many ranges of bytes are damaged; repaired ones included.
        gaps: How many gaps may be a loss.
    """

    topic: str
    partition: int
    segments: int
    size_bytes: int
    first_offset: int
    next_offset: int
    entries: int = 0
    messages: int = 0
    first_ms: int = -1
    last_ms: int = -1
    formats: list[str] = field(default_factory=list)
    open_transactions: int = 0
    damaged: int = 0
    gaps: int = 0


Finding = Damage | Gap | LogTail | FileNote | CheckedPartition


def format_of(magic: int, attributes: int, *, is_07: bool) -> str:
    """Return the format of an entry, such as `magic 2 lz4`.

    >>> format_of(2, 3, is_07=False)
    'magic 2 lz4'
    """
    codec = attributes & (3 if is_07 else CODEC)
    name = _CODECS[codec] if codec < len(_CODECS) else f"codec {codec}"
    return f"{FORMATS['kafka' if is_07 else 'log']} {magic} {name}"


def check_partition(log: DiskPartition, *, records: bool = False) -> Iterator[Finding]:
    """Yield what is damaged and what is missing, then what was counted.

    Args:
        records: Whether records are decoded, too, and not only the checksums compared that cover them.

    Raises:
        LogFailed: A file cannot be read, or changes meanwhile.
    """
    counted = CheckedPartition(log.topic, log.partition, len(log.segments), log.size_bytes, log.start, log.start)
    for path in log.foreign:
        yield FileNote(path.name, "no broker writes a file of that name there; it is not read")
    for path in log.replaced:
        yield FileNote(path.name, "the broker had replaced or deleted it; it is not read")
    transactions = LoggedTransactions()
    kinds: set[tuple[int, int]] = set()
    for event in log.scan(in_runs=True):
        if isinstance(event, Placed):
            _count(counted, event.entry, kinds)
            if event.entry.magic == BATCH and event.entry.attributes & TRANSACTIONAL:
                transactions.take(event.entry)
            continue
        if isinstance(event, Damage):
            counted.damaged += 1
        elif isinstance(event, Gap):
            counted.gaps += event.kind.is_loss
        yield event
    if records:
        for found in LogReading(log, f"0-{log.partition}" if log.is_07 else log.partition).events():
            # All other damage was found above.
            if isinstance(found, Damage) and found.is_undecoded:
                counted.damaged += 1
                yield found
    counted.formats = sorted(format_of(magic, attributes, is_07=log.is_07) for magic, attributes in kinds)
    counted.open_transactions = len(transactions.open)
    yield counted


def _count(counted: CheckedPartition, entry: DiskEntry, kinds: set[tuple[int, int]]) -> None:
    counted.entries += entry.entries
    counted.messages += entry.messages
    counted.next_offset = entry.last + 1
    kinds.add((entry.magic, entry.attributes & CODEC))
    if entry.first_ms >= 0 and (counted.first_ms < 0 or entry.first_ms < counted.first_ms):
        counted.first_ms = entry.first_ms
    counted.last_ms = max(counted.last_ms, entry.last_ms)
