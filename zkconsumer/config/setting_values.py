"""Converts what was given for a setting, and completes it with defaults.

Pure. Both `ConsumerConfig` and the check of a file do it here, so that the check says what the consumer will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from zkconsumer.config.foreign_names import hint_for_value
from zkconsumer.config.keys import KEYS, Key, find_key
from zkconsumer.config.kinds import HiddenValueError
from zkconsumer.errors import ConfigError

__all__ = [
    "GivenValue", "NamedValue", "completed", "convert", "generation_of", "given_twice", "missing_settings",
    "same_value",
]  # fmt: skip


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
        return key.kind.convert(value)
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
    said = (str(value).strip() for name, value in settings.items() if _is(name, "kafka.generation"))
    return "0.7" if "0.7" in said else "0.8"


def _is(name: str, wanted: str) -> bool:
    key = find_key(name)
    return key is not None and key.name == wanted


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


def missing_settings(given: Mapping[str, object]) -> Iterator[ConfigError]:
    """Yield an error for every setting that has to be given and is not, by its 0.8 name."""
    for key in KEYS:
        if key.required and key.name not in given:
            yield ConfigError(key.name, None, key.kind.allowed)


def completed(given: Mapping[str, object]) -> dict[str, Any]:
    """Return every setting's value by its 0.8 name: given, or the default, or derived from the others."""
    generation = str(given.get("kafka.generation", "auto"))
    values: dict[str, Any] = {key.name: given.get(key.name, key.default_for(generation)) for key in KEYS}
    for key in KEYS:
        if key.derive is not None and key.name not in given:
            values[key.name] = key.derive(values)
    return values
