"""The settings of a producer as keywords with their types, for type checkers; names of Kafka 0.7 are among them.

Written by `python -m zkconsumer.config.typed.typed_settings_writer` from `config.tables.producer_keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

__all__ = ["ProducerSettings"]


class ProducerSettings(TypedDict, total=False):
    """The keywords of `ProducerConfig(...)` and `ProducerConfig.from_properties(...)`; None counts as not given."""

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
