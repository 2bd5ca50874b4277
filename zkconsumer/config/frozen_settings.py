"""FrozenSettings: the settings of a program as one frozen value, made of keywords or of a properties file."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from simpleconsumer.security.security import Security
from zkconsumer.config.exposed_secrets import warn_of_exposed_secrets
from zkconsumer.config.properties import PropertyLine, last_values, read_property_lines
from zkconsumer.config.tables.kinds import ZooKeeperAuth
from zkconsumer.config.tables.security_keys import SECURITY_KEYS, security_of
from zkconsumer.config.tables.setting_table import SettingTable
from zkconsumer.config.tables.setting_values import GivenValue, convert, generation_of, given_twice
from zkconsumer.errors import ConfigError, SettingsNotUsable, UnknownSetting

__all__ = ["FrozenSettings", "line_places"]

logger = logging.getLogger("zkconsumer.config")


@dataclass(frozen=True, init=False, repr=False)
class FrozenSettings(ABC):
    """What the settings of consumers and producers share, those of `SHARED_KEYS` among it; each is an attribute.

    Attributes:
        settings_table: All settings of the program.
    """

    settings_table: ClassVar[SettingTable]

    zookeeper_auth: tuple[ZooKeeperAuth, ...]
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

    security_protocol: str
    ssl_truststore_location: str | None
    ssl_truststore_type: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_location: str | None
    ssl_keystore_type: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str
    ssl_protocol: str | None
    ssl_enabled_protocols: str | None
    ssl_cipher_suites: str | None
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_jaas_config: str | None
    sasl_oauthbearer_token_callback: str | None

    # Not an argument of __init__: dataclasses.replace would pass it on.
    _given: Mapping[str, object] = field(init=False, compare=False)

    def _set(self, named: Mapping[str, object]) -> None:
        """Set every attribute from what was given; None counts as not given.

        Raises:
            UnknownSetting: There is no such setting; names the nearest one.
            ConfigError: A setting is missing, has a value that is not allowed, contradicts another, or is
                given in two spellings with different values.
        """
        given = _typed(self.settings_table, named)
        for missing in self.settings_table.missing(given):
            raise missing
        values = self.settings_table.completed(given)
        self._check(values)
        for key in self.settings_table.keys:
            object.__setattr__(self, key.attribute, values[key.name])
        object.__setattr__(self, "_given", given)
        for warning in self._warnings(named, given, values):
            if warning is not None:
                logger.warning(warning)

    @staticmethod
    @abstractmethod
    def _check(values: Mapping[str, Any]) -> None:
        """Raise ConfigError if two settings contradict each other."""

    @staticmethod
    @abstractmethod
    def _warnings(
        named: Mapping[str, object], given: Mapping[str, object], values: Mapping[str, Any]
    ) -> Iterator[str | None]:
        """Yield a sentence for what is allowed and harmful.

        Args:
            named: What was given, by the names under which it was given.
            given: What was given, converted, by its 0.8 names.
            values: The values of all settings, by their 0.8 names.
        """

    @classmethod
    def _from_properties(
        cls, source: str | os.PathLike[str] | Mapping[str, object], settings: Mapping[str, Any]
    ) -> Self:
        """Return the settings of a file or mapping, overridden by others; see `ConsumerConfig.from_properties`."""
        if isinstance(source, Mapping):
            return cls(**{**_kept(cls.settings_table, source, settings), **settings})
        try:
            lines = read_property_lines(source)
        except ValueError as error:
            raise SettingsNotUsable(f"{os.fspath(source)} is not a properties file: {error}") from None
        entries = last_values(lines)
        warn_of_exposed_secrets(source, entries)
        find = cls.settings_table.find
        try:
            return cls(**{**_kept(cls.settings_table, entries, settings), **settings})
        except ConfigError as error:
            if all(find(name) != find(error.key) for name in settings):
                error.place = line_places(cls.settings_table, os.fspath(source), lines).get(error.key, "")
            raise

    @property
    def security(self) -> Security:
        """How brokers are spoken to: TLS and SASL."""
        return security_of({key.name: getattr(self, key.attribute) for key in SECURITY_KEYS})

    def to_properties(self) -> dict[str, str]:
        """Return every setting that has a value, by its 0.8 name, as text; secrets are among them.

        `from_properties` of these equals this value.
        """
        values = {key: getattr(self, key.attribute) for key in self.settings_table.keys}
        return {key.name: key.kind.format(value) for key, value in values.items() if value not in (None, ())}

    def __repr__(self) -> str:
        """Return what was given; secrets are replaced by `***`."""
        shown = (
            f"{key.attribute}={'***' if key.secret else self._given[key.name]!r}"
            for key in self.settings_table.keys
            if key.name in self._given
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def line_places(table: SettingTable, path: str, lines: Iterable[PropertyLine]) -> dict[str, str]:
    """Return the 0.8 name of each setting of a file -> the file and the line whose value counts."""
    return {key.name: f"{path}, line {entry.line}" for entry in lines if (key := table.find(entry.name)) is not None}


def _kept(table: SettingTable, entries: Mapping[str, object], overriding: Iterable[str]) -> dict[str, object]:
    """Return the settings of a source that count; an unknown one is logged and left out."""
    overridden = {table.find(name) for name in overriding} - {None}
    kept: dict[str, object] = {}
    for name, value in entries.items():
        if not isinstance(name, str):
            raise UnknownSetting(str(name), "the names of settings are text")
        key = table.find(name)
        if key is None:
            error = table.unknown(name)
            logger.warning("unknown setting %r is ignored%s", error.key, error.hint and f"; {error.hint}")
        elif key not in overridden:
            kept[name] = value
    return kept


def _typed(table: SettingTable, settings: Mapping[str, object]) -> dict[str, object]:
    """Return 0.8 name -> converted value of what was given; None counts as not given."""
    typed: dict[str, object] = {}
    origins: dict[str, GivenValue] = {}
    for name, value in settings.items():
        key = table.find(name)
        if key is None:
            raise table.unknown(name)
        if value is not None:
            converted = convert(key, value, generation_of(settings))
            origin = origins.setdefault(key.name, GivenValue(name, value))
            if typed.setdefault(key.name, converted) != converted:
                raise given_twice(key, origin, GivenValue(name, value))
    return typed
