"""LookupThread: looks up the partitions and leaders of topics when they are not known, or not any more.

Threads: one runs `_run`. The layout belongs to whoever holds the lock, which nobody does during a look-up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from zkconsumer.producer.batching.batch_queues import Limits
from zkconsumer.producer.sending.layout import Layout
from zkconsumer.producer.sending.topic_lookup import FoundTopic
from zkconsumer_error import shown

__all__ = ["Lookup", "LookupThread"]

log = logging.getLogger(__name__)

_LONGEST_SLEEP_S: Final = 60.0


class Lookup(Protocol):
    """Finds partitions and leaders."""

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics; it has a deadline, and raises nothing."""


class LookupThread:
    """The look-ups of one producer.

    Args:
        lookup: Finds partitions and leaders.
        lock: Guards the layout.
        layout: What is known.
        limits: How often a look-up is tried, and when again.
        refresh_s: Time between two look-ups of all topics; None: only after a failure.
        take_over: Called with what a look-up found, without the lock; wakes `layouts`.

    Attributes:
        wake: Notified when something may have to be looked up.
        layouts: Notified when a look-up has ended, and when `check_open` may have changed its mind.

    Threads: any, for all methods.
    """

    def __init__(
        self,
        lookup: Lookup,
        lock: threading.Lock,
        layout: Layout,
        limits: Limits,
        refresh_s: float | None,
        take_over: Callable[[Mapping[str, FoundTopic]], None],
    ) -> None:
        self.wake = threading.Condition(lock)
        self.layouts = threading.Condition(lock)
        self._lookup = lookup
        self._lock = lock
        self._layout = layout
        self._limits = limits
        self._refresh_s = refresh_s
        self._refresh_at = None if refresh_s is None else time.monotonic() + refresh_s
        self._take_over = take_over
        self._looked_up: dict[str, float] = {}  # topic -> when the last look-up began that has ended
        self._in_vain: dict[str, float] = {}  # topic -> when `look_for` last asked for one, and did not find it
        self._has_sent = False
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="zkconsumer-producer-lookup", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Look nothing up any more. The lock is held."""
        self._has_ended = True
        self.wake.notify()

    def sent(self) -> None:
        """Take over that something was sent: until the first time no look-up is due. The lock is held."""
        if not self._has_sent:
            self._has_sent = True
            self.wake.notify()

    def again(self) -> None:
        """Have the partitions of all topics looked up: something has changed. Waits for nothing but the lock."""
        with self._lock:
            for topic in self._layout.known_topics():
                self._layout.want(topic, time.monotonic())
            self.wake.notify()

    def partitions(
        self, topic: str, wait_s: float | None, check_open: Callable[[], None]
    ) -> Mapping[int | str, int | None] | str:
        """Return the partitions of a topic with their leaders; or, as text, why they are not known.

        It waits until a look-up has found them, as often as a batch is tried. A topic that brokers do not know is
        looked up for `Limits.absence_s`, since it may be about to be created.

        Args:
            topic: The topic.
            wait_s: Longest wait; None for no other limit.
            check_open: Called before each wait; what it raises ends the wait.
        """
        layout = self._layout
        deadline = None if wait_s is None else time.monotonic() + wait_s
        with self._lock:
            earlier = layout.searches(topic).failures
            while not (known := layout.partitions(topic)):
                check_open()
                failed = layout.searches(topic)
                tried = failed.failures - earlier
                is_over = tried > self._limits.retries and failed.absent_since is None
                if tried and (failed.is_final or is_over or layout.is_absent(topic)):
                    return failed.reason
                if layout.was_just_absent(topic, time.monotonic(), self._limits.backoff_s):
                    return failed.reason
                layout.want(topic, time.monotonic() + (self._limits.backoff_s if tried else 0.0))
                self.wake.notify()
                left_s = _LONGEST_SLEEP_S if deadline is None else deadline - time.monotonic()
                if left_s <= 0.0:
                    return failed.reason or f"no broker has answered a request about it within {wait_s:g} s"
                self.layouts.wait(min(left_s, _LONGEST_SLEEP_S))
            return known

    def look_for(self, topic: str, partition: int | str, check_open: Callable[[], None]) -> str:
        """Look a topic up once more, unless this was just in vain; return why it was not found, empty if it was.

        Args:
            topic: A topic whose partitions are known.
            partition: One that it did not have.
            check_open: As for `partitions`.
        """
        now = time.monotonic()
        with self._lock:
            wanted_at = self._in_vain.get(topic, 0.0)
            if wanted_at + self._limits.backoff_s <= now:
                wanted_at = self._in_vain[topic] = now
            while self._looked_up.get(topic, 0.0) < wanted_at:
                check_open()
                left_s = now + _LONGEST_SLEEP_S - time.monotonic()
                if left_s <= 0.0:
                    return f"no look-up has ended within {_LONGEST_SLEEP_S:g} s"
                self._layout.want(topic, now)
                self.wake.notify()
                self.layouts.wait(left_s)
            if partition in (self._layout.partitions(topic) or ()):
                self._in_vain.pop(topic, None)
            return self._layout.searches(topic).reason

    def _run(self) -> None:
        while (topics := self._due_topics()) is not None:
            began_at = time.monotonic()
            try:
                found = self._lookup.look_up(topics)
            except Exception as error:
                log.exception("a bug in the look-up of topics")
                found = dict.fromkeys(topics, FoundTopic({}, f"a bug in the look-up: {shown(error)}"))
            with self._lock:
                self._looked_up.update(dict.fromkeys(topics, began_at))
            self._take_over(found)

    def _due_topics(self) -> list[str] | None:
        """Wait until leaders have to be looked up; None when nothing follows."""
        with self._lock:
            while not self._has_ended:
                now = time.monotonic()
                if self._refresh_at is not None and now >= self._refresh_at and self._has_sent:
                    self._has_sent = False
                    self._refresh_at = now + (self._refresh_s or 0.0)
                    return self._layout.known_topics()
                at = self._layout.lookup_at()
                if at is not None and at <= now:
                    return sorted(self._layout.stale)
                waits = [each for each in (at, self._refresh_at if self._has_sent else None) if each is not None]
                self.wake.wait(min(waits, default=now + _LONGEST_SLEEP_S) - now)
        return None
