"""The types of settings that KafkaConsumer alone has: reset policies, and objects of Python. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from zkconsumer.config.deserializers import DESERIALIZERS, PACKAGE, Deserializer

__all__ = [
    "AnyValue", "DeserializerFunction", "GroupProtocol", "InterceptorList", "ResetPolicy",
]  # fmt: skip

_POLICIES: Final[Mapping[str, str]] = {
    "earliest": "earliest", "latest": "latest", "none": "none", "smallest": "earliest", "largest": "latest",
}  # fmt: skip


@dataclass(frozen=True)
class AnyValue:
    """Whatever is given, as text: for settings without effect."""

    allowed: str = "anything"
    def convert(self, value: object) -> str:
        return str(value)

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class ResetPolicy:
    """earliest, latest or none; the words of Kafka 0.8 mean the first two."""

    allowed: str = "earliest (or smallest), latest (or largest) or none"
    @property
    def words(self) -> tuple[str, ...]:
        """All words that are accepted."""
        return tuple(_POLICIES)

    def convert(self, value: object) -> str:
        word = value.strip() if isinstance(value, str) else ""
        if word.startswith("by_duration"):
            raise ValueError("by_duration of Kafka 4.0 is not supported: use offsets_for_times and seek")
        if word not in _POLICIES:
            raise ValueError
        return _POLICIES[word]

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class GroupProtocol:
    """classic, the protocol of JoinGroup and SyncGroup."""

    allowed: str = "classic"
    def convert(self, value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word == "consumer":
            raise ValueError("the protocol of KIP-848 is not supported; brokers of Kafka 4 also serve classic members")
        if word != "classic":
            raise ValueError
        return word

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class DeserializerFunction:
    """A function of Python, or the name of one of Kafka's own deserializers."""

    allowed: str = "a function of bytes, or one of Kafka's deserializers of text, bytes or numbers"
    def convert(self, value: object) -> Deserializer:
        if isinstance(value, str):
            name = value.strip().removeprefix(PACKAGE)
            if name not in DESERIALIZERS:
                raise ValueError("Java classes cannot be loaded: give a Python function as a keyword argument")
            return DESERIALIZERS[name]
        if not callable(value):
            raise ValueError("it is not callable")
        return cast("Deserializer", value)

    def format(self, value: object) -> str:
        named = {function: name for name, function in DESERIALIZERS.items()}
        return PACKAGE + named[cast("Deserializer", value)]


@dataclass(frozen=True)
class InterceptorList:
    """Objects of Python with the methods `on_consume` and `on_commit`."""

    allowed: str = "objects with the methods on_consume and on_commit, as a keyword argument"
    def convert(self, value: object) -> tuple[object, ...]:
        if isinstance(value, str):
            if value.strip():
                raise ValueError("Java classes cannot be loaded: give Python objects as a keyword argument")
            return ()
        found = tuple(value) if isinstance(value, Iterable) else (value,)
        for each in found:
            if isinstance(each, type):
                raise ValueError(f"{each.__name__} is a class; give an instance")
            lacks = [method for method in ("on_consume", "on_commit") if not callable(getattr(each, method, None))]
            if lacks:
                raise ValueError(f"{type(each).__name__} has no method {lacks[0]}")
        return found

    def format(self, value: object) -> str:
        raise ValueError("objects of Python have no text")
