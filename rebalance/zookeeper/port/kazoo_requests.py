"""Translates requests into calls of kazoo, and kazoo's results and exceptions into replies.

Sends many reads over a connection of kazoo as one piece, and decodes their answers together.

For each request kazoo wakes its thread up, polls four times, and hands the answer to a second thread: 0.13 ms of CPU
time, which is nearly the whole cost of a monitor of hundreds of groups. Reads of one piece cost a twentieth of that.

Rules, and which failure each prevents:
- No more bytes are received than the answers that are missing have at least. So no byte of a later answer is taken from
  kazoo, which reads all other answers itself.
- Pings and watch events between the answers are passed on as kazoo does.
- When the connection ends, kazoo answers the piece as any other request, and all of its reads count as lost.

The methods of kazoo that are replaced are private ones. Where a release does not have them, reads are sent singly.
Source: kazoo.protocol.connection.ConnectionHandler (2.10 and 2.11); the formats are those of zookeeper.jute.
"""

from __future__ import annotations

import logging
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kazoo import exceptions as kx
from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionDropped
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
    Read,
    Reply,
    Request,
    SetData,
    Stat,
    Sync,
    Watch,
    WatchEvent,
)

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


log = logging.getLogger(__name__)
_TYPES: Final[dict[type, int]] = {Exists: 3, GetData: 4, GetChildren: 12}
_NO_NODE: Final = -101
_WATCH_XID: Final = -1
_PING_XID: Final = -2
_MOST_RECEIVED: Final = 65536
_INT: Final = struct.Struct("!i")
_HEAD: Final = struct.Struct("!iqi")
"""The head of an answer: xid, zxid, error code."""
_STAT: Final = struct.Struct("!qqq8xii4xq8xq")
"""czxid, mzxid, ctime, version, cversion, ephemeral owner, pzxid."""
_LEAST_ANSWER: Final = _INT.size + _HEAD.size


