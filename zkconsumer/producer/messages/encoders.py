"""Encoders: what makes bytes of keys and values.

Any function of one argument that returns bytes, or None for a null, is an encoder; so is an object with Java's method
`toBytes`, or `toMessage` of Kafka 0.7. Those of `kafka.serializer` have their names.

Source: kafka.serializer.Encoder, DefaultEncoder, StringEncoder, NullEncoder (0.8.2.2).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

from zkconsumer.errors import ConfigError
from zkconsumer.producer.messages.named_objects import named_object

__all__ = ["DefaultEncoder", "Encoder", "NullEncoder", "StringEncoder", "encoder_named"]

Encoder = Callable[[Any], bytes | None]


class DefaultEncoder:
    """Takes bytes as they are."""

    def __call__(self, value: object) -> bytes | None:
        """Return the bytes; `bytearray` and `memoryview` are copied.

        Raises:
            TypeError: It is something else.
        """
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        way = ("encode it, or set serializer.class (for keys: key.serializer.class) to StringEncoder"
               if isinstance(value, str) else
                             "give a value_encoder or key_encoder that returns bytes for it")  # fmt: skip
        raise TypeError(f"{value!r:.60} is of type {type(value).__name__}; DefaultEncoder needs bytes: {way}")


class _Checked:
    """An encoder of an application: what it returns must be bytes, else it would spoil the messages of its batch.

    Args:
        encode: The encoder.
        name: Names it in errors.
    """

    def __init__(self, encode: Encoder, name: str) -> None:
        self._encode = encode
        self._name = name

    def __call__(self, value: object) -> bytes | None:
        """Return the bytes of a value.

        Raises:
            TypeError: The encoder returned something else. And what it raises.
        """
        found = self._encode(value)
        if found is None or type(found) is bytes:
            return found
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found)
        raise TypeError(f"the encoder {self._name} returned {found!r:.60} for {value!r:.60}, neither bytes nor None")


class StringEncoder:
    """Encodes text.

    Args:
        encoding: The character set, as Java or Python names it.
    """

    def __init__(self, encoding: str = "UTF8") -> None:
        codecs.lookup(encoding)
        self._encoding = encoding

    def __call__(self, value: object) -> bytes | None:
        """Return the bytes of a text.

        Raises:
            TypeError: It is no text.
            UnicodeEncodeError: The character set lacks one of its characters.
        """
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.60} is not text, which StringEncoder needs")
        return value.encode(self._encoding)


class NullEncoder:
    """Makes a null of everything."""

    def __call__(self, value: object) -> None:
        """Return None."""


def encoder_named(name: str, setting: str, encoding: str) -> Encoder:
    """Return the encoder that a setting names: a class of `kafka.serializer`, or `module:name`.

    Raises:
        ConfigError: There is no such encoder, or no such character set.
    """
    kind = name.strip().removeprefix("kafka.serializer.")
    if kind == "DefaultEncoder":
        return DefaultEncoder()
    if kind == "NullEncoder":
        return NullEncoder()
    if kind == "StringEncoder":
        try:
            return StringEncoder(encoding)
        except LookupError:
            raise ConfigError("serializer.encoding", encoding, "a character set that Python knows") from None
    return named_object(name, setting, as_encoder, ("DefaultEncoder", "StringEncoder", "NullEncoder"))


def as_encoder(given: Any) -> Encoder:
    """Return what encodes: a function, an instance of a class, or `toBytes` or `toMessage` of Java's encoders.

    Raises:
        TypeError: It is nothing of these.
    """
    made = given() if isinstance(given, type) else given
    named = getattr(made, "toBytes", None) or getattr(made, "toMessage", None)
    method: Encoder | None = made if callable(made) else named
    if method is None:
        raise TypeError(f"{given!r:.60} is not an encoder, which is a function that returns bytes")
    if isinstance(made, DefaultEncoder | StringEncoder | NullEncoder) and type(made).__module__ == __name__:
        return made
    return _Checked(method, getattr(given, "__name__", None) or f"{given!r:.60}")

