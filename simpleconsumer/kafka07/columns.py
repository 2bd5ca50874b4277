"""Decodes message sets of Kafka 0.7 into Arrow record batches.

This module needs numpy and pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from simpleconsumer.dialect_types import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka07.message_set import open_reading, read_messages
from simpleconsumer.types import Buffer, Message

__all__ = ["COLUMNS", "decode_columns"]

COLUMNS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "entry_index": pa.int32(),
    "next_offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.int32(),
}
"""The columns of a message of Kafka 0.7, with their types."""

_LARGEST_BATCH_BYTES = 256 * 1024 * 1024
_ENTRY_BYTES = 10
_NO_TIME = -1


def column_schema(columns: Sequence[str]) -> Any:
    """Return the schema of batches with these columns.

    Raises:
        ValueError: No column is named, one is not known, or one is named twice.
    """
    unknown = [name for name in columns if name not in COLUMNS]
    if isinstance(columns, str) or not columns or unknown or len(set(columns)) != len(columns):
        raise ValueError(f"columns is {columns!r}: some of {', '.join(COLUMNS)}, each once")
    return pa.schema([(name, COLUMNS[name]) for name in columns])


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
    (int32: number of the message in its entry), `next_offset` (int64: what to commit behind it), `timestamp_ms` (int64,
    always null) and `timestamp_type` (int32, always -1). What is wrong with a message is raised after all messages
    before it were yielded.

    Args:
        start_offset, start_index, data_offset, max_decoded_bytes, resume: As for `message_set.decode_messages`.
        end_offset: Entries that start there or behind are not read.
        columns: Which columns, in which order.
        max_batch_bytes: Bytes of message set, inflated, that a batch is made of; a larger message has one for itself.

    Raises:
        ValueError: Unknown columns, an impossible size of batches, or a position outside of the data.
        CrcMismatch, UnknownCodec, CorruptMessage, MessageTooLarge, BrokenFraming: As by `message_set.decode_messages`.

    Threads: Any number at once, each with its own generator.
    """
    schema = column_schema(columns)
    if not 1 <= max_batch_bytes <= _LARGEST_BATCH_BYTES:
        raise ValueError(f"max_batch_bytes is {max_batch_bytes}: from 1 to {_LARGEST_BATCH_BYTES} are possible")
    reading = open_reading(message_set, start_offset, start_index, data_offset, max_decoded_bytes, resume)
    messages = read_messages(reading, topic, partition)
    return _batches(messages, schema, end_offset, max_batch_bytes)


def _batches(messages: Iterator[Message], schema: Any, end_offset: int | None, limit_bytes: int) -> Iterator[Any]:
    rows = Rows(schema)
    trouble: Exception | None = None
    try:
        for message in messages:
            if end_offset is not None and message.offset >= end_offset:
                break
            if rows.size_bytes and rows.size_bytes + size_of(message) > limit_bytes:
                yield rows.take()
            rows.add(message)
    except (MessageError, BrokenFraming) as error:
        if end_offset is None or not isinstance(error, MessageError) or error.offset < end_offset:
            trouble = error
    if rows.size_bytes:
        yield rows.take()
    if trouble is not None:
        try:
            raise trouble
        finally:
            trouble = None  # its traceback holds this frame: a cycle for each error otherwise


class Rows:
    """Collects messages that were read one by one for a record batch.

    Attributes:
        size_bytes: Least size of the collected messages.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.size_bytes = 0

    def add(self, message: Message) -> None:
        """Add a message."""
        row = (None, message.value, message.offset, message.index, message.next_offset, None, _NO_TIME)
        for values, value in zip(self._columns.values(), row, strict=True):
            values.append(value)
        self.size_bytes += size_of(message)

    def take(self) -> Any:
        """Return what was added since the last call as a record batch."""
        columns = [pa.array(self._columns[name], COLUMNS[name]) for name in self._schema.names]
        for values in self._columns.values():
            values.clear()
        self.size_bytes = 0
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def size_of(message: Message) -> int:
    """Return about how many bytes a message takes in a set."""
    return _ENTRY_BYTES + len(message.value or b"")
