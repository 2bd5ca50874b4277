"""Settings of the log of a partition, under the names of Kafka's topic settings. Pure.

Source: kafka.log.LogConfig (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

_NEVER: Final = (1 << 63) - 1
_WEEK_MS: Final = 7 * 24 * 3600 * 1000


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
