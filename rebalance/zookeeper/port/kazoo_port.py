"""The ZooKeeper port on a kazoo client: sends requests, reports session changes, drops silent connections.

It keeps replies, watch events and session changes on one queue, in the order in which the socket delivered them. Only
this module and its neighbours whose names start with `kazoo_` import kazoo. Rule: callbacks run on kazoo's thread
and must only enqueue.

Support for ZooKeeper 3.3, which has no multi: detects it, and sends the operations one by one.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kx
from kazoo.protocol.states import KazooState, KeeperState

from rebalance.lease import lease_clock
from rebalance.zookeeper.port.kazoo_client import WatchedClient
from rebalance.zookeeper.port.kazoo_requests import ReadPiece, fault_of, hook_reads, reply_of, submit
from rebalance.zookeeper.port.requests import (
    Check,
    Exists,
    FailedAttempt,
    Fault,
    Multi,
    Read,
    Reply,
    Request,
    SessionChange,
    ZooKeeperPort,
    read_singly,
)

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
        log.warning(
            "ZooKeeper %s:%d is 3.3: it has no multi, so commits and releases are checked before they are "
            "sent, and not fenced atomically",
            *peer,
        )


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


def call(port: ZooKeeperPort, request: Request, timeout_s: float) -> Reply:
    """The answer to one request, waited for; `CONNECTION_LOSS` when none came within `timeout_s`.

    Threads: any but the port's callback thread and the coordinator's.
    """
    answered = threading.Event()
    replies: list[Reply] = []

    def done(reply: Reply) -> None:
        replies.append(reply)
        answered.set()

    port.send(request, done)
    if not answered.wait(timeout_s):
        return Reply(None, Fault.CONNECTION_LOSS, lease_clock(), f"no answer within {timeout_s:g} s")
    return replies[0]


class KazooPort:
    """The port on a kazoo client.

    Args:
        hosts: `host:port,host:port/chroot`.
        session_timeout_s: asked for; `SessionChange` reports what the server grants.
        failed: called, on any thread, with an exception that kept a reply, a watch event or a session change from being
            reported, and at the end of kazoo's own thread: nothing more is reported then.
        tls: makes the TLS context of a connection; `None`: plain connections.
        options: further arguments of `KazooClient` (credentials, SASL, default ACL).
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_s: float,
        failed: Callable[[Exception], None] = lambda error: None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        **options: Any,
    ) -> None:
        self._failed = failed
        self._watched = WatchedClient(hosts, session_timeout_s, self, tls, options)
        self._client = self._watched.kazoo
        self._reads_together = hook_reads(self._client)
        self._asked_timeout_s = session_timeout_s
        self._use_tls = tls is not None
        self._versions: dict[tuple[str, int], bool] = {}
        self._connections = 0
        self._moved_at = -1
        self._atomic = True
        self._lock = threading.Lock()
        self._stopper: threading.Thread | None = None
        # Clear while there is a session and no connection to end it over.
        self._can_close = threading.Event()
        self._can_close.set()
        self._on_session: Callable[[SessionChange], None] = lambda change: None

    # -- session ---------------------------------------------------------------------------------------------------

    def start(self, on_session: Callable[[SessionChange], None]) -> None:
        """Start to connect; `on_session` gets every change from now on."""
        self._on_session = on_session
        self._client.add_listener(lambda state: self.run(self._state_changed, state))
        self._client.start_async()

    def run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call on a thread of kazoo, which would only log an exception and go on."""
        try:
            call(*arguments)
        except Exception as error:
            log.exception("a report of the ZooKeeper client could not be handled")
            self._failed(error)

    def proved(self) -> None:
        """A connection stands, and the server has accepted the credentials."""
        with self._lock:
            connection = self._connections
        self.run(self._queue_connected, connection)

    def thread_ended(self, failure: Exception | None) -> None:
        """kazoo's own thread has ended: nothing is reported any more."""
        self._can_close.set()
        if failure is not None:
            self._failed(failure)

    def failed_attempts(self) -> list[FailedAttempt]:
        """The latest failed attempts to connect. Source: `WatchedClient.failed_attempts`."""
        return self._watched.failed_attempts()

    def _state_changed(self, state: str) -> None:
        """kazoo's listener: it runs on the connection's thread and only queues, in order with replies and watches."""
        if state == KazooState.SUSPENDED:
            self._can_close.clear()
        else:
            self._can_close.set()
        with self._lock:
            self._connections += 1
        watched = self._watched
        unproved, watched.is_unproved = watched.is_unproved, False
        if state == KazooState.CONNECTED:
            if unproved:  # the credentials come next, on this thread
                watched.expect_credentials()
            else:
                self._queue_connected(self._connections)
        elif state == KazooState.SUSPENDED:
            if not unproved:  # else this connection was never reported
                self._emit(SessionChange("suspended"))
        elif self._client._state == KeeperState.AUTH_FAILED:
            self._emit(SessionChange("refused", reason=watched.refusal))
        else:
            self._emit(SessionChange("expired"))

    def _emit(self, change: SessionChange) -> None:
        self._client.handler.completion_queue.put(lambda: self.run(self._on_session, change))

    def _queue_connected(self, connection: int) -> None:
        change = SessionChange("connected", self._client._session_id or 0, self._watched.granted_timeout_s)
        peer = self._peer()
        if peer is None or self._use_tls or peer in self._versions:
            self._atomic = self._versions.get(peer, True) if peer else True
            self._emit(change)
            return

        def ask_version() -> None:
            atomic = not is_version_33(peer, min(2.0, self._asked_timeout_s / 3))
            self._versions[peer] = atomic
            with self._lock:
                # Not after a later change: "connected" would then be the last report about a lost connection.
                if self._connections == connection:
                    self._atomic = atomic
                    self._emit(change)

        # On a thread of its own: the server may be slow to answer and the connection must go on meanwhile.
        threading.Thread(target=self.run, args=[ask_version], name="zookeeper-version", daemon=True).start()

    def _peer(self) -> tuple[str, int] | None:
        try:
            address = self._client._connection._socket.getpeername()
            return str(address[0]), int(address[1])
        except (AttributeError, OSError):
            return None

    def drop_connection(self) -> None:
        """Give up the present connection and go to the next server; the session goes on.

        Our own requests keep kazoo from sending pings, and so from noticing a silent server itself.
        """
        client = self._client
        try:
            from kazoo.protocol.connection import _CONNECTION_DROP
        except ImportError:
            log.warning("this version of kazoo cannot drop a silent connection; waiting for its time-out")
            return
        # At the tail, as kazoo's own tests do: putting it first would race with the thread that is sending.
        client._call(_CONNECTION_DROP, client.handler.async_result())

    def close(self, timeout_s: float) -> None:
        """End the session, and its ephemeral nodes with it; back after `timeout_s` at the latest.

        With 0 it is only started; a later call waits for its end. Without a connection it waits for the next one, as
        long as the session may last: kazoo would end without a message, and the nodes would stay.
        """
        self._on_session = lambda change: None

        def stop() -> None:
            self._can_close.wait(self._watched.granted_timeout_s)
            with contextlib.suppress(Exception):
                self._client.stop()
            with contextlib.suppress(Exception):
                self._client.close()

        with self._lock:
            is_first = self._stopper is None
            if self._stopper is None:
                self._stopper = threading.Thread(target=stop, name="zookeeper-close", daemon=True)
            stopper = self._stopper
        if is_first:
            try:
                stopper.start()
            except RuntimeError:  # no thread can be started any more
                stop()
        if stopper.ident is None:
            return
        stopper.join(max(0.0, timeout_s))
        if stopper.is_alive() and timeout_s > 0 and self._client._session_id:
            log.warning(
                "ZooKeeper did not confirm the end of the session within %.1f s; it ends by its time-out", timeout_s
            )

    # -- requests ----------------------------------------------------------------------------------------------------

    def send(self, request: Request, done: Callable[[Reply], None]) -> None:
        """Send a request; `done` is called once with the reply. Source: `ZooKeeperPort`."""
        if isinstance(request, Multi) and not self._atomic:
            if (peer := self._peer()) is not None:
                warn_of_33(peer)
            OneByOne(self, request.operations, done).next()
            return
        sent_at = lease_clock()
        try:
            result = submit(self._client, request)
        except kx.KazooException as error:
            self._complete(done, Reply(None, fault_of(error), sent_at, str(error)))
            return
        result.rawlink(lambda outcome: self.run(self._answered, request, outcome, sent_at, done))

    def read(self, requests: Sequence[Read], done: Callable[[list[Reply]], None]) -> None:
        """Send reads without watches together; `done` is called once. Source: `ZooKeeperPort`.

        Raises:
            ValueError: There is no read, or one has a watch.
        """
        if not requests or any(request.watch is not None for request in requests):
            raise ValueError(f"{len(requests)} reads are sent together: there must be one, and none with a watch")
        if not self._reads_together:
            read_singly(self, requests, done)
            return
        piece = ReadPiece(requests, self._client.chroot, lease_clock())
        result = self._client.handler.async_result()
        result.rawlink(lambda outcome: self.run(done, piece.outcome(outcome.exception)))
        self._client._call(piece, result)

    def _answered(self, request: Request, outcome: Any, sent_at: float, done: Callable[[Reply], None]) -> None:
        reply = reply_of(request, outcome, sent_at)
        if reply.fault is Fault.CONNECTION_LOSS and outcome.exception is None:
            self._session_moved()
        done(reply)

    def _session_moved(self) -> None:
        """Connect again: the leader takes another server for the one that serves this session.

        A late message of a server to which a connection failed causes this. For other requests the server closes the
        connection; to a multi ZooKeeper 3.4 answers with this fault, for as long as the session lasts.
        """
        with self._lock:
            if self._moved_at == self._connections:
                return
            self._moved_at = self._connections
        log.warning(
            "ZooKeeper says that session 0x%x has moved to another server; connecting again",
            self._client._session_id or 0,
        )
        self.drop_connection()

    def _complete(self, done: Callable[[Reply], None], reply: Reply) -> None:
        self._client.handler.completion_queue.put(lambda: self.run(done, reply))
