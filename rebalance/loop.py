"""The event loop of the one thread that owns the state of a group member: a queue of calls, and timers.

Rule: everything that changes the state of the group runs in `step`; other threads post.
"""

from __future__ import annotations

import heapq
import itertools
import queue
from collections.abc import Callable
from typing import Any

Call = Callable[[], None]


class Timer:
    """A call that is due at a moment unless it is cancelled."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Call) -> None:
        self.due = due
        self.call: Call | None = call

    def cancel(self) -> None:
        """Make sure that the call does not run; harmless when it has run."""
        self.call = None


class Loop:
    """Runs posted calls in their order and timers when they are due.

    Args:
        clock: seconds; the loop never reads any other clock, so a simulation can drive it.

    Threads: `post` may be called from anywhere, everything else belongs to the thread that runs the loop.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = itertools.count()
        self._after: list[Call] = []
        self._stopped = False

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Run `call(*arguments)` on the loop's thread, after everything posted before."""
        self._calls.put((lambda: call(*arguments)) if arguments else call)

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        """The timer that runs `call(*arguments)` in `delay_s` seconds."""
        timer = Timer(self.clock() + delay_s, (lambda: call(*arguments)) if arguments else call)
        heapq.heappush(self._timers, (timer.due, next(self._serial), timer))
        return timer

    def after_step(self, call: Call) -> None:
        """Run `call` once, at the end of the present step: events that come together are reported together."""
        self._after.append(call)

    def next_due(self) -> float | None:
        """When the earliest live timer is due, `None` without any."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def step(self) -> bool:
        """Run due timers, then calls posted by now, then calls for the end of the step; whether anything ran.

        Calls posted meanwhile wait for the next step, so that a flood of calls cannot delay the timers.
        """
        ran = self._run_timers()
        for _ in range(self._calls.qsize()):
            ran = True
            self._calls.get_nowait()()
        while self._after:
            ran = True
            waiting, self._after = self._after, []
            for call in waiting:
                call()
        return ran

    def _run_timers(self) -> bool:
        ran = False
        while (due := self.next_due()) is not None and due <= self.clock():
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                call, timer.call = timer.call, None
                call()
                ran = True
        return ran

    def run(self, longest_wait_s: float = 1.0) -> None:
        """Step until `stop`; sleeps while there is nothing to do, never longer than `longest_wait_s`."""
        while not self._stopped:
            if self.step():
                continue
            due = self.next_due()
            wait_s = longest_wait_s if due is None else min(longest_wait_s, due - self.clock())
            if wait_s <= 0:
                continue
            try:
                call = self._calls.get(timeout=wait_s)
            except queue.Empty:
                continue
            call()

    def stop(self) -> None:
        """Make `run` return after the present step. Call it on the loop's thread (post it)."""
        self._stopped = True
