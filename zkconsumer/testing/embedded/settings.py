"""Settings of embedded brokers, under the names that Kafka 0.8.2 gives them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from zkconsumer.testing.embedded.disk.log import LogSettings

_LOG_KEYS: Final = {
    "log.segment.bytes": "segment_bytes",
    "log.roll.ms": "segment_ms",
    "log.retention.bytes": "retention_bytes",
    "log.retention.ms": "retention_ms",
    "log.flush.interval.messages": "flush_messages",
    "log.flush.interval.ms": "flush_ms",
    "message.max.bytes": "max_message_bytes",
    "log.index.interval.bytes": "index_interval_bytes",
}
_TYPES: Final[Mapping[object, Callable[[str], int | bool | str]]] = {
    "bool": lambda text: text.lower() == "true", "str": str, "int": int,
}  # fmt: skip


@dataclass(frozen=True)
class BrokerSettings:
    """The settings of an embedded broker.

    Attributes:
        log: defaults of its logs; a topic's own settings come first.
        num_partitions: of topics that are made automatically.
        auto_create_topics_enable: whether a metadata request makes a topic.
        socket_request_max_bytes: a larger request closes the connection.
        max_connections: a further one is closed at once.
        log_retention_check_interval_ms: how often retention and flushing by time are looked at. Kafka: five minutes.
        max_incremental_fetch_session_cache_slots: how many fetch sessions a broker keeps.
        transaction_max_timeout_ms: longest time for which a producer may keep a transaction open.
        transaction_abort_timed_out_transaction_cleanup_interval_ms: how often such transactions are looked for. Kafka:
            ten seconds.
        group_initial_rebalance_delay_ms: how long the first rebalance of an empty group waits for more members. Kafka:
            three seconds.
        group_min_session_timeout_ms: shortest session time-out of a member.
        group_max_session_timeout_ms: longest one.
        group_max_size: most members of a group, from Kafka 2.2 on.
        zookeeper_session_timeout_ms: of the session that keeps `/brokers/ids/<id>`.
        authorizer_class_name: any name gives the cluster access lists, by which nobody is refused (0.11 and later).
    """

    log: LogSettings = field(default_factory=LogSettings)
    num_partitions: int = 2
    auto_create_topics_enable: bool = True
    socket_request_max_bytes: int = 100 * 1024 * 1024
    max_connections: int = 2000
    log_retention_check_interval_ms: int = 1000
    max_incremental_fetch_session_cache_slots: int = 1000
    transaction_max_timeout_ms: int = 15 * 60 * 1000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 1000
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6000
    group_max_session_timeout_ms: int = 30 * 60 * 1000
    group_max_size: int = 2**31 - 1
    zookeeper_session_timeout_ms: int = 6000
    authorizer_class_name: str = ""

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> BrokerSettings:
        """Return settings from properties such as `{"log.segment.bytes": 4096, "num.partitions": 4}`.

        Raises:
            ValueError: an unknown key, or a value that is no number (or no truth value).
        """
        own = {each.name.replace("_", "."): each for each in fields(cls) if each.name != "log"}
        log: dict[str, int] = {}
        chosen: dict[str, int | bool | str] = {}
        for key, value in properties.items():
            if key in _LOG_KEYS:
                log[_LOG_KEYS[key]] = int(str(value))
            elif key in own:
                name = own[key].name
                chosen[name] = _TYPES[own[key].type](str(value))
            else:
                raise ValueError(f"embedded brokers know no setting {key!r}; known: {', '.join([*_LOG_KEYS, *own])}")
        return cls(log=LogSettings(**log), **chosen)  # type: ignore[arg-type]
