"""Follows the topics of a member of a group of brokers: which there are, and how many partitions they have.

Nobody tells a member of new topics and partitions: it reads them now and then. A member with a filter does so for its
own subscription, and the leader for the topics of the whole group, since the coordinator knows no topics. A topic that
is wanted and does not exist is looked for more often.

Source: ConsumerCoordinator.updatePatternSubscription, maybeUpdateSubscriptionMetadata (Kafka 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rebalance.brokers.events import TopicPort, TopicsRead
from rebalance.brokers.group_member import BrokerGroupMember
from rebalance.loop import Loop, Timer
from rebalance.subscription import Subscription

log = logging.getLogger(__name__)

_MISSING_S: Final = (1.0, 10.0)
"""After which topics that do not exist are looked for again: at first, and at last."""


class AssignableTopic(NamedTuple):
    """A topic of a member (`rebalance.known_topics.SeenTopic`)."""

    partitions: tuple[int, ...]
    incarnation: int = 0


class AssignableTopics(NamedTuple):
    """The topics of a member as last read (`rebalance.known_topics.TopicsSeen`)."""

    topics: Mapping[str, AssignableTopic]
    refused_topics: frozenset[str] = frozenset()
    refused_topics_list: object | None = None


class TopicWatch:
    """The topics of one member.

    Args:
        member: Its subscription, and how often topics are read.
        loop: The queue and timers.
        port: Reads topics.
        changed: Called with the reason when the group has to be assigned anew.
        seen_again: Called when topics were read once more: one may have been deleted and created again.

    Attributes:
        subscription: The current subscription of the member.
        wanted: The topics that the member subscribes to, also missing ones.
        missing: The topics among them that do not exist.
        failure: Why topics could not be read the last time, a clause; None if they could.

    Threads: The coordinator's alone.
    """

    def __init__(
        self,
        member: BrokerGroupMember,
        loop: Loop,
        port: TopicPort,
        changed: Callable[[str], None],
        seen_again: Callable[[], None],
    ) -> None:
        self.subscription = member.subscription
        self.wanted: tuple[str, ...] = ()
        self.missing: frozenset[str] = frozenset()
        self.failure: str | None = None
        self._member = member
        self._loop = loop
        self._port = port
        self._changed = changed
        self._seen_again = seen_again
        self._partitions: Mapping[str, int] = {}
        self._incarnations: Mapping[str, int] = {}
        self._led: dict[str, int] | None = None
        self._leads = 0
        self._timer: Timer | None = None
        self._retry_s = member.retry_s
        self._missing_s = _MISSING_S[0]
        self._is_closed = False

    @property
    def seen(self) -> AssignableTopics:
        """The topics of the member, as last read."""
        topics = {name: self._partitions[name] for name in self.wanted if name in self._partitions}
        return AssignableTopics({
            name: AssignableTopic(tuple(range(count)), self._incarnations.get(name, 0))
            for name, count in topics.items()
        })  # fmt: skip

    def start(self, done: Callable[[], None]) -> None:
        """Read the topics of the member, until they can be read; then call `done`, and go on reading."""

        def read(found: TopicsRead | str) -> None:
            if self._is_closed:
                return
            if self._note_failure(found):
                self._loop.call_later(self._backoff_s(), self.start, done)
                return
            assert isinstance(found, TopicsRead)
            self._note(found)
            self._again()
            done()

        self._read(read)

    def subscribe(self, subscription: Subscription) -> None:
        """Follow other topics from now on; the group is assigned anew as soon as they are read."""
        self.subscription = subscription
        self.start(lambda: self._changed("the member subscribes to other topics"))

    def look_now(self) -> None:
        """Read the topics again without waiting until they are old: one of them seems to be another one by now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._read(self._look_again)

    def close(self) -> None:
        """Read nothing more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- of the leader -------------------------------------------------------------------------------------------------

    def lead(self, topics: frozenset[str], done: Callable[[Mapping[str, int]], None]) -> None:
        """Read the topics of the group, and follow them from now on; `done` gets how many partitions they have.

        A later call replaces an earlier one that still waits: its topics are those of a generation that is over.
        """
        self._leads += 1
        self._lead(self._leads, topics, done)

    def _lead(self, number: int, topics: frozenset[str], done: Callable[[Mapping[str, int]], None]) -> None:
        def read(found: TopicsRead | str) -> None:
            if self._is_closed or self._leads != number:
                return
            if self._note_failure(found):
                self._loop.call_later(self._backoff_s(), self._lead, number, topics, done)
                return
            assert isinstance(found, TopicsRead)
            self._led = {name: found.partitions.get(name, 0) for name in topics}
            self._again()
            done({name: count for name, count in self._led.items() if count})

        if self._leads != number:
            return
        if topics:
            self._port.read(topics, lambda found: self._loop.post(read, found))
        else:
            read(TopicsRead({}))

    def follow(self) -> None:
        """Another member leads: only the member's own topics matter."""
        self._leads += 1
        self._led = None

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, done: Callable[[TopicsRead | str], None]) -> None:
        subscription = self.subscription
        names = None if subscription.is_wildcard else {*subscription.topics(()), *(self._led or ())}
        if names is None or names:
            self._port.read(names, lambda found: self._loop.post(done, found))
        else:
            self._loop.post(done, TopicsRead({}))

    def _again(self) -> None:
        """Read again when the topics are old, or earlier if one does not exist."""
        if self._timer is not None:
            self._timer.cancel()
        wait_s = self._member.metadata_age_s
        if self.missing or 0 in (self._led or {}).values():
            wait_s = min(wait_s, self._missing_s)
            self._missing_s = min(self._missing_s * 2, _MISSING_S[1])
        else:
            self._missing_s = _MISSING_S[0]
        self._timer = self._loop.call_later(wait_s, self._read, self._look_again)

    def _look_again(self, found: TopicsRead | str) -> None:
        if self._is_closed:
            return
        if self._note_failure(found):
            self._timer = self._loop.call_later(self._backoff_s(), self._read, self._look_again)
            return
        assert isinstance(found, TopicsRead)
        before = self.wanted
        self._note(found)
        self._seen_again()
        reason = None
        if self.wanted != before:
            reason = "the topics that the filter selects have changed"
        elif self._led is not None:
            grown = [name for name, count in self._led.items() if found.partitions.get(name, 0) != count]
            if grown:
                reason = f"the partitions of {', '.join(sorted(grown))} have changed"
                # The next assignment reads them again; until then this is no news.
                self._led |= {name: found.partitions.get(name, 0) for name in grown}
        self._again()
        if reason is not None:
            self._changed(reason)

    def _note(self, found: TopicsRead) -> None:
        left_out = found.internal if self._member.exclude_internal_topics else frozenset()
        known = [name for name in found.partitions if name not in left_out]
        self.wanted = tuple(self.subscription.topics(known, self._member.exclude_internal_topics))
        self.missing = frozenset(name for name in self.wanted if name not in found.partitions)
        self._partitions, self._incarnations = found.partitions, found.incarnations

    def _note_failure(self, found: TopicsRead | str) -> bool:
        if not isinstance(found, str):
            self.failure, self._retry_s = None, self._member.retry_s
            return False
        if self.failure is None:
            log.warning("group %s: topics cannot be read: %s", self._member.group, found)
        self.failure = found
        return True

    def _backoff_s(self) -> float:
        wait_s, self._retry_s = self._retry_s, min(self._retry_s * 2, 5.0)
        return wait_s
