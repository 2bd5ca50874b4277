"""Counts what a producer does. Pure.

Threads: one at a time; the delivery's lock.

The statistics of a producer as a frozen value: waiting messages, sent messages, times of brokers.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Final

from zkconsumer.producer.batching.batch_queues import MESSAGE_OVERHEAD_BYTES, Batch


@dataclass(frozen=True, slots=True)
class Distribution:
    """How values are distributed.

    Attributes:
        count: How many there were.
        total: Their sum.
        largest: The largest one.
        up_to: Bound -> how many values are at most as large; the bounds ascend, and larger values are in `count` alone.
    """

    count: int = 0
    total: float = 0.0
    largest: float = 0.0
    up_to: Mapping[float, int] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean value; 0 without values."""
        return self.total / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The outcome of the messages of a topic.

    Attributes:
        sent_messages: Messages that were acknowledged.
        sent_bytes: Bytes of their keys and values.
        failed_messages: Messages that were accepted and not acknowledged.
    """

    sent_messages: int = 0
    sent_bytes: int = 0
    failed_messages: int = 0


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A producer at one moment, and its counters since it was created.

    Attributes:
        client_id: The name under which brokers log and count its requests.
        uptime_s: Seconds since it was made.
        waiting_messages: Messages that have no outcome yet, against `queue.buffering.max.messages`.
        waiting_bytes: Their bytes, against `queue.buffering.max.bytes`; messages that a callback handler has not seen
            yet have no size.
        topics: Topic -> the outcomes of its messages.
        batch_messages: The number of messages in the batches that were acknowledged.
        retried_batches: How often a batch was sent again, or waited for a leader once more.
        repeated_messages: Messages that were sent again after a lost answer, and may be stored twice.
        split_batches: Batches that were halved, as the broker called them too large.
        failed_requests: Broker -> requests whose answer was lost, or that could not be sent.
        request_seconds: Broker -> how long the requests took that it answered.
        throttled: Request (produce, end_txn ...) -> answers that say that a broker throttles the producer (quotas).
        throttle_ms: Request -> for how long, in total.
    """

    client_id: str
    uptime_s: float
    waiting_messages: int
    waiting_bytes: int
    topics: Mapping[str, TopicFigures] = field(default_factory=dict)
    batch_messages: Distribution = field(default_factory=Distribution)
    retried_batches: int = 0
    repeated_messages: int = 0
    split_batches: int = 0
    failed_requests: Mapping[int, int] = field(default_factory=dict)
    request_seconds: Mapping[int, Distribution] = field(default_factory=dict)
    throttled: Mapping[str, int] = field(default_factory=dict)
    throttle_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def sent_messages(self) -> int:
        """Messages that were acknowledged."""
        return sum(each.sent_messages for each in self.topics.values())

    @property
    def failed_messages(self) -> int:
        """Messages that were accepted and not acknowledged."""
        return sum(each.failed_messages for each in self.topics.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists with the same names."""
        return asdict(self)

    def to_json(self) -> str:
        """One line of JSON; brokers and bounds are text there."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MESSAGES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0)


class _Values:
    """Values that are counted by their size."""

    __slots__ = ("_bounds", "_counts", "_largest", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._largest = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value
        self._largest = max(self._largest, value)

    def distribution(self) -> Distribution:
        up_to = dict(zip(self._bounds, accumulate(self._counts), strict=False))
        return Distribution(sum(self._counts), self._total, self._largest, up_to)


class _Topic:
    """Counts of one topic."""

    __slots__ = ("failed_messages", "sent_bytes", "sent_messages")

    def __init__(self) -> None:
        self.sent_messages = 0
        self.sent_bytes = 0
        self.failed_messages = 0


class Counters:
    """The counts of batches and requests.

    Attributes:
        split_batches: Batches that were halved.
    """

    def __init__(self) -> None:
        self.split_batches = 0
        self._topics: dict[str, _Topic] = {}
        self._batch_messages = _Values(_MESSAGES)
        self._request_seconds: dict[int, _Values] = {}
        self._failed_requests: Counter[int] = Counter()
        self._throttled: Counter[str] = Counter()
        self._throttle_ms: Counter[str] = Counter()

    def finished(self, batch: Batch, is_sent: bool) -> None:
        """Count a batch that has its outcome."""
        messages = len(batch.pairs)
        topic = self._topic(batch.name.topic)
        if is_sent:
            topic.sent_messages += messages
            topic.sent_bytes += batch.size - messages * MESSAGE_OVERHEAD_BYTES
            self._batch_messages.add(messages)
        else:
            topic.failed_messages += messages

    def refused(self, topic: str) -> None:
        """Count a message that failed before it was in a batch."""
        self._topic(topic).failed_messages += 1

    def taken(self, topic: str) -> None:
        """Count a message that an event handler took."""
        self._topic(topic).sent_messages += 1

    def answered(self, broker: int, seconds: float) -> None:
        """Count a request that was answered, or written with acks 0."""
        values = self._request_seconds.get(broker)
        if values is None:
            values = self._request_seconds[broker] = _Values(_SECONDS)
        values.add(seconds)

    def request_failed(self, broker: int) -> None:
        """Count a request that was lost."""
        self._failed_requests[broker] += 1

    def throttled(self, api: str, throttle_ms: int) -> None:
        """Count an answer that says that a broker throttles the producer."""
        self._throttled[api] += 1
        self._throttle_ms[api] += throttle_ms

    def throttles(self) -> Mapping[str, int]:
        """Return request -> how many answers said that."""
        return dict(self._throttled)

    def throttle_ms(self) -> Mapping[str, int]:
        """Return request -> for how long, in total."""
        return dict(self._throttle_ms)

    def topics(self) -> Mapping[str, TopicFigures]:
        """Return what became of the messages of each topic."""
        return {
            name: TopicFigures(each.sent_messages, each.sent_bytes, each.failed_messages)
            for name, each in self._topics.items()
        }

    def batch_messages(self) -> Distribution:
        """Return the number of messages in the batches that were acknowledged."""
        return self._batch_messages.distribution()

    def request_seconds(self) -> Mapping[int, Distribution]:
        """Return broker -> how long its requests took."""
        return {broker: values.distribution() for broker, values in self._request_seconds.items()}

    def failed_requests(self) -> Mapping[int, int]:
        """Return broker -> how many of its requests were lost."""
        return dict(self._failed_requests)

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = _Topic()
        return found
