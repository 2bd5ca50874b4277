"""The kind of `partition.assignment.strategy`: names of assignors, and in groups of brokers one's own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from rebalance.brokers.assignors.assignor import Assignor
from rebalance.brokers.assignors.simple import RangeAssignor, RoundRobinAssignor
from rebalance.brokers.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = ["ZOOKEEPER_STRATEGIES", "AssignorChoice", "AssignorNames", "assignors_of"]

ZOOKEEPER_STRATEGIES: Final = ("range", "roundrobin")
"""What members of a group in ZooKeeper can agree on."""
_MADE_BY: Final[Mapping[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor, "roundrobin": RoundRobinAssignor, "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}  # fmt: skip
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_OF_JAVA: Final = {
    "RangeAssignor": "range", "RoundRobinAssignor": "roundrobin", "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}  # fmt: skip
_FACE: Final = ("name", "supported_protocols", "subscription_user_data", "assign", "on_assignment")

AssignorNames = str | tuple[str | Assignor, ...]
"""One name, or several names and objects, the one that is wanted first."""


@dataclass(frozen=True)
class AssignorChoice:
    """Assignors: one name, names between commas, Java's classes, or a list of names and objects."""

    allowed: str = "range, roundrobin, sticky or cooperative-sticky, several between commas, or assignors of your own"
    python_type: object = AssignorNames

    def convert(self, value: object) -> AssignorNames:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Iterable):
            items = (items,)
        found: list[str | Assignor] = [_assignor(each) for each in items]
        names = [each if isinstance(each, str) else each.name for each in found]
        if not found or len(set(names)) < len(names):
            raise ValueError
        first = found[0]
        return first if len(found) == 1 and isinstance(first, str) else tuple(found)

    def format(self, value: object) -> str:
        if isinstance(value, str):
            return value
        assert isinstance(value, tuple)
        return ",".join(each if isinstance(each, str) else each.name for each in value)


def _assignor(value: object) -> str | Assignor:
    if isinstance(value, str):
        name = value.strip()
        name = _OF_JAVA.get(name.removeprefix(_JAVA_PACKAGE), name)
        if name not in _MADE_BY:
            raise ValueError
        return name
    if isinstance(value, type) or not all(hasattr(value, each) for each in _FACE):
        raise ValueError
    return cast(Assignor, value)


def assignors_of(names: AssignorNames) -> tuple[Assignor, ...]:
    """Return the assignors of a setting; those that are named are made anew, as each keeps what its member has."""
    several = (names,) if isinstance(names, str) else names
    return tuple(_MADE_BY[each]() if isinstance(each, str) else each for each in several)
