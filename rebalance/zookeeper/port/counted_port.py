"""A ZooKeeper port that counts requests by kind, and lost connections and sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rebalance.counters import Counters
from rebalance.zookeeper.port.requests import (
    Create,
    Delete,
    Exists,
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

__all__ = ["CountedPort"]

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

    A multi is one request. What the client library sends by itself (pings, watches set again) is not counted.
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
