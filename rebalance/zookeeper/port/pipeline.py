"""Sends requests to ZooKeeper in order, with a limit on how many are unanswered at a time.

A claim of thousands of partitions takes thousands of requests. If all were sent at once, the request that renews the
lease would wait behind them, count as unanswered, and cost the connection. Therefore only a limited number is sent at
a time, in the order in which they were asked, and the requests that keep the session pass the others.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

from rebalance.loop import Loop
from rebalance.zookeeper.port.requests import Fault, Reply, Request, ZooKeeperPort

__all__ = ["MOST_UNANSWERED", "Pipeline"]

MOST_UNANSWERED: Final = 200
"""Unanswered requests above which others wait: some hundredths of a second of a server's work."""

Handle = Callable[[Reply], None]


class Pipeline:
    """Sends requests and has their answers handled on the loop.

    Args:
        port: ZooKeeper.
        loop: where answers are handled.

    Threads: the coordinator's alone.
    """

    def __init__(self, port: ZooKeeperPort, loop: Loop) -> None:
        self.port = port
        self.loop = loop
        self._serial = itertools.count()
        self._unanswered: dict[int, float] = {}
        self._waiting: deque[tuple[Request, Handle]] = deque()

    def ask(self, request: Request, handle: Handle) -> None:
        """Send a request when its turn comes; `handle` runs on the loop's thread."""
        self._waiting.append((request, handle))
        self._send_waiting()

    def ask_first(self, request: Request, handle: Handle) -> None:
        """Send a request now, before all that wait."""
        serial = next(self._serial)
        self._unanswered[serial] = self.loop.clock()

        def answered(reply: Reply) -> None:
            self._unanswered.pop(serial, None)
            handle(reply)
            self._send_waiting()

        self.port.send(request, lambda reply: self.loop.post(answered, reply))

    def _send_waiting(self) -> None:
        while self._waiting and len(self._unanswered) < MOST_UNANSWERED:
            self.ask_first(*self._waiting.popleft())

    def waiting_since(self) -> float | None:
        """When the oldest unanswered request was sent, or could first be sent again; `None` if there is none."""
        return next(iter(self._unanswered.values()), None)

    def reconnected(self) -> None:
        """Count the time of unanswered requests from now: the connection was lost or is back.

        A request that is sent without a connection waits for the next connection.
        """
        self._unanswered = dict.fromkeys(self._unanswered, self.loop.clock())

    def session_over(self) -> None:
        """Answer all waiting requests with `SESSION_EXPIRED`: they must not be sent under the next session."""
        waiting, self._waiting = self._waiting, deque()
        for _, handle in waiting:
            self.loop.post(handle, Reply(None, Fault.SESSION_EXPIRED, self.loop.clock(), "the session is over"))

    def close(self) -> None:
        """Send none of the waiting requests."""
        self._waiting.clear()
