"""Finds the ZooKeeper and the settings that a program was given: arguments, properties files, profiles, environment.

Rules, and which failure each prevents:

- A setting comes from the first place that has it: an argument before a file, a file before a profile, the command line
  before the environment.
- A file or profile that is named as an argument replaces the ones that the environment names. Credentials of one
  cluster that a forgotten variable names are not mixed with the settings of another.
- A file with a password that every user of the machine can read is reported.
- Credentials from a file that names one ensemble, used for another one, are reported: a digest is sent in clear text.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.properties import (
    PropertyLine,
    last_values,
    line_places,
    read_property_lines,
    warn_of_exposed_secrets,
)
from zkconsumer.config.tables.keys import CONSUMER_SETTINGS, find_key, names_of_07
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS
from zkconsumer.config.tables.setting_table import GivenValue, Key, given_twice, same_value
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address
from zkconsumer.errors import ConfigError, SettingsNotUsable
from zkconsumer_error import first_few

__all__ = [
    "CONFIG_VARIABLE", "PROFILE_VARIABLE", "SEARCH_ORDER", "ZOOKEEPER_VARIABLE", "ConnectionSettings",
    "SettingsNotUsable", "canonical", "config_without_group", "find_connection_settings", "profile_file",
    "profile_names",
]  # fmt: skip

logger = logging.getLogger("zkconsumer.config")

ZOOKEEPER_VARIABLE: Final = "ZKCONSUMER_ZOOKEEPER"
"""Environment variable: the ZooKeeper of the cluster, as `zookeeper.connect`."""
CONFIG_VARIABLE: Final = "ZKCONSUMER_CONFIG"
"""Environment variable: path of a properties file."""
PROFILE_VARIABLE: Final = "ZKCONSUMER_PROFILE"
"""Environment variable: name of a profile."""
SEARCH_ORDER: Final = (
    "--zookeeper", "zookeeper.connect in the file of --config", "zookeeper.connect in the profile of --profile",
    f"${ZOOKEEPER_VARIABLE}", f"zookeeper.connect in the file ${CONFIG_VARIABLE}",
    f"zookeeper.connect in the profile ${PROFILE_VARIABLE}",
)  # fmt: skip
"""Where a ZooKeeper may be named; the first place counts."""

Value = TypeVar("Value")

_CONNECT: Final = "zookeeper.connect"
_CREDENTIALS: Final = (
    "zookeeper.auth", "zookeeper.sasl.mechanism", "zookeeper.sasl.password", "zookeeper.ssl.certfile",
)  # fmt: skip
_PROFILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SUFFIX: Final = ".properties"


@dataclass(frozen=True)
class ConnectionSettings:
    """The settings that were found.

    Attributes:
        zookeeper: The connection string; None when nothing names one.
        zookeeper_from: The place that named it, for messages; empty when nothing does.
        properties: The settings of the files by their names in Kafka 0.8, without `zookeeper.connect`.
        files: The files that were read, the first one counts most.
        names_of_07: The names in these files that Kafka 0.7 alone has.
        config: The properties file that was named, as an absolute path.
        profile: The profile that was named.
        places: The 0.8 name of a setting -> the file and the line that give its value.
    """

    zookeeper: str | None = None
    zookeeper_from: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[str, ...] = ()
    names_of_07: tuple[str, ...] = ()
    config: str | None = None
    profile: str | None = None
    places: Mapping[str, str] = field(default_factory=dict, repr=False)

    def name_place(self, error: ConfigError) -> None:
        """Have an error about a value of one of the files name the file and the line."""
        given = self.properties.get(error.key)
        if given is None:
            of_producers = canonical(self.properties, PRODUCER_SETTINGS.find)
            given = of_producers.get(error.key)
        if not error.place and given is not None and str(error.value) in (given, given.strip(), "***"):
            error.place = self.places[error.key]


@dataclass(frozen=True)
class _SettingsFile:
    """A file that was read.

    Attributes:
        path: As it was named.
        shown: The path, and the environment variable if one names it.
        lines: Its lines.
        entries: Its settings by their 0.8 names.
    """

    path: str
    shown: str
    lines: list[PropertyLine]
    entries: dict[str, str]

    @classmethod
    def read(cls, path: str, what: str, variable: str | None) -> _SettingsFile:
        shown = path if variable is None else f"{path} of {variable}"
        lines = _read_lines(path, f"{what} {shown}")
        try:
            return cls(path, shown, lines, canonical(last_values(lines)))
        except ConfigError as error:
            error.place = shown
            raise


def find_connection_settings(
    zookeeper: str | None = None,
    config: str | None = None,
    profile: str | None = None,
    environment: Mapping[str, str] | None = None,
    zookeeper_from: str = "--zookeeper",
) -> ConnectionSettings:
    """Return the ZooKeeper and the settings to use, by the order of `SEARCH_ORDER`.

    Args:
        zookeeper: The connection string, as an argument gives it.
        config: Path of a properties file, as an argument gives it.
        profile: Name of a profile, as an argument gives it.
        environment: The environment variables; those of the process when left out. Empty ones count as not set.
        zookeeper_from: The name of the argument with the connection string, for messages.

    Raises:
        SettingsNotUsable: A file cannot be read, there is no such profile, or an address is not one.
        ConfigError: A setting has two values under two names of one file.
    """
    variables = os.environ if environment is None else environment
    from_arguments = config is not None or profile is not None
    if not from_arguments:
        config, profile = variables.get(CONFIG_VARIABLE) or None, variables.get(PROFILE_VARIABLE) or None
    files: list[_SettingsFile] = []
    if config is not None:
        files.append(_SettingsFile.read(config, "the consumer config", None if from_arguments else CONFIG_VARIABLE))
    if profile is not None:
        files.append(_read_profile(profile, variables, None if from_arguments else PROFILE_VARIABLE))
    old = tuple(names_of_07(name for file in files for name in last_values(file.lines)))
    named = [(f"{_CONNECT} in {file.shown}", file.entries[_CONNECT]) for file in files if file.entries.get(_CONNECT)]
    variable = variables.get(ZOOKEEPER_VARIABLE)
    if variable:
        named.insert(len(named) if from_arguments else 0, (ZOOKEEPER_VARIABLE, variable))
    if zookeeper is not None:
        named.insert(0, (zookeeper_from, zookeeper))
    properties: dict[str, str] = {}
    places: dict[str, str] = {}
    for file in reversed(files):
        properties |= {name: value for name, value in file.entries.items() if name != _CONNECT}
        places |= line_places(PRODUCER_SETTINGS, file.shown, file.lines)
        places |= line_places(CONSUMER_SETTINGS, file.shown, file.lines)
    place, address = named[0] if named else ("", None)
    if address is not None:
        _check_address(place, address)
        _warn_of_foreign_credentials(place, address, files)
    return ConnectionSettings(
        address, place, properties, tuple(file.path for file in files), old,
        None if config is None else os.path.abspath(config), profile, places,
    )  # fmt: skip


def config_without_group(
    zookeeper: str | None, properties: Mapping[str, object] | None, client_id: str | None = None
) -> ConsumerConfig:
    """Return the settings of a program that joins no group, from the properties of a consumer.

    Args:
        zookeeper: Replaces `zookeeper.connect` and `bootstrap.servers` of the properties; None: one of them is among
            these.
        properties: By their names in Kafka 0.8 or 0.7. The group and the reset policy may be left out; nothing is said
            about a default of them that differs between 0.7 and 0.8.
        client_id: The `client.id`, unless the properties have one.

    Raises:
        ConfigError: A property has a value that is not allowed.
    """
    given = {name: value for name, value in canonical(properties or {}).items() if value is not None}
    entries = {"group.id": "none", "client.id": client_id, "auto.offset.reset": "largest", **given}
    if zookeeper is not None:
        entries.pop("bootstrap.servers", None)
        entries["zookeeper.connect"] = zookeeper
    return ConsumerConfig.from_properties(entries)


def canonical(entries: Mapping[str, Value], find: Callable[[str], Key | None] = find_key) -> dict[str, Value]:
    """Return the settings by their 0.8 names, so that those of another source can override them.

    Args:
        entries: Name -> value.
        find: Name -> setting, None for an unknown name, which is kept; by default the settings of consumers.

    Raises:
        ConfigError: A setting has two values under two names.
    """
    found: dict[str, Value] = {}
    origins: dict[str, GivenValue] = {}
    for name, value in entries.items():
        key = find(name)
        found.setdefault(key.name if key else name, value)
        if key is not None:
            first = origins.setdefault(key.name, GivenValue(name, value))
            if not same_value(key, first.value, value):
                raise given_twice(key, first, GivenValue(name, value))
    return found


def _read_lines(path: str, shown: str) -> list[PropertyLine]:
    """Return the lines of a properties file, and warn when it exposes a secret.

    Raises:
        SettingsNotUsable: It cannot be read, or is not a properties file.
    """
    try:
        lines = read_property_lines(path)
    except OSError as error:
        raise SettingsNotUsable(f"{shown} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsNotUsable(f"{shown} is not a properties file: {error}") from None
    warn_of_exposed_secrets(path, last_values(lines))
    return lines


# -- profiles ----------------------------------------------------------------------------------------------------------


def profile_file(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of a profile's file, `$XDG_CONFIG_HOME/zkconsumer/NAME.properties`.

    Raises:
        SettingsNotUsable: The name is not the name of a profile.
    """
    if not _PROFILE_NAME.fullmatch(name):
        raise SettingsNotUsable(
            f"{name!r} is not the name of a profile",
            "use 1 to 100 of [a-zA-Z0-9._-], not starting with a dot; --config accepts a path",
        )
    return _profile_folder(os.environ if environment is None else environment) / f"{name}{_SUFFIX}"


