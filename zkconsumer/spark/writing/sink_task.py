"""Writes the rows of one task: one producer, rows in batches, and counts of what brokers have acknowledged.

Rules, and which failure each prevents:

- A task returns only when every row is acknowledged (with acks 0: written to a socket). So a commit message is no claim
  about rows that are lost.
- After the first row that failed no further rows are read: Spark runs the whole task again, and writes all its rows
  once more.
- A task whose brokers make no progress within `delivery.timeout.ms` fails. So a cluster that is down does not hold a
  job for ever.
- At most what the producer's queue takes is read ahead of the brokers, so memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark import TaskContext

from simpleconsumer.types import TopicPartition
from zkconsumer.producer.errors import MessagesNotSent, OversizedMessage
from zkconsumer.producer.messages.placing import as_partitioner
from zkconsumer.producer.producer import Producer
from zkconsumer.spark.errors import RowsNotWritten
from zkconsumer.spark.settings_files import with_files_here
from zkconsumer.spark.writing.sink_columns import SinkColumns
from zkconsumer.spark.writing.sink_options import SinkOptions
from zkconsumer.spark.writing.sink_rows import RowColumns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_batches"]


def write_batches(
    options: SinkOptions, columns: SinkColumns, batches: Iterable[pa.RecordBatch]
) -> dict[TopicPartition, int]:
    """Write all rows, and return how many each partition has acknowledged.

    Raises:
        RowsNotWritten: Some rows were not acknowledged.
        RowRefused: A row has no topic, no partition that could be one, or a header without a name.
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
