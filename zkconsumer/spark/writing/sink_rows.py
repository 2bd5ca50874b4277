"""Makes columns for the producer of the record batches of a task.

A record batch is cut into slices of a few megabytes, so that the bytes that are copied for Python stay bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.producer.messages.partitioners import Partitioner
from zkconsumer.spark.errors import RowRefused
from zkconsumer.spark.header_column import headers_of
from zkconsumer.spark.options.partition_names import parse_partition, partition_of_column
from zkconsumer.spark.writing.key_partitions import KeyColumn, partition_indexes
from zkconsumer.spark.writing.sink_columns import STRING, SinkColumns

__all__ = ["RowColumns"]

_SLICE_BYTES: Final = 4 * 1024 * 1024
_SLICE_ROWS: Final = 10_000


class RowColumns:
    """Turns the rows of one task into columns of messages.

    Args:
        columns: Those of the table.
        topic: The topic of all rows; None for that of the column.
        partitioner: Chooses partitions by keys.
        is_07: Numbers in the column `partition` are those of the source on Kafka 0.7.

    Attributes:
        rows: How many rows there were so far.
    """

    def __init__(self, columns: SinkColumns, topic: str | None, partitioner: Partitioner, is_07: bool) -> None:
        self.rows = 0
        self._columns = columns
        self._topic = topic
        self._partitioner = partitioner
        self._is_07 = is_07

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[MessageColumns]:
        """Yield columns of messages of one topic each; they have the numbers of their rows in the task.

        Raises:
            RowRefused: A row has no topic, no partition that could be one, or a header without a name.
        """
        batch = pa.RecordBatch.from_arrays(batch.columns, names=list(self._columns.names))
        most = max(1, min(_SLICE_ROWS, _SLICE_BYTES * batch.num_rows // max(batch.nbytes, 1)))
        for first in range(0, batch.num_rows, most):
            yield from self._of_slice(batch.slice(first, most))

    def _of_slice(self, rows: pa.RecordBatch) -> Iterator[MessageColumns]:
        first = self.rows
        self.rows += rows.num_rows
        if self._topic is not None:
            yield self._of_topic(self._topic, rows, range(first, self.rows))
            return
        topics = rows.column("topic")
        if topics.null_count:
            row = first + pc.index(pc.is_null(topics), True).as_py()
            raise RowRefused(f"row {row} of the task has no topic: its column 'topic' is null",
                             remedy="set option topic, or filter such rows")  # fmt: skip
        for topic in pc.unique(topics).to_pylist():
            is_there = pc.equal(topics, topic)
            numbers = (np.flatnonzero(is_there.to_numpy(zero_copy_only=False)) + first).tolist()
            whole = len(numbers) == rows.num_rows
            yield self._of_topic(topic, rows if whole else rows.filter(is_there), numbers)

    def _of_topic(self, topic: str, rows: pa.RecordBatch, numbers: Sequence[int]) -> MessageColumns:
        values = _bytes_of(_binary(rows.column("value")))
        keys, choose = None, None
        if self._columns.key is not None:
            key = _binary(rows.column("key"))
            if key.null_count < len(key):
                keys = _bytes_of(key)
                column = KeyColumn(keys, *_buffers(key), self._columns.key == STRING)
                choose = partial(partition_indexes, column, self._partitioner)
        headers = headers_of(rows.column("headers"), numbers) if self._columns.has_headers else None
        return MessageColumns(topic, values, keys, self._partitions(rows, numbers), choose, numbers, headers)

    def _partitions(self, rows: pa.RecordBatch, numbers: Sequence[int]) -> Sequence[int | str | None] | None:
        kind = self._columns.partition
        if kind is None:
            return None
        column = rows.column("partition")
        if column.null_count == len(column):
            return None
        given: list[Any] = column.to_pylist() if column.null_count else column.to_numpy(zero_copy_only=False).tolist()
        if kind == STRING:
            return [self._named(text, number) for text, number in zip(given, numbers, strict=True)]
        if self._is_07:
            return [None if each is None else partition_of_column(each) for each in given]
        return given

    def _named(self, text: str | None, number: int) -> int | str | None:
        """Return the partition of a text.

        Raises:
            RowRefused: It names none.
        """
        found = None if text is None else parse_partition(text)
        if text is not None and found is None:
            raise RowRefused(f"row {number} of the task: partition {text!r:.60} names none",
                             remedy="a number does; in Kafka 0.7 broker-partition, as 0-3")  # fmt: skip
        return found


def _binary(column: pa.Array) -> pa.Array:
    """Return text as its UTF-8 bytes, and bytes as they are; with offsets of 64 bits only if they came so."""
    kind = column.type
    if pa.types.is_string(kind):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(kind) else column


def _bytes_of(column: pa.Array) -> list[bytes | None]:
    # Twice as fast as `to_pylist`.
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _buffers(column: pa.Array) -> tuple[Any, Any]:
    """Return all bytes of a column, and where each of its values starts."""
    kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    size = np.dtype(kind).itemsize
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, kind, len(column) + 1, column.offset * size).astype(np.int64)
    return np.frombuffer(data if data is not None else b"", np.uint8), starts
