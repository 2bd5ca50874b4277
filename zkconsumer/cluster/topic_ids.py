"""Remembers which incarnation of each topic the brokers told of first, by topic id: Kafka 2.8 and later.

A topic that was deleted and created again has another id; the offsets of a reader then belong to other messages.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from simpleconsumer.types import TopicMetadata

__all__ = ["TopicIds"]


class TopicIds:
    """The ids of topics as they were seen first, and which have changed since.

    Threads: Any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: dict[str, str] = {}
        self._replaced: set[str] = set()

    def note(self, topics: Mapping[str, TopicMetadata]) -> None:
        """Compare what a broker says with what was seen first; topics without an id are not looked at."""
        with self._lock:
            for name, topic in topics.items():
                if topic.topic_id is not None and self._first.setdefault(name, topic.topic_id) != topic.topic_id:
                    self._replaced.add(name)

    def why_gone(self, topic: str) -> str:
        """Return why a topic is not the one that was seen first, a clause; empty while it is, or is not known."""
        with self._lock:
            return f"topic {topic!r} was deleted and created again" if topic in self._replaced else ""
