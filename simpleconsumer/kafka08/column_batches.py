"""Arrow record batches of messages that were read as arrays, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simpleconsumer.kafka08.column_entries import APPEND_TIME, CREATE_TIME, NO_TIME, Entries, Ints
from simpleconsumer.kafka08.message_set import LOG_APPEND_TIME, Entry
from simpleconsumer.kafka08.message_shapes import NO_TIMESTAMP, Level

__all__ = ["COLUMNS", "Rows", "column_schema", "size_of", "to_batch"]

COLUMNS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.int32(),
}
"""The columns of a message, with their types."""

_ENTRY_BYTES = 26


def column_schema(columns: Sequence[str]) -> Any:
    """Return the schema of batches with these columns.

    Raises:
        ValueError: No column is named, one is not known, or one is named twice.
    """
    unknown = [name for name in columns if name not in COLUMNS]
    if isinstance(columns, str) or not columns or unknown or len(set(columns)) != len(columns):
        raise ValueError(f"columns is {columns!r}: some of {', '.join(COLUMNS)}, each once")
    return pa.schema([(name, COLUMNS[name]) for name in columns])


def to_batch(schema: Any, stretch: NDArray[np.uint8], positions: Ints, entries: Entries) -> Any:
    """Return a stretch of messages as one record batch, which does not refer to the stretch."""
    arrays = {
        "offset": lambda: _numbers(pa.int64(), entries.offset),
        "timestamp_ms": lambda: pa.array(entries.timestamp_ms, mask=entries.timestamp_ms == NO_TIMESTAMP),
        "timestamp_type": lambda: _numbers(pa.int32(), entries.timestamp_type),
        "key": lambda: _fields(stretch, positions, entries.key_start, entries.key_length, entries.step),
        "value": lambda: _fields(stretch, positions, entries.value_start, entries.value_length, entries.step),
    }
    return pa.RecordBatch.from_arrays([arrays[name]() for name in schema.names], schema=schema)


def _numbers(kind: Any, values: NDArray[Any]) -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _fields(stretch: NDArray[np.uint8], positions: Ints, start: Ints, length: Ints, step: int) -> Any:
    """Return keys or values as an array of their own."""
    count = len(start)
    longest = int(length.max())
    if longest == -1:
        return pa.nulls(count, pa.binary())
    if step:
        rows: NDArray[np.uint8] = np.ndarray((count, longest), np.uint8, stretch, int(start[0]), (step, 1))
        ends = np.arange(count + 1, dtype=np.int32) * np.int32(longest)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
        return pa.Array.from_buffers(pa.binary(), count, buffers)
    # The stretch as an array of, by turns, the bytes before a field and the field; then every second one is taken.
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = positions[:-1]
    bounds[1::2] = start
    bounds[2::2] = start + np.maximum(length, 0)
    whole = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(stretch)])
    wanted = np.arange(1, 2 * count, 2, dtype=np.int64)
    return whole.take(pa.array(wanted, mask=length < 0) if int(length.min()) < 0 else pa.array(wanted))


class Rows:
    """Collects messages that were read one by one for a record batch.

    Attributes:
        size_bytes: Least size of the collected messages.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.size_bytes = 0

    def add(self, level: Level, entry: Entry) -> None:
        """Add a message that `message_set.next_entry` read from a level."""
        stamp = entry.timestamp_ms if level.timestamp_ms is None else level.timestamp_ms
        if stamp == NO_TIMESTAMP:
            stamp = None
        is_appended = level.timestamp_ms is not None or entry.attributes & LOG_APPEND_TIME
        kind = NO_TIME if stamp is None else APPEND_TIME if is_appended else CREATE_TIME
        row = (entry.key, entry.value, entry.offset + level.base, stamp, kind)
        for values, value in zip(self._columns.values(), row, strict=True):
            values.append(value)
        self.size_bytes += size_of(entry)

    def take(self) -> Any:
        """Return what was added since the last call as a record batch."""
        columns = [pa.array(self._columns[name], COLUMNS[name]) for name in self._schema.names]
        for values in self._columns.values():
            values.clear()
        self.size_bytes = 0
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def size_of(entry: Entry) -> int:
    """Return about how many bytes a message takes in a set."""
    return _ENTRY_BYTES + len(entry.key or b"") + len(entry.value or b"")
