"""The types of settings that KafkaConsumer alone has: reset policies, assignors, and objects of Python. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from rebalance.brokers.assignors.assignor import Assignor
from zkconsumer.config.deserializers import DESERIALIZERS, PACKAGE, Deserializer

__all__ = [
    "ASSIGNORS", "AnyValue", "AssignorList", "DeserializerFunction", "GroupProtocol", "InterceptorList", "ResetPolicy",
]  # fmt: skip

ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The names of Kafka's own assignors."""
_CLASSES: Final[Mapping[str, str]] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_FACE: Final = ("subscription_user_data", "assign", "on_assignment")
_POLICIES: Final[Mapping[str, str]] = {
    "earliest": "earliest", "latest": "latest", "none": "none", "smallest": "earliest", "largest": "latest",
}  # fmt: skip


@dataclass(frozen=True)
class AnyValue:
    """Whatever is given, as text: for settings without effect."""

    allowed: str = "anything"
    python_type: object = str

    def convert(self, value: object) -> str:
        return str(value)

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class ResetPolicy:
    """earliest, latest or none; the words of Kafka 0.8 mean the first two."""

    allowed: str = "earliest (or smallest), latest (or largest) or none"
    python_type: object = str

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
    python_type: object = str

    def convert(self, value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word == "consumer":
            raise ValueError("the protocol of KIP-848 is not supported; brokers of Kafka 4 serve classic members, too")
        if word != "classic":
            raise ValueError
        return word

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class AssignorList:
    """Names of Kafka's assignors, names of their Java classes, or objects; the first one is the most wanted."""

    allowed: str = "range, roundrobin, sticky and cooperative-sticky, several between commas, or assignors in Python"
    python_type: object = tuple[str | Assignor, ...]

    def convert(self, value: object) -> tuple[str | Assignor, ...]:
        if isinstance(value, str):
            items: list[object] = list(value.split(","))
        else:
            items = list(value) if isinstance(value, Iterable) else [value]
        found = tuple(self._assignor(item) for item in items)
        names = [each if isinstance(each, str) else each.name for each in found]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} stands there twice")
        if not found:
            raise ValueError("a list without assignors")
        return found

    def _assignor(self, item: object) -> str | Assignor:
        if isinstance(item, str):
            word = item.strip()
            name = _CLASSES.get(word.removeprefix(_PACKAGE), word)
            if name not in ASSIGNORS:
                raise ValueError(f"{word!r} is none of them")
            return name
        if isinstance(item, type):
            raise ValueError(f"{item.__name__} is a class; give an instance of it")
        if not isinstance(getattr(item, "name", None), str) or not getattr(item, "supported_protocols", None):
            raise ValueError(f"{type(item).__name__} has no name or no supported_protocols")
        lacks = [method for method in _FACE if not callable(getattr(item, method, None))]
        if lacks:
            raise ValueError(f"{type(item).__name__} has no method {lacks[0]}")
        return cast("Assignor", item)

    def format(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(each if isinstance(each, str) else each.name for each in value)


@dataclass(frozen=True)
class DeserializerFunction:
    """A function of Python, or the name of one of Kafka's own deserializers."""

    allowed: str = "a function that takes bytes, or a deserializer of Kafka for text, bytes or numbers"
    python_type: object = Deserializer

    def convert(self, value: object) -> Deserializer:
        if isinstance(value, str):
            name = value.strip().removeprefix(PACKAGE)
            if name not in DESERIALIZERS:
                raise ValueError("classes of Java are not loaded: give a function of Python as a keyword")
            return DESERIALIZERS[name]
        if not callable(value):
            raise ValueError("it cannot be called")
        return cast("Deserializer", value)

    def format(self, value: object) -> str:
        named = {function: name for name, function in DESERIALIZERS.items()}
        return PACKAGE + named[cast("Deserializer", value)]


@dataclass(frozen=True)
class InterceptorList:
    """Objects of Python with the methods `on_consume` and `on_commit`."""

    allowed: str = "objects with the methods on_consume and on_commit, as a keyword"
    python_type: object = tuple[object, ...]

    def convert(self, value: object) -> tuple[object, ...]:
        if isinstance(value, str):
            if value.strip():
                raise ValueError("classes of Java are not loaded: give objects of Python as a keyword")
            return ()
        found = tuple(value) if isinstance(value, Iterable) else (value,)
        for each in found:
            if isinstance(each, type):
                raise ValueError(f"{each.__name__} is a class; give an instance of it")
            lacks = [method for method in ("on_consume", "on_commit") if not callable(getattr(each, method, None))]
            if lacks:
                raise ValueError(f"{type(each).__name__} has no method {lacks[0]}")
        return found

    def format(self, value: object) -> str:
        raise ValueError("objects of Python have no text")
