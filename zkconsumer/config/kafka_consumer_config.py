"""KafkaConsumerConfig: all settings of a KafkaConsumer as one frozen value.

Names and defaults are those of Kafka 3.9, with underscores in Python and dots in properties files. Values keep Kafka's
units, as the names say. The table of all settings is `zkconsumer.config.tables.kafka_consumer_keys`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from rebalance.brokers.assignor import Assignor
from zkconsumer.config.checks import warning_about_empty_auth
from zkconsumer.config.kafka_consumer_checks import contradictions, coordination_of, warnings_about
from zkconsumer.config.properties import FrozenSettings
from zkconsumer.config.tables.kafka_consumer_keys import DESERIALIZERS, KAFKA_CONSUMER_SETTINGS, Deserializer
from zkconsumer.config.tables.kinds import ZooKeeperAcl
from zkconsumer.config.tables.producer_kinds import BrokerAddress, shown_brokers
from zkconsumer.config.tables.security_keys import warning_about_security
from zkconsumer.config.tables.setting_table import SettingTable
from zkconsumer.config.zookeeper_settings import ZooKeeperAddress, parse_zookeeper_address
from zkconsumer.errors import ConfigError

if TYPE_CHECKING:
    from zkconsumer.config.typed.typed_settings import KafkaConsumerSettings


@dataclass(frozen=True, init=False, repr=False)
class KafkaConsumerConfig(FrozenSettings):
    """The settings of a KafkaConsumer; see docs/CONFIGURATION.md for each of them.

    Each setting is an attribute with underscores for the dots of its name: `config.max_poll_records`.

    Text is converted to the type of the setting (`"true"`, `"30000"`); None counts as not given.

    Raises:
        UnknownSetting: There is no such setting; names the nearest one, or that of another client.
        ConfigError: A setting is missing, has a value that is not allowed, contradicts another, or is
            given in two spellings with different values.
    """

    settings_table: ClassVar[SettingTable] = KAFKA_CONSUMER_SETTINGS

    bootstrap_servers: tuple[BrokerAddress, ...] | None
    zookeeper_connect: str | None
    group_coordination: str

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    client_id: str
    client_rack: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    partition_assignment_strategy: tuple[str | Assignor, ...]
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int

    max_poll_records: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    interceptor_classes: tuple[object, ...]
    isolation_level: str
    exclude_internal_topics: bool
    allow_auto_create_topics: bool

    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool

    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    receive_buffer_bytes: int
    send_buffer_bytes: int

    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    offsets_storage: str
    dual_commit_enabled: bool
    offsets_intent: str
    decoded_max_bytes: int

    auto_include_jmx_reporter: str | None
    client_dns_lookup: str | None
    enable_metrics_push: str | None
    group_remote_assignor: str | None
    metadata_recovery_strategy: str | None
    metric_reporters: str | None
    metrics_num_samples: str | None
    metrics_recording_level: str | None
    metrics_sample_window_ms: str | None
    security_providers: str | None
    socket_connection_setup_timeout_ms: str | None
    socket_connection_setup_timeout_max_ms: str | None

    zookeeper_acl: tuple[ZooKeeperAcl, ...]

    def __init__(self, **settings: Unpack[KafkaConsumerSettings]) -> None:
        self._set(settings)

    @classmethod
    def from_properties(
        cls, source: str | os.PathLike[str] | Mapping[str, object], **settings: Unpack[KafkaConsumerSettings]
    ) -> KafkaConsumerConfig:
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

    def to_properties(self) -> dict[str, str]:
        """Return every setting that has a value, by its name, as text; secrets are among them.

        Functions and objects of Python have no text: settings that hold one are left out. `from_properties` of these
        equals this value if there are none.
        """
        values = {key: getattr(self, key.attribute) for key in self.settings_table.keys}
        return {
            key.name: key.kind.format(value) for key, value in values.items()
            if value not in (None, ()) and _has_text(value)
        }  # fmt: skip

    @property
    def coordination(self) -> str:
        """Who coordinates the group: `brokers` or `zookeeper`."""
        return coordination_of({
            "group.coordination": self.group_coordination, "zookeeper.connect": self.zookeeper_connect,
        })  # fmt: skip

    @property
    def zookeeper(self) -> str:
        """`zookeeper_connect`, for calls that need ZooKeeper.

        Raises:
            ConfigError: `bootstrap.servers` alone is given.
        """
        if self.zookeeper_connect is None:
            raise ConfigError("zookeeper.connect", None, "given: this call needs the cluster's ZooKeeper")
        return self.zookeeper_connect

    @property
    def zookeeper_address(self) -> ZooKeeperAddress:
        """The parts of `zookeeper`: (hosts, chroot)."""
        return parse_zookeeper_address(self.zookeeper)

    @property
    def where(self) -> str:
        """Where the cluster is found, a phrase for messages: `in ZooKeeper at ...` or `at the brokers ...`."""
        if self.bootstrap_servers is not None:
            return f"at the brokers {shown_brokers(self.bootstrap_servers)}"
        return f"in ZooKeeper at {self.zookeeper_connect}"

    @staticmethod
    def _check(values: Mapping[str, Any]) -> None:
        for error in contradictions(values):
            raise error

    @staticmethod
    def _warnings(
        named: Mapping[str, object], given: Mapping[str, object], values: Mapping[str, Any]
    ) -> Iterator[str | None]:
        yield from warnings_about(given, values)
        yield warning_about_security(given, values)
        if any(isinstance(value, str) and name.replace("_", ".") == "zookeeper.auth" for name, value in named.items()):
            yield warning_about_empty_auth(given)


def _has_text(value: object) -> bool:
    """Return False for functions of the application, interceptors, and assignors in Python."""
    if callable(value):
        return value in DESERIALIZERS.values()
    if isinstance(value, tuple):  # items of a list without its type, or named tuples, which have text
        return all(isinstance(each, str | tuple) for each in value)
    return True
