"""SubscriptionState: what a consumer subscribes to, and which partitions follow from that. Pure.

There are four kinds of subscription: none, topics, a pattern, and partitions that the application has assigned. They
exclude each other: a consumer that changes from one to the other unsubscribes in between.

Source: SubscriptionState (Kafka 3.9).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

from rebalance.subscription import check_topic
from simpleconsumer.types import TopicPartition
from zkconsumer.polling.assigned_partitions import AssignedPartitions, AssignmentChange
from zkconsumer.polling.errors import NotSubscribed, SubscriptionConflict

__all__ = ["SubscriptionKind", "SubscriptionState"]


class SubscriptionKind(enum.Enum):
    """The kinds of subscription."""

    NONE = "there is no subscription"
    TOPICS = "topics are subscribed to"
    PATTERN = "a pattern is subscribed to"
    PARTITIONS = "partitions are assigned by the application"


class SubscriptionState:
    """The subscription of one consumer, and its assigned partitions.

    Attributes:
        kind: What is subscribed to.
        pattern: The pattern; None for other kinds.
        assigned: The assigned partitions with their positions.
    """

    def __init__(self) -> None:
        self.kind = SubscriptionKind.NONE
        self.pattern: re.Pattern[str] | None = None
        self.assigned = AssignedPartitions()
        self._topics: frozenset[str] = frozenset()

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are subscribed to; none for a pattern, and for assigned partitions."""
        return self._topics

    @property
    def is_of_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN)

    # -- subscription --------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to topics in place of those before; return whether that is a change. No topics: `unsubscribe`.

        The assignment stays until the group is assigned anew.

        Raises:
            SubscriptionConflict: A pattern is subscribed to, or partitions are assigned.
            InvalidName: A name that no topic can have.
            TypeError: Text in place of a list of topics.
        """
        self._may_be(SubscriptionKind.TOPICS, "subscribe to topics")
        if isinstance(topics, str):
            raise TypeError(f"subscribe: {topics!r} is text; topics must be a list of names: [{topics!r}]")
        wanted = frozenset(map(check_topic, topics))
        if not wanted:
            return self.unsubscribe()
        is_change = self.kind is SubscriptionKind.NONE or wanted != self._topics
        self.kind, self._topics = SubscriptionKind.TOPICS, wanted
        return is_change

    def subscribe_to_pattern(self, pattern: re.Pattern[str]) -> bool:
        """Subscribe to the topics whose whole name matches; return whether that is a change.

        Raises:
            SubscriptionConflict: Topics are subscribed to, or partitions are assigned.
        """
        self._may_be(SubscriptionKind.PATTERN, "subscribe to a pattern")
        is_change = pattern != self.pattern
        self.kind, self.pattern = SubscriptionKind.PATTERN, pattern
        return is_change

    def assign(self, partitions: Iterable[TopicPartition]) -> AssignmentChange:
        """Assign partitions without a group; those that are assigned already keep their positions.

        No partitions: `unsubscribe`.

        Raises:
            SubscriptionConflict: Topics or a pattern are subscribed to.
            InvalidName: A topic has a name that no topic can have.
        """
        self._may_be(SubscriptionKind.PARTITIONS, "assign partitions")
        wanted = list(dict.fromkeys(partitions))
        for topic, _ in wanted:
            check_topic(topic)
        if not wanted:
            before = tuple(self.assigned)
            self.unsubscribe()
            return AssignmentChange((), before)
        self.kind = SubscriptionKind.PARTITIONS
        return self.assigned.change_to(wanted, keep=True)

    def unsubscribe(self) -> bool:
        """End the subscription and drop all partitions; return whether there was one."""
        was_there = self.kind is not SubscriptionKind.NONE
        self.kind, self.pattern = SubscriptionKind.NONE, None
        self._topics = frozenset()
        self.assigned.change_to((), keep=False)
        return was_there

    # -- the group -----------------------------------------------------------------------------------------------------

    def assigned_from_group(self, partitions: Iterable[TopicPartition], *, cooperative: bool) -> AssignmentChange:
        """Take the assignment of the group.

        Args:
            partitions: All that are assigned now.
            cooperative: Whether partitions that were assigned before keep position and pause. Otherwise all of them
                were given back before, and start anew.

        Raises:
            NotSubscribed: Neither topics nor a pattern are subscribed to.
        """
        if not self.is_of_group:
            raise NotSubscribed("take an assignment of the group", self.kind.value)
        return self.assigned.change_to(partitions, keep=cooperative)

    def _may_be(self, kind: SubscriptionKind, wanted: str) -> None:
        if self.kind not in (SubscriptionKind.NONE, kind):
            raise SubscriptionConflict(wanted, self.kind.value)
