"""The broker side of the simulated ZooKeeper: what Kafka's controller and brokers write, in a session of their own.

Keeps a list of nodes that should exist and writes what differs, one request after the other, as long as it takes:
through outages, under a new session (ephemeral nodes again), and after a loss of all data (everything again).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rebalance.zookeeper.port.requests import Create, Delete, Fault, Reply, SessionChange, SetData
from tests.simulator.port import SimulatedPort
from tests.simulator.process import Process

__all__ = ["Controller"]

_Write: TypeAlias = Create | SetData | Delete

_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class _Wanted:
    data: bytes
    ephemeral: bool


class Controller:
    """Writes nodes and keeps them there.

    Args:
        process, port: its own; the port is started here.
    """

    def __init__(self, process: Process, port: SimulatedPort) -> None:
        self._process = process
        self._port = port
        self._wanted: dict[str, _Wanted] = {}
        self._stored: dict[str, bytes] = {}
        self._writes: deque[_Write] = deque()
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_writing = False
        self._session_id = 0
        self._port.start(self._session_changed)

    @property
    def is_idle(self) -> bool:
        """Whether all nodes that should exist were written, and more could be."""
        return not self._writes and self._session_id != 0 and self._port.is_connected

    def want(self, path: str, data: bytes = b"", ephemeral: bool = False) -> None:
        """Create a node with this data, or set it; its parents were wanted before."""
        before = self._wanted.get(path)
        wanted = self._wanted[path] = _Wanted(data, ephemeral)
        if wanted == before:
            return
        self._do(Create(path, data, ephemeral) if before is None else SetData(path, data))

    def drop(self, path: str) -> None:
        """Delete a node and all below it."""
        below = [each for each in self._wanted if each == path or each.startswith(f"{path}/")]
        for each in reversed(below):
            del self._wanted[each]
            self._stored.pop(each, None)
            self._do(Delete(each))

    def when_written(self, call: Callable[[], None]) -> None:
        """Run `call` when all that is wanted by now, or later before that, was written."""
        self._waiting.append(call)
        self._report_written()

    def _report_written(self) -> None:
        while self._waiting and self.is_idle:
            self._waiting.popleft()()

    def _session_changed(self, change: SessionChange) -> None:
        if change.what == "expired":
            self._session_id = 0
        elif change.what == "connected" and change.session_id != self._session_id:
            self._session_id = change.session_id
            # Ephemeral nodes went with the old session, and the others may have gone with the data.
            waiting = [write for write in self._writes if isinstance(write, Delete)]
            self._writes = deque(waiting)
            self._writes.extend(Create(path, node.data, node.ephemeral) for path, node in self._wanted.items())
            self._next()

    def _do(self, write: _Write) -> None:
        self._writes.append(write)
        if self._session_id:
            self._next()

    def _next(self) -> None:
        if self._is_writing or not self._writes:
            return
        self._is_writing = True
        write = self._writes[0]
        self._port.send(write, lambda reply: self._written(write, reply))

    def _written(self, write: _Write, reply: Reply) -> None:
        self._is_writing = False
        is_first = bool(self._writes) and self._writes[0] is write
        if reply.fault in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED):
            self._process.after(_AGAIN_S, self._next)
            return
        if is_first:
            self._writes.popleft()
            if reply.fault is Fault.NODE_EXISTS and isinstance(write, Create):
                self._settle_existing(write)
            elif reply.fault is None and not isinstance(write, Delete):
                self._stored[write.path] = write.data
        self._next()
        self._report_written()

    def _settle_existing(self, write: Create) -> None:
        """The node exists already, from an earlier session of this controller or a write whose answer was lost."""
        if write.ephemeral:
            self._process.after(_AGAIN_S, self._again, write)
        elif self._stored.get(write.path) != write.data:
            self._writes.appendleft(SetData(write.path, write.data))

    def _again(self, write: Create) -> None:
        if write.path in self._wanted:
            self._do(write)
