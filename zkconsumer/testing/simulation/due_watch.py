"""Who should own what, as events: written down whenever the leader writes a node on which that depends.

An event `due` names the member that should have a partition by the assignment rule from now on, or nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rebalance import znodes
from rebalance.errors import UnequalSubscriptions, UnreadableNode
from rebalance.snapshot import Strategy
from zkconsumer.testing.group_checks import rightful_owners
from zkconsumer.testing.history import Place
from zkconsumer.testing.simulation.tree import Change, ChangeKind
from zkconsumer.testing.simulation.zookeeper_connection import Record

__all__ = ["DueWatch"]

_TOPICS: Final = f"{znodes.TOPICS}/"


class DueWatch:
    """Follows the registrations of one group, and the topics.

    Args:
        group: whose.
        strategy: how the group deals partitions.
        member_of: session id -> the name of the member, "" for none.
        place: (topic, partition) -> its name in the history.
        write: takes an event: member, place.
    """

    def __init__(
        self,
        group: str,
        strategy: Strategy,
        member_of: Callable[[int], str],
        place: Callable[[str, int], Place],
        write: Callable[[str, Place], None],
    ) -> None:
        self._ids = f"{znodes.ids_path(group)}/"
        self._strategy = strategy
        self._member_of = member_of
        self._place = place
        self._write = write
        self._registrations: dict[str, bytes] = {}
        self._members: dict[str, str] = {}
        self._topics: dict[str, tuple[int, ...]] = {}
        self._due: dict[Place, str] = {}

    def observe(self, record: Record) -> None:
        """Take note of an entry of ZooKeeper's log."""
        is_other = False
        for change in record.changes:
            if change.path.startswith(self._ids):
                self._registration_written(change)
                is_other = True
            elif change.path.startswith(_TOPICS) and "/" not in change.path[len(_TOPICS):]:
                self._topic_written(change)
                is_other = True
        if is_other:
            self._deal()

    def wiped(self) -> None:
        """Take note that all nodes are gone."""
        self._registrations.clear()
        self._members.clear()
        self._topics.clear()
        self._deal()

    def _registration_written(self, change: Change) -> None:
        name = change.path[len(self._ids):]
        if change.kind is ChangeKind.DELETED:
            self._registrations.pop(name, None)
            self._members.pop(name, None)
            return
        self._registrations[name] = change.data
        if change.kind is ChangeKind.CREATED:
            self._members[name] = self._member_of(change.owner) if change.owner else ""

    def _topic_written(self, change: Change) -> None:
        topic = change.path[len(_TOPICS):]
        if change.kind is ChangeKind.DELETED:
            self._topics.pop(topic, None)
            return
        try:
            self._topics[topic] = znodes.parse_topic(topic, change.data)
        except UnreadableNode:
            self._topics[topic] = ()

    def _deal(self) -> None:
        due: dict[Place, str] = {}
        try:
            owners = rightful_owners(self._registrations, self._topics, self._strategy)
        except UnequalSubscriptions:
            owners = {}
        for place, thread_id in owners.items():
            due[self._place(*place)] = self._members.get(thread_id.rpartition("-")[0], "")
        for place in sorted(self._due.keys() | due.keys()):
            member = due.get(place, "")
            if member != self._due.get(place, ""):
                self._write(member, place)
        self._due = due
