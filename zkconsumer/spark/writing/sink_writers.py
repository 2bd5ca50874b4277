"""The writers of `df.write.format("zkconsumer")` and of `writeStream`: a task writes its rows and reports counts.

Spark makes a writer on the driver, pickles it for the tasks, and makes another one that it tells about the end of a
batch. So a writer contains options and columns, and nothing else.

Source: pyspark.sql.datasource.DataSourceArrowWriter (4.0), DataSourceStreamArrowWriter (4.1).

Writes the rows of one task: one producer, rows in batches, and counts of what brokers have acknowledged.

Rules, and which failure each prevents:

- A task returns only when every row is acknowledged (with acks 0: written to a socket). So a commit message is no claim
  about rows that are lost.
- After the first row that failed no further rows are read: Spark runs the whole task again, and writes all its rows
  once more.
- A task whose brokers make no progress within `delivery.timeout.ms` fails. So a cluster that is down does not hold a
  job for ever.
- At most what the producer's queue takes is read ahead of the brokers, so memory stays bounded.

Makes columns for the producer of the record batches of a task.

A record batch is cut into slices of a few megabytes, so that the bytes that are copied for Python stay bounded.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from simpleconsumer.types import TopicPartition
from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.producer.errors import MessagesNotSent, OversizedMessage
from zkconsumer.producer.partitioners import Partitioner
from zkconsumer.producer.placing import as_partitioner
from zkconsumer.producer.producer import Producer
from zkconsumer.spark.errors import RowRefused, RowsNotWritten
from zkconsumer.spark.header_column import headers_of
from zkconsumer.spark.options.offsets_json import parse_partition, partition_of_column
from zkconsumer.spark.settings_files import with_files_here
from zkconsumer.spark.writing.key_partitions import KeyColumn, partition_indexes
from zkconsumer.spark.writing.sink_options import BINARY, INT, STRING, TIMESTAMP, SinkColumns, SinkOptions

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter

    _GETS_ROWS = False
except ImportError:  # pyspark 4.0
    from pyspark.sql.datasource import DataSourceStreamWriter as StreamWriter  # type: ignore[assignment]

    _GETS_ROWS = True
log = logging.getLogger(__name__)
_ROWS_AT_ONCE: Final = 10_000


@dataclass
class WrittenRows(WriterCommitMessage):
    """The rows that one task has written.

    Attributes:
        partitions: Partition -> how many of its rows that has acknowledged.
    """

    partitions: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows the task has written."""
        return sum(self.partitions.values())


