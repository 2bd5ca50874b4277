"""The values that administration returns, and how they become JSON. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["GroupList", "GroupRow", "JsonValue", "Released", "partition_number", "typed"]

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def partition_number(name: str) -> int | None:
    """Return the partition after which an owner or offset node is named, None for any other name, such as `00`."""
    return int(name) if _NUMBER.fullmatch(name) else None


def typed(value: Any) -> Any:
    """Return plain dicts and lists in which a key has one type everywhere.

    `partition` is a number. For a node with any other name, as in Kafka 0.7, it is null, and `partition_node` has the
    name.
    """
    if isinstance(value, dict):
        found = {key: typed(each) for key, each in value.items()}
        name = found.get("partition")
        if isinstance(name, str):
            found["partition"] = partition_number(name)
            if found["partition"] is None:
                found["partition_node"] = name
        return found
    return [typed(each) for each in value] if isinstance(value, list | tuple) else value


class JsonValue:
    """A frozen dataclass that can be printed as JSON, in the form that the commands print with `--json`."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, under the names of the fields."""
        return typed(asdict(self))  # type: ignore[call-overload,no-any-return]

    def to_json(self) -> str:
        """Return `to_dict()` as JSON text, in one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


@dataclass(frozen=True)
class GroupRow(JsonValue):
    """One group.

    Attributes:
        group: Its name.
        members: Number of registered consumers; None if ZooKeeper does not let us read it.
        owned: Number of partitions that somebody owns now; None if ZooKeeper does not let us read it.
        topics: Topics that the group owns partitions of or has stored offsets for, by name.
        offsets_in_zookeeper: It has offsets in ZooKeeper.
        offsets_in_kafka: It has offsets in Kafka; None if that is not known.
        coordination: Who coordinates it: `zookeeper` or `brokers`.
        state: As its coordinator names it, such as `Stable`; None for a group in ZooKeeper.
        protocol_type: `consumer` for consumers; empty for a group that has stored offsets and never had a member; None
            for a group in ZooKeeper.
        group_type: `classic`, or `consumer` for the protocol of KIP-848; None for a group in ZooKeeper.
        coordinator: Id of the broker that coordinates it; None for a group in ZooKeeper.
    """

    group: str
    members: int | None
    owned: int | None
    topics: tuple[str, ...]
    offsets_in_zookeeper: bool = False
    offsets_in_kafka: bool | None = False
    coordination: str = "zookeeper"
    state: str | None = None
    protocol_type: str | None = None
    group_type: str | None = None
    coordinator: int | None = None


@dataclass(frozen=True)
class GroupList(JsonValue):
    """The groups of a cluster.

    Attributes:
        groups: All groups, by name.
        refused: Nodes that may not be read, a sentence for each; what stands below them is not counted.
        unknown: Of how many groups it is not known whether they have offsets in Kafka, and why, a sentence; None if
            there are none.
        unlisted: Why groups that brokers coordinate may be missing, a sentence for each broker.
    """

    groups: tuple[GroupRow, ...]
    refused: tuple[str, ...] = ()
    unknown: str | None = None
    unlisted: tuple[str, ...] = ()

    def active(self) -> GroupList:
        """Return the groups that have members, and those of which it is not known."""
        return replace(self, groups=tuple(row for row in self.groups if row.members != 0))

    def in_states(self, states: Collection[str]) -> GroupList:
        """Return the groups in one of these states, in upper or lower case; groups in ZooKeeper have none."""
        wanted = {state.lower() for state in states}
        return replace(self, groups=tuple(row for row in self.groups if (row.state or "").lower() in wanted))

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer groups --json`."""
        return {"groups": [_renamed(row.to_dict()) for row in self.groups]}


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {"member_count" if key == "members" else key: value for key, value in row.items()}


@dataclass(frozen=True)
class Released(JsonValue):
    """What became of a claim.

    Attributes:
        path: The owner node.
        reason: Why the claim may be released, a clause; None when nobody owns the partition.
        is_released: The node was deleted; False with `dry_run`.
    """

    path: str
    reason: str | None
    is_released: bool
