"""The Spark 4 data source `format("zkconsumer")` for Kafka clusters from 0.7 on, see docs/SPARK.md.

Names are imported when they are first used, so that importing this package is fast and needs neither pyspark nor
pyarrow. The import has one effect: it sets this interpreter for Spark, see `driver_python`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
    from zkconsumer.spark.group_offsets import GroupHasMembers, OffsetsNotStored
    from zkconsumer.spark.metrics import source_metrics
    from zkconsumer.spark.query_commits import commit_offsets, follow
    from zkconsumer.spark.source import ZkConsumerSource

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

_MODULES = dict.fromkeys(__all__, "zkconsumer.spark.errors") | {
    "GroupHasMembers": "zkconsumer.spark.group_offsets",
    "OffsetsNotStored": "zkconsumer.spark.group_offsets",
    "ZkConsumerSource": "zkconsumer.spark.source",
    "commit_offsets": "zkconsumer.spark.query_commits",
    "follow": "zkconsumer.spark.query_commits",
    "source_metrics": "zkconsumer.spark.metrics",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


name_driver_python()
