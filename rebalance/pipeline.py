"""Requests on their way to ZooKeeper: many at a time, but not all at once.

A claim of thousands of partitions asks thousands of questions. Sent at once, the question that renews the lease would
wait behind all of them, be taken for unanswered, and cost the connection. So only some are on their way at a time, in
the order in which they were asked, and whoever keeps the session passes the others.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

from rebalance.loop import Loop
from rebalance.requests import Fault, Reply, Request, ZooKeeperPort

__all__ = ["MOST_UNANSWERED", "Pipeline"]

MOST_UNANSWERED: Final = 200
"""Requests without an answer, above which others wait: some hundredths of a second of a server's work."""

Handle = Callable[[Reply], None]


class Pipeline:
    """Sends requests and has their answers handled on the loop.

    Args:
        port: ZooKeeper.
        loop: where answers are handled.

    Threads: the coordinator's alone.
    """

    def __init__(self, port: ZooKeeperPort, loop: Loop) -> None:
        self._port = port
        self._loop = loop
        self._serial = itertools.count()
        self._unanswered: dict[int, float] = {}
        self._waiting: deque[tuple[Request, Handle]] = deque()

    def ask(self, request: Request, handle: Handle) -> None:
        """Send a request when its turn comes; `handle` runs on the loop's thread."""
        self._waiting.append((request, handle))
        self._send_waiting()

    def ask_first(self, request: Request, handle: Handle) -> None:
        """Send a request now, whatever waits."""
        serial = next(self._serial)
        self._unanswered[serial] = self._loop.clock()

        def answered(reply: Reply) -> None:
            self._unanswered.pop(serial, None)
            handle(reply)
            self._send_waiting()

        self._port.send(request, lambda reply: self._loop.post(answered, reply))

    def _send_waiting(self) -> None:
        while self._waiting and len(self._unanswered) < MOST_UNANSWERED:
            self.ask_first(*self._waiting.popleft())

    def waiting_since(self) -> float | None:
        """When the oldest request without an answer was sent, or could first be sent again; `None` without any."""
        return next(iter(self._unanswered.values()), None)

    def reconnected(self) -> None:
        """The connection was lost or is back.

        What is asked while there is none waits for the next one, and its time runs from then.
        """
        self._unanswered = dict.fromkeys(self._unanswered, self._loop.clock())

    def session_over(self) -> None:
        """What waits was meant for a session that is gone: answer so instead of sending it under the next one."""
        waiting, self._waiting = self._waiting, deque()
        for _, handle in waiting:
            self._loop.post(handle, Reply(None, Fault.SESSION_EXPIRED, self._loop.clock(), "the session is over"))

    def close(self) -> None:
        """Send nothing of what waits."""
        self._waiting.clear()
