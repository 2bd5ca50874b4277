"""The figures of a mirror's process as metrics of Prometheus.

Each process serves its own partitions, so the sum over the processes is the mirror. A value that is not known has no
sample: it would look like 0, as if all was well.

Needs the extra: pip install 'zkconsumer[prometheus]'. docs/OPERATIONS.md explains each metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.lane_settings import LaneFigures
from zkconsumer.mirror.mirror_process import Mirror

_LANE: Final = ("mirror", "topic", "partition", "target_topic")

_GAUGES: Final[tuple[tuple[str, str, Callable[[LaneFigures], float | None]], ...]] = (
    ("position_offset", "Next offset of the source to be copied.", lambda each: _known(each.position)),
    ("source_end_offset", "Where the log of the source ends, as its leader last said.",
     lambda each: _known(each.source_end)),
    ("lag_messages", "Offsets that are to be copied.", lambda each: each.lag),
    ("lag_seconds", "How old the oldest record is that is not copied, at most.",
     lambda each: None if each.lag_ms is None else each.lag_ms / 1000),
    ("guarded", "1 while the target's brokers know the producer, by the times of the last records.",
     lambda each: each.is_guarded),
    ("waiting", "1 while something delays the partition, which the log names.", lambda each: bool(each.trouble)),
    ("failed", "1 if the partition is stopped, and is not copied further.", lambda each: each.failure is not None),
)  # fmt: skip
_COUNTERS: Final[tuple[tuple[str, str, Callable[[LaneFigures], float]], ...]] = (
    ("copied_records", "Records copied.", lambda each: each.records),
    ("copied_bytes", "Bytes of the batches in which they were sent.", lambda each: each.size_bytes),
    ("whole_batches", "Batches that were copied as they are.", lambda each: each.whole_batches),
    ("encoded_batches", "Batches that were encoded anew.", lambda each: each.encoded_batches),
    ("waits", "How often an error has delayed the partition.", lambda each: each.waits),
)


class MirrorCollector(Collector):
    """Metrics of a mirror, to be registered: `REGISTRY.register(MirrorCollector(mirror))`.

    Threads: any.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def describe(self) -> Iterable[Metric]:
        """The metrics, without figures."""
        return list(_metrics("", {}, {}))

    def collect(self) -> Iterable[Metric]:
        """The metrics with the figures of now."""
        return list(_metrics(self._mirror.settings.name, self._mirror.figures(), self._mirror.throttled_ms()))


def _metrics(name: str, lanes: Mapping[Lane, LaneFigures], throttled_ms: Mapping[str, int]) -> Iterator[Metric]:
    rows = [
        ([name, lane.source.topic, str(lane.source.partition), lane.target.topic], found)
        for lane, found in sorted(lanes.items())
    ]
    count = GaugeMetricFamily(
        "zkconsumer_mirror_partitions", "Partitions that this process copies.", labels=("mirror",)
    )
    if name:
        count.add_metric([name], len(rows))
    yield count
    for metric, meaning, value in _GAUGES:
        gauge = GaugeMetricFamily(f"zkconsumer_mirror_{metric}", meaning, labels=_LANE)
        for labels, found in rows:
            figure = value(found)
            if figure is not None:
                gauge.add_metric(labels, float(figure))
        yield gauge
    for metric, meaning, counted in _COUNTERS:
        counter = CounterMetricFamily(f"zkconsumer_mirror_{metric}", meaning, labels=_LANE)
        for labels, found in rows:
            counter.add_metric(labels, float(counted(found)))
        yield counter
    throttled = CounterMetricFamily(
        "zkconsumer_mirror_throttle_milliseconds", "For how long the brokers of a side have throttled this process.",
        labels=("mirror", "side"),
    )  # fmt: skip
    for side, time_ms in throttled_ms.items():
        throttled.add_metric([name, side], time_ms)
    yield throttled


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset
