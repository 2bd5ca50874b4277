"""Threads of a simulated process, as steps: the coordinator's loop, and the listener's calls.

A thread of the production code runs here as one step after the other, each a little later than it could: threads of a
busy machine are late, sometimes very. The code that runs is the production code.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from rebalance.loop import Loop, Timer
from tests.simulator.process import Process
from tests.simulator.schedule import Event
from zkconsumer.member.listening import ListenerThread

__all__ = ["ListenerMethod", "PlannedFault", "SteppedListener", "SteppedLoop", "lateness_s"]

_USUAL_S: Final = 0.0008
_SELDOM_S: Final = 0.03
_HOW_OFTEN: Final = 0.04
_LEAST_S: Final = 0.00001
_NEVER: Final = float("inf")


def lateness_s(rng: random.Random) -> float:
    """How late a thread runs: under a millisecond, and now and then up to thirty."""
    drawn = rng.random()
    if drawn < _HOW_OFTEN:
        return _LEAST_S + _SELDOM_S * drawn / _HOW_OFTEN
    return _LEAST_S + _USUAL_S * drawn


class PlannedFault(Exception):  # noqa: N818 - it says what happened
    """A fault that was planned, in a call of the coordinator's loop."""

    def __init__(self, call: Callable[..., None]) -> None:
        super().__init__(getattr(call, "__qualname__", repr(call)))


class SteppedLoop(Loop):
    """The coordinator's loop; each step of it is an event of the schedule.

    Args:
        process: on whose clock, and with whose pauses.
        rng: how late the thread is.
        failed: called with an exception that came out of a step; the loop stops for good then.

    Attributes:
        stepped: called after each step.
        fault: asked about each call whether it is to fail: "" for no, "before" it has done anything, or "behind" that.
    """

    def __init__(self, process: Process, rng: random.Random, failed: Callable[[Exception], None]) -> None:
        super().__init__(process.clock)
        self._process = process
        self._rng = rng
        self._failed = failed
        self._planned: Event | None = None
        self._planned_at = _NEVER
        self._is_inside = False
        self._is_over = False
        self._held_until_s = -_NEVER
        self.stepped: Callable[[], None] | None = None
        self.fault: Callable[[Callable[..., None]], str] | None = None

    def hold_up(self, until_s: float) -> None:
        """Make no step before the virtual time `until_s`: the thread does not run, whatever its process does."""
        self._held_until_s = until_s
        self._plan(0.0)

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Run `call(*arguments)` in a step soon."""
        super().post(self.run_through, call, *arguments)
        self._plan(0.0)

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        """The timer that runs `call(*arguments)` in a step after `delay_s` seconds."""
        timer = super().call_later(delay_s, self.run_through, call, *arguments)
        self._plan(delay_s)
        return timer

    def after_step(self, call: Callable[[], None]) -> None:
        """Run `call` at the end of the step."""
        super().after_step(lambda: self.run_through(call))

    def run_through(self, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call, with the fault that is meant for it."""
        where = "" if self.fault is None else self.fault(call)
        if where == "before":
            raise PlannedFault(call)
        call(*arguments)
        if where:
            raise PlannedFault(call)

    def stop(self) -> None:
        """Make no further step."""
        self._is_over = True

    def _plan(self, delay_s: float) -> None:
        """Step in `delay_s` seconds, unless a step is planned before."""
        if self._is_inside or self._is_over:
            return
        process = self._process
        now = process.schedule.now
        wanted_at = now + (delay_s if delay_s > 0.0 else 0.0)
        if wanted_at >= self._planned_at:
            return
        process.schedule.cancel(self._planned)
        self._planned_at = wanted_at
        self._planned = process.after(wanted_at - now + lateness_s(self._rng), self._step_once)

    def _step_once(self) -> None:
        # A step that was cancelled while the process was paused comes all the same; it does no harm.
        if self._is_over:
            return
        self._planned, self._planned_at = None, _NEVER
        held_s = self._held_until_s - self._process.schedule.now
        if held_s > 0.0:
            self._plan(held_s)
            return
        self._is_inside = True
        try:
            self.step()
        except Exception as error:  # noqa: BLE001 - what escapes the coordinator is a finding, whatever it is
            self._is_over = True
            self._failed(error)
            return
        finally:
            self._is_inside = False
        if self.stepped is not None:
            self.stepped()
        if not self._calls.empty():
            self._plan(0.0)
        else:
            due = self.next_due()
            if due is not None:
                self._plan(due - self.clock())


ListenerMethod: TypeAlias = Callable[[Any, Callable[[], None]], None]
"""A method of a rebalance listener: its argument, and what to call when it would have returned."""


class SteppedListener(ListenerThread):
    """The rebalance listener's thread: one call after the other, each after a while.

    Args:
        methods: by name, those that the listener has.
    """

    def __init__(self, process: Process, rng: random.Random, methods: Mapping[str, ListenerMethod]) -> None:
        super().__init__(None)
        self._process = process
        self._rng = rng
        self._methods = methods
        self._line: deque[tuple[ListenerMethod, Any, Callable[[object], None]]] = deque()
        self._is_busy = False

    def _notify(self, name: str, argument: Any, done: Callable[[object], None] = lambda answer: None) -> None:
        method = self._methods.get(name)
        if method is None:
            done(None)
            return
        self._line.append((method, argument, done))
        self._next()

    def _next(self) -> None:
        if not self._is_busy and self._line:
            self._is_busy = True
            self._process.after(lateness_s(self._rng), self._call)

    def _call(self) -> None:
        method, argument, done = self._line.popleft()

        def returned() -> None:
            self._is_busy = False
            done(None)
            self._next()

        method(argument, returned)
