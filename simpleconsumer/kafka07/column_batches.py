"""Arrow record batches of messages of Kafka 0.7 that were read as arrays, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints, binary_array, number_array
from simpleconsumer.kafka07.column_entries import Entries

__all__ = ["COLUMNS", "Part", "Rows", "to_batch"]

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

NO_TIME: Final = -1
_ENTRY_BYTES: Final = 10


class Part(NamedTuple):
    """Messages within a stretch: plain entries of the log, or messages of one compressed entry.

    Attributes:
        start: The byte of the stretch where they start.
        data: Their bytes.
        offset: Position in the log of the first plain entry, or of the compressed entry.
        number: Of the first message in its compressed entry; -1 for plain entries.
        end: What the last message has as next position, in a compressed entry: its start if more messages follow.
    """

    start: int
    data: memoryview | bytes
    offset: int
    number: int = -1
    end: int = -1


class _Places:
    """Positions and numbers of the messages of a stretch, column by column, computed when asked for."""

    def __init__(self, positions: Ints, parts: Sequence[Part], counts: Sequence[int]) -> None:
        self._positions = positions
        self._parts = parts
        self._ends = np.cumsum(counts).tolist()
        self._starts = [end - count for end, count in zip(self._ends, counts, strict=True)]

    def offset(self) -> Ints:
        """Return where the entry of each message starts."""
        return self._filled(0)

    def next_offset(self) -> Ints:
        """Return what is to be committed behind each message."""
        found = self._filled(1)
        for part, end in zip(self._parts, self._ends, strict=True):  # none of them is empty
            if part.number >= 0:
                found[end - 1] = part.end
        return found

    def index(self) -> NDArray[np.int32]:
        """Return the number of each message in its compressed entry."""
        found = np.zeros(len(self._positions) - 1, np.int32)
        for part, first, end in zip(self._parts, self._starts, self._ends, strict=True):
            if part.number >= 0:
                found[first:end] = np.arange(part.number, part.number + end - first, dtype=np.int32)
        return found

    def _filled(self, behind: int) -> Ints:
        """Return the start of each plain entry (or its end, with 1), and of the compressed entry of other messages."""
        found = np.empty(len(self._positions) - 1, np.int64)
        for part, first, end in zip(self._parts, self._starts, self._ends, strict=True):
            if part.number >= 0:
                found[first:end] = part.offset
            else:
                np.add(self._positions[first + behind : end + behind], part.offset - part.start, out=found[first:end])
        return found


def to_batch(schema: Any, stretch: NDArray[np.uint8], positions: Ints, parts: Sequence[Part], entries: Entries) -> Any:
    """Return a stretch of messages as one record batch, which does not refer to the stretch."""
    count = len(positions) - 1
    places = _Places(positions, parts, entries.counts)
    arrays = {
        "key": lambda: pa.nulls(count, pa.binary()),
        "value": lambda: binary_array(stretch, positions, entries.start, entries.length, entries.step),
        "offset": lambda: number_array(pa.int64(), places.offset()),
        "entry_index": lambda: number_array(pa.int32(), places.index()),
        "next_offset": lambda: number_array(pa.int64(), places.next_offset()),
        "timestamp_ms": lambda: pa.nulls(count, pa.int64()),
        "timestamp_type": lambda: number_array(pa.int32(), np.full(count, NO_TIME, np.int32)),
    }
    return pa.RecordBatch.from_arrays([arrays[name]() for name in schema.names], schema=schema)


class Rows:
    """Collects messages that were read one by one for a record batch.

    Attributes:
        size_bytes: Least size of the collected messages.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._values: list[bytes] = []
        self._offsets: list[int] = []
        self._indexes: list[int] = []
        self._behind: list[int] = []
        self.size_bytes = 0

    def add(self, value: bytes, offset: int, index: int, next_offset: int) -> None:
        """Add a message."""
        self._values.append(value)
        self._offsets.append(offset)
        self._indexes.append(index)
        self._behind.append(next_offset)
        self.size_bytes += size_of(value)

    def close_entry(self, offset: int, end: int) -> None:
        """Give the last message the end of its entry, if it is one of the entry at `offset`."""
        if self._offsets and self._offsets[-1] == offset:
            self._behind[-1] = end

    def take(self) -> Any:
        """Return what was added since the last call as a record batch."""
        count = len(self._values)
        columns = {
            "key": [None] * count,
            "value": self._values,
            "offset": self._offsets,
            "entry_index": self._indexes,
            "next_offset": self._behind,
            "timestamp_ms": [None] * count,
            "timestamp_type": [NO_TIME] * count,
        }
        arrays = [pa.array(columns[name], COLUMNS[name]) for name in self._schema.names]
        for collected in (self._values, self._offsets, self._indexes, self._behind):
            collected.clear()
        self.size_bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def size_of(value: bytes) -> int:
    """Return about how many bytes a message takes in a set."""
    return _ENTRY_BYTES + len(value)
