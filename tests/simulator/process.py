"""One simulated process: its clock, its timers, and whether it runs, is paused, or is gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from tests.simulator.pipe import Latency
from tests.simulator.schedule import Event, Schedule

__all__ = ["Process", "ProcessPart"]


_WAKE = Latency(0.0, 0.003)


class ProcessPart(Protocol):
    """A part that is notified when its process is paused, goes on, or is killed."""

    def paused(self) -> None: ...

    def resumed(self) -> None: ...

    def killed(self) -> None: ...


class Process:
    """A process on a machine of its own.

    Args:
        schedule: virtual time.
        rng: draws how long its threads take to go on after a pause.
        name: for messages and traces.
        wake: between `resume` and a thread's next step, drawn for each timer that came due meanwhile.
        clock_offset_s, clock_rate: what its clock shows: offset + rate x virtual time.
    """

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        name: str = "process",
        wake: Latency = _WAKE,
        clock_offset_s: float = 0.0,
        clock_rate: float = 1.0,
    ) -> None:
        if not 0 < clock_rate < float("inf"):
            raise ValueError(f"the clock of {name} is to run at rate {clock_rate}; rates are above 0 and finite")
        self.name = name
        self.schedule = schedule
        self.wake = wake
        self.is_paused = False
        self.is_gone = False
        self.resumed_at_s = float("-inf")
        self._rng = rng
        self._offset_s = clock_offset_s
        self._rate = clock_rate
        self._overdue: list[Event] = []
        self._parts: list[ProcessPart] = []

    def clock(self) -> float:
        """Seconds on its clock, which runs on while it is paused, as the lease's does."""
        return self._offset_s + self._rate * self.schedule.now

    def attach(self, part: ProcessPart) -> None:
        """Notify `part` of pauses and of the end."""
        self._parts.append(part)

    def after(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> Event:
        """Run `call(*arguments)` in `delay_s` seconds of its clock.

        What comes due in a pause runs after it unless it is cancelled by then; a process that is gone runs nothing.
        """
        return self.schedule.after(delay_s / self._rate, self._run, call, arguments)

    def _run(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self.is_paused:
            event = self.schedule.current
            assert event is not None
            self._overdue.append(event)
        elif not self.is_gone:
            call(*arguments)

    def _run_overdue(self, event: Event) -> None:
        if self.is_paused:
            self._overdue.append(event)
        elif not self.is_gone and not self.schedule.is_cancelled(event):
            call, arguments = event[-1]
            call(*arguments)

    def pause(self) -> None:
        """Stop all its threads (SIGSTOP, garbage collection, swap): it loses nothing and notices nothing."""
        if not self.is_paused and not self.is_gone:
            self.is_paused = True
            for part in self._parts:
                part.paused()

    def resume(self) -> None:
        """Let it go on: each timer that came due meanwhile runs soon, in any order."""
        if not self.is_paused:
            return
        self.is_paused = False
        self.resumed_at_s = self.schedule.now
        overdue, self._overdue = self._overdue, []
        for event in overdue:
            self.schedule.after(self.wake.draw(self._rng), self._run_overdue, event)
        for part in self._parts:
            part.resumed()

    def kill(self) -> None:
        """End it abruptly (SIGKILL); its machine closes its sockets."""
        if not self.is_gone:
            self.is_gone = True
            self.is_paused = False
            self._overdue.clear()
            for part in self._parts:
                part.killed()
