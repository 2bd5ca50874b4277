"""ConsumerConfig: all settings of a consumer as one frozen value.

Names are those of Kafka 0.8.2, with underscores in Python and dots in properties files; the names of 0.7 are accepted
too. Values keep Kafka's units, as the names say. The table of all settings is `zkconsumer.config.keys`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

from zkconsumer.config.checks import check_settings, warning_about_07, warning_about_empty_auth, warnings_about
from zkconsumer.config.exposed_secrets import warn_of_exposed_secrets
from zkconsumer.config.keys import KEYS, find_key, names_of_07, unknown_setting
from zkconsumer.config.kinds import ZooKeeperAcl, ZooKeeperAuth
from zkconsumer.config.properties import PropertyLine, last_values, read_property_lines
from zkconsumer.config.setting_values import (
    GivenValue,
    completed,
    convert,
    generation_of,
    given_twice,
    missing_settings,
)
from zkconsumer.config.typed_settings import ConsumerSettings, OptionalSettings
from zkconsumer.config.zookeeper_address import ZooKeeperAddress, parse_zookeeper_address
from zkconsumer.errors import ConfigError, SettingsNotUsable, UnknownSetting

logger = logging.getLogger("zkconsumer.config")

_AUTH = find_key("zookeeper.auth")


@dataclass(frozen=True, init=False, repr=False)
class ConsumerConfig:
    """The settings of a consumer; see docs/CONFIGURATION.md for each of them.

    Each setting is an attribute with underscores for the dots of its name: `config.auto_offset_reset`.

    Text is converted to the type of the setting (`"true"`, `"30000"`); None counts as not given.

    Raises:
        UnknownSetting: There is no such setting; names the nearest one.
        ConfigError: A setting is missing, has a value that is not allowed, contradicts another, or is
            given in two spellings with different values.
    """

    zookeeper_connect: str
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
    exclude_internal_topics: bool

    auto_commit_enable: bool
    auto_commit_interval_ms: int
    offsets_storage: str
    dual_commit_enabled: bool
    offsets_intent: str
    offsets_channel_backoff_ms: int
    offsets_channel_socket_timeout_ms: int
    offsets_commit_max_retries: int

    partition_assignment_strategy: str
    rebalance_max_retries: int
    rebalance_backoff_ms: int

    fetcher_backoff_ms: int
    shallowiterator_enable: bool

    rebalance_drain_timeout_ms: int
    rebalance_quiet_ms: int
    rebalance_quiet_max_ms: int
    queued_max_bytes: int
    decoded_max_bytes: int
    on_message_error: str
    roundrobin_order: str
    max_processing_interval_ms: int | None
    statistics_interval_ms: int | None
    kafka_generation: str

    zookeeper_auth: tuple[ZooKeeperAuth, ...]
    zookeeper_acl: tuple[ZooKeeperAcl, ...]
    zookeeper_use_ssl: bool
    zookeeper_ssl_cafile: str | None
    zookeeper_ssl_certfile: str | None
    zookeeper_ssl_keyfile: str | None
    zookeeper_ssl_keyfile_password: str | None
    zookeeper_ssl_verify_certs: bool
    zookeeper_ssl_check_hostname: bool
    zookeeper_sasl_mechanism: str | None
    zookeeper_sasl_username: str | None
    zookeeper_sasl_password: str | None

    # Not an argument of __init__: dataclasses.replace would pass it on.
    _given: Mapping[str, object] = field(init=False, compare=False)

    def __init__(
        self, zookeeper_connect: str | None = None, group_id: str | None = None, **settings: Unpack[OptionalSettings]
    ) -> None:
        named: dict[str, object] = {"zookeeper_connect": zookeeper_connect, "group_id": group_id, **settings}
        given = _typed(named)
        for missing in missing_settings(given):
            raise missing
        values = completed(given)
        check_settings(values)
        for key in KEYS:
            object.__setattr__(self, key.attribute, values[key.name])
        object.__setattr__(self, "_given", given)
        auth = [value for name, value in named.items() if isinstance(value, str) and find_key(name) is _AUTH]
        empty_auth = warning_about_empty_auth(given) if auth else None
        for warning in (*warnings_about(values), *_warnings_about_07(named, given), empty_auth):
            if warning is not None:
                logger.warning(warning)

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
        if isinstance(source, Mapping):
            return cls(**cast(dict[str, Any], {**_kept(source, settings), **settings}))
        try:
            lines = read_property_lines(source)
        except ValueError as error:
            raise SettingsNotUsable(f"{os.fspath(source)} is not a properties file: {error}") from None
        entries = last_values(lines)
        warn_of_exposed_secrets(source, entries)
        try:
            return cls(**cast(dict[str, Any], {**_kept(entries, settings), **settings}))
        except ConfigError as error:
            if all(find_key(name) != find_key(error.key) for name in settings):
                error.place = line_places(os.fspath(source), lines).get(error.key, "")
            raise

    def to_properties(self) -> dict[str, str]:
        """Return every setting that has a value, by its 0.8 name, as text; secrets are among them.

        `ConsumerConfig.from_properties(config.to_properties())` equals `config`.
        """
        values = {key: getattr(self, key.attribute) for key in KEYS}
        return {key.name: key.kind.format(value) for key, value in values.items() if value not in (None, ())}

    @property
    def zookeeper_address(self) -> ZooKeeperAddress:
        """The parts of `zookeeper_connect`: (hosts, chroot)."""
        return parse_zookeeper_address(self.zookeeper_connect)

    def __repr__(self) -> str:
        """Return what was given; secrets are replaced by `***`."""
        shown = (
            f"{key.attribute}={'***' if key.secret else self._given[key.name]!r}"
            for key in KEYS
            if key.name in self._given
        )
        return f"ConsumerConfig({', '.join(shown)})"


def _kept(entries: Mapping[str, object], overriding: Iterable[str]) -> dict[str, object]:
    """Return the settings of a source that count; an unknown one is logged and left out."""
    overridden = {find_key(name) for name in overriding} - {None}
    kept: dict[str, object] = {}
    for name, value in entries.items():
        if not isinstance(name, str):
            raise UnknownSetting(str(name), "the names of settings are text")
        key = find_key(name)
        if key is None:
            error = unknown_setting(name)
            logger.warning("unknown setting %r is ignored%s", error.key, error.hint and f"; {error.hint}")
        elif key not in overridden:
            kept[name] = value
    return kept


def line_places(path: str, lines: Iterable[PropertyLine]) -> dict[str, str]:
    """Return the 0.8 name of each setting of a file -> the file and the line whose value counts."""
    return {key.name: f"{path}, line {entry.line}" for entry in lines if (key := find_key(entry.name)) is not None}


def _typed(settings: Mapping[str, object]) -> dict[str, object]:
    """Return 0.8 name -> converted value of what was given; None counts as not given."""
    typed: dict[str, object] = {}
    origins: dict[str, GivenValue] = {}
    for name, value in settings.items():
        key = find_key(name)
        if key is None:
            raise unknown_setting(name)
        if value is not None:
            converted = convert(key, value, generation_of(settings))
            origin = origins.setdefault(key.name, GivenValue(name, value))
            if typed.setdefault(key.name, converted) != converted:
                raise given_twice(key, origin, GivenValue(name, value))
    return typed


def _warnings_about_07(named: Iterable[str], given: Mapping[str, object]) -> Iterator[str]:
    """Yield the sentence about names of 0.7, if there is one."""
    sentence = warning_about_07(names_of_07(named), given)
    if sentence is not None:
        yield sentence
