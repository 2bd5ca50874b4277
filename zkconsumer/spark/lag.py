"""The lag of a stream behind its logs, in the three figures of Spark's own Kafka source. Pure.

Source: Spark 4.3, org.apache.spark.sql.kafka010.KafkaMicroBatchStream (metrics).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simpleconsumer.types import TopicPartition

__all__ = ["Lag", "lag_of"]


class Lag(NamedTuple):
    """Offsets behind the ends of the logs, over partitions."""

    least: int
    most: int
    average: float
    partitions: int

    def figures(self) -> dict[str, str]:
        """Return them under their names."""
        values = {"min": self.least, "max": self.most, "avg": self.average}
        return {f"{name}OffsetsBehindLatest": str(value) for name, value in values.items()}


def lag_of(reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Lag | None:
    """Return the lag of the partitions whose ends are known; None where there are none."""
    lags = [max(0, ends[name] - at) for name, at in reached.items() if name in ends]
    return Lag(min(lags), max(lags), sum(lags) / len(lags), len(lags)) if lags else None
