"""Virtual time: a heap of what is to happen, run one by one in the order of its moments.

It reads no clock: the time is that of the next event. Events of one moment run in the order in which they were added,
or, given an rng, in an order drawn from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

__all__ = ["Event", "Schedule", "SimulationStuck"]

Event: TypeAlias = list[Any]
"""One entry of the heap, `[time, tie-break, call, arguments]`: a handle for `cancel`, nothing to look into."""

BURST_LIMIT: Final = 1_000_000
"""More events than this at one moment count as a loop that never lets time pass."""

_FOREVER = float("inf")
_CALL, _ARGUMENTS = 2, 3


class SimulationStuck(Exception):  # noqa: N818 - the name says what happened
    """Events went on and on at one moment; the sentence names the moment and the last call."""


class Schedule:
    """What is to happen, and the present moment.

    Args:
        rng: draws the order of events at one moment; None keeps the order in which they were added.
        start_s: the first moment.

    Attributes:
        now: the present moment in seconds.
        trace: called as `trace(now, call, arguments)` before each event; None for nobody.
        steps: events run so far.
        current: the event that runs, or ran last.
    """

    __slots__ = ("_burst", "_heap", "_rng", "_serial", "current", "now", "steps", "trace")

    def __init__(self, rng: random.Random | None = None, start_s: float = 0.0) -> None:
        self.now = start_s
        self.trace: Callable[[float, Callable[..., object], tuple[Any, ...]], None] | None = None
        self.steps = 0
        self.current: Event | None = None
        self._heap: list[Event] = []
        self._serial = 0
        self._burst = 0
        self._rng = rng

    def at(self, time_s: float, call: Callable[..., object], *arguments: Any) -> Event:
        """Schedule `call(*arguments)` for a moment; one that is past counts as now.

        Raises:
            ValueError: the moment is infinite or not a number.
        """
        if not time_s < _FOREVER:
            raise ValueError(f"{call!r} is put down for {time_s}; a moment is a finite number of seconds")
        self._serial = tie = self._serial + 1
        if self._rng is not None:
            tie += int(self._rng.random() * 65536) << 48
        event = [time_s if time_s > self.now else self.now, tie, call, arguments]
        heappush(self._heap, event)
        return event

    def after(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> Event:
        """Schedule `call(*arguments)` for `delay_s` seconds from now; as `at` otherwise."""
        return self.at(self.now + delay_s, call, *arguments)

    def cancel(self, event: Event | None) -> None:
        """Make sure that an event does not run; harmless when it has run, was cancelled before, or is None."""
        if event is not None:
            event[_CALL] = None
            event[_ARGUMENTS] = ()

    @staticmethod
    def is_cancelled(event: Event) -> bool:
        """Whether it was cancelled, be it after it ran."""
        return event[_CALL] is None

    @property
    def next_time(self) -> float | None:
        """When the next event is due, None without any."""
        heap = self._heap
        while heap and heap[0][_CALL] is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def step(self, deadline_s: float = _FOREVER) -> bool:
        """Run the next event; False when none is due up to and at the moment `deadline_s`.

        Raises:
            SimulationStuck: more than `BURST_LIMIT` events at one moment.
        """
        heap = self._heap
        while heap and heap[0][0] <= deadline_s:
            event = heappop(heap)
            time_s, _, call, arguments = event
            if call is None:
                continue
            if time_s > self.now:
                self.now = time_s
                self._burst = 0
            else:
                self._burst += 1
                if self._burst > BURST_LIMIT:
                    raise SimulationStuck(f"{BURST_LIMIT} events at {self.now:g} s, the last one {call!r}")
            self.steps += 1
            self.current = event
            if self.trace is not None:
                self.trace(time_s, call, arguments)
            call(*arguments)
            return True
        return False

    def run_until(self, condition: Callable[[], object], deadline_s: float) -> bool:
        """Run events until `condition()` is true; False when it still is not at the moment `deadline_s`.

        It is asked before the first event and after each. On False everything up to the deadline has run.
        """
        while not condition():
            if not self.step(deadline_s):
                self.now = max(self.now, deadline_s)
                return bool(condition())
        return True

    def run(self, deadline_s: float) -> None:
        """Run everything that is due up to and at the moment `deadline_s`, which is then the present one."""
        step = self.step
        while step(deadline_s):
            pass
        self.now = max(self.now, deadline_s)
