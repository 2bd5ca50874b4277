"""Settings of the log of a partition, under the names of Kafka's topic settings. Pure.

Source: kafka.log.LogConfig (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

_NEVER: Final = (1 << 63) - 1
_WEEK_MS: Final = 7 * 24 * 3600 * 1000
_NUMBERS: Final = {
    "segment.bytes": "INT", "segment.ms": "LONG", "segment.jitter.ms": "LONG", "segment.index.bytes": "INT",
    "flush.messages": "LONG", "flush.ms": "LONG", "retention.bytes": "LONG", "retention.ms": "LONG",
    "max.message.bytes": "INT", "index.interval.bytes": "INT", "delete.retention.ms": "LONG",
    "file.delete.delay.ms": "LONG", "min.compaction.lag.ms": "LONG", "max.compaction.lag.ms": "LONG",
    "message.timestamp.difference.max.ms": "LONG", "message.timestamp.before.max.ms": "LONG",
    "message.timestamp.after.max.ms": "LONG", "min.insync.replicas": "INT", "local.retention.ms": "LONG",
    "local.retention.bytes": "LONG",
}  # fmt: skip
_OTHERS: Final = {
    "cleanup.policy": "delete", "compression.type": "producer", "preallocate": "false",
    "unclean.leader.election.enable": "false", "message.timestamp.type": "CreateTime",
    "message.format.version": "3.0-IV1", "message.downconversion.enable": "true", "min.cleanable.dirty.ratio": "0.5",
    "remote.storage.enable": "false", "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
}  # fmt: skip
"""Settings that are no numbers, with Kafka's defaults."""


@dataclass(frozen=True)
class LogSettings:
    """Settings of a log, by the names and with the defaults of Kafka's topic settings (`.` for `_`).

    Attributes:
        segment_bytes, segment_ms: a new segment starts when the old one is as large or as old.
        retention_bytes, retention_ms: whole segments are deleted while the log is larger (-1: never) or they are older
            (-1: never).
        flush_messages, flush_ms: fsync after as many messages or milliseconds; Kafka leaves both to the system.
        max_message_bytes: largest entry (message or wrapper), its 12 bytes of offset and size included.
        index_interval_bytes: bytes between two pairs of the index.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = _WEEK_MS
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    flush_messages: int = _NEVER
    flush_ms: int = _NEVER
    max_message_bytes: int = 1_000_012
    index_interval_bytes: int = 4096

    def with_topic(self, config: Mapping[str, object]) -> LogSettings:
        """Return these settings changed by those of a topic; keys that mean nothing here are passed over.

        A compacted topic (`cleanup.policy=compact`) is never compacted here, but kept for ever.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(self)}
        changed = {known[key]: int(str(value)) for key, value in config.items() if key in known}
        if config.get("cleanup.policy") == "compact":
            changed |= {"retention_ms": -1, "retention_bytes": -1}
        return replace(self, **changed)


def refused_setting(name: str, value: str | None) -> str | None:
    """Return what brokers say of a setting that no topic can have; None for one that it can."""
    if name not in _NUMBERS and name not in _OTHERS:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    if name in _NUMBERS:
        try:
            int(value)
        except ValueError:
            return f"Invalid value {value} for configuration {name}: Not a number of type {_NUMBERS[name]}"
    return None


def settings_in_force(log: LogSettings, config: Mapping[str, object]) -> dict[str, str]:
    """Return all settings of a topic by name, as far as embedded brokers have them.

    Args:
        log: Those of its broker.
        config: Those of the topic itself.
    """
    own = {field.name.replace("_", "."): str(getattr(log, field.name)) for field in fields(log)}
    return {**own, **_OTHERS, **{name: str(value) for name, value in config.items()}}
