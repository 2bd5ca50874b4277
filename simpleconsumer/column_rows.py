"""Collects messages for Arrow record batches: which columns there are, and rows that become them. Pure.

This module needs pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from simpleconsumer import kernel
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import MAX_INT64, Headers

COLUMNS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.int32(),
}
"""The columns of a message, with their types."""
HEADERS: Final = "headers"
KNOWN: Final = {**COLUMNS, HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))}
"""The same with headers, as Spark's own source names and types them; always null before Kafka 0.11."""
COLUMNS_07: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "entry_index": pa.int32(),
    "next_offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.int32(),
}
"""The columns of a message of Kafka 0.7, with their types."""

NO_TIME: Final = -1
CREATE_TIME: Final = 0
APPEND_TIME: Final = 1
LARGEST_BATCH_BYTES: Final = 256 * 1024 * 1024
_HEADER_BYTES: Final = 2


def checked_schema(names: Sequence[str], known: Mapping[str, Any], max_batch_bytes: int) -> Any:
    """Return the Arrow schema of columns.

    Raises:
        ValueError: Unknown or repeated columns, none at all, or an impossible size of batches.
    """
    if isinstance(names, str) or not names or len(set(names)) != len(names) or not set(names) <= set(known):
        raise ValueError(f"columns is {names!r}; it must name some of {', '.join(known)}, each once")
    if not 1 <= max_batch_bytes <= LARGEST_BATCH_BYTES:
        raise ValueError(f"max_batch_bytes is {max_batch_bytes}; it must be from 1 to {LARGEST_BATCH_BYTES}")
    return pa.schema([(name, known[name]) for name in names])


def last_wanted(end_offset: int | None) -> int:
    """Return the last offset before the end of a range."""
    return MAX_INT64 if end_offset is None else max(-1, min(end_offset - 1, MAX_INT64))


def header_bytes(headers: Headers) -> int:
    """Return what headers count in the size of a batch."""
    return sum(_HEADER_BYTES + len(key.encode()) + len(value or b"") for key, value in headers)


class PlainRows:
    """Rows of a record batch, in lists of Python.

    Attributes:
        size_bytes: The size of the rows; 0 without rows.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._lists: dict[str, list[Any]] = {name: [] for name in (*KNOWN, "entry_index", "next_offset")}
        self.size_bytes = 0

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        offset: int,
        timestamp_ms: int | None,
        timestamp_type: int,
        headers: Headers,
        size_bytes: int,
        entry_index: int = 0,
        next_offset: int = 0,
    ) -> None:
        """Add one row that counts `size_bytes`."""
        row = (key, value, offset, timestamp_ms, timestamp_type, headers or None, entry_index, next_offset)
        for values, cell in zip(self._lists.values(), row, strict=True):
            values.append(cell)
        self.size_bytes += size_bytes

    def close_entry(self, offset: int, end: int) -> None:
        """Give the last row the end of its entry, if it is one of the entry at `offset` (Kafka 0.7)."""
        if self._lists["offset"] and self._lists["offset"][-1] == offset:
            self._lists["next_offset"][-1] = end

    def take(self) -> Any:
        """Return the rows added since the last call as a record batch."""
        arrays = [pa.array(self._lists[field.name], field.type) for field in self._schema]
        for values in self._lists.values():
            values.clear()
        self.size_bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class KernelRows:
    """Rows in the memory of their columns, which the kernel fills.

    Attributes:
        rows: The rows that the kernel fills.
        add, close_entry: As those of `PlainRows`.
    """

    def __init__(self, schema: Any, row_bytes: int) -> None:
        self.rows = kernel.compiled.ColumnRows(schema.names, row_bytes)
        self.add = self.rows.add
        self.close_entry = self.rows.close_entry
        self._schema = schema

    @property
    def size_bytes(self) -> int:
        """The size of the rows."""
        return int(self.rows.size_bytes)

    def take(self) -> Any:
        """Return the rows as a record batch, whose arrays own their memory."""
        count, columns = self.rows.take()
        arrays = [_array(field.type, count, columns[field.name]) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def rows_of(schema: Any, row_bytes: int) -> PlainRows | KernelRows:
    """Return rows for a record batch.

    Args:
        row_bytes: The size of a row without its key, its value and its headers.
    """
    return PlainRows(schema) if kernel.compiled is None else KernelRows(schema, row_bytes)


def batches_of(rows: PlainRows | KernelRows, full: Iterable[Any]) -> Iterator[Any]:
    """Yield batches that are full, then the rest; the error about a message comes after all messages before it.

    Args:
        rows: The rows that `full` fills.
        full: Yields the batches.
    """
    trouble = None
    try:
        yield from full
    except (MessageError, BrokenFraming) as error:
        trouble = error
    if rows.size_bytes:
        yield rows.take()
    if trouble is not None:
        try:
            raise trouble
        finally:
            trouble = None  # its traceback holds this frame: a cycle for each error otherwise


def _array(kind: Any, count: int, column: Any) -> Any:
    """Return a column that the kernel has filled."""
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        count, nulls, *buffers = column
    elif pa.types.is_list(kind):
        nulls, valid, ends, keys, values = column
        fields = list(kind.value_type)
        items = pa.StructArray.from_arrays(
            [_array(field.type, 0, found) for field, found in zip(fields, (keys, values), strict=True)], fields=fields
        )
        buffers = [_buffer(valid) if nulls else None, _buffer(ends)]
        return pa.Array.from_buffers(kind, count, buffers, nulls, children=[items])
    elif isinstance(column, tuple):
        nulls, *buffers = column
    else:
        nulls, buffers = 0, [None, column]
    valid = _buffer(buffers[0]) if nulls else None
    return pa.Array.from_buffers(kind, count, [valid, *map(_buffer, buffers[1:])], nulls)


def _buffer(memory: Any) -> Any:
    """Return memory of the kernel as a buffer; pyarrow takes no address of nothing."""
    return pa.py_buffer(memory if len(memory) else b"")
