"""Computes the lag of a stream from its progress, under the names that Spark's own Kafka source uses.

Spark has no place for metrics of Python sources: `metrics` of `lastProgress.sources[]` stays empty. The offsets from
which they are computed are there.

Source: Spark 4.3, org.apache.spark.sql.kafka010.KafkaMicroBatchStream (metrics).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.options.offsets_json import are_byte_positions
from zkconsumer.spark.streaming.stream_offsets import parse_stream_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_Progress: TypeAlias = Union["StreamingQuery", "StreamingQueryProgress", None]


class Lag(NamedTuple):
    """The lag over partitions, in offsets, or on Kafka 0.7 in bytes."""

    least: int
    most: int
    average: float
    partitions: int
    unit: str = "Offsets"

    def figures(self) -> dict[str, str]:
        """Return them under their names."""
        values = {"min": self.least, "max": self.most, "avg": self.average}
        return {f"{name}{self.unit}BehindLatest": str(value) for name, value in values.items()}


def lag_of(reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Lag | None:
    """Return the lag of the partitions whose ends are known; None where there are none."""
    lags = [max(0, ends[name] - at) for name, at in reached.items() if name in ends]
    unit = "Bytes" if are_byte_positions(reached) else "Offsets"
    return Lag(min(lags), max(lags), sum(lags) / len(lags), len(lags), unit) if lags else None


def source_metrics(of: _Progress) -> list[dict[str, str]]:
    """The lag of each source after a batch, as `{"minOffsetsBehindLatest": "0", ...}`, with `min`, `max` and `avg`.

    On Kafka 0.7, where offsets count bytes, the names are `minBytesBehindLatest` and so on.

    Each figure is over the partitions of the batch, compared with the ends of their logs at the time of the batch. A
    source that is not of Kafka has none, and neither has a query before its first progress.

    Args:
        of: a query, whose last progress is used, or a progress: of `recentProgress`, or a listener's.
    """
    progress: Any = of if of is None or hasattr(of, "sources") else of.lastProgress
    return [] if progress is None else [_behind(each.endOffset, each.latestOffset) for each in progress.sources]


def _behind(end: str | None, latest: str | None) -> dict[str, str]:
    if end is None or latest is None:
        return {}
    try:
        reached, ends = parse_stream_offsets(end).offsets, parse_stream_offsets(latest).offsets
    except ValueError:
        return {}
    lag = lag_of(reached, ends)
    return {} if lag is None else lag.figures()
