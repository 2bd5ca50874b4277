"""The deserializers that Kafka's clients bring along, as Python functions by the names of their Java classes. Pure.

Source: org.apache.kafka.common.serialization (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

__all__ = ["DESERIALIZERS", "PACKAGE", "Deserializer"]

Deserializer = Callable[[bytes], object]
"""Turns the bytes of a key or value into what the application wants; it is not called for null."""

PACKAGE: Final = "org.apache.kafka.common.serialization."


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")  # as Java's `new String(data, UTF_8)` does


def _number(layout: str) -> Deserializer:
    numbers = Struct(layout)

    def deserialize(data: bytes) -> object:
        if len(data) != numbers.size:
            raise ValueError(f"{len(data)} bytes, not {numbers.size}")
        return numbers.unpack(data)[0]

    return deserialize


DESERIALIZERS: Final[Mapping[str, Deserializer]] = {
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "StringDeserializer": _text,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
}
"""By the name of the class, without its package."""
