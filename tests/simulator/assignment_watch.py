"""Records which member should own each partition, whenever the leader writes a node on which that depends.

An event `due` names the member that should own a partition by the assignment rule from now on, or no member. While a
registration, or the list of them, may not be read, that is no member. With roundrobin there are such events of each of
its two orders; `id` names the order if it is not that of 0.8.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from rebalance.errors import UnequalSubscriptions, UnreadableNode, UnsupportedFilter
from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes, znodes_07
from rebalance.zookeeper.snapshot import Strategy
from rebalance.zookeeper.znodes_07 import GENERATION_08, Generation
from tests.simulator.tree import Change, ChangeKind
from tests.simulator.zookeeper_connection import Record
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.groups import rightful_owners

__all__ = ["AssignmentWatch"]

_TOPICS: Final = f"{znodes.TOPICS}/"
_OTHER_ORDER: Final = "1.0"
_Due = dict[Place, tuple[Place, str]]
"""(topic, partition) -> its name in the history, and the member that should own it."""


class AssignmentWatch:
    """Follows the registrations of one group, and the topics.

    Args:
        group: whose.
        strategy: how the group assigns partitions.
        member_of: session id -> the name of the member, "" for none.
        place: (topic, partition) -> its name in the history.
        write: records an event: member, place, the order ("": that of 0.8).
        generation: how registrations and topics are written.

    Attributes:
        disputed: places that the two orders of roundrobin have given to different threads at some time. Who should own
            them depends on what the members know of the order.
    """

    def __init__(
        self,
        group: str,
        strategy: Strategy,
        member_of: Callable[[int], str],
        place: Callable[[str, int | str], Place],
        write: Callable[[str, Place, str], None],
        generation: Generation = GENERATION_08,
    ) -> None:
        self._generation = generation
        self._list = znodes.ids_path(group)
        self._ids = f"{self._list}/"
        self._strategies = {"": strategy}
        if strategy.name == "roundrobin":
            self._strategies[_OTHER_ORDER] = replace(strategy, roundrobin_order=_OTHER_ORDER)
        self.disputed: set[Place] = set()
        self._member_of = member_of
        self._place = place
        self._write = write
        self._registrations: dict[str, bytes] = {}
        self._members: dict[str, str] = {}
        self._topics: dict[str, tuple[int | str, ...]] = {}
        self._counts: dict[str, dict[int, int]] = {}
        self._due: dict[str, _Due] = {order: {} for order in self._strategies}
        self._closed: set[str] = set()

    def observe(self, record: Record) -> None:
        """Process an entry of ZooKeeper's log."""
        is_other = False
        for change in record.changes:
            if change.kind in (ChangeKind.CLOSED, ChangeKind.OPENED):
                is_other |= self._access_set(change)
            elif change.path.startswith(self._ids):
                self._registration_written(change)
                is_other = True
            elif change.path.startswith(_TOPICS):
                is_other |= self._topic_written(change)
        if is_other:
            self.report_changes()

    def wiped(self) -> None:
        """All nodes are gone."""
        self._registrations.clear()
        self._members.clear()
        self._topics.clear()
        self._counts.clear()
        self._closed.clear()
        self.report_changes()

    def _access_set(self, change: Change) -> bool:
        """Whether that concerns who should own what."""
        if change.kind is ChangeKind.OPENED:
            self._closed.discard(change.path)
        elif change.path == self._list or change.path.startswith(self._ids):
            self._closed.add(change.path)
        return change.path.startswith(self._list)

    def _registration_written(self, change: Change) -> None:
        name = change.path[len(self._ids) :]
        if change.kind is ChangeKind.DELETED:
            self._registrations.pop(name, None)
            self._members.pop(name, None)
            self._closed.discard(change.path)
            return
        self._registrations[name] = change.data
        if change.kind is ChangeKind.CREATED:
            self._members[name] = self._member_of(change.owner) if change.owner else ""

    def _topic_written(self, change: Change) -> bool:
        """Whether it is a node that says which partitions there are."""
        topic, _, broker = change.path[len(_TOPICS) :].partition("/")
        if self._generation.has_broker_nodes:
            self._broker_of_topic_written(topic, broker, change)
            return True
        if broker:
            return False
        if change.kind is ChangeKind.DELETED:
            self._topics.pop(topic, None)
            return True
        try:
            self._topics[topic] = znodes.parse_topic(topic, change.data)
        except UnreadableNode:
            self._topics[topic] = ()
        return True

    def _broker_of_topic_written(self, topic: str, broker: str, change: Change) -> None:
        """Take note of a topic of Kafka 0.7, or of how many partitions of it a broker has."""
        counts = self._counts.setdefault(topic, {})
        if broker and change.kind is ChangeKind.DELETED:
            counts.pop(int(broker), None)
        elif broker:
            counts[int(broker)] = znodes_07.parse_partition_count_07(change.path, change.data)
        self._topics[topic] = znodes_07.partition_names(counts)

    def report_changes(self) -> None:
        """Report what differs from the last report, be it only the name of a topic's new incarnation."""
        owners = {order: self._owners(strategy) for order, strategy in self._strategies.items()}
        for order, threads in owners.items():
            self.disputed |= {self._place(*each) for each, thread in threads.items() if owners[""].get(each) != thread}
            self._report_order(order, threads)

    def _report_order(self, order: str, owners: dict[Place, str]) -> None:
        due: _Due = {}
        for place, thread_id in owners.items():
            due[place] = (self._place(*place), self._members.get(thread_id.rpartition("-")[0], ""))
        reported = self._due[order]
        for place in sorted(reported.keys() | due.keys(), key=str):
            before, after = reported.get(place), due.get(place)
            if before is not None and (after is None or after[0] != before[0]):
                self._write("", before[0], order)
            if after is not None and after != before:
                self._write(after[1], after[0], order)
        self._due[order] = due

    def _owners(self, strategy: Strategy) -> dict[Place, str]:
        """(topic, partition) -> thread id; nothing where the rule, or an unreadable node, forbids claims."""
        if self._closed:
            return {}
        try:
            for name, data in self._registrations.items():
                with suppress(UnreadableNode):
                    Subscription.from_registration(self._generation.parse_registration(data, name))
            return rightful_owners(self._registrations, self._topics, strategy, self._generation)
        except (UnequalSubscriptions, UnsupportedFilter):
            return {}
