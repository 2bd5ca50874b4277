"""Arrow record batches of messages that were read as arrays, or one by one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints, binary_array, number_array
from simpleconsumer.kafka08.column_entries import APPEND_TIME, CREATE_TIME, NO_TIME, Entries
from simpleconsumer.kafka08.message_set import LOG_APPEND_TIME, Entry
from simpleconsumer.kafka08.message_shapes import NO_TIMESTAMP, Level

__all__ = ["COLUMNS", "HEADERS", "KNOWN", "Rows", "size_of", "to_batch"]

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

_ENTRY_BYTES = 26


def to_batch(schema: Any, stretch: NDArray[np.uint8], positions: Ints, entries: Entries) -> Any:
    """Return a stretch of messages as one record batch, which does not refer to the stretch."""
    arrays = {
        "offset": lambda: number_array(pa.int64(), entries.offset),
        "timestamp_ms": lambda: pa.array(entries.timestamp_ms, mask=entries.timestamp_ms == NO_TIMESTAMP),
        "timestamp_type": lambda: number_array(pa.int32(), entries.timestamp_type),
        "key": lambda: binary_array(stretch, positions, entries.key_start, entries.key_length, entries.step),
        "value": lambda: binary_array(stretch, positions, entries.value_start, entries.value_length, entries.step),
        HEADERS: lambda: pa.nulls(len(entries.offset), KNOWN[HEADERS]),
    }
    return pa.RecordBatch.from_arrays([arrays[name]() for name in schema.names], schema=schema)


class Rows:
    """Collects messages that were read one by one for a record batch.

    Attributes:
        size_bytes: Least size of the collected messages.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._columns: dict[str, list[Any]] = {name: [] for name in KNOWN}
        self.size_bytes = 0

    def add(self, level: Level, entry: Entry) -> None:
        """Add a message that `message_set.next_entry` read from a level."""
        stamp = entry.timestamp_ms if level.timestamp_ms is None else level.timestamp_ms
        if stamp == NO_TIMESTAMP:
            stamp = None
        is_appended = level.timestamp_ms is not None or entry.attributes & LOG_APPEND_TIME
        kind = NO_TIME if stamp is None else APPEND_TIME if is_appended else CREATE_TIME
        self._append((entry.key, entry.value, entry.offset + level.base, stamp, kind, None), size_of(entry))

    def _append(self, row: tuple[Any, ...], size_bytes: int) -> None:
        for values, value in zip(self._columns.values(), row, strict=True):
            values.append(value)
        self.size_bytes += size_bytes

    def take(self) -> Any:
        """Return what was added since the last call as a record batch."""
        columns = [pa.array(self._columns[name], KNOWN[name]) for name in self._schema.names]
        for values in self._columns.values():
            values.clear()
        self.size_bytes = 0
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def size_of(entry: Entry) -> int:
    """Return about how many bytes a message takes in a set."""
    return _ENTRY_BYTES + len(entry.key or b"") + len(entry.value or b"")
