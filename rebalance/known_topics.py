"""Remembers which partitions existed when a member started, and which topics were created anew since then.

Pure. Both decide at which end of its log a partition without a stored offset starts: `auto.offset.reset` applies to
partitions that existed at the start; later ones start at their smallest offset, or their first messages would be
skipped.

In Kafka 0.7 a partition exists while its broker is there. One that appears later may be new, or come back with years of
messages. With `largest` neither end of its log would do: the start brings old messages that the group does not want,
and the end skips messages from before the partition was noticed. So it starts with the messages written to its
log since the member started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from rebalance.subscription import Partition

SINCE_START: Final = "since the start"
"""Instead of an end of the log: with the messages written to it since the member started. Kafka 0.7 alone has this."""


class SeenTopic(Protocol):
    """A topic: its partitions, and the number of its incarnation; 0 while it is not known."""

    @property
    def partitions(self) -> Collection[int | str]: ...

    @property
    def incarnation(self) -> int: ...


class TopicsSeen(Protocol):
    """The topics of a member as read at one moment, and what could not be read."""

    @property
    def topics(self) -> Mapping[str, SeenTopic]: ...

    @property
    def refused_topics(self) -> Collection[str]: ...

    @property
    def refused_topics_list(self) -> object | None: ...


class KnownTopics:
    """The topics of one member, from its start.

    Args:
        reset_policy: where partitions start that existed at the start of the member, `smallest` or `largest`.
        resets_later_ones: whether this is also for partitions that appear later, and topics that are created anew.
    """

    def __init__(self, reset_policy: str, *, resets_later_ones: bool = False) -> None:
        self._resets_later_ones = resets_later_ones
        self._reset_policy = reset_policy
        self._known_at_start: set[Partition] | None = None
        self._unread_at_start: set[str] = set()
        self._topics_at_start: set[str] = set()
        self._incarnations: dict[str, list[int]] = {}
        self._recreated: set[str] = set()

    def update(self, snapshot: TopicsSeen) -> list[str]:
        """Take note of a snapshot; return the topics that were deleted and created anew since the last call."""
        self._note_start(snapshot)
        self._forget_gone(snapshot)
        recreated = []
        for topic, node in snapshot.topics.items():
            # Those of Kafka 0.7 and of brokers before 2.8 are not known. One that was seen before comes from a broker
            # that has not heard of the new topic yet.
            seen = self._incarnations.setdefault(topic, [])
            if not node.incarnation or node.incarnation in seen:
                continue
            seen.append(node.incarnation)
            if len(seen) > 1:
                self._recreated.add(topic)
                recreated.append(topic)
        return recreated

    def _note_start(self, snapshot: TopicsSeen) -> None:
        """A topic that could not be read at the start counts as it is when it can be read for the first time."""
        topics = snapshot.topics
        if self._known_at_start is None:
            if snapshot.refused_topics_list is not None:
                return
            self._known_at_start = set()
            self._unread_at_start = {*topics, *snapshot.refused_topics}
        self._unread_at_start &= {*topics, *snapshot.refused_topics}
        for topic in self._unread_at_start & topics.keys():
            self._unread_at_start.discard(topic)
            self._topics_at_start.add(topic)
            self._known_at_start.update((topic, part) for part in topics[topic].partitions)

    def _forget_gone(self, snapshot: TopicsSeen) -> None:
        """A partition of Kafka 0.7 that goes with its broker is not known from the start when it comes back."""
        known = self._known_at_start or set()
        gone = {(topic, part) for topic, part in known if isinstance(part, str) and topic in snapshot.topics
                and part not in snapshot.topics[topic].partitions}  # fmt: skip
        known -= gone

    def incarnation(self, topic: str) -> int:
        """The number of the newest incarnation of a topic; 0 if it is not known."""
        return next(reversed(self._incarnations.get(topic, ())), 0)

    def policy(self, partition: Partition) -> str:
        """Where a partition without a stored offset starts: `smallest`, `largest`, or `SINCE_START`."""
        topic, name = partition
        if self._resets_later_ones:
            return self._reset_policy
        if (self._known_at_start is None or partition in self._known_at_start) and topic not in self._recreated:
            return self._reset_policy
        if self._reset_policy == "largest" and isinstance(name, str) and topic in self._topics_at_start:
            return SINCE_START
        return "smallest"
