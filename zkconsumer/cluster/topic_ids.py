"""Remembers which incarnations of topics the brokers told of, by topic id: Kafka 2.8 and later.

A topic that was deleted and created again has another id; the offsets of a reader then belong to other messages.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from simpleconsumer.types import TopicMetadata

__all__ = ["TopicIds"]


class TopicIds:
    """The ids of topics that were seen, and which topics have had more than one.

    Threads: Any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, set[str]] = {}
        self._replaced: set[str] = set()

    def note(self, topics: Mapping[str, TopicMetadata]) -> bool:
        """Take note of what a broker says; topics without an id are not looked at.

        Returns:
            Whether a topic has an id that it did not have before, when it had another one. A broker that is behind with
            the news may still give the former one.
        """
        has_new = False
        with self._lock:
            for name, topic in topics.items():
                seen = self._seen.setdefault(name, set())
                if topic.topic_id is None or topic.topic_id in seen:
                    continue
                seen.add(topic.topic_id)
                if len(seen) > 1:
                    self._replaced.add(name)
                    has_new = True
        return has_new

    def why_gone(self, topic: str) -> str:
        """Return why a topic is not the one that was seen first, a clause; empty while it is, or is not known."""
        with self._lock:
            return f"topic {topic!r} was deleted and created again" if topic in self._replaced else ""
