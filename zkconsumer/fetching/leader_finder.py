"""The thread that finds the leaders of partitions that have none to fetch from.

Rules, and which failure each prevents:
- A partition that has lost its leader is looked for after a back-off: brokers need a moment to elect another one.
- While the broker that is named as leader denies it, the wait grows to ten seconds: a node that names a wrong broker,
  or partitions that a broker does not have, stays until somebody mends it.
- An answer names all partitions of its topics and is reused for one second: thousands of partitions that start one by
  one cost a few answers, not one each.

Source: kafka.consumer.ConsumerFetcherManager.LeaderFinderThread (0.8.2.2).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rebalance.errors import RebalanceError
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.backoff import REPORT_AGAIN_S, Backoff, Reports
from zkconsumer.cluster.leaders import LeaderDirectory
from zkconsumer.wakeup import Wakeup

log = logging.getLogger(__name__)

REMEMBERED_S: Final = 1.0
"""How long an answer is reused for new partitions, in seconds; never for a partition that has lost its leader."""
_LONGEST_BACKOFF_S: Final = 1.0
LONGEST_DENIED_S: Final = 10.0
"""Longest wait, in seconds, before a broker that denies leading a partition is asked again."""
_FACTOR: Final = 1.5
"""By which a wait grows: a leader is found late by half of the time at most for which there was none."""


class _Search(NamedTuple):
    """A partition without a leader.

    Attributes:
        due: When to ask, by the finder's clock.
        denied_by: The broker id that denied leading it.
        is_new: The partition has not been fetched before, so a recent answer may be reused.
    """

    due: float
    denied_by: int | None
    is_new: bool = False


class LeaderFinder:
    """The thread that looks for leaders; it sleeps while every partition has one.

    A new partition is looked for at once. A partition whose leader was lost or not found is looked for after
    `refresh.leader.backoff.ms`; as long as no leader at all is found, that time grows up to one second, and up to ten
    for a partition whose leader, as it is named, denies it again and again. For a new partition an answer of the last
    second is reused.

    Args:
        found: Called with each partition and its leader, on the finder's thread.
        died: Called with the thread's name and the exception that has ended it, on that thread.

    Threads: `look_for`, `forget` and `stop` from any thread.
    """

    def __init__(
        self,
        directory: LeaderDirectory,
        found: Callable[[TopicPartition, Broker], None],
        backoff_ms: int,
        clock: Callable[[], float],
        name: str,
        died: Callable[[str, BaseException], None] = lambda name, error: None,
    ) -> None:
        self._died = died
        self._directory = directory
        self._found = found
        self._backoff = Backoff.of_ms(backoff_ms, max(_LONGEST_BACKOFF_S, backoff_ms / 1000), _FACTOR)
        self._denied_backoff = Backoff.of_ms(backoff_ms, max(LONGEST_DENIED_S, backoff_ms / 1000), _FACTOR)
        self._clock = clock
        self._rng = random.Random()
        # Reentrant: a signal handler may shut down on a thread that is inside.
        self._lock = threading.RLock()
        self._missing: dict[TopicPartition, _Search] = {}
        self._reported: dict[TopicPartition, Broker] = {}
        self._reported_at = float("-inf")
        self._fruitless = 0
        self._reports = Reports()
        self._wakeup = Wakeup()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"leader-finder-{name}", daemon=True)

    def look_for(
        self, partition: TopicPartition, denied_by: int | None = None, *, denials: int = 0, is_new: bool = False
    ) -> None:
        """Find the leader of a partition.

        Args:
            denied_by: Id of a broker that denied leading it.
            denials: How many times in a row that was so; the wait grows with it.
            is_new: It was not fetched before, and is looked for at once.
        """
        failures = 0 if denied_by is None else max(0, denials - 1)
        due = self._clock() + (0.0 if is_new else self._jittered(self._denied_backoff.wait_s(failures)))
        with self._lock:
            if self._is_stopped:
                return
            self._missing[partition] = _Search(due, denied_by, is_new)
            if self._thread.ident is None:
                self._thread.start()
        self._wakeup.wake()

    def forget(self, partition: TopicPartition) -> None:
        """Stop looking for a partition's leader."""
        with self._lock:
            self._missing.pop(partition, None)

    def missing(self) -> list[TopicPartition]:
        """Return the partitions without a leader."""
        with self._lock:
            return list(self._missing)

    def stop(self) -> None:
        """End the thread after its present request."""
        with self._lock:
            self._is_stopped = True
        self._wakeup.wake()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                try:
                    self._step()
                except AuthenticationFailed:
                    raise  # another try would be refused, too
                except Exception:
                    log.exception("the leader finder failed; continuing after a pause")
                    self._wakeup.wait(_LONGEST_BACKOFF_S)
        except BaseException as error:  # noqa: BLE001 - without this thread its partitions would wait for ever
            if not self._is_stopped:
                self._died("the leader finder", error)

    def _step(self) -> None:
        """Look for the leaders that are due, or sleep until the next one is."""
        now = self._clock()
        with self._lock:
            due = {partition: search for partition, search in self._missing.items() if search.due <= now}
            next_at = min((search.due for search in self._missing.values()), default=None)
        if not due:
            self._wakeup.wait(None if next_at is None else next_at - now)
            return
        found = self._remembered(due, now)
        asked = {partition: search.denied_by for partition, search in due.items() if partition not in found}
        if asked:
            answered = self._ask(asked, now)
            if self._is_stopped:
                return
            self._fruitless = 0 if answered else self._fruitless + 1
            found |= answered
        self._note(due, found)
        failure: Exception | None = None
        for partition, broker in found.items():
            try:
                self._found(partition, broker)
            except Exception as error:  # noqa: BLE001 - raised below, once the other leaders are reported
                failure = error
                self.look_for(partition)
        if failure is not None:
            raise failure

    def _remembered(self, due: Mapping[TopicPartition, _Search], now: float) -> dict[TopicPartition, Broker]:
        """Return the leaders of new partitions that an answer of the last second has named."""
        if now - self._reported_at > REMEMBERED_S:
            self._reported = {}
        return {name: self._reported[name] for name, search in due.items() if search.is_new and name in self._reported}

    def _ask(self, wanted: Mapping[TopicPartition, int | None], now: float) -> dict[TopicPartition, Broker]:
        """Return the leaders that the directory finds."""
        try:
            found = self._directory.leaders(wanted)
        except RebalanceError as error:
            # After stop(), which has closed the connection during this request, nothing is wrong.
            if not self._is_stopped and self._reports.is_due(str(error), now):
                log.warning(
                    "leaders cannot be looked up: %s; trying again until they are found; this is logged again after "
                    "%d minutes", error, REPORT_AGAIN_S // 60,
                )  # fmt: skip
            return {}
        self._reports.succeeded()
        if not self._reported:
            self._reported_at = now
        self._reported |= {**self._directory.reported, **found}
        return found

    def _note(self, due: Mapping[TopicPartition, _Search], found: Mapping[TopicPartition, Broker]) -> None:
        again_at = self._clock() + self._wait_s(self._fruitless)
        with self._lock:
            for partition, search in due.items():
                if partition not in self._missing:
                    continue
                if partition in found:
                    del self._missing[partition]
                else:
                    self._missing[partition] = _Search(again_at, search.denied_by)

    def _wait_s(self, failures: int) -> float:
        return self._jittered(self._backoff.wait_s(failures))

    def _jittered(self, wait_s: float) -> float:
        return wait_s * self._rng.uniform(0.75, 1.25)
