"""ProducerConfig: all settings of a producer as one frozen value.

Names are those of Kafka 0.8.2, with underscores in Python and dots in properties files; the names of 0.7 are accepted
too. Values keep Kafka's units, as the names say. The table of all settings is `zkconsumer.config.tables.producer_keys`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from zkconsumer.config.properties import FrozenSettings
from zkconsumer.config.tables.kinds import OPEN_ACL, ZooKeeperAcl
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS, contradiction
from zkconsumer.config.tables.producer_kinds import BrokerAddress
from zkconsumer.config.tables.security_keys import security_of, warning_about_security
from zkconsumer.config.tables.setting_table import SettingTable
from zkconsumer.errors import ConfigError

if TYPE_CHECKING:
    from zkconsumer.config.typed.typed_settings import ProducerSettings


@dataclass(frozen=True, init=False, repr=False)
class ProducerConfig(FrozenSettings):
    """The settings of a producer; see docs/CONFIGURATION.md for each of them.

    Each setting is an attribute with underscores for the dots of its name: `config.request_required_acks`.

    Text is converted to the type of the setting (`"true"`, `"30000"`); None counts as not given.

    Raises:
        UnknownSetting: There is no such setting; names the nearest one.
        ConfigError: A setting is missing, has a value that is not allowed, contradicts another, or is
            given in two spellings with different values.
    """

    settings_table: ClassVar[SettingTable] = PRODUCER_SETTINGS
    zookeeper_acl: ClassVar[tuple[ZooKeeperAcl, ...]] = (OPEN_ACL,)  # a producer creates no nodes

    metadata_broker_list: tuple[BrokerAddress, ...] | None
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    client_id: str
    topic_metadata_refresh_interval_ms: int
    producer_type: str
    request_required_acks: int
    request_timeout_ms: int
    message_send_max_retries: int
    retry_backoff_ms: int
    unknown_topic_timeout_ms: int
    retry_unanswered_batches: bool
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    message_max_bytes: int
    queue_buffering_max_ms: int
    queue_buffering_max_messages: int
    queue_buffering_max_bytes: int
    queue_enqueue_timeout_ms: int
    batch_num_messages: int
    batch_max_bytes: int
    request_max_bytes: int
    compression_codec: str
    compressed_topics: tuple[str, ...]
    serializer_class: str
    key_serializer_class: str
    serializer_encoding: str
    partitioner_class: str
    event_handler: str | None
    event_handler_props: tuple[str, ...]
    callback_handler: str | None
    callback_handler_props: tuple[str, ...]
    send_buffer_bytes: int
    connect_timeout_ms: int
    kafka_generation: str
    zk_read_num_retries: int
    reconnect_interval: int
    reconnect_time_interval_ms: int
    zookeeper_sync_time_ms: int

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._set(settings)

    @classmethod
    def from_properties(
        cls, source: str | os.PathLike[str] | Mapping[str, object], **settings: Unpack[ProducerSettings]
    ) -> ProducerConfig:
        """Return the configuration of a Java properties file, or of a mapping with its keys.

        An unknown name in `source` is logged with the nearest known one, and ignored, as in Kafka; one among
        `settings` is refused.

        Args:
            source: Path of a file in UTF-8 or ISO 8859-1, or name -> value.
            **settings: Settings that override those of `source`.

        Raises:
            ConfigError: As the constructor; for a value of a file it names the file and the line.
            OSError: The file cannot be read.
            SettingsNotUsable: The file is no properties file: a broken `\\u` escape, or text in UTF-16.
        """
        return cls._from_properties(source, settings)

    @staticmethod
    def _check(values: Mapping[str, Any]) -> None:
        security_of(values)
        found = contradiction(values)
        if found is not None:
            raise ConfigError(*found)

    @staticmethod
    def _warnings(
        named: Mapping[str, object], given: Mapping[str, object], values: Mapping[str, Any]
    ) -> Iterator[str | None]:
        yield warning_about_security(given, values)
        if values["request.required.acks"] == 0:
            yield "request.required.acks is 0: messages that a broker does not accept are lost without an error"
