"""Layout: the partitions and leaders of topics as a producer knows them, and which topics have to be looked up.

Pure: the caller has the clock, and looks up.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NamedTuple

from simpleconsumer.types import TopicPartition

__all__ = ["FailedSearches", "Layout"]


class FailedSearches(NamedTuple):
    """What look-ups of a topic came to.

    Attributes:
        failures: How many did not find it.
        reason: Why the last one did not, a clause.
        is_final: Another one would not find it either.
    """

    failures: int = 0
    reason: str = ""
    is_final: bool = False


_NONE: Final = FailedSearches()


class Layout:
    """What a producer knows of the partitions of its topics.

    Attributes:
        stale: The topics whose leaders have to be looked up -> when.

    Threads: One at a time.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self.stale: dict[str, float] = {}
        self._searches: dict[str, FailedSearches] = {}
        self._rng = rng or random.Random()
        self._topics: dict[str, Mapping[int | str, int | None]] = {}
        self._leaders: dict[TopicPartition, int | None] = {}
        self._sticky: dict[str, int | str] = {}

    def partitions(self, topic: str) -> Mapping[int | str, int | None] | None:
        """Return the partitions of a topic with their leaders, in order; None if they are not known."""
        return self._topics.get(topic)

    def known_topics(self) -> list[str]:
        """Return the topics whose partitions are known."""
        return sorted(self._topics)

    def leader(self, name: TopicPartition) -> int | None:
        """Return the broker that leads a partition, None if it is not known."""
        return self._leaders.get(name)

    # -- look-ups ------------------------------------------------------------------------------------------------------

    def want(self, topic: str, at: float) -> None:
        """Have a topic looked up."""
        self.stale.setdefault(topic, at)

    def lookup_at(self) -> float | None:
        """Return when leaders have to be looked up; None if all are known."""
        return min(self.stale.values(), default=None)

    def searches(self, topic: str) -> FailedSearches:
        """Return what the look-ups came to that did not find a topic."""
        return self._searches.get(topic, _NONE)

    def found(self, topic: str, leaders: Mapping[int | str, int | None]) -> None:
        """Take over what a look-up found about a topic."""
        self._topics[topic] = leaders
        self._sticky.pop(topic, None)
        self.stale.pop(topic, None)
        for number, leader in leaders.items():
            self._leaders[TopicPartition(topic, number)] = leader

    def not_found(self, topic: str, reason: str, is_final: bool) -> None:
        """Count a look-up that found no such topic, or no answer."""
        self._searches[topic] = FailedSearches(self.searches(topic).failures + 1, reason, is_final)
        self.stale.pop(topic, None)

    def forget_leader(self, name: TopicPartition) -> None:
        """Forget who leads a partition: its leader denies it, is gone, or the topic has no such partition any more."""
        self._leaders[name] = None

    # -- messages without a key ----------------------------------------------------------------------------------------

    def sticky_partition(self, topic: str) -> int | str:
        """Return where messages without a key go: one partition with a leader, until another one is chosen."""
        chosen = self._sticky.get(topic)
        if chosen is None:
            chosen = self._sticky[topic] = self._choose(topic, None)
        return chosen

    def choose_again(self, topic: str) -> None:
        """Have another partition chosen for the next messages without a key."""
        self._sticky.pop(topic, None)

    def elsewhere(self, topic: str, avoided: int | None) -> int | str | None:
        """Return a partition that a broker other than the avoided one leads, and keep to it; None if there is none."""
        leaders = self._topics[topic]
        if not any(led is not None and led != avoided for led in leaders.values()):
            return None
        sticky = self._sticky.get(topic)
        if sticky is None or leaders[sticky] in (None, avoided):
            sticky = self._sticky[topic] = self._choose(topic, avoided)
        return sticky

    def _choose(self, topic: str, avoided: int | None) -> int | str:
        """Return a partition at random: one that a broker other than the avoided one leads, if there is one."""
        leaders = self._topics[topic]
        led = [name for name, leader in leaders.items() if leader is not None]
        return self._rng.choice([name for name in led if leaders[name] != avoided] or led or list(leaders))
