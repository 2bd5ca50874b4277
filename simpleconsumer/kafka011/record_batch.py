"""Decodes record batches (magic 2) into messages, and message sets of older formats between them.

A fetched set is entries back to back, of which magic 2 is a batch (`batch_head`, `records`); entries of magic 0 and 1,
which logs of before an upgrade hold, are read by `kafka08.message_set`.

Rules, and their reasons:
- The checksum of a batch is compared before anything of it is read. What does not match is one error for the batch.
- One bad record raises one error, which has its place, and `resume`, with which decoding continues behind it. Where
  the next record cannot be found, the rest of the batch is one error.
- Only an impossible size field is `BrokenFraming`: nothing behind it can be found.
- The base offset of a batch must fit its neighbours, as no checksum covers it (`batch_order`).
- Control batches and those of aborted transactions are left out; so are records that compaction has removed.
- The end of a set may be cut off, without an error. The end of a batch may not.
- Memory is bounded by the buffer, plus `max_decoded_bytes` for the batch that is being read.

Source: org.apache.kafka.common.record.DefaultRecordBatch, MemoryRecords (1.1, 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from simpleconsumer import kernel
from simpleconsumer.dialect_types import MAX_DECODED_BYTES
from simpleconsumer.errors import MessageError
from simpleconsumer.kafka011.batch_reading import BatchReading, open_reading
from simpleconsumer.kafka011.records import Record
from simpleconsumer.types import AbortedTransaction, Buffer, HeaderMessage, Message

__all__ = ["MAX_DECODED_BYTES", "decode_messages", "decode_runs"]


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
    """Yield the messages of a set from `start_offset` on.

    A fetch returns whole batches; messages before `start_offset` are skipped, and so are errors there. Keys, values and
    headers are copied out of the buffer. Messages with headers are `HeaderMessage`s.

    Args:
        start_offset: First offset to yield.
        high_watermark: That of the same answer; offsets from there on are damaged. None when it is not known.
        max_decoded_bytes: Most bytes that the records of one batch may decompress to.
        aborted: The aborted transactions of the same answer, which are left out.
        resume: `MessageError.resume` of an earlier call with the same arguments: continue behind that message.

    Raises:
        CrcMismatch, DamagedOffset, UnknownCodec, CorruptMessage, MessageTooLarge: Of one message, or of one batch;
            continue with `resume`. The offset of a batch is its last one.
        BrokenFraming: The size field of an entry is negative or below 14; nothing behind it can be read.

    Threads: Any number at once, each with its own generator.
    """
    reading = open_reading(buffer, start_offset, high_watermark, max_decoded_bytes, aborted, resume)
    for run in decode_runs(reading, topic, partition):
        yield from run


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
