"""Reads the messages of a partition's log from disk, and goes on behind damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from simpleconsumer.dialect import KAFKA011, KAFKA07, MAX_DECODED_BYTES, Dialect
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import MAX_INT64, Message
from zkconsumer.log.heads import LOG_FILE, TRANSACTIONAL
from zkconsumer.log.partition_log import DiskPartition, Placed
from zkconsumer.log.segment_file import read_hint
from zkconsumer.log.transactions import LoggedTransactions, aborted_of_index
from zkconsumer.log.values import NO_MARKER, Damage, DiskEntry, Gap, LogTail

_TOGETHER_BYTES: Final = 1024 * 1024
"""So many bytes of entries are decoded at once."""
ReadEvent = Message | Damage | Gap | LogTail


def transactions_of(log: DiskPartition) -> LoggedTransactions:
    """Return the transactions of a partition; reads its log to the end, and no message."""
    found = LoggedTransactions()
    for event in log.scan(in_runs=True):
        if isinstance(event, Placed):
            entry = event.entry
            if entry.magic > 1 and entry.attributes & TRANSACTIONAL:
                found.take(entry)
    for segment in log.segments:
        for producer_id, first, last in aborted_of_index(read_hint(segment.path.with_suffix(".txnindex"))):
            found.take_hint(producer_id, first, last)
    return found


@dataclass
class _EntryRun:
    """Entries that follow each other in a file."""

    base: int
    pieces: list[bytes | memoryview] = field(default_factory=list)
    entries: list[DiskEntry] = field(default_factory=list)
    size: int = 0


class LogReading:
    """Reads a partition from one offset up to before another one.

    Args:
        log: Its log.
        partition: What messages have as their partition; in Kafka 0.7 `broker-partition`.
        start: First offset; None for the start of the log.
        end: Offset behind the last one; None for the end of the log.
        read_committed: Whether messages of transactions that were aborted, or never ended, are left out.
        max_decoded_bytes: Most bytes that one entry may decompress to.

    Attributes:
        left_out: How many entries of open transactions were left out.
    """

    def __init__(
        self,
        log: DiskPartition,
        partition: int | str,
        *,
        start: int | None = None,
        end: int | None = None,
        read_committed: bool = False,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
    ) -> None:
        self._log = log
        self._partition = partition
        self._start = max(log.start, 0 if start is None else start)
        self._end = MAX_INT64 if end is None else end
        self._read_committed = read_committed and not log.is_07
        self._max_decoded_bytes = max_decoded_bytes
        self._dialect: Dialect = KAFKA07 if log.is_07 else KAFKA011
        self.left_out = 0

    def events(self) -> Iterator[ReadEvent]:
        """Yield the messages, and all damage and gaps among them, in the order of the log.

        Raises:
            LogFailed: A file cannot be read, or changes meanwhile.
        """
        transactions = transactions_of(self._log) if self._read_committed else None
        run: _EntryRun | None = None
        file = ""
        for event in self._log.scan(in_runs=True):
            if isinstance(event, Placed):
                entry = event.entry
                if entry.last < self._start or entry.marker != NO_MARKER:
                    continue
                if entry.first >= self._end:
                    break
                if transactions is not None and transactions.leaves_out(entry):
                    self.left_out += entry.producer_id in transactions.open
                    continue
                if run is not None and not _continues(run, event, file):
                    yield from self._decoded(run, file)
                    run = None
                if run is None:
                    run, file = _EntryRun(entry.start), event.segment.path.name
                data = event.walk.data(entry)
                run.pieces.append(data)
                run.entries.append(entry)
                run.size += len(data)
            elif isinstance(event, LogTail) or self._concerns(event):
                if run is not None:
                    yield from self._decoded(run, file)
                    run = None
                yield event
        if run is not None:
            yield from self._decoded(run, file)

    def _concerns(self, event: Damage | Gap) -> bool:
        """Return whether damage or a gap is within the offsets that are read."""
        first, last = event.first_offset, event.last_offset
        return first is None or (first < self._end and (last is None or last >= self._start))

    def _decoded(self, run: _EntryRun, file: str) -> Iterator[Message | Damage]:
        """Yield the messages of a run."""
        data = run.pieces[0] if len(run.pieces) == 1 else b"".join(run.pieces)
        first = run.entries[0]
        start = max(self._start, first.first)
        if self._log.is_07:
            start = first.first
        behind, resume = start, None
        while True:
            try:
                for message in self._dialect.decode_messages(
                    data, self._log.topic, self._partition, start, data_offset=first.first,
                    max_decoded_bytes=self._max_decoded_bytes, resume=resume,
                ):  # fmt: skip
                    behind = message.next_offset
                    if message.offset >= self._end:
                        return
                    if message.offset >= self._start:
                        yield message
                return
            except MessageError as fault:
                resume = fault.resume
                entry = _entry_with(run, fault.offset)
                lost = min(max(behind, entry.first), fault.offset)
                if lost >= self._end:
                    return
                if not entry.faults:
                    yield Damage(file, entry.start, entry.end, lost, fault.offset, fault.reason, is_undecoded=True)
                behind = max(behind, fault.next_offset)
            except BrokenFraming as fault:
                if behind >= self._end:
                    return
                yield Damage(file, first.start, run.entries[-1].end, behind, run.entries[-1].last, str(fault),
                             is_undecoded=True)  # fmt: skip
                return


def _entry_with(run: _EntryRun, offset: int) -> DiskEntry:
    """Return the entry of a run that has an offset; the first one if none has it."""
    number = next((at for at, each in enumerate(run.entries) if each.first <= offset <= each.last), 0)
    entry, view, at = run.entries[number], memoryview(run.pieces[number]), 0
    while entry.entries > 1 and at < len(view):  # it stands for several
        end = at + LOG_FILE.overhead + LOG_FILE.size_at(view, at)
        part = LOG_FILE.entry(view, at, end, entry.start + at)
        if isinstance(part, DiskEntry) and part.first <= offset <= part.last:
            return part
        at = end
    return entry


def _continues(run: _EntryRun, placed: Placed, file: str) -> bool:
    """Return whether an entry can be decoded together with those before it."""
    last, entry = run.entries[-1], placed.entry
    return (
        run.size < _TOGETHER_BYTES and last.end == entry.start and entry.first > last.last
        and placed.segment.path.name == file
    )  # fmt: skip
