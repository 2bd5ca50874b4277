"""The Spark 4 data source `format("zkconsumer")` for Kafka clusters from 0.7 on, see docs/SPARK.md.

Names are imported when they are first used, so that importing this package is fast and needs neither pyspark nor
pyarrow. The import has one effect: it sets this interpreter for Spark, see `driver_python`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simpleconsumer.lazy_names import lazy_names
from zkconsumer.spark.driver_python import name_driver_python

if TYPE_CHECKING:
    from zkconsumer.spark.errors import (
        ColumnsRefused,
        DataLoss,
        GroupHasNoOffsets,
        MessagesLost,
        NoEntryFound,
        NoMessageAtTime,
        OptionRefused,
        PartitionUnreadable,
        PlanningFailed,
        RequirementMissing,
        RowRefused,
        RowsNotWritten,
        SparkSourceError,
        TopicMissing,
    )
    from zkconsumer.spark.source import ZkConsumerSource
    from zkconsumer.spark.streaming.group_offsets import GroupHasMembers, OffsetsNotStored, commit_offsets, follow
    from zkconsumer.spark.streaming.metrics import source_metrics

__all__ = [
    "ColumnsRefused",
    "DataLoss",
    "GroupHasMembers",
    "GroupHasNoOffsets",
    "MessagesLost",
    "NoEntryFound",
    "NoMessageAtTime",
    "OffsetsNotStored",
    "OptionRefused",
    "PartitionUnreadable",
    "PlanningFailed",
    "RequirementMissing",
    "RowRefused",
    "RowsNotWritten",
    "SparkSourceError",
    "TopicMissing",
    "ZkConsumerSource",
    "commit_offsets",
    "follow",
    "source_metrics",
]

if not TYPE_CHECKING:  # mypy would take every name for one of the package
    __getattr__ = lazy_names(
        __name__,
        {
            "zkconsumer.spark.errors": __all__,
            "zkconsumer.spark.streaming.group_offsets": [
                "GroupHasMembers",
                "OffsetsNotStored",
                "commit_offsets",
                "follow",
            ],
            "zkconsumer.spark.streaming.metrics": ["source_metrics"],
            "zkconsumer.spark.source": ["ZkConsumerSource"],
        },
    )


def __dir__() -> list[str]:
    """All names, also ones that are not imported yet."""
    return sorted({*globals(), *__all__})


name_driver_python()
