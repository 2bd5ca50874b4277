"""Settings of embedded brokers of Kafka 0.7, under the names that Kafka gives them. Pure.

Source: kafka.server.KafkaConfig, kafka.utils.Utils (0.7.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

HOUR_MS: Final = 3600 * 1000
_WEEK_HOURS: Final = 24 * 7


@dataclass(frozen=True)
class LogSettings07:
    """Settings of a log.

    Attributes:
        file_bytes: a new segment starts when the old one is larger (`log.file.size`).
        roll_ms: or when its first set since the start of the broker is older (`log.roll.hours`).
        retention_ms: segments that were not written for longer are deleted (`log.retention.hours`).
        retention_bytes: the oldest segments beyond this size are deleted; -1: never (`log.retention.size`).
        flush_messages: flush after so many messages (`log.flush.interval`).
        flush_ms: flush what is older (`log.default.flush.interval.ms`).
        max_payload_bytes: largest payload of an entry (`max.message.size`).
    """

    file_bytes: int = 1 << 30
    roll_ms: int = _WEEK_HOURS * HOUR_MS
    retention_ms: int = _WEEK_HOURS * HOUR_MS
    retention_bytes: int = -1
    flush_messages: int = 1
    flush_ms: int = 100
    max_payload_bytes: int = 1_000_000


@dataclass(frozen=True)
class BrokerSettings07:
    """The settings of an embedded broker of Kafka 0.7.

    Defaults are Kafka's, except that messages are flushed, and so seen, at once; that a topic has two partitions; and
    that retention is applied every second. `KafkaCluster("0.7.2")` has the same first two.

    Attributes:
        log: defaults of its logs.
        of_topics: the settings of topics that have some of their own, by topic.
        num_partitions: of topics without a number of their own.
        partition_counts: number of partitions by topic (`topic.partition.count.map`).
        max_request_bytes: a larger request closes the connection (`max.socket.request.bytes`).
        max_topic_characters: a longer name is refused (`max.topic.name.length`).
        flush_check_ms: how often flushing by time is looked at (`log.default.flush.scheduler.interval.ms`).
        cleanup_ms: how often retention is (`log.cleanup.interval.mins`).
        session_timeout_ms: of its ZooKeeper session (`zk.sessiontimeout.ms`).
        max_connections: a further one is closed at once; a setting of the embedded broker alone (`max.connections`).
    """

    log: LogSettings07 = field(default_factory=LogSettings07)
    of_topics: Mapping[str, LogSettings07] = field(default_factory=dict)
    num_partitions: int = 2
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    max_request_bytes: int = 100 * 1024 * 1024
    max_topic_characters: int = 255
    flush_check_ms: int = 100
    cleanup_ms: int = 1000
    session_timeout_ms: int = 6000
    max_connections: int = 2000

    def log_of(self, topic: str) -> LogSettings07:
        """Return the settings of the logs of a topic."""
        return self.of_topics.get(topic, self.log)

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has on the broker."""
        return self.partition_counts.get(topic, self.num_partitions)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> BrokerSettings07:
        """Return settings from properties such as `{"log.flush.interval": 500, "num.partitions": 4}`.

        A setting for some topics is a text such as `clicks:8,views:2`.

        Raises:
            ValueError: an unknown key, or a value that is not as it must be; names both.
        """
        known = [*_LOG, *_BROKER, *_OF_TOPICS, _PARTITION_COUNTS]
        log: dict[str, int] = {}
        own: dict[str, Any] = {}
        topics: dict[str, dict[str, int]] = {}
        for key, value in properties.items():
            if key in _LOG:
                name, factor, least = _LOG[key]
                log[name] = _number(key, value, least) * factor
            elif key in _BROKER:
                name, factor, least = _BROKER[key]
                own[name] = _number(key, value, least) * factor
            elif key in _OF_TOPICS:
                name, factor, least = _OF_TOPICS[key]
                for topic, number in _by_topic(key, value, least).items():
                    topics.setdefault(topic, {})[name] = number * factor
            elif key == _PARTITION_COUNTS:
                own["partition_counts"] = _by_topic(key, value, 1)
            else:
                raise ValueError(f"embedded brokers of Kafka 0.7 know no setting {key!r}; known: {', '.join(known)}")
        defaults = LogSettings07(**log)
        return cls(defaults, {topic: replace(defaults, **each) for topic, each in topics.items()}, **own)


_LOG: Final = {
    "log.file.size": ("file_bytes", 1, 5),
    "log.roll.hours": ("roll_ms", HOUR_MS, 1),
    "log.retention.hours": ("retention_ms", HOUR_MS, 1),
    "log.retention.size": ("retention_bytes", 1, -1),
    "log.flush.interval": ("flush_messages", 1, 1),
    "log.default.flush.interval.ms": ("flush_ms", 1, 0),
    "max.message.size": ("max_payload_bytes", 1, 0),
}
"""Property -> field of `LogSettings07`, factor, least value."""

_OF_TOPICS: Final = {
    "topic.log.file.size": ("file_bytes", 1, 5),
    "topic.log.roll.hours": ("roll_ms", HOUR_MS, 1),
    "topic.log.retention.hours": ("retention_ms", HOUR_MS, 1),
    "topic.log.retention.size": ("retention_bytes", 1, 0),
    "topic.flush.intervals.ms": ("flush_ms", 1, 0),
}

_BROKER: Final = {
    "num.partitions": ("num_partitions", 1, 1),
    "max.socket.request.bytes": ("max_request_bytes", 1, 1),
    "max.topic.name.length": ("max_topic_characters", 1, 1),
    "log.default.flush.scheduler.interval.ms": ("flush_check_ms", 1, 1),
    "log.cleanup.interval.mins": ("cleanup_ms", 60_000, 1),
    "zk.sessiontimeout.ms": ("session_timeout_ms", 1, 1),
    "max.connections": ("max_connections", 1, 1),
}

_PARTITION_COUNTS: Final = "topic.partition.count.map"


def _number(key: str, value: object, least: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        raise ValueError(f"{key} is {value!r}: a number is needed") from None
    if number < least:
        raise ValueError(f"{key} is {number}: at least {least} is needed")
    return number


def _by_topic(key: str, value: object, least: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in filter(None, str(value).split(",")):
        topic, colon, number = each.strip().rpartition(":")
        if not topic or not colon:
            raise ValueError(f"{key} is {value!r}: a list such as 'clicks:8,views:2' is needed")
        found[topic] = _number(f"{key} of {topic}", number.strip(), least)
    return found