class ReadPiece:
    """Reads that are sent together, and the answers that have come so far; a request of kazoo's queue.

    Args:
        requests: Reads without watches.
        chroot: The path before that of each node.
        sent_at: When they were sent, on the clock of leases.

    Threads: That of the connection, once it is sent.
    """

    type = None

    def __init__(self, requests: Sequence[Read], chroot: str, sent_at: float) -> None:
        self._requests = requests
        self._chroot = chroot
        self._sent_at = sent_at
        self._received = bytearray()
        self._xids: range | list[int] = []
        self.replies: list[Reply] = []
        self.last_zxid = 0

    def __repr__(self) -> str:
        return f"{len(self._requests)} reads"

    @property
    def is_complete(self) -> bool:
        """Whether all answers are there."""
        return len(self.replies) == len(self._requests)

    def encode(self, xids: list[int]) -> bytes:
        """Return the requests as they are sent, under these numbers."""
        self._xids = xids
        sent = bytearray()
        for xid, request in zip(xids, self._requests, strict=True):
            path = (self._chroot + request.path).encode()
            if len(path) > 1 and path.endswith(b"/"):
                path = path[:-1]  # the root of a chroot
            length = len(path)
            sent += struct.pack(f"!iiii{length}s?", 13 + length, xid, _TYPES[type(request)], length, path, False)
        return bytes(sent)

    def missing_bytes(self) -> int:
        """Return how many bytes will come at least until all answers are there."""
        others = (len(self._requests) - len(self.replies) - 1) * _LEAST_ANSWER
        received = len(self._received)
        if received < _INT.size:
            return others + _LEAST_ANSWER - received
        length: int = _INT.unpack_from(self._received)[0]
        return others + max(1, _INT.size + length - received)

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Decode the answers that are complete; yield number and content of each frame in between that is none.

        Raises:
            ConnectionDropped: The bytes are no answers.
        """
        received = self._received
        received += data
        at = 0
        while len(received) - at >= _INT.size:
            length: int = _INT.unpack_from(received, at)[0]
            if length < _HEAD.size:
                raise ConnectionDropped(f"an answer of {length} bytes")
            end = at + _INT.size + length
            if end > len(received):
                break
            xid, zxid, code = _HEAD.unpack_from(received, at + _INT.size)
            at += _LEAST_ANSWER
            if xid < 0:
                yield xid, bytes(received[at:end])
            elif self.is_complete or xid != self._xids[len(self.replies)]:
                raise ConnectionDropped(f"the answer to request {xid} is out of order")
            else:
                self.last_zxid = max(self.last_zxid, zxid)
                self._answered(code, bytes(received[at:end]))
            at = end
        del received[:at]

    def _answered(self, code: int, content: bytes) -> None:
        request = self._requests[len(self.replies)]
        fault, reason, value = None, "", None
        if code == 0:
            try:
                value = _DECODERS[type(request)](content)
            except (struct.error, UnicodeDecodeError) as error:
                fault, reason = Fault.OTHER, f"the answer cannot be decoded: {error}"
        elif code != _NO_NODE or not isinstance(request, Exists):  # that a node does not exist answers `Exists`
            refusal = EXCEPTIONS[code]()
            fault, reason = fault_of(refusal), f"{type(refusal).__name__} {refusal}".strip()
        self.replies.append(Reply(value, fault, self._sent_at, reason))

    def outcome(self, error: Exception | None) -> list[Reply]:
        """Return the replies; if kazoo reports an error for the piece, all are lost."""
        if error is None:
            return self.replies
        reason = f"{type(error).__name__} {error}".strip()
        return [Reply(None, fault_of(error), self._sent_at, reason)] * len(self._requests)


def _decoded_stat(content: bytes, at: int) -> Stat:
    czxid, mzxid, created_ms, version, cversion, owner, pzxid = _STAT.unpack_from(content, at)
    return Stat(version, cversion, owner, czxid, pzxid, mzxid, created_ms)


def _exists(content: bytes) -> Stat | None:
    stat = _decoded_stat(content, 0)
    return None if stat.czxid == -1 else stat


def _data(content: bytes) -> tuple[bytes, Stat]:
    end = _INT.size + max(0, _INT.unpack_from(content)[0])
    return content[_INT.size : end], _decoded_stat(content, end)


def _children(content: bytes) -> tuple[list[str], Stat]:
    at, names = _INT.size, []
    for _ in range(_INT.unpack_from(content)[0]):
        end = at + _INT.size + _INT.unpack_from(content, at)[0]
        names.append(content[at + _INT.size : end].decode())
        at = end
    return names, _decoded_stat(content, at)


_DECODERS: Final[dict[type, Any]] = {Exists: _exists, GetData: _data, GetChildren: _children}


def hook_reads(client: KazooClient) -> bool:
    """Have the connection of a client understand a `ReadPiece`; return False if this kazoo lacks a needed method."""
    connection = client._connection
    needed = ("_send_request", "_read_socket", "_write", "_read_watch_event", "_socket_error_handling")
    missing = [name for name in needed if not hasattr(connection, name)]
    if missing:
        log.warning("this version of kazoo has no %s: reads of many nodes are sent one by one", missing[0])
        return False
    send_request, read_socket = connection._send_request, connection._read_socket

    def send_next(read_timeout: float, connect_timeout: float) -> Any:
        if not client._queue or not isinstance(client._queue[0][0], ReadPiece):
            return send_request(read_timeout, connect_timeout)
        piece, result = client._queue.popleft()
        connection._read_sock.recv(1)
        xids = []
        for _ in piece._requests:
            connection._xid = (connection._xid % 2147483647) + 1
            xids.append(connection._xid)
        # It counts as sent from now on: a part of it may reach the server even if the connection ends meanwhile.
        client._pending.append((piece, result, xids[0]))
        connection._write(piece.encode(xids), connect_timeout)
        return None

    def read_next(read_timeout: float) -> Any:
        if not client._pending or not isinstance(client._pending[0][0], ReadPiece):
            return read_socket(read_timeout)
        piece, result, _ = client._pending[0]
        with connection._socket_error_handling():
            try:
                data = connection._socket.recv(min(_MOST_RECEIVED, piece.missing_bytes()))
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
        if not data:
            raise ConnectionDropped("socket connection broken")
        for xid, content in piece.take(data):
            if xid == _PING_XID:
                connection.ping_outstanding.clear()
            elif xid == _WATCH_XID:
                connection._read_watch_event(content, 0)
            else:
                raise ConnectionDropped(f"an answer with the number {xid}, which nothing waits for")
        if piece.last_zxid > 0:
            client.last_zxid = piece.last_zxid
        if piece.is_complete:
            client._pending.popleft()
            result.set(None)
        return None

    connection._send_request, connection._read_socket = send_next, read_next
    return True
