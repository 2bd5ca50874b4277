"""Makes the settings that the parts below KafkaConsumer know, those of streams, from its own. Pure."""

from __future__ import annotations

from typing import Any, Final

from zkconsumer.config import ConsumerConfig
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.config.tables.keys import ZOOKEEPER_KEYS
from zkconsumer.config.tables.security_keys import SECURITY_KEYS

RESETS: Final = {"earliest": "smallest", "latest": "largest", "none": "none"}
"""`auto.offset.reset` of KafkaConsumer -> the word of streams; any other than its two stops a partition."""
_NO_GROUP: Final = "none"
_SAME: Final = (
    "group_instance_id", "client_id", "client_rack", "session_timeout_ms", "heartbeat_interval_ms",
    "auto_commit_interval_ms", "fetch_min_bytes", "isolation_level", "exclude_internal_topics", "metadata_max_age_ms",
    "decoded_max_bytes", "group_coordination",
)  # fmt: skip
_ZOOKEEPER_ONLY: Final = (
    "zookeeper_session_timeout_ms", "zookeeper_connection_timeout_ms", "offsets_storage", "dual_commit_enabled",
    "offsets_intent",
)  # fmt: skip


def streams_settings(config: KafkaConsumerConfig) -> ConsumerConfig:
    """Return the settings of streams that do what these say.

    Raises:
        ConfigError: A setting cannot be used with the coordination of the group.
    """
    given: dict[str, Any] = {name: getattr(config, name) for name in _SAME}
    given |= {
        "zookeeper_connect": config.zookeeper_connect,
        "bootstrap_servers": _addresses(config),
        "group_id": config.group_id or _NO_GROUP,
        "auto_offset_reset": "smallest" if config.auto_offset_reset == "earliest" else "largest",
        "auto_commit_enable": config.enable_auto_commit,
        "fetch_message_max_bytes": config.max_partition_fetch_bytes,
        "fetch_wait_max_ms": config.fetch_max_wait_ms,
        "socket_timeout_ms": max(config.request_timeout_ms, config.fetch_max_wait_ms),
        "socket_receive_buffer_bytes": config.receive_buffer_bytes,
        "queued_max_bytes": config.fetch_max_bytes,
        "refresh_leader_backoff_ms": config.retry_backoff_ms,
        "rebalance_timeout_ms": config.max_poll_interval_ms,
        "max_processing_interval_ms": config.max_poll_interval_ms,
        "offsets_channel_backoff_ms": config.retry_backoff_ms,
        "offsets_channel_socket_timeout_ms": config.request_timeout_ms,
    }
    for key in SECURITY_KEYS:
        given[key.attribute] = getattr(config, key.attribute)
    strategies = config.partition_assignment_strategy
    if config.coordination == "zookeeper":
        first = strategies[0]
        given["partition_assignment_strategy"] = first if isinstance(first, str) else first.name
        names = (*_ZOOKEEPER_ONLY, *(key.attribute for key in ZOOKEEPER_KEYS))
        given |= {name: getattr(config, name) for name in names}
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "rebalance_timeout_ms", "metadata_max_age_ms",
                     "group_instance_id"):  # fmt: skip
            given.pop(name)
    else:
        given["partition_assignment_strategy"] = list(strategies)
    return ConsumerConfig(**given)


def _addresses(config: KafkaConsumerConfig) -> str | None:
    if config.bootstrap_servers is None:
        return None
    return ",".join(f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}"
                    for each in config.bootstrap_servers)  # fmt: skip
