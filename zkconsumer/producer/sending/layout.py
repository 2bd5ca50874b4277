"""Layout: the partitions and leaders of topics as a producer knows them, and which topics have to be looked up.

Pure: the caller has the clock, and looks up.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NamedTuple

from simpleconsumer.types import TopicPartition


class FailedSearches(NamedTuple):
    """The failures of look-ups of a topic.

    Attributes:
        failures: How many did not find it.
        reason: Why the last one did not, a clause.
        is_final: Another one would not find it either.
        absent_since: When the first of those in a row said that the topic does not exist; None if the last one did not.
        at: When the last one ended.
    """

    failures: int = 0
    reason: str = ""
    is_final: bool = False
    absent_since: float | None = None
    at: float = 0.0


_NONE: Final = FailedSearches()
_LOOKUP_S: Final = 3.0
"""How long a look-up may take: the next one of the same search must not count as the first of another."""


class Layout:
    """The partitions of its topics, as a producer knows them.

    Args:
        rng: Chooses among equal partitions.
        absence_s: How long a topic that brokers do not know may be about to be created.
        backoff_s: Wait between two look-ups of it.

    Attributes:
        stale: The topics whose leaders have to be looked up -> when.
        sticky: Topic -> where its messages without a key go, once that was chosen.

    Threads: One at a time.
    """

    def __init__(self, rng: random.Random | None = None, absence_s: float = 10.0, backoff_s: float = 0.1) -> None:
        self._absence_s = absence_s
        self._forgotten_s = absence_s + 2 * backoff_s + _LOOKUP_S
        self.stale: dict[str, float] = {}
        self._searches: dict[str, FailedSearches] = {}
        self._rng = rng or random.Random()
        self._topics: dict[str, Mapping[int | str, int | None]] = {}
        self._leaders: dict[TopicPartition, int | None] = {}
        self._leading: dict[str, set[int | None]] = {}
        self.sticky: dict[str, int | str] = {}

    def partitions(self, topic: str) -> Mapping[int | str, int | None] | None:
        """Return the partitions of a topic with their leaders, in order; None if they are not known."""
        return self._topics.get(topic)

    def known_topics(self) -> list[str]:
        """Return the topics whose partitions are known."""
        return sorted(self._topics)

    def leader(self, name: TopicPartition) -> int | None:
        """Return the broker that leads a partition, None if it is not known."""
        return self._leaders.get(name)

    def has_leader(self, broker: int) -> bool:
        """Return whether the last look-up of some topic found that a broker leads a partition of it."""
        return any(broker in brokers for brokers in self._leading.values())

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

    def is_absent(self, topic: str) -> bool:
        """Return whether brokers have denied the topic for so long that it counts as missing."""
        found = self.searches(topic)
        return found.absent_since is not None and found.at - found.absent_since >= self._absence_s

    def was_just_absent(self, topic: str, now: float, backoff_s: float) -> bool:
        """Return whether a topic is missing, and was looked up so recently that another look-up has to wait."""
        return self.is_absent(topic) and now < self.searches(topic).at + backoff_s

    def found(self, topic: str, leaders: Mapping[int | str, int | None]) -> None:
        """Take over what a look-up found about a topic."""
        self._topics[topic] = leaders
        self._leading[topic] = set(leaders.values())
        self._searches.pop(topic, None)
        self.sticky.pop(topic, None)
        self.stale.pop(topic, None)
        for number, leader in leaders.items():
            self._leaders[TopicPartition(topic, number)] = leader

    def not_found(self, topic: str, reason: str, is_final: bool, is_absent: bool, now: float) -> None:
        """Count a look-up that found no such topic, or no answer."""
        last = self.searches(topic)
        is_new = last.absent_since is None or now - last.at > self._forgotten_s  # nobody has asked for some time
        since = (now if is_new else last.absent_since) if is_absent else None
        self._searches[topic] = FailedSearches(last.failures + 1, reason, is_final, since, now)
        self.stale.pop(topic, None)

    def forget_leader(self, name: TopicPartition) -> None:
        """Forget who leads a partition: its leader denies it, is gone, or the topic has no such partition any more."""
        self._leaders[name] = None

    # -- messages without a key ----------------------------------------------------------------------------------------

    def sticky_partition(self, topic: str) -> int | str:
        """Return where messages without a key go: one partition with a leader, until another one is chosen."""
        chosen = self.sticky.get(topic)
        if chosen is None:
            chosen = self.sticky[topic] = self._choose(topic, None)
        return chosen

    def choose_again(self, topic: str) -> None:
        """Have another partition chosen for the next messages without a key."""
        self.sticky.pop(topic, None)

    def elsewhere(self, topic: str, avoided: int | None) -> int | str | None:
        """Return a partition that a broker other than the avoided one leads, and keep to it; None if there is none."""
        leaders = self._topics[topic]
        if not any(led is not None and led != avoided for led in leaders.values()):
            return None
        sticky = self.sticky.get(topic)
        if sticky is None or leaders[sticky] in (None, avoided):
            sticky = self.sticky[topic] = self._choose(topic, avoided)
        return sticky

    def _choose(self, topic: str, avoided: int | None) -> int | str:
        """Return a partition at random: one that a broker other than the avoided one leads, if there is one."""
        leaders = self._topics[topic]
        led = [name for name, leader in leaders.items() if leader is not None]
        return self._rng.choice([name for name in led if leaders[name] != avoided] or led or list(leaders))
