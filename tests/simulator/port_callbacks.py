"""The callback thread of a simulated port: replies and watch events in their order, now and then a bit late."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from rebalance.zookeeper.port.requests import Create, Reply, Request, Sync
from tests.simulator.pipe import Latency
from tests.simulator.process import Process
from tests.simulator.zookeeper_connection import CloseSession

__all__ = ["Callbacks"]


class Callbacks:
    """Callbacks of one port, one after the other.

    Args:
        process: whose; once it is gone nothing is called.
        rng: of the simulation.
        extra_turn: how much later than others the reply to a create or a sync is passed on.
        behind: how long everything waits once the thread has fallen behind.
    """

    __slots__ = ("_behind", "_extra_turn", "_late", "_process", "_rng", "_turning")

    def __init__(self, process: Process, rng: random.Random, extra_turn: Latency, behind: Latency) -> None:
        self._process = process
        self._rng = rng
        self._extra_turn = extra_turn
        self._behind = behind
        self._late: deque[tuple[Callable[[Any], object], Any]] | None = None
        self._turning: deque[tuple[Callable[[Reply], None], Reply]] = deque()

    def call(self, call: Callable[[Any], object], argument: Any) -> None:
        """Run `call(argument)`, behind all that waits."""
        if self._process.is_gone:
            return
        if self._late is None:
            call(argument)
        else:
            self._late.append((call, argument))

    def reply(self, request: Request | CloseSession | None, done: Callable[[Reply], None], reply: Reply) -> None:
        """Pass on the reply to a request."""
        if isinstance(request, (Create, Sync)):
            self._turning.append((done, reply))
            self._process.after(self._extra_turn.draw(self._rng), self._turn)
        else:
            self.call(done, reply)

    def _turn(self) -> None:
        self.call(*self._turning.popleft())

    def fall_behind(self, for_s: float | None = None) -> None:
        """Keep everything back for a while, drawn if it is not given; what is reported past this queue overtakes it."""
        if self._late is None:
            self._late = deque()
            self._process.after(self._behind.draw(self._rng) if for_s is None else for_s, self._catch_up)

    def _catch_up(self) -> None:
        late, self._late = self._late, None
        for call, argument in late or ():
            call(argument)
