"""Computes how each strategy would assign a group's partitions, and which of the strategies the owners follow.

Pure. No node in ZooKeeper says which `partition.assignment.strategy` a member uses, so it is concluded from what the
members own. As long as all members use one strategy, each of them computes the same assignment.

Source: kafka.consumer.PartitionAssignor (0.8.2.2, 1.1.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rebalance.assignment import assign_range, assign_roundrobin, hash_collisions
from rebalance.errors import UnequalSubscriptions
from rebalance.subscription import INTERNAL_TOPICS, consumer_id_of
from zkconsumer.admin.groups.group_report import Members

__all__ = ["ROUNDROBIN", "STRATEGIES", "AssignmentPreview", "Place", "disagreement", "most_followed", "previews"]

STRATEGIES = ("range", "roundrobin", "roundrobin-1.0")
"""As `verify --strategy` takes them; `roundrobin-1.0` is the order of Java 1.0 and 1.1."""

_ORDERS = {"roundrobin": "0.8", "roundrobin-1.0": "1.0"}
ROUNDROBIN = frozenset(_ORDERS)
"""The strategies that differ in the order alone."""

Place = tuple[str, int | str]
"""Topic and partition."""


@dataclass(frozen=True)
class AssignmentPreview:
    """What one strategy assigns.

    Attributes:
        strategy: One of `STRATEGIES`.
        threads: Partition -> thread id.
        undefined: Partitions whose hash another partition shares: Java leaves their order open.
    """

    strategy: str
    threads: Mapping[Place, str]
    undefined: frozenset[Place] = frozenset()

    def assigns(self, place: Place, thread: str) -> bool:
        """Return True if the partition may be the thread's."""
        return self.threads.get(place) == thread or place in self.undefined

    def differences(self, owners: Mapping[Place, str]) -> int:
        """Return the number of partitions that somebody else owns."""
        return sum(not self.assigns(place, thread) for place, thread in owners.items())


def previews(
    members: Members,
    known_topics: Sequence[str],
    partitions: Mapping[str, Sequence[int | str]],
    strategies: Iterable[str] = STRATEGIES,
) -> list[AssignmentPreview]:
    """Return what each strategy assigns; round robin is left out where the subscriptions do not allow it.

    Args:
        known_topics: All topics of the cluster.
        partitions: Topic -> its partitions, for the topics that can be read.
    """
    # Only where there are internal topics does it matter whether filters leave them out.
    excludes = [True, False] if INTERNAL_TOPICS.intersection(known_topics) else [True]
    found = []
    for exclude in excludes:
        topics: set[str] = set()
        for subscription in members.subscriptions.values():
            topics.update(subscription.topics(known_topics, exclude))
        threads = {topic: members.threads(topic, exclude) for topic in sorted(topics)}
        assigned = {topic: partitions[topic] for topic in threads if topic in partitions}
        found += [preview for name in strategies if (preview := _preview(name, assigned, threads)) is not None]
    return found


def _preview(
    strategy: str, partitions: Mapping[str, Sequence[int | str]], threads: Mapping[str, Iterable[str]]
) -> AssignmentPreview | None:
    if strategy == "range":
        return AssignmentPreview(strategy, assign_range(partitions, threads))
    order = _ORDERS[strategy]
    try:
        assigned = assign_roundrobin(partitions, threads, order)
    except UnequalSubscriptions:
        return None
    undefined = frozenset(place for group in hash_collisions(partitions, order) for place in group)
    return AssignmentPreview(strategy, assigned, undefined)


def most_followed(candidates: Sequence[AssignmentPreview], owners: Mapping[Place, str]) -> AssignmentPreview | None:
    """Return the assignment from which the owners differ least, the earlier one of equals; None of no candidates."""
    return min(candidates, key=lambda preview: preview.differences(owners), default=None)


def disagreement(candidates: Sequence[AssignmentPreview], owners: Mapping[Place, str]) -> dict[str, list[str]]:
    """Return the strategies of the members if each member follows one, but not all the same: consumer id -> strategies.

    Empty when the members may agree, and when some member owns what no strategy assigns to it.
    """
    owned: dict[str, list[tuple[Place, str]]] = {}
    for place, thread in owners.items():
        owned.setdefault(consumer_id_of(thread), []).append((place, thread))
    explained = {
        member: [number for number, preview in enumerate(candidates)
                 if all(preview.assigns(place, thread) for place, thread in held)]
        for member, held in sorted(owned.items())
    }  # fmt: skip
    if not explained or not all(explained.values()) or set.intersection(*map(set, explained.values())):
        return {}
    return {
        member: sorted({candidates[number].strategy for number in numbers}, key=STRATEGIES.index)
        for member, numbers in explained.items()
    }
