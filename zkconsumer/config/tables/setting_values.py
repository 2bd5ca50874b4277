"""Converts what was given for a setting.

Pure. Both `ConsumerConfig` and the check of a file do it here, so that the check says what the consumer will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from simpleconsumer.security.secret import NOT_UTF8, Secret, is_utf8
from zkconsumer.config.tables.foreign_names import hint_for_value
from zkconsumer.config.tables.kinds import PATH, HiddenValueError
from zkconsumer.config.tables.setting_table import Key
from zkconsumer.errors import ConfigError

__all__ = ["GivenValue", "NamedValue", "convert", "generation_of", "given_twice", "same_value"]


class NamedValue(Protocol):
    """A setting as it was given."""

    @property
    def name(self) -> str:
        """The name under which it was given."""

    @property
    def value(self) -> object:
        """What was given."""


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
