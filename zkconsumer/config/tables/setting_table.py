"""A table of settings: what each is, found by any of its names, and completed with defaults. There is a table for
consumers and one for producers. `ConsumerConfig`, `ProducerConfig` and the check of a file all use it, so that the
check says what the program will do.

Pure.

Converts what was given for a setting. Both `ConsumerConfig` and the check of a file do it here, so that the check says
what the consumer will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from simpleconsumer.security.secret import NOT_UTF8, Secret, is_utf8
from zkconsumer.config.tables.foreign_names import hint_for_value
from zkconsumer.config.tables.kinds import PATH, HiddenValueError, Kind
from zkconsumer.errors import ConfigError, UnknownSetting

_SECRET_WORD = re.compile(r"password|passwd|secret", re.IGNORECASE)


class HintForName(Protocol):
    """Says what to use instead of an unknown setting."""

    def __call__(self, name: str, known: Iterable[str]) -> str:
        """Return a clause; empty if nothing is known about the name."""


@dataclass(frozen=True)
class Key:
    """One setting.

    Attributes:
        name: Its name in Kafka 0.8.2, or ours.
        kind: Type, range and conversion.
        default: Value when it is not given; None when there is none, or when `derive` makes it.
        meaning: One sentence for the documentation.
        name_07: Its name in Kafka 0.7, where that differs.
        default_07: The default under `kafka.generation=0.7`, where that differs.
        derive: Makes the default from the other settings, by their names.
        default_text: The default in words, for the documentation, where its value does not say it.
        required: True when there is no default and none is possible.
        unless: Name of a setting that may be given instead of a required one.
        secret: True when the value must not be shown.
        section: Where it comes from: "kafka", "0.7", "own", "zookeeper", "security".
        aliases: Further names that it may be given under, of newer versions of Kafka, or of librdkafka.
    """

    name: str
    kind: Kind
    default: object
    meaning: str
    name_07: str | None = None
    default_07: object = None
    derive: Callable[[Mapping[str, Any]], object] | None = None
    default_text: str | None = None
    required: bool = False
    unless: str | None = None
    secret: bool = False
    section: str = "kafka"
    aliases: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """The name as an attribute of `ConsumerConfig`: underscores for dots."""
        return self.name.replace(".", "_")

    def default_for(self, generation: str) -> object:
        """Return the default of a Kafka generation: "0.7", or any other word."""
        return self.default_07 if generation == "0.7" and self.default_07 is not None else self.default


class SettingTable:
    """The settings of one kind of program.

    Args:
        keys: All of them, in the order of the documentation.
        hint_for_name: Says what to use instead of an unknown one.
    """

    def __init__(self, keys: Iterable[Key], hint_for_name: HintForName) -> None:
        self.keys = tuple(keys)
        self._by_name = {name: key for key in self.keys for name in (key.name, key.name_07, *key.aliases) if name}
        self._secret_names = sorted((key.name for key in self.keys if key.secret), key=len, reverse=True)
        self._hint_for_name = hint_for_name

    def find(self, name: str) -> Key | None:
        """Return the setting of a name of 0.8, 0.7 or ours, written with dots or underscores; None if unknown."""
        return self._by_name.get(name.replace("_", "."))

    def unknown(self, name: str) -> UnknownSetting:
        """Return the error for a name that `find` does not know, with what to use instead, in the same spelling."""
        hint = self._hint_for_name(name, self._by_name)
        if "_" in name and "." not in name:
            hint = re.sub(r"'[a-z.]+'", lambda quoted: quoted[0].replace(".", "_"), hint)
        return UnknownSetting(self.shown_name(name), hint)

    def names_of_07(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that Kafka 0.7 alone has, in their order."""
        return [name for name in names if (key := self.find(name)) and name.replace("_", ".") == key.name_07]

    def shown_name(self, name: str) -> str:
        """Return an unknown name so that it can be printed: no secret that a mistyped separator made a part of it.

        >>> from zkconsumer.config.tables.keys import shown_name
        >>> shown_name("zookeeper.sasl.password-S3CR3T"), shown_name("ssl.key.password"), shown_name("zookeeper.atuh")
        ('zookeeper.sasl.password***', 'ssl.key.password', 'zookeeper.atuh')
        """
        dotted = name.lower().replace("_", ".")
        for secret in self._secret_names:
            if dotted.startswith(secret) and len(dotted) > len(secret):
                return f"{name[: len(secret)]}***"
        word = _SECRET_WORD.search(name)
        if word is None or re.fullmatch(r"([._][a-z]+)*", name[word.end() :]):
            return name
        return f"{name[: word.end()]}***"

    def shown_pair(self, text: str) -> str:
        """Return what should be `name=value` and is not, so that it can be printed: what may be its name, no value."""
        name = re.split(r"[:=\s]", text, maxsplit=1)[0]
        return self.shown_name(name) + ("..." if name != text else "")

    def missing(self, given: Mapping[str, object]) -> Iterator[ConfigError]:
        """Yield an error for every setting that has to be given and is not, by its 0.8 name."""
        for key in self.keys:
            if key.required and key.name not in given and key.unless not in given:
                instead = f"; or give {key.unless}" if key.unless else ""
                yield ConfigError(key.name, None, key.kind.allowed + instead)

    def completed(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return every setting's value by its 0.8 name: given, or the default, or derived from the others."""
        generation = str(given.get("kafka.generation", "auto"))
        values: dict[str, Any] = {key.name: given.get(key.name, key.default_for(generation)) for key in self.keys}
        for key in self.keys:
            if key.derive is not None and key.name not in given:
                values[key.name] = key.derive(values)
        return values


class NamedValue(Protocol):
    """A setting as it was given."""

    @property
    def name(self) -> str:
        """The name under which it was given."""

    @property
    def value(self) -> object:
        """The given value."""


class GivenValue(NamedTuple):
    """A setting of a mapping."""

    name: str
    value: object


def convert(key: Key, value: object, generation: str) -> object:
    """Return a value of a setting in its type.

    Raises:
        ConfigError: It is not allowed; says what is, and what the value means elsewhere.
    """
    try:
        converted = key.kind.convert(value)
        if isinstance(converted, str):
            if key.kind.allowed != PATH and not is_utf8(converted):
                raise ValueError(NOT_UTF8)
            return Secret(converted) if key.secret else converted
        return converted
    except ValueError as error:
        # In 0.7 any other word makes the fetcher raise instead of reset.
        if key.name == "auto.offset.reset" and generation == "0.7" and isinstance(value, str):
            return value
        hidden = key.secret or isinstance(error, HiddenValueError)
        reasons = "; ".join(filter(None, (str(error), "" if hidden else _hint(key, value))))
        reason = f"{key.kind.allowed} ({reasons})" if reasons else key.kind.allowed
        raise ConfigError(key.name, "***" if hidden else value, reason) from None


def _hint(key: Key, value: object) -> str:
    hint = hint_for_value(key.name, value)
    if hint or not isinstance(value, str):
        return hint
    bare = value.strip()
    if bare != value and _converts(key, bare):
        return f"white space at its {'end' if value != value.rstrip() else 'start'} is part of the value"
    word = next((each for each in (bare.lower(), bare.upper()) if each != bare and _converts(key, each)), None)
    return "" if word is None else f"write {word!r}: case matters"


def _converts(key: Key, value: str) -> bool:
    try:
        key.kind.convert(value)
    except ValueError:
        return False
    return True


def generation_of(settings: Mapping[str, object]) -> str:
    """Return "0.7" if `kafka.generation` says so under any of its spellings, else "0.8"."""
    said = (str(value).strip() for name, value in settings.items() if name.replace("_", ".") == "kafka.generation")
    return "0.7" if "0.7" in said else "0.8"


def given_twice(key: Key, first: NamedValue, second: NamedValue) -> ConfigError:
    """Return the error for a setting that has two values under two spellings, each as it was given."""
    shown, other = ("***" if key.secret else repr(each.value) for each in (first, second))
    return ConfigError(
        key.name, "***" if key.secret else second.value,
        f"given once; it is given under two names, as {first.name} = {shown} and {second.name} = {other}",
    )  # fmt: skip


def same_value(key: Key, one: object, other: object) -> bool:
    """Return True if two values of a setting mean the same, such as `1000` and `1000 `."""
    if one == other:
        return True
    try:
        return key.kind.convert(one) == key.kind.convert(other)
    except ValueError:
        return False
