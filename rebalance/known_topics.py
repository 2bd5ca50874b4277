"""Remembers which partitions existed when a member started, and which topics were created anew since then.

Pure. Both decide at which end of its log a partition without a stored offset starts: `auto.offset.reset` applies to
partitions that existed at the start; later ones start at their smallest offset, or their first messages would be
skipped.
"""

from __future__ import annotations

from rebalance.assignment import Partition
from rebalance.snapshot import GroupSnapshot

__all__ = ["KnownTopics"]


class KnownTopics:
    """The topics of one member, from its start.

    Args:
        reset_policy: where partitions start that existed at the start of the member, `smallest` or `largest`.
    """

    def __init__(self, reset_policy: str) -> None:
        self._reset_policy = reset_policy
        self._known_at_start: set[Partition] | None = None
        self._unread_at_start: set[str] = set()
        self._incarnations: dict[str, int] = {}
        self._recreated: set[str] = set()

    def update(self, snapshot: GroupSnapshot) -> list[str]:
        """Take note of what was read; the topics that were deleted and created anew since the last call."""
        self._note_start(snapshot)
        recreated = []
        for topic, node in snapshot.topics.items():
            if self._incarnations.setdefault(topic, node.czxid) != node.czxid:
                self._incarnations[topic] = node.czxid
                self._recreated.add(topic)
                recreated.append(topic)
        return recreated

    def _note_start(self, snapshot: GroupSnapshot) -> None:
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
            self._known_at_start.update((topic, part) for part in topics[topic].partitions)

    def incarnation(self, topic: str) -> int:
        """The id of the transaction that created the topic, as last read."""
        return self._incarnations[topic]

    def policy(self, partition: Partition) -> str:
        """The end of its log at which a partition without a stored offset starts, `smallest` or `largest`."""
        is_known = self._known_at_start is None or partition in self._known_at_start
        return self._reset_policy if is_known and partition[0] not in self._recreated else "smallest"
