"""`spark.read.format("zkconsumer")`: Spark's calls, handed to `plan_batch` or, on executors, to `read_range`.

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

    What `partitions` learns travels in the partitions: Spark has pickled this object before it calls that.
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
        # Where there is nothing to read Spark makes such a one up, 4.0 no partition at all.
        if partition is None or partition.value is None:
            return
        from zkconsumer.spark.record_batches import read_range

        yield from read_range(partition.value, self._columns, self._options)
