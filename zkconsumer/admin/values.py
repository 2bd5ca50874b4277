"""The results and errors of administration: values, their JSON, phrases, and errors. Pure.

The values that administration returns, and how they become JSON.

Phrases of messages: a number with its noun, and the names that were probably meant.

The errors of group administration.

    ZkConsumerError
    └── AdminError                what was asked for cannot be found out or done
        ├── NotFound              no such group, topic or partition
        ├── GroupHasMembers       refused while consumers are in the group
        ├── OffsetsNotSet         offsets that cannot be set, or that somebody else has changed meanwhile
        ├── GroupNotDeleted       a group that could not be deleted, or not wholly
        ├── ClaimNotReleased      a claim whose owner may be alive, or that has changed meanwhile
        ├── RebalanceNotTriggered ZooKeeper did not take the passing registration
        ├── CoordinatorUnavailable no broker coordinates a group now, or it does not answer
        ├── GroupNotAuthorized    brokers do not let this user see or change a group
        ├── ControllerUnavailable no broker is the controller now, or it does not answer
        ├── TopicRefused          a topic that may not be created, grown, deleted, set or cut so
        ├── TopicNotAuthorized    brokers do not let this user change a topic
        ├── TopicUnfinished       the change is asked for, and the brokers have not done it in time
        ├── AclsRefused           rules of access lists that cannot be, or brokers that have no access lists
        └── AclsNotAuthorized     brokers do not let this user see or change the access lists
"""

# The names say what happened; an "Error" at the end of each would only repeat the tree above.
# ruff: noqa: N818

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from zkconsumer_error import RemediedError, first_few

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
        members: Number of registered consumers; None if ZooKeeper does not let this client read it.
        owned: Number of partitions that somebody owns now; None if ZooKeeper does not let this client read it.
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
        refused: Nodes that may not be read, a sentence for each; nodes below them are not counted.
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
    """The result of releasing a claim.

    Attributes:
        path: The owner node.
        reason: Why the claim may be released, a clause; None when nobody owns the partition.
        is_released: The node was deleted; False with `dry_run`.
    """

    path: str
    reason: str | None
    is_released: bool


def count_of(number: int | None, noun: str) -> str:
    """Return a number with its noun.

    >>> count_of(1, "topic"), count_of(2, "topic"), count_of(None, "member")
    ('1 topic', '2 topics', 'an unknown number of members')
    """
    if number is None:
        return f"an unknown number of {noun}s"
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nearest(name: str, known: Sequence[str], kind: str) -> str:
    """Return the remedy for a name that does not exist: the name that was probably meant, or the existing names.

    >>> nearest("clikcs", ["clicks", "views"], "topic")
    "did you mean 'clicks'?"
    """
    if not known:
        return f"no {kind} exists"
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"existing {kind}s: {first_few(*known, most=10, rest=', ...')}"


class AdminError(RemediedError):
    """A question cannot be answered, or a change cannot be made."""


class NotFound(AdminError):
    """A group, topic or partition does not exist."""


class GroupHasMembers(AdminError):
    """A group is not changed while consumers are in it: they would write their own offsets again."""


class OffsetsNotSet(AdminError):
    """Offsets were not set, or not all of them; says how many are written."""


class GroupNotDeleted(AdminError):
    """A group was not deleted, or only in part; says what is left."""


class ClaimNotReleased(AdminError):
    """A claim was not released: its owner may be alive, or the claim has changed in the meantime."""


class RebalanceNotTriggered(AdminError):
    """ZooKeeper did not accept the registration that triggers a rebalance."""


class CoordinatorUnavailable(AdminError):
    """No broker coordinates a group now, or its coordinator has not answered in time."""


class GroupNotAuthorized(AdminError):
    """The brokers do not let this user see, or change, a group that they coordinate."""


class ControllerUnavailable(AdminError):
    """No broker is the controller of the cluster now, or the controller has not answered in time."""


class TopicRefused(AdminError):
    """A topic was not created, grown, deleted, set or cut: the request breaks a rule, and nothing was written."""


class TopicNotAuthorized(AdminError):
    """The brokers do not let this user change a topic; nothing was written."""


class TopicUnfinished(AdminError):
    """The brokers have not finished a change of a topic in time; says what prevents it."""


class AclsRefused(AdminError):
    """Access lists are not read or changed: a rule has no effect, or the brokers have no access lists of that kind.

    Nothing was written.
    """


class AclsNotAuthorized(AdminError):
    """The brokers do not let this user see, or change, the access lists; nothing was written."""
