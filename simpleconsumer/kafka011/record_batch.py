"""Decodes record batches (magic 2) into messages, and message sets of older formats between them.

A fetched set is entries back to back, of which magic 2 is a batch (`batch_head`, `records`); entries of magic 0 and 1,
which logs of before an upgrade hold, are read by `kafka08.message_set`.

Rules, and their reasons:
- The checksum of a batch is compared before anything of it is read. A mismatch is one error for the batch.
- One bad record raises one error, which has its place, and `resume`, with which decoding continues after it. Where
  the next record cannot be found, the rest of the batch is one error.
- Only an impossible size field is `BrokenFraming`: nothing after it can be found.
- The base offset of a batch must fit its neighbours, as no checksum covers it (`batch_head`).
- Control batches and those of aborted transactions are left out; so are records that compaction has removed.
- The end of a set may be cut off, without an error. The end of a batch may not.
- Memory is bounded by the buffer, plus `max_decoded_bytes` for the batch that is being read.

Source: org.apache.kafka.common.record.DefaultRecordBatch, MemoryRecords (1.1, 3.9).

Where reading is in a fetched set: goes from batch to batch, checks each one as a whole, and opens it.

Rows and columns are read from here, so that one `MessageError.resume` serves both.

Leaves out the batches of aborted transactions, as `isolation.level=read_committed` wants it.

The answer to a fetch lists the aborted transactions of a partition. A batch of such a producer is left out from the
first offset of the transaction on, up to its abort marker.

Source: org.apache.kafka.clients.consumer.internals.Fetcher.PartitionRecords (1.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from struct import Struct, error
from typing import Final, NamedTuple, NoReturn

from simpleconsumer import codecs, kernel
from simpleconsumer.codecs import crc32c
from simpleconsumer.dialect_types import MAX_DECODED_BYTES
from simpleconsumer.errors import (
    BrokenFraming,
    CorruptMessage,
    CrcMismatch,
    DamagedOffset,
    DecodeError,
    LimitExceeded,
    MessageError,
    MessageTooLarge,
    UnknownCodec,
)
from simpleconsumer.kafka011.batch_head import (
    CODEC_MASK,
    CRC_BODY_AT,
    HEAD,
    HEAD_BYTES,
    IS_CONTROL,
    IS_TRANSACTIONAL,
    MAGIC,
    MAGIC_AT,
    OVERHEAD,
    BatchHead,
    has_batch_checksum,
    last_offset_of_unreadable,
    why_batch_is_damaged,
)
from simpleconsumer.kafka011.records import (
    OpenBatch,
    Record,
    RecordFault,
    most_headers,
    read_record,
    read_varint,
    read_varlong,
    with_lost_offsets,
)
from simpleconsumer.kafka08 import message_set
from simpleconsumer.kafka08.offset_order import SMALLEST_MESSAGE, Level, plain
from simpleconsumer.types import MAX_INT64, AbortedTransaction, Buffer, HeaderMessage, Message

__all__ = [
    "MAX_DECODED_BYTES", "AbortedBatches", "BatchReading", "OldEntries", "copied", "decode_messages", "decode_runs",
    "open_reading",
]  # fmt: skip

_ABORT: Final = 0
_MARKER = Struct(">hh")


class AbortedBatches:
    """Which producers have an aborted transaction open at the place that reading has come to.

    Args:
        aborted: From the answer to the fetch, in any order.
    """

    __slots__ = ("_begun", "_has_own_set", "_in_order", "_open")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._in_order = sorted(aborted, key=lambda each: each.first_offset)
        self._begun = 0
        self._open: set[int] = set()
        self._has_own_set = True

    def __bool__(self) -> bool:
        """Return whether anything may be left out from here on."""
        return bool(self._open) or self._begun < len(self._in_order)

    def copy(self) -> AbortedBatches:
        """Return a copy, for reading after an error; the open transactions are copied when they change."""
        other = copy(self)
        self._has_own_set = other._has_own_set = False
        return other

    def leaves_out(self, head: BatchHead, buffer: Buffer, position: int) -> bool:
        """Return whether nothing of a batch is delivered.

        To be called once for each control or transactional batch, in their order.

        Args:
            position: Where the batch starts in the buffer.
        """
        in_order, last = self._in_order, head.last_offset
        while self._begun < len(in_order) and in_order[self._begun].first_offset <= last:
            self._own_set().add(in_order[self._begun].producer_id)
            self._begun += 1
        if head.attributes & IS_CONTROL:
            if head.producer_id in self._open and _is_abort(buffer, position + HEAD_BYTES):
                self._own_set().discard(head.producer_id)
            return True
        return head.producer_id in self._open

    def _own_set(self) -> set[int]:
        """Return the open transactions, as a set that no copy shares."""
        if not self._has_own_set:
            self._open, self._has_own_set = set(self._open), True
        return self._open


def _is_abort(buffer: Buffer, position: int) -> bool:
    """Return whether a control record is the marker of an aborted transaction; its key holds version and type."""
    try:
        _, position = read_varint(buffer, position)
        _, position = read_varlong(buffer, position + 1)
        _, position = read_varint(buffer, position)
        length, position = read_varint(buffer, position)
        return length >= _MARKER.size and _MARKER.unpack_from(buffer, position)[1] == _ABORT
    except (DecodeError, IndexError, error):
        return False


_ENTRY = Struct(">qi").unpack_from
_MAY_BE_LEFT_OUT: Final = IS_CONTROL | IS_TRANSACTIONAL
_NO_RECORDS: Final = (-1, 0)
"""Last difference and count of a head that is not believed."""


class OldEntries(NamedTuple):
    """Entries of magic 0 and 1 that follow each other in a set.

    Attributes:
        start: Where the first one starts in the set.
        end: Where the last one ends; the end of the set if no whole entry follows.
        resume: Where `kafka08` goes on in them.
    """

    start: int
    end: int
    resume: object


class BatchReading:
    """The place in a set, with the open batch or entries there.

    Attributes:
        level: The set: position, and the known bounds of the offsets there.
        batch: The batch that is open; else None.
        old: The entries of older formats that are open; else None.
        start_offset: The first offset that is wanted.
        most_headers: How many headers the records of a batch may have together.
    """

    def __init__(self, level: Level, aborted: AbortedBatches, start_offset: int, max_decoded_bytes: int) -> None:
        self.level = level
        self.batch: OpenBatch | None = None
        self.old: OldEntries | None = None
        self.start_offset = start_offset
        self._aborted = aborted
        self.most_headers = most_headers(max_decoded_bytes)
        self._max_decoded_bytes = max_decoded_bytes

    def has_no_aborted(self) -> bool:
        """Return whether no transaction is left out from here on."""
        return not self._aborted

    def is_at_end(self) -> bool:
        """Return whether nothing is open, and the set ends here."""
        return self.batch is None and self.old is None and self.level.position >= len(self.level.buffer)

    def open_next(self, topic: str, partition: int | str) -> bool:
        """Open the next batch or old entries, or pass by a batch of which nothing is wanted; False at the set's end.

        Raises:
            MessageError: The batch cannot be read; the place is after it.
            BrokenFraming: The size of the next entry is impossible.
        """
        level = self.level
        buffer, position = level.buffer, level.position
        if position + OVERHEAD > len(buffer):
            return False
        offset, size = _ENTRY(buffer, position)
        if size < SMALLEST_MESSAGE:
            raise BrokenFraming(f"entry at byte {position} (offset {offset}) has size {size}")
        end = position + OVERHEAD + size
        if end > len(buffer):
            return False
        magic = buffer[position + MAGIC_AT]
        level.position = end
        if magic == MAGIC:
            try:
                self._open_batch(position, end)
            except RecordFault as fault:
                self._raise(fault, topic, partition)
        elif magic < MAGIC and not has_batch_checksum(buffer, position, end):
            self._open_old(position)
        else:
            reason = f"magic {magic} is not known (0, 1 and 2 are)"
            self._raise(self._unreadable(CorruptMessage, offset, *_NO_RECORDS, reason), topic, partition)
        return True

    def move_to(
        self, end: int, base: int, last_delta: int, records: int, base_time: int, append_time: int | None, epoch: int
    ) -> None:
        """Move to a later batch of the set, which the kernel has found sound: the open one becomes it."""
        batch, level = self.batch, self.level
        assert batch is not None
        level.position = batch.end = end
        level.floor = base + last_delta + 1
        batch.base, batch.last_delta, batch.count = base, last_delta, records
        batch.base_time, batch.append_time, batch.leader_epoch = base_time, append_time, epoch
        batch.headers_left = self.most_headers

    def next_record(self, topic: str, partition: int | str) -> Record | None:
        """Return the next record of the open batch; None at its end, and then it is closed.

        Raises:
            MessageError: The record is wrong, or the rest of the batch; the place is after it.
        """
        batch = self.batch
        assert batch is not None
        try:
            record = read_record(batch)
        except RecordFault as fault:
            self._raise(fault, topic, partition)
        if record is None:
            self.batch = None
        return record

    def old_messages(self, topic: str, partition: int | str) -> Iterator[Message]:
        """Yield the messages of the open old entries, and close these; errors are those of `kafka08`."""
        level = self.level
        section, resume = self.old_section()
        try:
            for message in message_set.decode_messages(section, topic, partition, self.start_offset, resume=resume):
                level.floor = max(level.floor, message.next_offset)
                yield message
        except MessageError as error:
            self.behind_old_error(error)
            raise
        self.close_old()

    def old_section(self) -> tuple[memoryview, object]:
        """Return the open old entries, and where `kafka08` goes on in them."""
        assert self.old is not None
        return memoryview(self.level.buffer)[self.old.start : self.old.end], self.old.resume

    def behind_old_error(self, error: MessageError) -> None:
        """Take note of an error in old entries, and have it say how reading continues after it."""
        assert self.old is not None
        self.level.floor = max(self.level.floor, error.next_offset)
        self.old = self.old._replace(resume=error.resume)
        error.resume = _Resume(self)

    def close_old(self) -> None:
        """Continue after the open old entries."""
        assert self.old is not None
        self.level.position = self.old.end
        self.old = None

    def _open_batch(self, position: int, end: int) -> None:
        """Check a batch as a whole and open it, unless nothing of it is wanted; raises RecordFault."""
        level = self.level
        buffer = level.buffer
        if end - position < HEAD_BYTES:
            offset, size = _ENTRY(buffer, position)
            raise self._unreadable(CorruptMessage, offset, *_NO_RECORDS, f"{size} bytes are too few for magic 2")
        # Fields by themselves: a named tuple of them would take a tenth of the time of a small batch.
        fields = HEAD.unpack_from(buffer, position)
        base, _, _, _, crc, attributes, last_delta, _, _, _, _, _, count = fields
        computed = crc32c(memoryview(buffer)[position + CRC_BODY_AT : end])
        if computed != crc:
            reason = f"the CRC-32C is {computed:#010x}, the batch says {crc:#010x}"
            raise self._unreadable(CrcMismatch, base, last_delta, count, reason)
        if not 0 <= count <= last_delta + 1:
            reason = f"the batch says that it has {count} records in {last_delta + 1} offsets"
            raise self._unreadable(CorruptMessage, base, *_NO_RECORDS, reason)
        last = base + last_delta
        if base != level.floor or not base or last >= MAX_INT64:  # else it follows directly on the one before
            reason_or_none = why_batch_is_damaged(level, base, last, end)
            if reason_or_none is not None:
                raise self._unreadable(DamagedOffset, base, *_NO_RECORDS, reason_or_none)
        level.floor = last + 1
        if attributes & _MAY_BE_LEFT_OUT and self._aborted.leaves_out(BatchHead._make(fields), buffer, position):
            return
        if last >= self.start_offset:
            self.batch = self._opened(BatchHead._make(fields), position, end)

    def _opened(self, head: BatchHead, position: int, end: int) -> OpenBatch:
        """Return a batch with its records, which are inflated if they are compressed."""
        buffer, codec = self.level.buffer, head.attributes & CODEC_MASK
        if not codec:
            return self._with_records(head, buffer, position + HEAD_BYTES, end)
        if codec > codecs.ZSTD:
            raise RecordFault(UnknownCodec, head.last_offset, f"codec {codec} is not known")
        packed = memoryview(buffer)[position + HEAD_BYTES : end]
        try:
            data = codecs.decompress(codec, packed, self._max_decoded_bytes)
        except DecodeError as error:
            kind = MessageTooLarge if isinstance(error, LimitExceeded) else CorruptMessage
            reason = with_lost_offsets(str(error), max(head.base_offset, self.start_offset), head.last_offset)
            raise RecordFault(kind, head.last_offset, reason) from error
        return self._with_records(head, data, 0, len(data), is_inflated=True)

    def _with_records(
        self, head: BatchHead, data: Buffer, position: int, end: int, *, is_inflated: bool = False
    ) -> OpenBatch:
        return OpenBatch(head, data, position, end, is_inflated=is_inflated, headers_left=self.most_headers)

    def _open_old(self, start: int) -> None:
        """Open the entries of magic 0 and 1 from a position on."""
        level = self.level
        buffer, end = level.buffer, start
        magic = buffer[start + MAGIC_AT]
        while end + MAGIC_AT < len(buffer):
            _, size = _ENTRY(buffer, end)
            entry_end = end + OVERHEAD + size
            found = buffer[end + MAGIC_AT]
            if size < SMALLEST_MESSAGE or entry_end > len(buffer):
                end = len(buffer)
                break
            if found >= MAGIC or (found != magic and has_batch_checksum(buffer, end, entry_end)):
                break
            end, magic = entry_end, found
        else:
            end = len(buffer)
        inside = copy(level)
        inside.buffer, inside.position = memoryview(buffer)[start:end], 0
        inside.budget_bytes = self._max_decoded_bytes
        self.old = OldEntries(start, end, message_set.Resume([inside]))

    def _unreadable(self, kind: type[MessageError], base: int, last_delta: int, count: int, reason: str) -> RecordFault:
        """Return the fault of a batch whose head is not believed; the place is after the batch."""
        level = self.level
        first = max(level.floor, level.asked)
        last = last_offset_of_unreadable(level, base, last_delta, count, level.position)
        level.floor = max(level.floor, last + 1)
        return RecordFault(kind, last, with_lost_offsets(reason, first, last))

    def _raise(self, fault: RecordFault, topic: str, partition: int | str) -> NoReturn:
        error = fault.kind(topic, partition, fault.offset, fault.offset + 1, fault.reason)
        error.resume = _Resume(self)
        raise error from fault.__cause__


class _Resume:
    """Where to continue: a copy of the reading without the set, which the caller passes again."""

    def __init__(self, reading: BatchReading) -> None:
        self._reading = copied(reading, b"")

    def reading(self, buffer: Buffer) -> BatchReading:
        """Return a new copy, so that one `resume` can be used any number of times."""
        return copied(self._reading, buffer)


def copied(reading: BatchReading, buffer: Buffer) -> BatchReading:
    """Return a copy of a reading, of that buffer."""
    other = copy(reading)
    other.level = copy(reading.level)
    other.level.buffer = buffer
    other._aborted = reading._aborted.copy()
    if reading.batch is not None:
        other.batch = reading.batch.within(buffer)
    return other


def open_reading(
    buffer: Buffer,
    start_offset: int,
    high_watermark: int | None = None,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    aborted: Sequence[AbortedTransaction] = (),
    resume: object = None,
) -> BatchReading:
    """Return the reading with which decoding starts or continues; arguments are those of `decode_messages`."""
    buffer = plain(buffer)
    if resume is not None:
        if not isinstance(resume, _Resume):
            raise TypeError(f"resume must come from a MessageError, not {type(resume).__name__}")
        reading = resume.reading(buffer)
        reading.start_offset = start_offset
        return reading
    level = Level(buffer)
    level.asked = max(start_offset, 0)
    if high_watermark is not None and high_watermark >= 0:
        level.limit = min(level.limit, high_watermark)
    return BatchReading(level, AbortedBatches(aborted), start_offset, max_decoded_bytes)


def decode_messages(
    buffer: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    high_watermark: int | None = None,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    aborted: Sequence[AbortedTransaction] = (),
    resume: object = None,
) -> Iterator[Message]:
    """Return the messages of a set from `start_offset` on, as an iterator.

    A fetch returns whole batches; messages before `start_offset` are skipped, and so are errors there. Keys, values and
    headers are copied out of the buffer. Messages with headers are `HeaderMessage`s.

    Args:
        start_offset: First offset to yield.
        high_watermark: That of the same answer; offsets from there on are damaged. None when it is not known.
        max_decoded_bytes: Most bytes that the records of one batch may decompress to.
        aborted: The aborted transactions of the same answer, which are left out.
        resume: `MessageError.resume` of an earlier call with the same arguments: continue after that message.

    Raises:
        CrcMismatch, DamagedOffset, UnknownCodec, CorruptMessage, MessageTooLarge: Of one message, or of one batch;
            continue with `resume`. The offset of a batch is its last one.
        BrokenFraming: The size field of an entry is negative or below 14; nothing after it can be read.

    Threads: Any number at once, each with its own generator.
    """
    reading = open_reading(buffer, start_offset, high_watermark, max_decoded_bytes, aborted, resume)
    return kernel.chained(decode_runs(reading, topic, partition))


def decode_runs(reading: BatchReading, topic: str, partition: int | str) -> Iterator[Iterable[Message]]:
    """Yield the messages of a reading in runs; read each one to its end before you ask for the next one.

    With the kernel most of them are its `RecordRows`, which can be read in other ways, too.
    """
    start_offset = reading.start_offset
    while True:
        try:
            batch = reading.batch
            if batch is not None:
                if kernel.compiled is None:
                    yield _records(reading, topic, partition)
                    continue
                yield kernel.compiled.RecordRows(reading, batch, topic, partition, start_offset)
                if batch.index == batch.count and batch.position == batch.end:
                    reading.batch = None
                    continue
                record = reading.next_record(topic, partition)
                if record is not None and record.offset >= start_offset:
                    yield (message_of(record, topic, partition),)
            elif reading.old is not None:
                yield _old_messages(reading, topic, partition)
            elif not reading.open_next(topic, partition):
                return
        except MessageError as error:
            if error.offset >= start_offset:
                raise


def _records(reading: BatchReading, topic: str, partition: int | str) -> Iterator[Message]:
    """Yield the messages of the open batch."""
    start_offset = reading.start_offset
    while reading.batch is not None:
        try:
            record = reading.next_record(topic, partition)
        except MessageError as error:
            if error.offset >= start_offset:
                raise
            continue
        if record is not None and record.offset >= start_offset:
            yield message_of(record, topic, partition)


def _old_messages(reading: BatchReading, topic: str, partition: int | str) -> Iterator[Message]:
    """Yield the messages of the open entries of magic 0 and 1."""
    while reading.old is not None:
        try:
            yield from reading.old_messages(topic, partition)
        except MessageError as error:
            if error.offset >= reading.start_offset:
                raise


def message_of(record: Record, topic: str, partition: int | str) -> Message:
    """Return a record as a message."""
    offset, timestamp_ms, key, value, headers = record
    if headers:
        return HeaderMessage(topic, partition, offset, offset + 1, key, value, timestamp_ms, headers)
    return Message(topic, partition, offset, offset + 1, key, value, timestamp_ms)
