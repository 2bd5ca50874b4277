"""Topics of old clusters for Spark 4: `spark.read.format("zkconsumer")`, see docs/SPARK.md.

Names are imported when they are first used, so that importing this package costs nothing and needs neither pyspark nor
pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkconsumer.spark.errors import (
        ColumnsRefused,
        DataLoss,
        OptionRefused,
        PartitionUnreadable,
        PlanningFailed,
        RequirementMissing,
        SparkSourceError,
        TopicMissing,
    )
    from zkconsumer.spark.source import ZkConsumerSource

__all__ = [
    "ColumnsRefused",
    "DataLoss",
    "OptionRefused",
    "PartitionUnreadable",
    "PlanningFailed",
    "RequirementMissing",
    "SparkSourceError",
    "TopicMissing",
    "ZkConsumerSource",
]

_MODULES = dict.fromkeys(__all__, "zkconsumer.spark.errors") | {"ZkConsumerSource": "zkconsumer.spark.source"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
