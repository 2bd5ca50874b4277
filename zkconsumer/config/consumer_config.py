"""ConsumerConfig: all settings of a consumer as one frozen value.

Names are those of Kafka 0.8.2, with underscores in Python and dots in properties files; the names of 0.7 are accepted
too. Values keep Kafka's units, as the names say. The table of all settings is `zkconsumer.config.tables.keys`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from zkconsumer.config.checks import (
    check_settings,
    coordinates,
    warning_about_07,
    warning_about_coordination,
    warning_about_empty_auth,
    warnings_about,
)
from zkconsumer.config.properties import FrozenSettings
from zkconsumer.config.tables.keys import CONSUMER_SETTINGS, find_key, names_of_07
from zkconsumer.config.tables.kinds import AssignorNames, ZooKeeperAcl
from zkconsumer.config.tables.producer_kinds import BrokerAddress, shown_brokers
from zkconsumer.config.tables.security_keys import warning_about_security
from zkconsumer.config.tables.setting_table import SettingTable
from zkconsumer.config.zookeeper_settings import ZooKeeperAddress, parse_zookeeper_address
from zkconsumer.errors import ConfigError

if TYPE_CHECKING:
    from zkconsumer.config.typed.typed_settings import ConsumerSettings, OptionalSettings

_AUTH = find_key("zookeeper.auth")


def _default_of(name: str, values: Mapping[str, Any]) -> object:
    key = find_key(name)
    if key is None:
        return None
    return key.default if key.derive is None else key.derive(values)


@dataclass(frozen=True, init=False, repr=False)
class ConsumerConfig(FrozenSettings):
    """The settings of a consumer; see docs/CONFIGURATION.md for each of them.

    Each setting is an attribute with underscores for the dots of its name: `config.auto_offset_reset`.

    Text is converted to the type of the setting (`"true"`, `"30000"`); None counts as not given.

    Raises:
        UnknownSetting: There is no such setting; names the nearest one.
        ConfigError: A setting is missing, has a value that is not allowed, contradicts another, or is
            given in two spellings with different values.
    """

    settings_table: ClassVar[SettingTable] = CONSUMER_SETTINGS

    zookeeper_connect: str | None
    bootstrap_servers: tuple[BrokerAddress, ...] | None
    group_id: str
    consumer_id: str | None
    client_id: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_sync_time_ms: int

    auto_offset_reset: str
    fetch_message_max_bytes: int
    fetch_min_bytes: int
    fetch_wait_max_ms: int
    socket_timeout_ms: int
    socket_receive_buffer_bytes: int
    num_consumer_fetchers: int
    queued_max_message_chunks: int
    refresh_leader_backoff_ms: int
    consumer_timeout_ms: int
    client_rack: str | None
    exclude_internal_topics: bool

    auto_commit_enable: bool
    auto_commit_interval_ms: int
    offsets_storage: str
    dual_commit_enabled: bool
    offsets_intent: str
    offsets_channel_backoff_ms: int
    offsets_channel_socket_timeout_ms: int
    offsets_commit_max_retries: int

    partition_assignment_strategy: AssignorNames
    rebalance_max_retries: int
    rebalance_backoff_ms: int

    group_coordination: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None
    metadata_max_age_ms: int

    fetcher_backoff_ms: int
    shallowiterator_enable: bool

    rebalance_drain_timeout_ms: int
    rebalance_quiet_ms: int
    rebalance_quiet_max_ms: int
    queued_max_bytes: int
    decoded_max_bytes: int
    isolation_level: str
    on_message_error: str
    roundrobin_order: str
    max_processing_interval_ms: int | None
    statistics_interval_ms: int | None
    kafka_generation: str

    zookeeper_acl: tuple[ZooKeeperAcl, ...]

    def __init__(
        self, zookeeper_connect: str | None = None, group_id: str | None = None, **settings: Unpack[OptionalSettings]
    ) -> None:
        self._set({"zookeeper_connect": zookeeper_connect, "group_id": group_id, **settings})

    @classmethod
    def from_properties(
        cls, source: str | os.PathLike[str] | Mapping[str, object], **settings: Unpack[ConsumerSettings]
    ) -> ConsumerConfig:
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

    @property
    def zookeeper(self) -> str:
        """`zookeeper_connect`, for calls that need ZooKeeper.

        Raises:
            ConfigError: `bootstrap.servers` is given instead.
        """
        if self.zookeeper_connect is None:
            raise ConfigError(
                "zookeeper.connect",
                None,
                "given, and bootstrap.servers left out: this call needs the cluster's ZooKeeper",
            )
        return self.zookeeper_connect

    @property
    def zookeeper_address(self) -> ZooKeeperAddress:
        """The parts of `zookeeper`: (hosts, chroot)."""
        return parse_zookeeper_address(self.zookeeper)

    @property
    def coordination(self) -> str:
        """The coordination of the group: `zookeeper` or `brokers`."""
        return coordinates(self.group_coordination, self.zookeeper_connect)

    @property
    def where(self) -> str:
        """Where the cluster is found, a phrase for messages: `in ZooKeeper at ...` or `at the brokers ...`."""
        if self.zookeeper_connect is not None:
            return f"in ZooKeeper at {self.zookeeper_connect}"
        return f"at the brokers {shown_brokers(self.bootstrap_servers or ())}"

    @staticmethod
    def _check(values: Mapping[str, Any]) -> None:
        check_settings(values)

    @staticmethod
    def _warnings(
        named: Mapping[str, object], given: Mapping[str, object], values: Mapping[str, Any]
    ) -> Iterator[str | None]:
        yield from warnings_about(values)
        yield warning_about_security(given, values)
        changed = {name for name in given if values[name] != _default_of(name, values)}
        yield warning_about_coordination(changed, values)
        yield warning_about_07(names_of_07(named), given)
        if any(isinstance(value, str) and find_key(name) is _AUTH for name, value in named.items()):
            yield warning_about_empty_auth(given)
