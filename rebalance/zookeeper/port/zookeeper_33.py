"""Support for ZooKeeper 3.3, which has no multi: detects it, and sends the operations one by one."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

from rebalance.lease import lease_clock
from rebalance.zookeeper.port.requests import Check, Exists, Fault, Reply, ZooKeeperPort

__all__ = ["OneByOne", "is_version_33", "warn_of_33"]

log = logging.getLogger(__name__)


class OneByOne:
    """A multi for ZooKeeper 3.3, which never answers one: each operation on its own, stopping at the first fault.

    Not atomic: another session can write between the check and the write. That is the limit of 3.3.
    """

    def __init__(self, port: ZooKeeperPort, operations: tuple[Any, ...], done: Callable[[Reply], None]) -> None:
        self._port = port
        self._operations = operations
        self._done = done
        self._results: list[Any] = []
        self._sent_at = lease_clock()

    def next(self) -> None:
        if len(self._results) == len(self._operations):
            self._done(Reply(self._results, None, self._sent_at))
            return
        operation = self._operations[len(self._results)]
        request = Exists(operation.path) if isinstance(operation, Check) else operation
        self._port.send(request, self._answered)

    def _answered(self, reply: Reply) -> None:
        operation = self._operations[len(self._results)]
        fault, value = reply.fault, reply.value
        if fault is None and isinstance(operation, Check):
            if value is None:
                fault = Fault.NO_NODE
            elif value.version != operation.version:
                fault = Fault.BAD_VERSION
            value = True
        if fault in (Fault.CONNECTION_LOSS, Fault.SESSION_EXPIRED):
            self._done(Reply(None, fault, self._sent_at, reply.reason))
            return
        if fault is not None:
            rolled_back = [Fault.ROLLED_BACK] * len(self._operations)
            rolled_back[len(self._results)] = fault
            self._done(Reply(rolled_back, None, self._sent_at, reply.reason))
            return
        self._results.append(value)
        self.next()


_warned: set[tuple[str, int]] = set()
_warning = threading.Lock()


def warn_of_33(peer: tuple[str, int]) -> None:
    """Log that writes are not atomic, when the first one is sent: once for each server in a process.

    Who only reads has nothing to know, and one process may have several sessions.
    """
    with _warning:
        is_new = peer not in _warned
        _warned.add(peer)
    if is_new:
        log.warning("ZooKeeper %s:%d is 3.3: it has no multi, so commits and releases are checked before they are "
                    "sent, and not fenced atomically", *peer)


def is_version_33(peer: tuple[str, int], timeout_s: float) -> bool:
    """Whether the server answers `srvr` as a 3.3; any other answer, or none, counts as newer."""
    try:
        with socket.create_connection(peer, timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"srvr")
            answer = connection.recv(4096)
    except OSError:
        return False
    return answer.startswith(b"Zookeeper version: 3.3")
