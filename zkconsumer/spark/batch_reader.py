"""The reader behind `spark.read.format("zkconsumer")`: it plans with `plan_batch`, and reads with `read_range`.

Source: pyspark.sql.datasource.DataSourceReader (4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from zkconsumer.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ZkBatchReader"]


class ZkBatchReader(DataSourceReader):
    """Plans on the driver, reads on the executors.

    The plan is sent in the partitions, because Spark pickles this object before it calls `partitions`.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        from zkconsumer.spark.batch_planning import plan_batch

        return [InputPartition(each) for each in plan_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        # If there is nothing to read, Spark passes a partition without a value, and Spark 4.0 passes None.
        if partition is None or partition.value is None:
            return
        from zkconsumer.spark.record_batches import read_range

        yield from read_range(partition.value, self._columns, self._options)
