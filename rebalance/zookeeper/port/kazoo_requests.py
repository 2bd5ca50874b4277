"""Translates requests into calls of kazoo, and kazoo's results and exceptions into replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kazoo import exceptions as kx
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType

from rebalance.zookeeper.port.requests import (
    Check,
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Reply,
    Request,
    SetData,
    Stat,
    Sync,
    Watch,
    WatchEvent,
)

__all__ = ["CredentialsDemanded", "fault_of", "reply_of", "submit"]

_CREDENTIALS_DEMANDED_CODE = -124


def _credentials_demanded() -> type[Exception]:
    """The exception for a server that ends a session without credentials; kazoo 2.10 does not have it."""
    known: type[Exception] | None = getattr(kx, "SessionClosedRequireSaslError", None)
    if known is None:
        known = type("SessionClosedRequireSaslError", (kx.ZookeeperError,), {"code": _CREDENTIALS_DEMANDED_CODE})
        kx.EXCEPTIONS[_CREDENTIALS_DEMANDED_CODE] = known
    return known


CredentialsDemanded = _credentials_demanded()

_FAULTS: tuple[tuple[type[Exception], Fault], ...] = (
    (kx.NoNodeError, Fault.NO_NODE),
    (kx.NodeExistsError, Fault.NODE_EXISTS),
    (kx.BadVersionError, Fault.BAD_VERSION),
    (kx.NotEmptyError, Fault.NOT_EMPTY),
    (kx.NoChildrenForEphemeralsError, Fault.NO_CHILDREN_FOR_EPHEMERALS),
    (kx.NoAuthError, Fault.NO_AUTH),
    (kx.AuthFailedError, Fault.NO_AUTH),
    (CredentialsDemanded, Fault.NO_AUTH),
    (kx.SessionExpiredError, Fault.SESSION_EXPIRED),
    (kx.ConnectionLoss, Fault.CONNECTION_LOSS),
    (kx.ConnectionClosedError, Fault.CONNECTION_LOSS),
    (kx.OperationTimeoutError, Fault.CONNECTION_LOSS),
    # The request reached a server that no longer serves this session: it may or may not have been applied.
    (kx.SessionMovedError, Fault.CONNECTION_LOSS),
    (kx.RolledBackError, Fault.ROLLED_BACK),
    (kx.RuntimeInconsistency, Fault.ROLLED_BACK),
)


def fault_of(error: Exception) -> Fault:
    """The fault that an exception of kazoo stands for."""
    for kind, fault in _FAULTS:
        if isinstance(error, kind):
            return fault
    return Fault.OTHER


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.cversion, stat.ephemeralOwner, stat.czxid, stat.pzxid, stat.mzxid, stat.ctime)


_READERS: dict[type, Callable[[Any], Any]] = {
    Exists: lambda value: None if value is None else _stat(value),
    GetData: lambda value: (value[0] or b"", _stat(value[1])),
    GetChildren: lambda value: (value[0], _stat(value[1])),
    SetData: _stat,
}


def submit(client: KazooClient, request: Request) -> Any:
    """Send a request; kazoo's asynchronous result."""
    match request:
        case Exists(path, watch):
            return client.exists_async(path, _watcher(watch))
        case GetData(path, watch):
            return client.get_async(path, _watcher(watch))
        case GetChildren(path, watch):
            return client.get_children_async(path, _watcher(watch), include_data=True)
        case Create(path, data, ephemeral, sequence):
            return client.create_async(path, data, ephemeral=ephemeral, sequence=sequence)
        case SetData(path, data, version):
            return client.set_async(path, data, version)
        case Delete(path, version):
            return client.delete_async(path, version)
        case Sync(path):
            return client.sync_async(path)
        case Multi(operations):
            return _transaction(client, operations).commit_async()


def _transaction(client: KazooClient, operations: Iterable[Any]) -> Any:
    transaction = client.transaction()
    for operation in operations:
        match operation:
            case Create(path, data, ephemeral, sequence):
                transaction.create(path, data, ephemeral=ephemeral, sequence=sequence)
            case SetData(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
            case Check(path, version):
                transaction.check(path, version)
    return transaction


def reply_of(request: Request, outcome: Any, sent_at: float) -> Reply:
    """The reply that an asynchronous result of kazoo stands for."""
    error = outcome.exception
    if error is not None:
        return Reply(None, fault_of(error), sent_at, f"{type(error).__name__} {error}".strip())
    value = outcome.value
    if isinstance(request, Multi):
        # kazoo does not raise for a failed multi: each item has to be checked.
        over = next((item for item in value if isinstance(item, (kx.SessionMovedError, kx.SessionExpiredError))), None)
        if over is not None:
            return Reply(None, fault_of(over), sent_at, repr(over))
        results = [
            fault_of(item) if isinstance(item, Exception) else _read(operation, item)
            for operation, item in zip(request.operations, value, strict=True)
        ]
        reasons = [repr(item) for item in value if isinstance(item, Exception)]
        return Reply(results, None, sent_at, "; ".join(reasons))
    return Reply(_read(request, value), None, sent_at)


def _read(request: Request | Check, value: Any) -> Any:
    """A result of kazoo, in the form that `rebalance.zookeeper.port.requests` promises."""
    return _READERS.get(type(request), lambda plain: plain)(value)


def _watcher(watch: Watch | None) -> Callable[[Any], None] | None:
    """A watch in kazoo's form; equal for equal watches, so that kazoo keeps it once for a path."""
    if watch is None:
        return None
    return _KazooWatch(watch)


class _KazooWatch:
    """A watch that ignores kazoo's NONE events: they report the connection, which is handled as session changes."""

    __slots__ = ("_watch",)

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, event: Any) -> None:
        if event.type != EventType.NONE and event.path is not None:
            self._watch(WatchEvent(event.path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KazooWatch) and self._watch == other._watch

    def __hash__(self) -> int:
        return hash(self._watch)


