"""Where reading is in a fetched set: goes from batch to batch, checks each one as a whole, and opens it.

Rows and columns are read from here, so that one `MessageError.resume` serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from simpleconsumer import codecs
from simpleconsumer.crc32c import crc32c
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
)
from simpleconsumer.kafka011.batch_order import last_offset_of_unreadable, why_batch_is_damaged
from simpleconsumer.kafka011.records import OpenBatch, Record, RecordFault, most_headers, read_record, with_lost_offsets
from simpleconsumer.kafka011.transactions import AbortedBatches
from simpleconsumer.kafka08 import message_set
from simpleconsumer.kafka08.level import Level
from simpleconsumer.kafka08.shallow import SMALLEST_MESSAGE, plain
from simpleconsumer.types import MAX_INT64, AbortedTransaction, Buffer, Message

__all__ = ["BatchReading", "OldEntries", "copied", "open_reading"]

_ENTRY = Struct(">qi").unpack_from
_MAY_BE_LEFT_OUT: Final = IS_CONTROL | IS_TRANSACTIONAL
_NO_RECORDS: Final = (-1, 0)
"""Last difference and count of a head that is not believed."""


class OldEntries(NamedTuple):
    """Entries of magic 0 and 1 that follow each other in a set.

    Attributes:
        start: Where the first one starts in the set.
        end: Where the last one ends; the end of the set if what follows is no whole entry.
        resume: Where `kafka08` goes on in them.
    """

    start: int
    end: int
    resume: object


class BatchReading:
    """The place in a set, and what is open there.

    Attributes:
        level: The set: position, and what is known of the offsets there.
        batch: The batch that is open; else None.
        old: The entries of older formats that are open; else None.
        start_offset: The first offset that is wanted.
        most_headers: How many headers the records of a batch may have together.
    """

    def __init__(
        self, level: Level, aborted: AbortedBatches, start_offset: int, max_decoded_bytes: int
    ) -> None:
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
            MessageError: The batch cannot be read; the place is behind it.
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
            MessageError: The record is wrong, or the rest of the batch; the place is behind it.
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
        """Take note of an error in old entries, and have it say how reading goes on behind it."""
        assert self.old is not None
        self.level.floor = max(self.level.floor, error.next_offset)
        self.old = self.old._replace(resume=error.resume)
        error.resume = _Resume(self)

    def close_old(self) -> None:
        """Go on behind the open old entries."""
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
            behind = end + OVERHEAD + size
            found = buffer[end + MAGIC_AT]
            if size < SMALLEST_MESSAGE or behind > len(buffer):
                end = len(buffer)
                break
            if found >= MAGIC or (found != magic and has_batch_checksum(buffer, end, behind)):
                break
            end, magic = behind, found
        else:
            end = len(buffer)
        inside = copy(level)
        inside.buffer, inside.position = memoryview(buffer)[start:end], 0
        inside.budget_bytes = self._max_decoded_bytes
        self.old = OldEntries(start, end, message_set.Resume([inside]))

    def _unreadable(
        self, kind: type[MessageError], base: int, last_delta: int, count: int, reason: str
    ) -> RecordFault:
        """Return the fault of a batch whose head is not believed; the place is behind the batch."""
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
