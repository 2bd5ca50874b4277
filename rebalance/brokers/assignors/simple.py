"""SimpleAssignor: the part of assignors that need nothing but topics and members; range and roundrobin. Pure.

Both have the results of Java's classes of Kafka 2.4 and later. The ZooKeeper consumer's `roundrobin` is another one
(`rebalance.assignment`); the two never meet in a group.

Source: RangeAssignor, RoundRobinAssignor (Kafka 3.9), without the preference of equal racks, which changes no sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from rebalance.assignment import assign_topic_range
from rebalance.brokers.assignors.assignor import RebalanceProtocol, Subscriptions, in_order, partitions_of, subscribers
from rebalance.brokers.consumer_protocol import Assignment, Partition

__all__ = ["RangeAssignor", "RoundRobinAssignor", "SimpleAssignor"]


class SimpleAssignor(ABC):
    """An assignor that is only a function of topics and members; an application's own one may derive from it.

    Attributes:
        name: By which members of a group agree on it.
        supported_protocols: What its members do with their partitions first; here they give all of them back.
    """

    name: str
    supported_protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    @abstractmethod
    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> Mapping[str, Sequence[Partition]]:
        """Return the partitions of each member; see `Assignor.assign`."""

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return nothing: the topics are enough."""
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 - not every one keeps it
        """Keep nothing: what was before does not matter."""


class RangeAssignor(SimpleAssignor):
    """Gives each member a run of partitions of each of its topics, the first members one more."""

    name = "range"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> dict[str, list[Partition]]:
        """Return the partitions of each member; see `Assignor.assign`."""
        members = in_order(subscriptions)
        found: dict[str, list[Partition]] = {member: [] for member in members}
        for topic, count in sorted(partitions_per_topic.items()):
            owners = assign_topic_range(range(count), subscribers(topic, subscriptions, members))
            for number, member in owners.items():
                found[member].append((topic, number))
        return found


class RoundRobinAssignor(SimpleAssignor):
    """Gives all partitions of all topics to the members in turn, past those that do not want the topic."""

    name = "roundrobin"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> dict[str, list[Partition]]:
        """Return the partitions of each member; see `Assignor.assign`."""
        members = in_order(subscriptions)
        found: dict[str, list[Partition]] = {member: [] for member in members}
        wanted = {topic for each in subscriptions.values() for topic in each.topics}
        turns = cycle(members)
        for partition in partitions_of(partitions_per_topic, wanted):
            # A topic that is here has a member that wants it.
            member = next(member for member in turns if partition[0] in subscriptions[member].topics)
            found[member].append(partition)
        return found
