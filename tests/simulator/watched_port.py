"""A port that counts requests and reports each to a listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rebalance.zookeeper.port.requests import (
    Exists,
    GetChildren,
    GetData,
    Multi,
    Read,
    Reply,
    Request,
    SessionChange,
    Sync,
    Watch,
    WatchEvent,
    ZooKeeperPort,
    read_singly,
)
from tests.simulator.schedule import Schedule

__all__ = ["Report", "WatchedPort"]

Report: TypeAlias = Callable[[str, str, object], None]
"""Who, what ("asks", "receives", "sees", "session", ...), and about what."""


class WatchedPort:
    """Passes everything on.

    Attributes:
        report: receives everything; None for no listener.
        when_asked: called once with the next request, just before it is sent.
        reads, writes: requests by the second of virtual time; each part of a multi counts.
        connections: how often it was connected, by the second.
    """

    def __init__(self, name: str, port: ZooKeeperPort, schedule: Schedule) -> None:
        self.report: Report | None = None
        self.when_asked: Callable[[Request], None] | None = None
        self.reads: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.connections: dict[int, int] = {}
        self._name = name
        self._port = port
        self._schedule = schedule

    def start(self, on_session: Callable[[SessionChange], None]) -> None:
        """As the port."""

        def changed(change: SessionChange) -> None:
            if change.what == "connected":
                second = int(self._schedule.now)
                self.connections[second] = self.connections.get(second, 0) + 1
            if self.report is not None:
                self.report(self._name, "session", change)
            on_session(change)

        self._port.start(changed)

    def send(self, request: Request, done: Callable[[Reply], None]) -> None:
        """As the port."""
        if self.when_asked is not None:
            self.when_asked(request)
        second = int(self._schedule.now)
        if isinstance(request, (GetData, Exists, GetChildren, Sync)):
            self.reads[second] = self.reads.get(second, 0) + 1
        else:
            parts = len(request.operations) - 1 if isinstance(request, Multi) else 1
            self.writes[second] = self.writes.get(second, 0) + parts
        if self.report is None:
            self._port.send(request, done)
        else:
            self._send_and_report(request, done)

    def _send_and_report(self, request: Request, done: Callable[[Reply], None]) -> None:
        assert self.report is not None
        self.report(self._name, "asks", request)

        def told(reply: Reply) -> None:
            if self.report is not None:
                self.report(self._name, "receives", (request, reply))
            done(reply)

        watch = getattr(request, "watch", None)
        if watch is not None:
            request = type(request)(request.path, self._watching(watch))  # type: ignore[union-attr, call-arg, arg-type]
        self._port.send(request, told)

    def _watching(self, watch: Watch) -> Watch:
        return _ToldWatch(self, watch)

    def fired(self, watch: Watch, event: WatchEvent) -> None:
        """A watch was set off."""
        if self.report is not None:
            self.report(self._name, "sees", event.path)
        watch(event)

    def read(self, requests: Sequence[Read], done: Callable[[list[Reply]], None]) -> None:
        """As the port."""
        read_singly(self, requests, done)

    def drop_connection(self) -> None:
        """As the port."""
        if self.report is not None:
            self.report(self._name, "drops its connection", "")
        self._port.drop_connection()

    def close(self, timeout_s: float) -> None:
        """As the port."""
        if self.report is not None:
            self.report(self._name, "closes its session", "")
        self._port.close(timeout_s)


class _ToldWatch:
    """A watch that reports; equal for equal watches, since a port keeps equal ones only once."""

    __slots__ = ("_port", "_watch")

    def __init__(self, port: WatchedPort, watch: Watch) -> None:
        self._port = port
        self._watch = watch

    def __call__(self, event: WatchEvent) -> None:
        self._port.fired(self._watch, event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ToldWatch) and self._watch == other._watch

    def __hash__(self) -> int:
        return hash(self._watch)
