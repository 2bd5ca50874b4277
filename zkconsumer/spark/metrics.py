"""Computes the lag of a stream from its progress, under the names that Spark's own Kafka source uses.

Spark has no place for metrics of Python sources: `metrics` of `lastProgress.sources[]` stays empty. The offsets from
which they are computed are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

from zkconsumer.spark.lag import lag_of
from zkconsumer.spark.stream_offsets import parse_stream_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["source_metrics"]

_Progress: TypeAlias = Union["StreamingQuery", "StreamingQueryProgress", None]


def source_metrics(of: _Progress) -> list[dict[str, str]]:
    """The lag of each source after a batch, as `{"minOffsetsBehindLatest": "0", ...}`, with `min`, `max` and `avg`.

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
