"""The kind of `partition.assignment.strategy`: names of assignors, and in groups of brokers one's own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from rebalance.brokers.assignors.assignor import Assignor

__all__ = ["ZOOKEEPER_STRATEGIES", "AssignorChoice", "AssignorList", "AssignorNames", "assignors_of"]

ZOOKEEPER_STRATEGIES: Final = ("range", "roundrobin")
"""What members of a group in ZooKeeper can agree on."""
_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_CLASSES: Final = {
    "RangeAssignor": "range", "RoundRobinAssignor": "roundrobin", "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}  # fmt: skip
_FACE: Final = ("subscription_user_data", "assign", "on_assignment")

AssignorNames = str | tuple[str | Assignor, ...]
"""One name, or several names and objects, the one that is wanted first."""


@dataclass(frozen=True)
class AssignorList:
    """Names of Kafka's assignors, names of their Java classes, or objects; the first one is the most wanted."""

    allowed: str = "some of range, roundrobin, sticky, cooperative-sticky, separated by commas, or assignor objects"
    def convert(self, value: object) -> tuple[str | Assignor, ...]:
        if isinstance(value, str):
            items: list[object] = list(value.split(","))
        else:
            items = list(value) if isinstance(value, Iterable) else [value]
        found = tuple(self._assignor(item) for item in items)
        names = [each if isinstance(each, str) else each.name for each in found]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is named twice")
        if not found:
            raise ValueError("the list has no assignors")
        return found

    def _assignor(self, item: object) -> str | Assignor:
        if isinstance(item, str):
            word = item.strip()
            name = _CLASSES.get(word.removeprefix(_PACKAGE), word)
            if name not in _CLASSES.values():
                raise ValueError(f"{word!r} is not one of them")
            return name
        if isinstance(item, type):
            raise ValueError(f"{item.__name__} is a class; give an instance")
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
class AssignorChoice(AssignorList):
    """The same, where a group in ZooKeeper has one strategy: a single name stays a word."""

    def convert(self, value: object) -> AssignorNames:  # type: ignore[override]
        found = super().convert(value)
        first = found[0]
        return first if len(found) == 1 and isinstance(first, str) else found

    def format(self, value: object) -> str:
        return value if isinstance(value, str) else super().format(value)


def assignors_of(names: AssignorNames) -> tuple[Assignor, ...]:
    """Return the assignors of a setting; those that are named are made anew, as each keeps what its member has."""
    from rebalance.brokers.assignors.simple import (  # needed in groups of brokers alone
        RangeAssignor,
        RoundRobinAssignor,
    )
    from rebalance.brokers.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

    made_by: Mapping[str, Callable[[], Assignor]] = {
        "range": RangeAssignor, "roundrobin": RoundRobinAssignor, "sticky": StickyAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }  # fmt: skip
    several = (names,) if isinstance(names, str) else names
    return tuple(made_by[each]() if isinstance(each, str) else each for each in several)
