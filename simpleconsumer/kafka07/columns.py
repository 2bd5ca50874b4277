"""Decodes message sets of Kafka 0.7 into Arrow record batches: the messages of `decode_messages`, column by column.

The kernel fills the columns of uncompressed messages, in compressed entries too. The rest is read entry by entry,
as `message_set` does. So values, places, errors and `resume` are those of `decode_messages`.

A batch may end within a large compressed entry; `next_offset` and `entry_index` of its last row say where to continue.

Memory is bounded by the message set, `max_decoded_bytes` for the compressed entry that is being read, and some times
`max_batch_bytes`.

This module needs pyarrow (the extra `columns`); it is imported only when columns are asked for.

Cuts record batches of Kafka 0.7 between entries, as only whole entries can be committed.

This module needs numpy and pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from simpleconsumer import kernel
from simpleconsumer.column_rows import COLUMNS_07 as COLUMNS
from simpleconsumer.column_rows import NO_TIME, batches_of, checked_schema, last_wanted, rows_of
from simpleconsumer.dialect_types import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.kafka07.message_set import Reading, is_plain_at, next_entry, open_reading
from simpleconsumer.types import MAX_INT64, Buffer

__all__ = ["COLUMNS", "cuts", "decode_columns"]

_ENTRY_BYTES: Final = 10


def decode_columns(
    message_set: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    start_index: int = 0,
    data_offset: int | None = None,
    end_offset: int | None = None,
    columns: Sequence[str] = tuple(COLUMNS),
    max_batch_bytes: int = MAX_BATCH_BYTES,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    resume: object = None,
) -> Iterator[Any]:
    """Yield the messages of a set as `pyarrow.RecordBatch`es, none of them empty.

    Columns: `key` (binary, always null), `value` (binary), `offset` (int64: where the entry starts), `entry_index`
    (int32: number of the message in its entry), `next_offset` (int64: the position to commit after it), `timestamp_ms`
    (int64, always null) and `timestamp_type` (int32, always -1). The error about a message comes after all messages
    before it were yielded.

    Args:
        start_offset, start_index, data_offset, max_decoded_bytes, resume: As for `message_set.decode_messages`.
        end_offset: Entries that start there or later are not read.
        columns: Which columns, in which order.
        max_batch_bytes: Bytes of message set, inflated, that a batch is made of; a larger message has one for itself.

    Raises:
        ValueError: Unknown columns, an impossible size of batches, or a position outside of the data.
        CrcMismatch, UnknownCodec, CorruptMessage, MessageTooLarge, BrokenFraming: As by `message_set.decode_messages`.

    Threads: Any number at once, each with its own generator.
    """
    schema = checked_schema(columns, COLUMNS, max_batch_bytes)
    reading = open_reading(message_set, start_offset, start_index, data_offset, max_decoded_bytes, resume)
    return _Decoding(reading, topic, partition, schema, last_wanted(end_offset), max_batch_bytes).batches()


class _Decoding:
    """The state of one call of `decode_columns`."""

    def __init__(
        self, reading: Reading, topic: str, partition: int | str, schema: Any, last_offset: int, limit_bytes: int
    ) -> None:
        self._reading = reading
        self._topic = topic
        self._partition = partition
        self._rows: Any = rows_of(schema, _ENTRY_BYTES)
        self._last_offset = last_offset
        self._limit_bytes = limit_bytes
        # The last message is not the last one of its entry. Else it must not be yielded before that is known: it has
        # the end of the entry as next offset then.
        self._is_followed = True
        self._has_all = False

    def batches(self) -> Iterator[Any]:
        """Return the batches of the rest of the levels, the innermost one first."""
        return batches_of(self._rows, self._full())

    def _full(self) -> Iterator[Any]:
        """Yield the batches that are full."""
        while self._reading.levels and not self._is_over():
            if kernel.compiled is not None and self._is_followed:
                yield from self._filled()
            if not self._is_over():
                yield from self._one()

    def _is_over(self) -> bool:
        """Return whether the next entry of the log starts after the end of the range."""
        reading = self._reading
        return self._has_all or (
            len(reading.levels) == 1 and reading.base + reading.levels[0].position > self._last_offset
        )

    def _filled(self) -> Iterator[Any]:
        """Let the kernel read, and yield the batches that are full."""
        reading, rows, last_offset = self._reading, self._rows, self._last_offset
        level, entry = reading.levels[-1], reading.entry
        if len(reading.levels) > 1:
            first = reading.skip if entry.start == reading.skip_in else 0
            run = kernel.compiled.InsideRows07(level, entry, self._topic, self._partition, first)
            last_offset = MAX_INT64
        elif reading.skips_here():
            return
        else:
            run = kernel.compiled.EntryRows07(level, reading.base, self._topic, self._partition)
        while (how := run.fill(rows.rows, self._limit_bytes, last_offset)) == kernel.IS_FULL:
            yield rows.take()
        self._has_all = how == kernel.IS_OVER

    def _one(self) -> Iterator[Any]:
        """Read one entry."""
        reading, rows, entry = self._reading, self._rows, self._reading.entry
        levels = reading.levels
        depth = len(levels)
        found = next_entry(reading, self._topic, self._partition)
        if found is None:
            if len(levels) == 1 < depth:
                rows.close_entry(entry.start, entry.end)
                self._is_followed = True
            return
        size_bytes = _ENTRY_BYTES + len(found.payload)
        if rows.size_bytes and rows.size_bytes + size_bytes > self._limit_bytes:
            yield rows.take()
        is_inside = len(levels) > 1
        index, next_offset = (entry.index - 1, entry.start) if is_inside else (0, entry.end)
        rows.add(None, found.payload, entry.start, None, NO_TIME, (), size_bytes, index, next_offset)
        self._is_followed = not is_inside or is_plain_at(levels[-1])


def cuts(batch: Any, max_rows: int | None) -> Iterator[tuple[int, int]]:
    """Yield first row and end of each part of a record batch.

    A part ends where an entry ends, unless an entry alone has more than `max_rows` rows, or is not whole in the batch.
    A part that starts within an entry ends with that entry.

    Args:
        batch: At least one row, with the columns offset, entry_index and next_offset.
        max_rows: Most rows of a part; None for no limit.
    """
    indexes = batch.column("entry_index")
    is_last_of_entry = np.asarray(batch.column("next_offset")) > np.asarray(batch.column("offset"))
    ends = np.flatnonzero(is_last_of_entry) + 1
    first = 0
    while first < batch.num_rows:
        limit = batch.num_rows if max_rows is None else min(first + max_rows, batch.num_rows)
        behind_first = int(np.searchsorted(ends, first, "right"))
        if indexes[first].as_py() > 0:
            end = min(limit, int(ends[behind_first])) if behind_first < len(ends) else limit
        else:
            whole = int(np.searchsorted(ends, limit, "right"))
            end = int(ends[whole - 1]) if whole > behind_first else limit
        yield first, end
        first = end