class ZkBatchWriter(DataSourceArrowWriter):
    """Writes a table."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of one task."""
        return _write(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written."""
        _log_written("the table is written", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what of a table that was not written completely is in the topics all the same."""
        _log_failed("the table is not written completely", messages)


class ZkStreamWriter(StreamWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WrittenRows:
        """Write the rows of one task."""
        batches = _batches(iterator, self._columns) if _GETS_ROWS else iterator
        return _write(self._options, self._columns, batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what was written."""
        _log_written(f"batch {batchId} is written", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what of a batch that failed is in the topics all the same."""
        _log_failed(f"batch {batchId} is not written completely", messages)


def _write(options: SinkOptions, columns: SinkColumns, batches: Iterator[pa.RecordBatch]) -> WrittenRows:

    return WrittenRows(write_batches(options, columns, batches))


def _batches(rows: Iterator[Any], columns: SinkColumns) -> Iterator[pa.RecordBatch]:
    """Yield record batches of rows."""
    import pyarrow as pa

    from zkconsumer.spark.header_column import header_array

    arrow = {BINARY: pa.binary(), INT: pa.int32(), TIMESTAMP: pa.timestamp("us", "UTC")}
    kinds = {"key": columns.key, "value": columns.value, "partition": columns.partition, "timestamp": TIMESTAMP}
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        arrays = [
            header_array(each) if name == "headers"
            else pa.array(map(_in_utc, each) if name == "timestamp" else each,
                          arrow.get(kinds.get(name) or "", pa.string()))
            for name, each in zip(columns.names, zip(*some, strict=True), strict=True)
        ]  # fmt: skip
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns.names))


def _in_utc(moment: datetime | None) -> datetime | None:
    """Return the moment of a row, which Spark gives in the time zone of its Python process."""
    return None if moment is None else moment.astimezone(UTC)


def _log_written(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    counts = _counts(messages)
    log.info("%s: %s rows, %s", what, counts.total(), _shown(counts))


def _log_failed(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    ended = sum(message is not None for message in messages)
    counts = _counts(messages)
    log.warning("%s; %s of its %s tasks ended, and their rows are in the topics (%s rows: %s), perhaps with rows of "
                "the other tasks", what, ended, len(messages), counts.total(), _shown(counts))  # fmt: skip


def _counts(messages: Sequence[WriterCommitMessage | None]) -> Counter[TopicPartition]:
    counts: Counter[TopicPartition] = Counter()
    for message in messages:
        if isinstance(message, WrittenRows):
            counts.update(message.partitions)
    return counts


def _shown(counts: Counter[TopicPartition]) -> str:
    largest = counts.most_common(10)
    more = f", and {len(counts) - 10} more" if len(counts) > 10 else ""
    return ", ".join(f"{name.topic}/{name.partition} {rows}" for name, rows in largest) + more or "none"


_SLICE_BYTES: Final = 4 * 1024 * 1024
_SLICE_ROWS: Final = 10_000
_MICROSECONDS: Final = 1000
"""Of a millisecond."""


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
            RowRefused: A row has no topic, no partition that could be one, a header without a name, or a time before
                1970.
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
        times = _times_of(rows.column("timestamp"), numbers) if self._columns.has_times else None
        return MessageColumns(topic, values, keys, self._partitions(rows, numbers), choose, numbers, headers, times)

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


def _times_of(column: pa.Array, numbers: Sequence[int]) -> list[int | None] | None:
    """Return the time of each row in milliseconds since 1970, cut off there, None for null; None if all are null.

    Raises:
        RowRefused: One is before 1970: Kafka has no such times.
    """
    if column.null_count == len(column):
        return None
    moments = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    is_before = pc.less(moments, 0)
    if pc.any(is_before).as_py():
        row = pc.index(is_before, True).as_py()
        raise RowRefused(f"row {numbers[row]} of the task: timestamp {column[row].as_py()} is before 1970, but "
                         "messages have times from 1970-01-01T00:00:00Z on",
                         remedy="null writes the current time; or filter such rows")  # fmt: skip
    found: list[int | None] = pc.divide(moments, _MICROSECONDS).to_pylist()
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


def write_batches(
    options: SinkOptions, columns: SinkColumns, batches: Iterable[pa.RecordBatch]
) -> dict[TopicPartition, int]:
    """Write all rows, and return how many each partition has acknowledged.

    Raises:
        RowsNotWritten: Some rows were not acknowledged.
        RowRefused: A row has no topic, no partition that could be one, a header without a name, or a time before 1970.
    """
    config = with_files_here(options.config)
    rows = RowColumns(columns, options.topic, as_partitioner(config.partitioner_class), options.is_07)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return {}
    producer = Producer(config)
    try:
        sending = producer.columns(options.delivery_timeout_ms / 1000)
        for batch in _chained(first, filled):
            for messages in rows.of_batch(batch):
                sending.add(messages)
            if sending.failed:
                break
        sending.finish()
        return sending.sent_to
    except MessagesNotSent as error:
        raise _not_written(error) from error
    finally:
        # Every row has its outcome here, or the task has failed, and what waits is not to be sent any more.
        producer.close(0.0)


def _chained(first: pa.RecordBatch, others: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield first
    yield from others


def _not_written(error: MessagesNotSent) -> RowsNotWritten:
    context = TaskContext.get()
    task = "" if context is None else f"task {context.partitionId()}, attempt {context.attemptNumber()}: "
    number, first = error.failures[0]
    remedy = "a retry of the task writes all its rows again"
    if isinstance(first, OversizedMessage):
        remedy = "larger messages need option message.max.bytes, and the limit of the broker"
    total = error.sent + error.failed
    what = f"{error.failed} of {total} rows that were sent are not written; the first one is row {number}: {first}"
    return RowsNotWritten(f"{task}{what}", remedy=remedy)
