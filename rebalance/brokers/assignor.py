"""The interface of an assignor, and the order of the members that all assignors share.

Pure.

Source: ConsumerPartitionAssignor, AbstractPartitionAssignor (Kafka 3.9).

SimpleAssignor: the part of assignors that need nothing but topics and members; range and roundrobin.

Both have the results of Java's classes of Kafka 2.4 and later. The ZooKeeper consumer's `roundrobin` is another one
(`rebalance.subscription`); the two never meet in a group.

Source: RangeAssignor, RoundRobinAssignor (Kafka 3.9), without the preference of equal racks, which changes no sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import cycle
from typing import Protocol

from rebalance.brokers.consumer_protocol import Assignment, Partition, Subscription
from rebalance.subscription import assign_topic_range, utf16_units

Subscriptions = Mapping[str, Subscription]
"""By member id."""


class RebalanceProtocol(Enum):
    """Tells what members do with their partitions before the group is assigned anew."""

    EAGER = "eager"
    """They give all of them back."""
    COOPERATIVE = "cooperative"
    """They keep them; partitions that move are given back after the first round, and assigned in a second one."""


class Assignor(Protocol):
    """A way to assign partitions.

    Attributes:
        name: The name by which members of a group agree on it.
        supported_protocols: The protocols that its members may use, the preferred one first.
    """

    @property
    def name(self) -> str: ...

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]: ...

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return the data that a member adds to its subscription for the assignor of the leader."""

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> Mapping[str, Sequence[Partition]]:
        """Return the partitions of each member.

        Args:
            partitions_per_topic: How many partitions each topic has; topics that are not known are missing.
            subscriptions: Those of all members.
        """

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Take over what this member has got."""


def in_order(subscriptions: Subscriptions) -> list[str]:
    """Return the member ids, static members first by their instance ids, then the others by their own.

    Static members get the same partitions after a restart, when their member ids are new.
    """

    def key(member: str) -> tuple[bool, bytes, bytes]:
        instance = subscriptions[member].instance_id
        return instance is None, utf16_units(instance or ""), utf16_units(member)

    return sorted(subscriptions, key=key)


def subscribers(topic: str, subscriptions: Subscriptions, members: Iterable[str]) -> list[str]:
    """Return those of the members that want a topic, in the same order."""
    return [member for member in members if topic in subscriptions[member].topics]


def partitions_of(partitions_per_topic: Mapping[str, int], topics: Iterable[str]) -> list[Partition]:
    """Return all partitions of topics that are known, by topic and number."""
    known = sorted({topic for topic in topics if topic in partitions_per_topic}, key=utf16_units)
    return [(topic, number) for topic in known for number in range(partitions_per_topic[topic])]


class SimpleAssignor(ABC):
    """A base class for assignors that depend on topics and members alone.

    Attributes:
        name: The name by which members of a group agree on it.
        supported_protocols: The protocols that its members may use; here they give all partitions back.
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
        """Do nothing: earlier assignments do not matter."""


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
    """Gives all partitions of all topics to the members in turn, past members that do not want the topic."""

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
