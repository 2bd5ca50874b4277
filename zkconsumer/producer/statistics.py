"""The statistics of a producer as a frozen value: what waits, what was sent, how long brokers took. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Distribution", "ProducerStatistics", "TopicFigures"]


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
    """What became of the messages of a topic.

    Attributes:
        sent_messages: Messages that were acknowledged.
        sent_bytes: Bytes of their keys and values.
        failed_messages: Messages that were taken and not acknowledged.
    """

    sent_messages: int = 0
    sent_bytes: int = 0
    failed_messages: int = 0


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A producer at one moment, and what it has counted since it was made.

    Attributes:
        client_id: The name under which brokers log and count its requests.
        uptime_s: Seconds since it was made.
        waiting_messages: Messages that have no outcome yet, against `queue.buffering.max.messages`.
        waiting_bytes: Their bytes, against `queue.buffering.max.bytes`; those that a callback handler has not seen yet
            have no size.
        topics: Topic -> what became of its messages.
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
        """Messages that were taken and not acknowledged."""
        return sum(each.failed_messages for each in self.topics.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists with the same names."""
        return asdict(self)

    def to_json(self) -> str:
        """One line of JSON; brokers and bounds are text there."""
        return json.dumps(self.to_dict(), ensure_ascii=False)
