"""The settings of consumers and producers as keywords with their types, for type checkers.

Names of Kafka 0.7 are among them, and None counts as not given. Written by
`python -m zkconsumer.config.typed.typed_settings_writer` from the tables in `config.tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from rebalance.brokers.assignor import Assignor
from zkconsumer.config.tables.kafka_consumer_keys import Deserializer

__all__ = ["ConsumerSettings", "KafkaConsumerSettings", "OptionalSettings", "ProducerSettings"]


class SharedSettings(TypedDict, total=False):
    """Those of connections, which all of them have."""

    zookeeper_auth: str | Sequence[str | tuple[str, str]] | None
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


class OptionalSettings(SharedSettings, total=False):
    """The keywords of `ConsumerConfig(...)` except `zookeeper_connect` and `group_id`."""

    zk_connect: str | None
    bootstrap_servers: str | Sequence[str] | None
    groupid: str | None
    consumer_id: str | None
    consumerid: str | None
    client_id: str | None
    zookeeper_session_timeout_ms: int | None
    zk_sessiontimeout_ms: int | None
    zookeeper_connection_timeout_ms: int | None
    zk_connectiontimeout_ms: int | None
    zookeeper_sync_time_ms: int | None
    zk_synctime_ms: int | None
    auto_offset_reset: Literal["smallest", "largest"] | None
    autooffset_reset: Literal["smallest", "largest"] | None
    fetch_message_max_bytes: int | None
    fetch_size: int | None
    fetch_min_bytes: int | None
    fetch_wait_max_ms: int | None
    socket_timeout_ms: int | None
    socket_receive_buffer_bytes: int | None
    socket_buffersize: int | None
    num_consumer_fetchers: int | None
    queued_max_message_chunks: int | None
    queuedchunks_max: int | None
    refresh_leader_backoff_ms: int | None
    consumer_timeout_ms: int | None
    client_rack: str | None
    exclude_internal_topics: bool | None
    auto_commit_enable: bool | None
    autocommit_enable: bool | None
    auto_commit_interval_ms: int | None
    autocommit_interval_ms: int | None
    offsets_storage: Literal["zookeeper", "kafka"] | None
    dual_commit_enabled: bool | None
    offsets_intent: Literal["max", "zookeeper", "kafka", "refuse"] | None
    offsets_channel_backoff_ms: int | None
    offsets_channel_socket_timeout_ms: int | None
    offsets_commit_max_retries: int | None
    partition_assignment_strategy: str | Assignor | Sequence[str | Assignor] | None
    rebalance_max_retries: int | None
    rebalance_retries_max: int | None
    rebalance_backoff_ms: int | None
    group_coordination: Literal["auto", "zookeeper", "brokers"] | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    rebalance_timeout_ms: int | None
    group_instance_id: str | None
    metadata_max_age_ms: int | None
    fetcher_backoff_ms: int | None
    shallowiterator_enable: bool | None
    rebalance_drain_timeout_ms: int | None
    rebalance_quiet_ms: int | None
    rebalance_quiet_max_ms: int | None
    queued_max_bytes: int | None
    decoded_max_bytes: int | None
    isolation_level: Literal["read_uncommitted", "read_committed"] | None
    on_message_error: Literal["raise", "skip", "stop"] | None
    roundrobin_order: Literal["auto", "0.8", "1.0"] | None
    max_processing_interval_ms: int | Literal["off"] | None
    statistics_interval_ms: int | Literal["off"] | None
    kafka_generation: Literal["auto", "0.7", "0.8"] | None
    zookeeper_acl: str | Sequence[str | tuple[str, str, str]] | None


class ConsumerSettings(OptionalSettings, total=False):
    """The keywords of `ConsumerConfig.from_properties(...)`, for functions that pass settings on."""

    zookeeper_connect: str | None
    zk_connect: str | None
    group_id: str | None
    groupid: str | None


class KafkaConsumerSettings(SharedSettings, total=False):
    """The keywords of `KafkaConsumerConfig(...)` and of its `from_properties(...)`."""

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
    zookeeper_acl: str | Sequence[str | tuple[str, str, str]] | None


class ProducerSettings(SharedSettings, total=False):
    """The keywords of `ProducerConfig(...)` and `ProducerConfig.from_properties(...)`."""

    metadata_broker_list: str | Sequence[str] | None
    broker_list: str | Sequence[str] | None
    bootstrap_servers: str | Sequence[str] | None
    zookeeper_connect: str | None
    zk_connect: str | None
    zookeeper_session_timeout_ms: int | None
    zk_sessiontimeout_ms: int | None
    zookeeper_connection_timeout_ms: int | None
    zk_connectiontimeout_ms: int | None
    client_id: str | None
    topic_metadata_refresh_interval_ms: int | None
    producer_type: Literal["sync", "async"] | None
    request_required_acks: int | None
    request_timeout_ms: int | None
    socket_timeout_ms: int | None
    message_send_max_retries: int | None
    num_retries: int | None
    retry_backoff_ms: int | None
    unknown_topic_timeout_ms: int | None
    retry_unanswered_batches: bool | None
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int | None
    message_max_bytes: int | None
    max_message_size: int | None
    queue_buffering_max_ms: int | None
    queue_time: int | None
    queue_buffering_max_messages: int | None
    queue_size: int | None
    queue_buffering_max_bytes: int | None
    queue_enqueue_timeout_ms: int | None
    queue_enqueueTimeout_ms: int | None
    batch_num_messages: int | None
    batch_size: int | None
    batch_max_bytes: int | None
    request_max_bytes: int | None
    compression_codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] | int | None
    compressed_topics: str | Sequence[str] | None
    serializer_class: str | None
    key_serializer_class: str | None
    serializer_encoding: str | None
    partitioner_class: str | None
    event_handler: str | None
    event_handler_props: str | Sequence[str] | None
    callback_handler: str | None
    callback_handler_props: str | Sequence[str] | None
    send_buffer_bytes: int | None
    buffer_size: int | None
    connect_timeout_ms: int | None
    kafka_generation: Literal["auto", "0.7", "0.8"] | None
    zk_read_num_retries: int | None
    reconnect_interval: int | None
    reconnect_time_interval_ms: int | None
    zookeeper_sync_time_ms: int | None
    zk_synctime_ms: int | None
