"""The settings of KafkaConsumer as keywords with their types, for type checkers.

Written by `python -m zkconsumer.config.typed.typed_settings_writer` from `config.tables.kafka_consumer_keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from rebalance.brokers.assignors.assignor import Assignor
from zkconsumer.config.deserializers import Deserializer

__all__ = ["KafkaConsumerSettings"]


class KafkaConsumerSettings(TypedDict, total=False):
    """The keywords of `KafkaConsumerConfig(...)` and of its `from_properties(...)`; None counts as not given."""

    bootstrap_servers: str | Sequence[str] | None
    zookeeper_connect: str | None
    group_coordination: Literal["auto", "brokers", "zookeeper"] | None
    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic"] | None
    client_id: str | None
    client_rack: str | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    max_poll_interval_ms: int | None
    partition_assignment_strategy: str | Assignor | Sequence[str | Assignor] | None
    auto_offset_reset: Literal["earliest", "latest", "none", "smallest", "largest"] | None
    enable_auto_commit: bool | None
    auto_commit_interval_ms: int | None
    max_poll_records: int | None
    key_deserializer: str | Deserializer | None
    value_deserializer: str | Deserializer | None
    interceptor_classes: Sequence[object] | None
    isolation_level: Literal["read_uncommitted", "read_committed"] | None
    exclude_internal_topics: bool | None
    allow_auto_create_topics: bool | None
    fetch_min_bytes: int | None
    fetch_max_bytes: int | None
    fetch_max_wait_ms: int | None
    max_partition_fetch_bytes: int | None
    check_crcs: bool | None
    request_timeout_ms: int | None
    default_api_timeout_ms: int | None
    retry_backoff_ms: int | None
    retry_backoff_max_ms: int | None
    reconnect_backoff_ms: int | None
    reconnect_backoff_max_ms: int | None
    connections_max_idle_ms: int | None
    metadata_max_age_ms: int | None
    receive_buffer_bytes: int | None
    send_buffer_bytes: int | None
    zookeeper_session_timeout_ms: int | None
    zookeeper_connection_timeout_ms: int | None
    offsets_storage: Literal["zookeeper", "kafka"] | None
    dual_commit_enabled: bool | None
    offsets_intent: Literal["max", "zookeeper", "kafka", "refuse"] | None
    decoded_max_bytes: int | None
    auto_include_jmx_reporter: object
    client_dns_lookup: object
    enable_metrics_push: object
    group_remote_assignor: object
    metadata_recovery_strategy: object
    metric_reporters: object
    metrics_num_samples: object
    metrics_recording_level: object
    metrics_sample_window_ms: object
    security_providers: object
    socket_connection_setup_timeout_ms: object
    socket_connection_setup_timeout_max_ms: object
    zookeeper_auth: str | Sequence[str | tuple[str, str]] | None
    zookeeper_acl: str | Sequence[str | tuple[str, str, str]] | None
    zookeeper_use_ssl: bool | None
    zookeeper_ssl_cafile: str | None
    zookeeper_ssl_certfile: str | None
    zookeeper_ssl_keyfile: str | None
    zookeeper_ssl_keyfile_password: str | None
    zookeeper_ssl_verify_certs: bool | None
    zookeeper_ssl_check_hostname: bool | None
    zookeeper_sasl_mechanism: Literal["DIGEST-MD5", "PLAIN", "GSSAPI"] | None
    zookeeper_sasl_username: str | None
    zookeeper_sasl_password: str | None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None
    ssl_truststore_location: str | None
    ssl_ca_location: str | None
    ssl_truststore_type: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_location: str | None
    ssl_certificate_location: str | None
    ssl_keystore_type: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_protocol: str | None
    ssl_enabled_protocols: str | None
    ssl_cipher_suites: str | None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    sasl_mechanisms: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_jaas_config: str | None
    sasl_oauthbearer_token_callback: str | None
