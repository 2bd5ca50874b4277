r"""Settings out of properties files: the reader, the frozen value that they become, and warnings of readable secrets.

Reads Java's properties files as `java.util.Properties` does.

`key=value` lines; `=`, `:` or white space separates; `#` and `!` start comment lines; a line that ends with an
odd number of backslashes continues in the next one; `\t \n \r \f \uXXXX` are escapes, and a backslash before
anything else is dropped. The last of several equal keys counts.

Source: java.util.Properties (Java 8), `load`.

Warns of passwords that other users of the machine can read: in files, and in command lines.

FrozenSettings: the settings of a program as one frozen value, made of keywords or of a properties file.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from simpleconsumer.security.security import Security
from zkconsumer.config.tables.keys import find_key
from zkconsumer.config.tables.kinds import ZooKeeperAuth
from zkconsumer.config.tables.security_keys import SECURITY_KEYS, security_of
from zkconsumer.config.tables.setting_table import GivenValue, SettingTable, convert, generation_of, given_twice
from zkconsumer.errors import ConfigError, SettingsNotUsable, UnknownSetting

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_TRAILING_BACKSLASHES = re.compile(r"\\*\Z")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertyLine(NamedTuple):
    """One property of a file: the number of its first line, its name and its value."""

    line: int
    name: str
    value: str


def read_property_lines(path: str | os.PathLike[str]) -> list[PropertyLine]:
    """Return every property of a file in UTF-8 or, when it is not valid UTF-8, ISO 8859-1, Java's old default.

    Raises:
        OSError: The file cannot be read.
        ValueError: An escape `\\u` without four hexadecimal digits, or a text in UTF-16.
    """
    with open(path, "rb") as file:
        return list(property_lines(decode_properties(file.read())))


def last_values(entries: Iterable[PropertyLine]) -> dict[str, str]:
    """Return name -> value; of equal names the last one counts."""
    return {entry.name: entry.value for entry in entries}


def decode_properties(data: bytes) -> str:
    """Return the text of a file in UTF-8 or, when it is not valid UTF-8, ISO 8859-1.

    Raises:
        ValueError: It is UTF-16, which editors of Windows call Unicode.
    """
    # Without a mark, every other byte of such a text is 0, as the names of settings are ASCII.
    zeros = max(data[::2].count(0), data[1::2].count(0))
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or zeros > 0.4 * len(data):
        raise ValueError("it is UTF-16 text; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> dict[str, str]:
    """Return key -> value of properties text.

    Raises:
        ValueError: An escape `\\u` without four hexadecimal digits.
    """
    return last_values(property_lines(text))


def property_lines(text: str) -> Iterator[PropertyLine]:
    """Yield every property of properties text, in order; equal names come as often as they stand there.

    Raises:
        ValueError: An escape `\\u` without four hexadecimal digits; names the line.
    """
    for number, line in _logical_lines(text):
        found = _ENTRY.match(line)
        if found:
            try:
                yield PropertyLine(number, _unescape(found["key"]), _unescape(found["value"]))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines with continuations joined; blank lines and comments are left out."""
    natural = iter(enumerate(_LINE_END.split(text), 1))
    for number, first in natural:
        line = first.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            _, following = next(natural, (0, None))
            line = line[:-1] + (following or "").lstrip(_BLANKS)
            if following is None:
                break
        yield number, line


def _continues(line: str) -> bool:
    found = _TRAILING_BACKSLASHES.search(line)
    return found is not None and len(found[0]) % 2 == 1


def _unescape(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        if found[2] == "u":
            # The text itself is not shown: it may be a password.
            raise ValueError("\\u needs four hexadecimal digits; a backslash itself is written twice")
        return _ESCAPED.get(found[2], found[2])

    # A character above U+FFFF stands as two escapes, its UTF-16 units.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


logger = logging.getLogger("zkconsumer.config")
_reported: set[str] = set()
"""Files of which this process has reported already that they expose a secret: a load reads its file several times."""


def warn_of_exposed_secrets(path: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Log a warning, once in a process, when a file holds a password and every user of the machine can read it."""
    secrets = sorted({key.name for name in names if (key := find_key(name)) is not None and key.secret})
    if secrets and str(path) not in _reported and _everybody_reads(os.fspath(path)):
        _reported.add(str(path))
        mode = stat.S_IMODE(os.stat(path).st_mode)
        logger.warning(
            "%s contains %s, and every user of this machine can read the file (mode %04o): chmod 600 %s",
            path,
            ", ".join(secrets),
            mode,
            path,
        )


def _everybody_reads(path: str) -> bool:
    """Return True if users without any right of owner or group can open the file."""
    try:
        place = os.path.realpath(path)
        mode = os.stat(place).st_mode
        while place != (place := os.path.dirname(place)):
            if not os.stat(place).st_mode & stat.S_IXOTH:
                return False
        return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)
    except OSError:
        return False


def warn_of_shown_secrets(names: Iterable[str], option: str) -> None:
    """Log a warning for each secret among the settings that an option of the command line holds."""
    for name in names:
        key = find_key(name)
        if key is not None and key.secret:
            logger.warning(
                "%s %s=... shows a secret to every user of this machine (ps); put it into a file for --config",
                option,
                key.name,
            )


@dataclass(frozen=True, init=False, repr=False)
class FrozenSettings(ABC):
    """The common part of the settings of consumers and producers, with `SHARED_KEYS`; each is an attribute.

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
            named: The given settings, by the names under which they were given.
            given: The given settings, converted, by their 0.8 names.
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
