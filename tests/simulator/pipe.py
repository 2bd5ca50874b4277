"""One direction of a link: what is sent arrives in its order, each after a latency drawn from the rng."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulator.schedule import Schedule

__all__ = ["INSTANT", "Latency", "Pipe"]


class Latency(NamedTuple):
    """A uniformly distributed time between `low_s` and `high_s` seconds.

    Several draws are independent; a pipe adds that nothing overtakes what was sent before it.
    """

    low_s: float
    high_s: float

    def draw(self, rng: random.Random) -> float:
        """One such time; none drawn where both ends are the same."""
        return self.low_s if self.low_s == self.high_s else self.low_s + (self.high_s - self.low_s) * rng.random()


INSTANT = Latency(0.0, 0.0)


class Pipe:
    """Calls that arrive one after the other.

    Each arrival takes the oldest call that waits, so the order holds whatever the latencies, and however the schedule
    breaks ties.

    Attributes:
        latency: of what is sent from now on.
    """

    __slots__ = ("_floor_s", "_holds", "_owed", "_rng", "_schedule", "_waiting", "latency")

    def __init__(self, schedule: Schedule, rng: random.Random, latency: Latency) -> None:
        self.latency = latency
        self._schedule = schedule
        self._rng = rng
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._floor_s = 0.0
        self._holds = 0
        self._owed = 0

    def send(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run `call(*arguments)` on the other side."""
        self._waiting.append((call, arguments))
        self._expect()

    def _expect(self) -> None:
        schedule = self._schedule
        low_s, high_s = self.latency
        arrival = schedule.now + (low_s if low_s == high_s else low_s + (high_s - low_s) * self._rng.random())
        if arrival < self._floor_s:
            arrival = self._floor_s
        self._floor_s = arrival
        schedule.at(arrival, self._arrive)

    def _arrive(self) -> None:
        if self._holds:
            self._owed += 1
        elif self._waiting:
            call, arguments = self._waiting.popleft()
            call(*arguments)

    def hold(self) -> None:
        """Let nothing arrive until as many calls of `release`; nothing is lost."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`; after the last one what waited arrives in its order, each after a latency."""
        self._holds -= 1
        if self._holds == 0:
            owed, self._owed = self._owed, 0
            for _ in range(owed):
                self._expect()

    def delay(self, delay_s: float) -> None:
        """Let what is sent from now on arrive in `delay_s` seconds at the earliest."""
        self._floor_s = max(self._floor_s, self._schedule.now + delay_s)

    def clear(self) -> None:
        """Lose everything that is under way."""
        self._waiting.clear()
        self._owed = 0
