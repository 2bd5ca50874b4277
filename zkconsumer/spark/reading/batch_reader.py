"""The reader of `spark.read.format("zkconsumer")`: it plans with `plan_batch`, and reads with `read_range`.

Spark refuses a reader that defines `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is on, whether the
query has filters or not. The process that creates the reader does not see the settings of the session. But Spark passes
filters in a separate kind of process, which it starts only if that setting is on. In other processes there are none.

Source: pyspark.sql.datasource.DataSourceReader; pyspark.sql.worker.data_source_pushdown_filters and
plan_data_source_read (4.1 to 4.3).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.pushdown import NO_FILTERS, push_filters

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

__all__ = ["ZkBatchReader", "ZkFilteredReader", "choose_reader"]

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class ZkBatchReader(DataSourceReader):
    """Plans on the driver, reads on the executors.

    The plan is sent in the partitions, because Spark pickles this object before it calls `partitions`.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        from zkconsumer.spark.reading.batch_planning import plan_batch

        return [InputPartition(each) for each in plan_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        # If there is nothing to read, Spark passes a partition without a value, and Spark 4.0 passes None.
        if partition is None or partition.value is None:
            return
        from zkconsumer.spark.reading.record_batches import read_range

        yield from read_range(partition.value, self._columns, self._options)


def choose_reader(options: SourceOptions, columns: tuple[str, ...]) -> ZkBatchReader:
    """Return the reader that is allowed in this process.

    Raises:
        RequirementMissing: The option needs filters, and this Spark does not pass them.
    """
    if not options.filter_pushdown:
        return ZkBatchReader(options, columns)
    if not hasattr(DataSourceReader, "pushFilters"):
        raise RequirementMissing(f"option filterPushdown needs pyspark 4.1 or newer, not {pyspark.__version__}")
    return ZkFilteredReader(options, columns) if _is_where_filters_come() else ZkBatchReader(options, columns)


class ZkFilteredReader(ZkBatchReader):
    """Plans only the partitions and offsets that the filters accept."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._filters = NO_FILTERS

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Keep the filters that can be planned, and return those that Spark has to evaluate."""
        # The error row of a wrapper has the offset of its last message, which may be after the range.
        exact = self._options.on_message_error != "row"
        self._filters, rest = push_filters(filters, offsets_are_exact=exact)
        return rest

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        from zkconsumer.spark.reading.batch_planning import plan_batch

        return [InputPartition(each) for each in plan_batch(self._options, self._filters)]


def _is_where_filters_come() -> bool:
    # Without Spark's daemon process the module is the main module.
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", None) == _WORKER
