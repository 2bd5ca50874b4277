"""Decodes message sets into Arrow record batches: the messages of `decode_messages`, column by column.

The kernel fills the columns of uncompressed messages, in wrappers too. The rest is read entry by entry, as
`message_set` does. So values, errors, their places and `resume` are those of `decode_messages`.

Memory is bounded by the message set, `max_decoded_bytes` for the wrapper that is being read, and some times
`max_batch_bytes`.

This module needs pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    last_wanted,
    rows_of,
)
from simpleconsumer.dialect_types import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.errors import MessageError
from simpleconsumer.kafka08.message_set import LOG_APPEND_TIME, REACHED, Entry, next_entry, open_levels
from simpleconsumer.kafka08.offset_order import NO_TIMESTAMP, Level
from simpleconsumer.types import Buffer

__all__ = ["COLUMNS", "MAX_BATCH_BYTES", "decode_columns"]

_ENTRY_BYTES: Final = 26


def decode_columns(
    message_set: Buffer,
    topic: str,
    partition: int | str,
    start_offset: int = 0,
    *,
    end_offset: int | None = None,
    columns: Sequence[str] = tuple(COLUMNS),
    max_batch_bytes: int = MAX_BATCH_BYTES,
    high_watermark: int | None = None,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
    resume: object = None,
) -> Iterator[Any]:
    """Yield the messages of a set from `start_offset` on as `pyarrow.RecordBatch`es, none of them empty.

    Columns: `key` and `value` (binary, null for None), `offset` (int64), `timestamp_ms` (int64, null for none) and
    `timestamp_type` (int32: -1 none, 0 of creation, 1 of the append). The error about a message comes after all
    messages before it were yielded. Small sets are decoded faster if they are joined first: `b"".join` of sets
    of one partition, in their order, each without the entry that is cut off at its end.

    Args:
        start_offset: As for `decode_messages`.
        end_offset: The first message from there on is not yielded, and nothing after it is read.
        columns: Which columns, in which order; `headers`, too, which are null.
        max_batch_bytes: Bytes of message set, inflated, that a batch is made of; a larger message has one for itself.
        high_watermark: As for `decode_messages`.
        max_decoded_bytes: As for `decode_messages`.
        resume: `MessageError.resume` of an earlier call with the same arguments, of `decode_messages` too.

    Raises:
        ValueError: Unknown columns, or an impossible size of batches.
        CrcMismatch, DamagedOffset, UnknownCodec, CorruptMessage, MessageTooLarge, BrokenFraming: As by
            `decode_messages`.

    Threads: Any number at once, each with its own generator.
    """
    schema = checked_schema(columns, KNOWN, max_batch_bytes)
    levels = open_levels(message_set, start_offset, high_watermark, max_decoded_bytes, resume)
    decoding = _Decoding(topic, partition, schema, start_offset, last_wanted(end_offset), max_batch_bytes)
    return decoding.batches(levels)


class _Decoding:
    """The state of one call of `decode_columns`.

    Attributes:
        start_offset: REACHED once the first message was found.
    """

    def __init__(
        self, topic: str, partition: int | str, schema: Any, start_offset: int, last_offset: int, limit_bytes: int
    ) -> None:
        self.start_offset = start_offset
        self._topic = topic
        self._partition = partition
        self._rows: Any = rows_of(schema, _ENTRY_BYTES)
        self._last_offset = last_offset
        self._limit_bytes = limit_bytes
        self._is_over = start_offset > last_offset

    def batches(self, levels: list[Level]) -> Iterator[Any]:
        """Return the batches of the rest of the levels, the innermost one first."""
        return batches_of(self._rows, self._full(levels))

    def _full(self, levels: list[Level]) -> Iterator[Any]:
        """Yield the batches that are full."""
        while levels and not self._is_over:
            if kernel.compiled is not None:
                yield from self._filled(levels[-1])
            if not self._is_over:
                yield from self._one(levels)

    def _filled(self, level: Level) -> Iterator[Any]:
        """Let the kernel read, and yield the batches that are full."""
        rows = self._rows
        run = kernel.compiled.EntryRows(level, self._topic, self._partition, self.start_offset)
        while (how := run.fill(rows.rows, self._limit_bytes, self._last_offset)) == kernel.IS_FULL:
            yield rows.take()
        if run.has_reached:
            self.start_offset = REACHED
        self._is_over = how == kernel.IS_OVER

    def _one(self, levels: list[Level]) -> Iterator[Any]:
        """Read one entry."""
        rows, level = self._rows, levels[-1]
        try:
            entry = next_entry(levels, self._topic, self._partition)
        except MessageError as error:
            if error.offset >= self.start_offset:
                raise
            return
        if entry is None or not self._is_wanted(entry.offset + level.base):
            return
        size_bytes = _ENTRY_BYTES + len(entry.key or b"") + len(entry.value or b"")
        if rows.size_bytes and rows.size_bytes + size_bytes > self._limit_bytes:
            yield rows.take()
        stamp, kind = _time_of(level, entry)
        rows.add(entry.key, entry.value, entry.offset + level.base, stamp, kind, (), size_bytes)

    def _is_wanted(self, offset: int) -> bool:
        """Return whether a message is asked for; note the end of the range."""
        if offset < self.start_offset:
            return False
        self.start_offset = REACHED
        self._is_over = offset >= self._last_offset
        return offset <= self._last_offset


def _time_of(level: Level, entry: Entry) -> tuple[int | None, int]:
    """Return the timestamp of a message of a level, and who has set it."""
    stamp = entry.timestamp_ms if level.timestamp_ms is None else level.timestamp_ms
    if stamp is None or stamp == NO_TIMESTAMP:
        return None, NO_TIME
    is_appended = level.timestamp_ms is not None or entry.attributes & LOG_APPEND_TIME
    return stamp, APPEND_TIME if is_appended else CREATE_TIME
