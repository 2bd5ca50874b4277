"""Decodes record batches into those of Arrow: the messages of `record_batch.decode_messages`, several times as fast.

A set is decoded stretch by stretch, about a megabyte each: the records of several batches, inflated if need be, are
copied together and read as arrays; those of one large batch are read part by part. Entries of older formats are read by
`kafka08.columns`.

There is one implementation of all checks: a stretch with any fault is read again from its start by the slow path of
`record_batch`. So values, errors, their places and `resume` are those of `decode_messages`.

Memory is bounded by the set, `max_decoded_bytes` for a batch that is being read, and some times `max_batch_bytes`.

This module needs numpy and pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from simpleconsumer.column_arrays import Ints, column_schema
from simpleconsumer.dialect_types import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka011.batch_reading import BatchReading, Place, copied, open_reading, reading_place
from simpleconsumer.kafka011.column_areas import Areas, PlainRun, areas_of, plain_areas
from simpleconsumer.kafka011.column_batches import Rows, size_of, to_batch
from simpleconsumer.kafka011.column_records import read_records
from simpleconsumer.kafka011.record_walk import expected_spans, walked_spans
from simpleconsumer.kafka011.records import OpenBatch
from simpleconsumer.kafka08 import columns as kafka08
from simpleconsumer.kafka08.column_batches import COLUMNS, KNOWN
from simpleconsumer.types import MAX_INT64, AbortedTransaction, Buffer

__all__ = ["COLUMNS", "MAX_BATCH_BYTES", "decode_columns"]

_WORTH_ARRAYS: Final = 32
_FIRST_WINDOW_AFTER_ERROR: Final = 256


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
    (binary), null for a message without headers. What is wrong with a message is raised after all messages before it
    were yielded.

    Args:
        start_offset: As for `decode_messages`.
        end_offset: The first message from there on is not yielded, and nothing behind it is looked at.
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
    schema = column_schema(columns, KNOWN)
    kafka08.check_batch_bytes(max_batch_bytes)
    reading = open_reading(buffer, start_offset, high_watermark, max_decoded_bytes, aborted, resume)
    decoding = _Decoding(reading, topic, partition, schema, end_offset, max_batch_bytes)
    if resume is not None:
        decoding.window_bytes = min(_FIRST_WINDOW_AFTER_ERROR, max_batch_bytes)
    return decoding.batches()


class _Decoding:
    """The state of one call of `decode_columns`.

    Attributes:
        window_bytes: Size of the next stretch. Small behind an error: if every message is wrong, only little must be
            read in vain for each of them.
    """

    def __init__(
        self,
        reading: BatchReading,
        topic: str,
        partition: int | str,
        schema: Any,
        end_offset: int | None,
        limit_bytes: int,
    ) -> None:
        self.window_bytes = limit_bytes
        self._reading = reading
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._end_offset = end_offset
        self._last_offset = None if end_offset is None else end_offset - 1
        self._limit_bytes = limit_bytes
        self._is_over = end_offset is not None and reading.start_offset >= end_offset

    def batches(self) -> Iterator[Any]:
        """Yield the rest of the set."""
        while not self._is_over:
            if self._reading.old is not None:
                yield from self._old_entries()
                continue
            if self._reading.is_at_end():
                return
            stretch = self._plain_stretch() or self._gathered()
            if stretch.areas is not None:
                batch = self._together(stretch)
                if batch is None:
                    self._reading, self._is_over = stretch.before, False
                    yield from self._one_by_one(stretch.behind)
                elif batch.num_rows:
                    yield batch
                self.window_bytes = min(2 * self.window_bytes, self._limit_bytes)
                if batch is None:
                    continue  # the next turn reads what follows
            trouble = stretch.trouble
            del stretch
            if trouble is not None and not self._is_over:
                try:
                    raise trouble
                finally:
                    trouble = None  # its traceback holds this frame: a cycle for each error otherwise

    # -- together ------------------------------------------------------------------------------------------------------

    def _plain_stretch(self) -> _Stretch | None:
        """Return the next batches, up to a window, if all of them are plain; None if not."""
        reading = self._reading
        if reading.batch is not None:
            return None
        run = plain_areas(reading, self.window_bytes, self._end_offset)
        if run is None:
            return None
        self._is_over = run.is_end
        if run.areas is None:
            run.move(reading.level)
        return _Stretch(run.areas, reading, Place(run.end, MAX_INT64), plain=run)

    def _gathered(self) -> _Stretch:
        """Return the next batches, up to a window, or a part of a large one; none at the end and before old entries."""
        reading, size = self._reading, 0
        before = copied(reading, reading.level.buffer)
        batches: list[OpenBatch] = []
        behind = reading_place(reading)
        trouble: Exception | None = None
        while size < self.window_bytes:
            try:
                if reading.batch is None and not reading.open_next(self._topic, self._partition):
                    self._is_over = True
                    break
            except (MessageError, BrokenFraming) as error:
                if isinstance(error, MessageError) and error.offset < reading.start_offset:
                    continue
                trouble = error
                break
            batch = reading.batch
            if reading.old is not None:
                break
            if batch is None:
                continue
            if self._end_offset is not None and batch.base + batch.floor >= self._end_offset:
                self._is_over = True
                break
            left = batch.end - batch.position
            if left > self.window_bytes:
                if batches:
                    break
                behind = Place(reading.level.position, batch.position + self.window_bytes)
                part = areas_of([batch], self.window_bytes)
                return _Stretch(part, before, behind, batch, headers_left=batch.headers_left)
            batches.append(batch)
            size += left
            reading.batch = None
            behind = reading_place(reading)
            if self._last_offset is not None and batch.last_offset >= self._last_offset:
                break
        areas = areas_of(batches) if batches else None
        headers_left = min((batch.headers_left for batch in batches), default=0)
        return _Stretch(areas, before, behind, None, trouble, headers_left=headers_left)

    def _together(self, stretch: _Stretch) -> Any:
        """Return the messages of a stretch as a record batch, perhaps an empty one; None if they must be read one by
        one.
        """
        areas = stretch.areas
        assert areas is not None
        if areas.number < _WORTH_ARRAYS:
            return None
        spans = expected_spans(areas)  # right in most cases in which there are any, and `read_records` sees if not
        records = None if spans is None else read_records(areas, spans)
        if spans is None or records is None:
            spans = walked_spans(areas)
            if spans is None or len(spans.starts) < _WORTH_ARRAYS:
                return None
            records = read_records(areas, spans)
        if records is None:
            return None
        headers = 0 if records.headers is None else int(records.headers.counts.sum())
        if headers > (self._reading.most_headers if stretch.plain is not None else stretch.headers_left):
            return None  # some batch has perhaps too many of them
        try:
            batch = to_batch(self._schema, areas.stretch, records)
        except pa.ArrowInvalid:  # a key of a header that is no UTF-8
            return None
        offsets = records.entries.offset
        if stretch.part_of is not None:
            _move(stretch.part_of, int(records.ends[-1]), offsets, headers)
        if stretch.plain is not None:
            stretch.plain.move(self._reading.level)
        first, end = self._wanted(offsets)
        return batch if end - first == batch.num_rows else batch.slice(first, end - first)

    def _wanted(self, offsets: Ints) -> tuple[int, int]:
        """Return which messages are asked for, as index of the first one and of the end; note the end of the range."""
        first, end = int(np.searchsorted(offsets, self._reading.start_offset)), len(offsets)
        if self._last_offset is not None and offsets[-1] >= self._last_offset:
            self._is_over = True
            end = int(np.searchsorted(offsets, self._last_offset, "right"))
        return min(first, end), end

    # -- one by one ----------------------------------------------------------------------------------------------------

    def _one_by_one(self, until: Place) -> Iterator[Any]:
        """Yield the messages up to a place."""
        rows = Rows(self._schema)
        reading = self._reading
        trouble: Exception | None = None
        while not self._is_over and reading_place(reading) < until:
            batch = reading.batch
            try:
                if batch is None:
                    reading.open_next(self._topic, self._partition)
                    continue
                record = reading.next_record(self._topic, self._partition)
            except (MessageError, BrokenFraming) as error:
                if isinstance(error, MessageError) and error.offset < reading.start_offset:
                    continue
                trouble = error
                break
            if record is None or not self._is_wanted(record.offset):
                continue
            if rows.size_bytes and rows.size_bytes + size_of(record) > self._limit_bytes:
                yield rows.take()
            rows.add_record(batch, record)
        if rows.size_bytes:
            yield rows.take()
        if trouble is not None:
            try:
                raise trouble
            finally:
                trouble = None  # as above

    def _is_wanted(self, offset: int) -> bool:
        """Return whether a message is asked for; note the end of the range."""
        if offset < self._reading.start_offset:
            return False
        if self._last_offset is None:
            return True
        self._is_over = offset >= self._last_offset
        return offset <= self._last_offset

    def _old_entries(self) -> Iterator[Any]:
        """Yield the open entries of older formats, and close these."""
        reading, names = self._reading, self._schema.names
        section, resume = reading.old_section()
        try:
            for batch in kafka08.decode_columns(
                section, self._topic, self._partition, reading.start_offset, end_offset=self._end_offset,
                columns=list(dict.fromkeys([*names, "offset"])), max_batch_bytes=self._limit_bytes, resume=resume,
            ):  # fmt: skip
                last = batch.column("offset")[-1].as_py()
                reading.level.floor = max(reading.level.floor, last + 1)
                self._is_over = self._last_offset is not None and last >= self._last_offset
                yield batch.select(names)
        except MessageError as error:
            reading.behind_old_error(error)
            raise
        reading.close_old()


class _Stretch(NamedTuple):
    """What is read together.

    Attributes:
        areas: The records; None for none.
        before: Reading before them.
        behind: The place behind them.
        part_of: The batch of which they are a part; None if they are whole batches.
        trouble: What is wrong with what comes next.
        plain: The run of plain batches that they are; reading is moved behind them when they are read.
        headers_left: How many headers may follow in any of the batches, unless they are plain.
    """

    areas: Areas | None
    before: BatchReading
    behind: Place
    part_of: OpenBatch | None = None
    trouble: Exception | None = None
    plain: PlainRun | None = None
    headers_left: int = 0


def _move(batch: OpenBatch, size_bytes: int, offsets: Ints, headers: int) -> None:
    """Move a batch behind records that were read as arrays."""
    batch.position += size_bytes
    batch.index += len(offsets)
    batch.headers_left -= headers
    batch.floor = int(offsets[-1]) + 1 - batch.base
