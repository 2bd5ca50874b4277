"""The statistics of producers as metrics of Prometheus; `zkconsumer.prometheus` is the public module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from zkconsumer.producer.batching.counters import Distribution, ProducerStatistics, TopicFigures
from zkconsumer.producer.errors import ProducerClosed
from zkconsumer.producer.producer import Producer

_PRODUCER: Final = ("client_id",)

_GAUGES: Final[tuple[tuple[str, str, Callable[[ProducerStatistics], float]], ...]] = (
    ("uptime_seconds", "Time since the producer was created.", lambda each: each.uptime_s),
    ("waiting_messages", "Messages that have no outcome yet.", lambda each: each.waiting_messages),
    ("waiting_bytes", "Their bytes.", lambda each: each.waiting_bytes),
)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[ProducerStatistics], float]], ...]] = (
    ("retried_batches", "Batches that are sent again after a failure.", lambda each: each.retried_batches),
    ("repeated_messages", "Messages that were sent again after a lost answer.", lambda each: each.repeated_messages),
    ("split_batches", "Batches that a broker rejected as too large.", lambda each: each.split_batches),
)
_OF_REQUEST: Final[tuple[tuple[str, str, Callable[[ProducerStatistics], Mapping[str, int]]], ...]] = (
    ("throttled_requests", "Answers of brokers that throttle this producer.", lambda each: each.throttled),
    ("throttle_milliseconds", "Total time of throttling.", lambda each: each.throttle_ms),
)
_OF_TOPIC: Final[tuple[tuple[str, str, Callable[[TopicFigures], float]], ...]] = (
    ("sent_messages", "Messages that were acknowledged.", lambda each: each.sent_messages),
    ("sent_bytes", "Bytes of their keys and values.", lambda each: each.sent_bytes),
    ("failed_messages", "Messages that failed.", lambda each: each.failed_messages),
)


class ProducerCollector(Collector):
    """Metrics of producers, to be registered: `REGISTRY.register(ProducerCollector(producer))`.

    Threads: any.
    """

    def __init__(self, *producers: Producer) -> None:
        self._producers = producers

    def describe(self) -> Iterable[Metric]:
        """The metrics, without figures."""
        return list(_metrics([]))

    def collect(self) -> Iterable[Metric]:
        """The metrics with the figures of now; in a forked child the parent's producers are left out."""
        found = []
        for producer in self._producers:
            try:
                found.append(producer.statistics())
            except ProducerClosed:
                continue
        return list(_metrics(found))


def _metrics(found: list[ProducerStatistics]) -> Iterator[Metric]:
    producers = list(_with_names_of_their_own(found))
    for name, meaning, value in _GAUGES:
        gauge = GaugeMetricFamily(f"zkconsumer_producer_{name}", meaning, labels=_PRODUCER)
        for each in producers:
            gauge.add_metric([each.client_id], value(each))
        yield gauge
    for name, meaning, value in _COUNTERS:
        counter = CounterMetricFamily(f"zkconsumer_producer_{name}", meaning, labels=_PRODUCER)
        for each in producers:
            counter.add_metric([each.client_id], value(each))
        yield counter
    for name, meaning, of_topic in _OF_TOPIC:
        counter = CounterMetricFamily(f"zkconsumer_producer_{name}", meaning, labels=(*_PRODUCER, "topic"))
        for each in producers:
            for topic, figures in each.topics.items():
                counter.add_metric([each.client_id, topic], of_topic(figures))
        yield counter
    for name, meaning, of_request in _OF_REQUEST:
        counter = CounterMetricFamily(f"zkconsumer_producer_{name}", meaning, labels=(*_PRODUCER, "request"))
        for each in producers:
            for request, count in of_request(each).items():
                counter.add_metric([each.client_id, request], count)
        yield counter
    failed = CounterMetricFamily("zkconsumer_producer_failed_requests", "Requests whose answer was lost.",
                                 labels=(*_PRODUCER, "broker"))  # fmt: skip
    seconds = HistogramMetricFamily("zkconsumer_producer_request_seconds", "How long brokers took to answer.",
                                    labels=(*_PRODUCER, "broker"))  # fmt: skip
    batches = HistogramMetricFamily("zkconsumer_producer_batch_messages", "Messages in a batch.", labels=_PRODUCER)
    for each in producers:
        for broker, count in each.failed_requests.items():
            failed.add_metric([each.client_id, str(broker)], count)
        for broker, values in each.request_seconds.items():
            seconds.add_metric([each.client_id, str(broker)], _buckets(values), values.total)
        batches.add_metric([each.client_id], _buckets(each.batch_messages), each.batch_messages.total)
    yield from (failed, seconds, batches)


def _with_names_of_their_own(producers: list[ProducerStatistics]) -> Iterator[ProducerStatistics]:
    """Yield the figures of each producer; a number tells those of one `client.id` apart."""
    seen: Counter[str] = Counter()
    for each in producers:
        seen[each.client_id] += 1
        number = seen[each.client_id]
        yield each if number == 1 else replace(each, client_id=f"{each.client_id}-{number}")


def _buckets(values: Distribution) -> list[tuple[str, float]]:
    return [*((f"{bound:g}", float(count)) for bound, count in values.up_to.items()), ("+Inf", float(values.count))]
