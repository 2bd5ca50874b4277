"""The offset manager of the simulated cluster: the broker that keeps the group's offsets, and what goes wrong with it.

A client finds the manager by asking a broker, and asks it until it learns that another broker is the manager, or that
there is no answer. Nothing fences a commit: what arrives is stored, whichever member sent it. Pure.

Source: kafka.server.OffsetManager, kafka.client.ClientUtils.channelToOffsetManager (0.8.2.2).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from tests.simulator.pipe import Latency
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule

__all__ = ["BACKOFF_S", "TIMEOUT_S", "OffsetChannel", "OffsetStorage", "Partition"]

Partition: TypeAlias = tuple[str, int]

TIMEOUT_S: Final = 2.0
"""`offsets.channel.socket.timeout.ms` of all members."""
BACKOFF_S: Final = 0.3
"""`offsets.channel.backoff.ms` of all members."""

_BROKERS: Final = 2
_LATENCY: Final = Latency(0.0003, 0.01)
_OPERATOR: Final = ""

Stored = Callable[[str, Partition, int], None]
"""Records that a member ("": an operator) has stored an offset; -1 for one that was deleted."""


class OffsetStorage:
    """The stored offsets of the group, and the broker that manages them.

    Attributes:
        stored: partition -> offset.
        manager: the broker that manages them, None while there is none.
        is_loading: whether a new manager still reads them: it refuses all requests.
        slow_s: how late its answers come. Requests are not late.
        is_mute: whether its answers are lost; what they answer is done.
        on_stored: records what was stored.
    """

    def __init__(self, schedule: Schedule, rng: random.Random) -> None:
        self.stored: dict[Partition, int] = {}
        self.manager: int | None = 0
        self.is_loading = False
        self.slow_s = 0.0
        self.is_mute = False
        self.on_stored: Stored = lambda member, partition, offset: None
        self._schedule = schedule
        self._rng = rng

    def move(self) -> None:
        """Have another broker manage the offsets."""
        self.manager = 0 if self.manager is None else (self.manager + 1) % _BROKERS

    def store(self, member: str, offsets: Mapping[Partition, int]) -> None:
        """Store what a member has sent."""
        for partition, offset in offsets.items():
            self.stored[partition] = offset
            self.on_stored(member, partition, offset)

    def set_by_operator(self, partition: Partition, offset: int | None) -> None:
        """Change or delete an offset manually."""
        if offset is None:
            self.stored.pop(partition, None)
        else:
            self.stored[partition] = offset
        self.on_stored(_OPERATOR, partition, -1 if offset is None else offset)

    def ask(self, process: Process, broker: int, serve: Callable[[], Any], done: Callable[[Any, str], None]) -> None:
        """Have a broker serve a request; `done(answer, "")`, or `done(None, why not)`, runs in `process`, once."""
        is_over = False

        def once(answer: Any, reason: str) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                done(answer, reason)

        def arrive() -> None:
            if self.manager is None:
                process.after(_LATENCY.draw(self._rng), once, None, "the connection was refused")
            elif broker != self.manager:
                self._reply(process, once, None, "moved")
            elif self.is_loading:
                self._reply(process, once, None, "loading")
            else:
                self._reply(process, once, serve(), "")

        process.after(TIMEOUT_S, once, None, "no answer in time")
        self._schedule.after(_LATENCY.draw(self._rng), arrive)

    def look_up(self, process: Process, done: Callable[[int | None], None]) -> None:
        """Ask any broker who is the manager; `done` runs in `process`, once."""
        self._schedule.after(
            _LATENCY.draw(self._rng), lambda: process.after(_LATENCY.draw(self._rng), done, self.manager)
        )

    def _reply(self, process: Process, once: Callable[[Any, str], None], answer: Any, reason: str) -> None:
        if not self.is_mute:
            process.after(self.slow_s + _LATENCY.draw(self._rng), once, answer, reason)


class OffsetChannel:
    """What one client knows of the manager: it is looked up when it has moved or does not answer."""

    def __init__(self, storage: OffsetStorage, process: Process) -> None:
        self.storage = storage
        self._process = process
        self._broker: int | None = None

    def exchange(
        self, serve: Callable[[], Any], done: Callable[[Any, str], None], may_send: Callable[[], bool] = lambda: True
    ) -> None:
        """Have the manager serve one request: `done(answer, "")`, or `done(None, why not)`."""

        def send() -> None:
            if self._broker is None:
                done(None, "there is no offset manager")
            elif not may_send():
                done(None, "not sent")
            else:
                self.storage.ask(self._process, self._broker, serve, answered)

        def found(broker: int | None) -> None:
            self._broker = broker
            send()

        def answered(answer: Any, reason: str) -> None:
            if reason and reason != "loading":
                self._broker = None
            done(answer, reason)

        if self._broker is None:
            self.storage.look_up(self._process, found)
        else:
            send()
