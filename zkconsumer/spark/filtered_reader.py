"""The reader of a batch that takes the filters of a query, and where Spark lets it be one.

Spark refuses a reader that defines `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is on, whether the
query has filters or not. No setting of the session reaches the process that makes the reader; but Spark hands filters
over in a process of its own kind, which it starts only where that setting is on. In any other there are none to take.

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
    """Return the reader that may be made in this process.

    Raises:
        RequirementMissing: Filters are to be taken, and this Spark has none.
    """
    if not options.filter_pushdown:
        return ZkBatchReader(options, columns)
    if not hasattr(DataSourceReader, "pushFilters"):
        raise RequirementMissing(f"option filterPushdown needs pyspark 4.1 or newer, not {pyspark.__version__}")
    return ZkFilteredReader(options, columns) if _is_where_filters_come() else ZkBatchReader(options, columns)


class ZkFilteredReader(ZkBatchReader):
    """Plans only what the filters let through."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._filters = NO_FILTERS

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Keep what passes, and return the filters that Spark evaluates."""
        # A row about a wrapper has the offset of its last message, which may lie behind the range.
        exact = self._options.on_message_error != "row"
        self._filters, rest = push_filters(filters, offsets_are_exact=exact)
        return rest

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        from zkconsumer.spark.batch_planning import plan_batch

        return [InputPartition(each) for each in plan_batch(self._options, self._filters)]


def _is_where_filters_come() -> bool:
    # Without a daemon the module is the main one.
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", None) == _WORKER
