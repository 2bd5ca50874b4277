"""Two ZooKeeper ports around another one: one limits the requests under way, one counts them.

Sends requests to ZooKeeper in order, with a limit on how many are unanswered at a time.

A claim of thousands of partitions takes thousands of requests. If all were sent at once, the request that renews the
lease would wait for all of them, count as unanswered, and cost the connection. Therefore only a limited number is sent
at a time, in the order in which they were asked, and the requests that keep the session pass the others.

A ZooKeeper port that counts requests by kind, and lost connections and sessions.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rebalance.loop import Loop
from rebalance.rebalance_statistics import Counters
from rebalance.zookeeper.port.requests import (
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Read,
    Reply,
    Request,
    SessionChange,
    SetData,
    Sync,
    ZooKeeperPort,
)

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


_KINDS: Final[dict[type, str]] = {
    Create: "create",
    Delete: "delete",
    Exists: "exists",
    GetChildren: "get_children",
    GetData: "get_data",
    Multi: "multi",
    SetData: "set_data",
    Sync: "sync",
}
_LOSSES: Final = {"suspended": "zookeeper_connection", "expired": "zookeeper_session"}


class CountedPort:
    """Passes everything on to a port; `zookeeper_requests` and `errors` of the counters hold the counts.

    A multi is one request. Requests that the client library sends by itself (pings, watches set again) are not counted.
    """

    def __init__(self, port: ZooKeeperPort, counters: Counters) -> None:
        self._port = port
        self._counters = counters

    def start(self, on_session: Callable[[SessionChange], None]) -> None:
        """Source: `ZooKeeperPort`."""

        def counted(change: SessionChange) -> None:
            if change.what in _LOSSES:
                self._counters.add("errors", _LOSSES[change.what])
            on_session(change)

        self._port.start(counted)

    def send(self, request: Request, done: Callable[[Reply], None]) -> None:
        """Source: `ZooKeeperPort`."""
        self._counters.add("zookeeper_requests", _KINDS[type(request)])
        self._port.send(request, done)

    def read(self, requests: Sequence[Read], done: Callable[[list[Reply]], None]) -> None:
        """Source: `ZooKeeperPort`."""
        for request in requests:
            self._counters.add("zookeeper_requests", _KINDS[type(request)])
        self._port.read(requests, done)

    def drop_connection(self) -> None:
        """Source: `ZooKeeperPort`."""
        self._port.drop_connection()

    def close(self, timeout_s: float) -> None:
        """Source: `ZooKeeperPort`."""
        self._port.close(timeout_s)