def profile_names(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the profiles that exist."""
    folder = _profile_folder(os.environ if environment is None else environment)
    try:
        names = sorted(path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*{_SUFFIX}"))
    except OSError:
        return []
    return [name for name in names if _PROFILE_NAME.fullmatch(name)]


def _profile_folder(environment: Mapping[str, str]) -> Path:
    configured = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    home = Path(configured) if os.path.isabs(configured) else Path(os.path.expanduser("~/.config"))
    return home / "zkconsumer"


def _read_profile(name: str, environment: Mapping[str, str], variable: str | None) -> _SettingsFile:
    path = profile_file(name, environment)
    if not path.exists():
        of_variable = "" if variable is None else f" of {variable}"
        known = profile_names({"XDG_CONFIG_HOME": str(path.parent.parent)})
        shown = first_few(*known, most=10, rest=", ...")
        raise SettingsNotUsable(
            f"profile {name!r}{of_variable} does not exist: there is no file {path}",
            f"existing profiles: {shown}" if known else "create that file, or give --config FILE",
        )
    return _SettingsFile.read(str(path), f"the profile {name!r},", variable)


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_address(place: str, address: str) -> None:
    try:
        parse_zookeeper_address(address)
    except ValueError as error:
        raise SettingsNotUsable(
            f"{place} is {address!r}: {error}", "it must look like zk1:2181,zk2:2181/chroot"
        ) from None


def _warn_of_foreign_credentials(place: str, address: str, files: Sequence[_SettingsFile]) -> None:
    """Log a warning when the credentials of a file are used for servers that the file does not name."""
    wanted = _hosts(address)
    for file in files:
        entries = file.entries
        own = _hosts(entries.get(_CONNECT, ""))
        given = [name for name in _CREDENTIALS if entries.get(name)]
        if own and given and not own & wanted:
            logger.warning(
                "the credentials in %s (%s) are used for %s of %s, but the file is for %s",
                file.shown,
                ", ".join(given),
                address,
                place,
                entries[_CONNECT],
            )


def _hosts(address: str) -> set[tuple[str, int]]:
    try:
        return {(host.lower(), port) for host, port in parse_zookeeper_address(address).hosts}
    except ValueError:
        return set()
