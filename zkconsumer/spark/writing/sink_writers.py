"""The writers of `df.write.format("zkconsumer")` and of `writeStream`: a task writes its rows and reports counts.

Spark makes a writer on the driver, pickles it for the tasks, and makes another one that it tells about the end of a
batch. So a writer contains options and columns, and nothing else.

Source: pyspark.sql.datasource.DataSourceArrowWriter (4.0), DataSourceStreamArrowWriter (4.1).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.writing.sink_columns import BINARY, INT, SinkColumns
from zkconsumer.spark.writing.sink_options import SinkOptions

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter

    _GETS_ROWS = False
except ImportError:  # pyspark 4.0
    from pyspark.sql.datasource import DataSourceStreamWriter as StreamWriter  # type: ignore[assignment]

    _GETS_ROWS = True

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WrittenRows", "ZkBatchWriter", "ZkStreamWriter"]

log = logging.getLogger(__name__)

_ROWS_AT_ONCE: Final = 10_000


@dataclass
class WrittenRows(WriterCommitMessage):
    """What one task has written.

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
    from zkconsumer.spark.writing.sink_task import write_batches

    return WrittenRows(write_batches(options, columns, batches))


def _batches(rows: Iterator[Any], columns: SinkColumns) -> Iterator[pa.RecordBatch]:
    """Yield record batches of rows."""
    import pyarrow as pa

    from zkconsumer.spark.header_column import header_array

    arrow = {BINARY: pa.binary(), INT: pa.int32()}
    kinds = {"key": columns.key, "value": columns.value, "partition": columns.partition}
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        arrays = [
            header_array(each) if name == "headers" else pa.array(each, arrow.get(kinds.get(name) or "", pa.string()))
            for name, each in zip(columns.names, zip(*some, strict=True), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns.names))


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
