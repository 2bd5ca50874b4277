"""Decodes record batches into those of Arrow: the messages of `record_batch.decode_messages`, column by column.

The kernel fills the columns of plain and of inflated batches. The rest is read record by record, as
`record_batch` does, and entries of older formats by `kafka08.columns`. So values, errors, their places and `resume` are
those of `decode_messages`.

Memory is bounded by the set, `max_decoded_bytes` for a batch that is being read, and some times `max_batch_bytes`.

This module needs pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from simpleconsumer import kernel
from simpleconsumer.column_rows import (
    APPEND_TIME,
    COLUMNS,
    CREATE_TIME,
    KNOWN,
    NO_TIME,
    batches_of,
    checked_schema,
    header_bytes,
    last_wanted,
    rows_of,
)
from simpleconsumer.dialect_types import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.errors import MessageError
from simpleconsumer.kafka011.record_batch import BatchReading, open_reading
from simpleconsumer.kafka011.records import Record
from simpleconsumer.kafka08 import columns as kafka08
from simpleconsumer.types import AbortedTransaction, Buffer

__all__ = ["COLUMNS", "MAX_BATCH_BYTES", "decode_columns"]

_RECORD_BYTES: Final = 26


def decode_columns(
    buffer: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    end_offset: int | None = None,
    columns: Sequence[str] = tuple(COLUMNS),
    max_batch_bytes: int = MAX_BATCH_BYTES,
    high_watermark: int | None = None,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    aborted: Sequence[AbortedTransaction] = (),
    resume: object = None,
) -> Iterator[Any]:
    """Yield the messages of a set from `start_offset` on as `pyarrow.RecordBatch`es, none of them empty.

    Columns are those of `simpleconsumer.columns`, and `headers`: a list of structs of `key` (string) and `value`
    (binary), null for a message without headers. The error about a message comes after all messages before it
    were yielded.

    Args:
        start_offset: As for `decode_messages`.
        end_offset: The first message from there on is not yielded, and nothing after it is read.
        columns: Which columns, in which order.
        max_batch_bytes: Bytes of records, inflated, that a batch is made of; a larger message has one for itself.
        high_watermark: As for `decode_messages`.
        max_decoded_bytes: As for `decode_messages`.
        aborted: As for `decode_messages`.
        resume: `MessageError.resume` of an earlier call with the same arguments, of `decode_messages` too.

    Raises:
        ValueError: Unknown columns, or an impossible size of batches.
        CrcMismatch, DamagedOffset, UnknownCodec, CorruptMessage, MessageTooLarge, BrokenFraming: As by
            `decode_messages`.

    Threads: Any number at once, each with its own generator.
    """
    schema = checked_schema(columns, KNOWN, max_batch_bytes)
    reading = open_reading(buffer, start_offset, high_watermark, max_decoded_bytes, aborted, resume)
    return _Decoding(reading, topic, partition, schema, last_wanted(end_offset), max_batch_bytes).batches()


class _Decoding:
    """The state of one call of `decode_columns`."""

    def __init__(
        self, reading: BatchReading, topic: str, partition: int | str, schema: Any, last_offset: int, limit_bytes: int
    ) -> None:
        self._reading = reading
        self._topic = topic
        self._partition = partition
        self._names = schema.names
        self._rows: Any = rows_of(schema, _RECORD_BYTES)
        self._last_offset = last_offset
        self._limit_bytes = limit_bytes
        self._is_over = reading.start_offset > last_offset

    def batches(self) -> Iterator[Any]:
        """Return the batches of the rest of the set."""
        return batches_of(self._rows, self._full())

    def _full(self) -> Iterator[Any]:
        """Yield the batches that are full."""
        while not self._is_over:
            yield from self._some()

    def _some(self) -> Iterator[Any]:
        """Read on, and yield the batches that are full."""
        reading = self._reading
        try:
            if reading.old is not None:
                yield from self._old_entries()
            elif reading.batch is None:
                self._is_over = not reading.open_next(self._topic, self._partition)
            elif reading.batch.base + reading.batch.floor > self._last_offset:
                self._is_over = True
            elif kernel.compiled is None or not (yield from self._filled()):
                yield from self._one()
        except MessageError as error:
            if error.offset >= reading.start_offset:
                raise

    def _filled(self) -> Generator[Any, None, bool]:
        """Let the kernel read; return whether nothing of the open batch is left to be read record by record."""
        reading, rows, batch = self._reading, self._rows, self._reading.batch
        run = kernel.compiled.RecordRows(reading, batch, self._topic, self._partition, reading.start_offset)
        while (how := run.fill(rows.rows, self._limit_bytes, self._last_offset)) == kernel.IS_FULL:
            yield rows.take()
        self._is_over = how == kernel.IS_OVER
        assert batch is not None
        if batch.index == batch.count and batch.position == batch.end:
            reading.batch = None
        return self._is_over or reading.batch is None

    def _one(self) -> Iterator[Any]:
        """Read one record."""
        reading, rows, batch = self._reading, self._rows, self._reading.batch
        assert batch is not None
        record = reading.next_record(self._topic, self._partition)
        if record is None or record.offset < reading.start_offset:
            return
        self._is_over = record.offset >= self._last_offset
        if record.offset > self._last_offset:
            return
        size_bytes = _size_of(record)
        if rows.size_bytes and rows.size_bytes + size_bytes > self._limit_bytes:
            yield rows.take()
        stamp = record.timestamp_ms
        kind = NO_TIME if stamp is None else CREATE_TIME if batch.append_time is None else APPEND_TIME
        rows.add(record.key, record.value, record.offset, stamp, kind, record.headers, size_bytes)

    def _old_entries(self) -> Iterator[Any]:
        """Yield the open entries of older formats, and close these."""
        reading, rows = self._reading, self._rows
        if rows.size_bytes:
            yield rows.take()
        section, resume = reading.old_section()
        try:
            for batch in kafka08.decode_columns(
                section, self._topic, self._partition, reading.start_offset, end_offset=self._last_offset + 1,
                columns=list(dict.fromkeys([*self._names, "offset"])), max_batch_bytes=self._limit_bytes,
                resume=resume,
            ):  # fmt: skip
                last = batch.column("offset")[-1].as_py()
                reading.level.floor = max(reading.level.floor, last + 1)
                self._is_over = last >= self._last_offset
                yield batch.select(self._names)
        except MessageError as error:
            reading.behind_old_error(error)
            raise
        reading.close_old()


def _size_of(record: Record) -> int:
    """Return the share of a record in the size of a batch."""
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + header_bytes(record.headers)
