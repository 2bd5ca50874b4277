"""The reader of a batch that accepts the filters of a query, and the check whether Spark allows such a reader.

Spark refuses a reader that defines `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is on, whether the
query has filters or not. The process that creates the reader does not see the settings of the session. But Spark passes
filters in a separate kind of process, which it starts only if that setting is on. In other processes there are none.

Source: pyspark.sql.worker.data_source_pushdown_filters and plan_data_source_read (4.1 to 4.3).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from zkconsumer.spark.batch_reader import ZkBatchReader
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.pushdown import NO_FILTERS, push_filters

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["ZkFilteredReader", "choose_reader"]

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


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
        from zkconsumer.spark.batch_planning import plan_batch

        return [InputPartition(each) for each in plan_batch(self._options, self._filters)]


def _is_where_filters_come() -> bool:
    # Without Spark's daemon process the module is the main module.
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", None) == _WORKER
