"""How a group's partitions are dealt: the table of each strategy, and which of them the owners follow.

Pure. Nothing in ZooKeeper says which `partition.assignment.strategy` a member uses, so it is concluded from what the
members hold. Each of them computes the same table as the others as long as all use one strategy.

Source: kafka.consumer.PartitionAssignor (0.8.2.2, 1.1.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rebalance.assignment import assign_range, assign_roundrobin, hash_collisions
from rebalance.errors import UnequalSubscriptions
from rebalance.subscription import INTERNAL_TOPICS, consumer_id_of
from zkconsumer.admin.group_report import Members

__all__ = ["STRATEGIES", "Place", "Table", "disagreement", "most_followed", "tables"]

STRATEGIES = ("range", "roundrobin", "roundrobin-1.0")
"""As `verify --strategy` takes them; `roundrobin-1.0` is the order of Java 1.0 and 1.1."""

_ORDERS = {"roundrobin": "0.8", "roundrobin-1.0": "1.0"}

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Table:
    """What one strategy deals.

    Attributes:
        strategy: one of `STRATEGIES`.
        threads: partition -> thread id.
        undefined: partitions whose hash another one shares: Java leaves their order open.
    """

    strategy: str
    threads: Mapping[Place, str]
    undefined: frozenset[Place] = frozenset()

    def deals(self, place: Place, thread: str) -> bool:
        """Whether the partition is that thread's."""
        return self.threads.get(place) == thread or place in self.undefined

    def differences(self, owners: Mapping[Place, str]) -> int:
        """How many partitions somebody else owns than the table says."""
        return sum(not self.deals(place, thread) for place, thread in owners.items())


def tables(
    members: Members,
    known_topics: Sequence[str],
    partitions: Mapping[str, Sequence[int]],
    strategies: Iterable[str] = STRATEGIES,
) -> list[Table]:
    """The tables that the group may follow; round robin is left out where the subscriptions do not allow it.

    Args:
        known_topics: all topics of the cluster.
        partitions: topic -> its partitions, for the topics that can be read.
    """
    # Only where there are such topics does it matter whether filters leave them out.
    excludes = [True, False] if INTERNAL_TOPICS.intersection(known_topics) else [True]
    found = []
    for exclude in excludes:
        topics: set[str] = set()
        for subscription in members.subscriptions.values():
            topics.update(subscription.topics(known_topics, exclude))
        threads = {topic: members.threads(topic, exclude) for topic in sorted(topics)}
        dealt = {topic: partitions[topic] for topic in threads if topic in partitions}
        found += [table for name in strategies if (table := _table(name, dealt, threads)) is not None]
    return found


def _table(
    strategy: str, partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Iterable[str]]
) -> Table | None:
    if strategy == "range":
        return Table(strategy, assign_range(partitions, threads))
    order = _ORDERS[strategy]
    try:
        dealt = assign_roundrobin(partitions, threads, order)
    except UnequalSubscriptions:
        return None
    undefined = frozenset(place for group in hash_collisions(partitions, order) for place in group)
    return Table(strategy, dealt, undefined)


def most_followed(candidates: Sequence[Table], owners: Mapping[Place, str]) -> Table | None:
    """The table from which the owners differ least, the earlier one of equals; `None` of no candidates."""
    return min(candidates, key=lambda table: table.differences(owners), default=None)


def disagreement(candidates: Sequence[Table], owners: Mapping[Place, str]) -> dict[str, list[str]]:
    """Consumer id -> the strategies that explain all it owns, if each member follows one, but not all the same.

    Empty when the members may agree, and when what some member owns is no strategy's doing.
    """
    owned: dict[str, list[tuple[Place, str]]] = {}
    for place, thread in owners.items():
        owned.setdefault(consumer_id_of(thread), []).append((place, thread))
    explained = {
        member: [number for number, table in enumerate(candidates)
                 if all(table.deals(place, thread) for place, thread in held)]
        for member, held in sorted(owned.items())
    }  # fmt: skip
    if not explained or not all(explained.values()) or set.intersection(*map(set, explained.values())):
        return {}
    return {
        member: sorted({candidates[number].strategy for number in numbers}, key=STRATEGIES.index)
        for member, numbers in explained.items()
    }
