"""The ZooKeeper port on a kazoo client.

This file alone imports kazoo. It maps kazoo's exceptions to `Fault`, keeps replies, watch events and session changes
on one queue in the order in which the socket brought them, knows the session time-out that the server granted, and
drops a connection that has gone silent. It makes TLS connections itself, and keeps what attempts to connect ended with,
which kazoo only logs. Rule: callbacks run on kazoo's thread and must only enqueue.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kazoo import exceptions as kx
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import SASL, Auth, Connect
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import make_acl

from rebalance.lease import lease_clock
from rebalance.requests import (
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
    SessionChange,
    SetData,
    Stat,
    Sync,
    Watch,
    WatchEvent,
    ZooKeeperPort,
)
from rebalance.zookeeper_33 import OneByOne, is_version_33

__all__ = ["FailedAttempt", "KazooPort", "access_list", "call"]

log = logging.getLogger(__name__)

_KEPT_ATTEMPTS = 64
_CREDENTIALS_DEMANDED_CODE = -124


class FailedAttempt(NamedTuple):
    """An attempt to connect that came to nothing.

    Attributes:
        server: host, as it was given, and port.
        stage: "connect" (TCP and TLS), "session", or "credentials".
        error: what it ended with, without kazoo's wrapping.
    """

    server: tuple[str, int]
    stage: str
    error: BaseException


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


def _credentials_demanded() -> type[Exception]:
    """What kazoo raises when a server ends a session that shows no credentials; kazoo 2.10 does not know that."""
    known: type[Exception] | None = getattr(kx, "SessionClosedRequireSaslError", None)
    if known is None:
        known = type("SessionClosedRequireSaslError", (kx.ZookeeperError,), {"code": _CREDENTIALS_DEMANDED_CODE})
        kx.EXCEPTIONS[_CREDENTIALS_DEMANDED_CODE] = known
    return known


_CredentialsDemanded = _credentials_demanded()

_FAULTS: tuple[tuple[type[Exception], Fault], ...] = (
    (kx.NoNodeError, Fault.NO_NODE),
    (kx.NodeExistsError, Fault.NODE_EXISTS),
    (kx.BadVersionError, Fault.BAD_VERSION),
    (kx.NotEmptyError, Fault.NOT_EMPTY),
    (kx.NoChildrenForEphemeralsError, Fault.NO_CHILDREN_FOR_EPHEMERALS),
    (kx.NoAuthError, Fault.NO_AUTH),
    (kx.AuthFailedError, Fault.NO_AUTH),
    (_CredentialsDemanded, Fault.NO_AUTH),
    (kx.SessionExpiredError, Fault.SESSION_EXPIRED),
    (kx.ConnectionLoss, Fault.CONNECTION_LOSS),
    (kx.ConnectionClosedError, Fault.CONNECTION_LOSS),
    (kx.OperationTimeoutError, Fault.CONNECTION_LOSS),
    # The request reached a server that no longer serves this session: it may or may not have been applied.
    (kx.SessionMovedError, Fault.CONNECTION_LOSS),
    (kx.RolledBackError, Fault.ROLLED_BACK),
    (kx.RuntimeInconsistency, Fault.ROLLED_BACK),
)


def _fault(error: Exception) -> Fault:
    for kind, fault in _FAULTS:
        if isinstance(error, kind):
            return fault
    return Fault.OTHER


Run = Callable[..., None]
"""Runs a function with arguments."""


class _OneQueueHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Puts watch events on the queue of the replies, so that neither overtakes the other.

    kazoo runs them on two threads; there a watch event can be handled before the reply of the read that armed it,
    and the change it tells of is then taken for older than the read.

    Args:
        tls: makes the context of a TLS connection, anew for each: files may have been replaced. `None`: no TLS.
    """

    def __init__(self, run: Run, tls: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._run = run
        self._tls = tls
        self.host = ""
        """Of the server that is being connected to, as it was given; kazoo 2.10 does not hand it over."""

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """As kazoo's own, but for the TLS context."""
        if self._tls is None or not options.get("use_ssl"):
            return super().create_connection(*args, **options)
        address = options["address"]
        return _tls_connection(self._tls(), address, self.host or address[0], options["timeout"])

    def dispatch_callback(self, callback: Any) -> None:
        self.completion_queue.put(lambda: self._run(callback.func, *callback.args))

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """As kazoo's own, which makes and closes an epoll each time, four times a request: a third of its cost."""
        buffered = [one for one in rlist if isinstance(one, ssl.SSLSocket) and one.pending()]
        if buffered:  # a record held several answers; the socket itself may have nothing more to tell
            timeout = 0.0
        poll = select.poll()
        for events, sockets in ((select.POLLIN, rlist), (select.POLLOUT, wlist)):
            for one in sockets:
                poll.register(one, events)
        ready = dict(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))  # below 0 it would wait for ever
        ready |= {one.fileno(): select.POLLIN for one in buffered}
        return tuple([one for one in sockets if one.fileno() in ready] for sockets in (rlist, wlist, xlist))


def _tls_connection(
    context: ssl.SSLContext, address: tuple[Any, ...], hostname: str, timeout_s: float
) -> ssl.SSLSocket:
    plain = socket.create_connection(address[:2], timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname=hostname)
    except BaseException:
        plain.close()
        raise


class _Hidden:
    """A request of kazoo's that holds a secret, which kazoo would write into its log."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.type = request.type

    def serialize(self) -> Any:
        return self._request.serialize()

    def __repr__(self) -> str:
        return f"{type(self._request).__name__}(***)"


def _without_wrapping(error: BaseException) -> BaseException:
    """What the socket, TLS or SASL said: kazoo raises its own exceptions over it."""
    inner: BaseException | None = error
    while inner is not None and isinstance(inner, kx.KazooException):
        error, inner = inner, inner.__cause__ or inner.__context__
    return inner or error


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.cversion, stat.ephemeralOwner, stat.czxid, stat.pzxid, stat.mzxid, stat.ctime)


_READERS: dict[type, Callable[[Any], Any]] = {
    Exists: lambda value: None if value is None else _stat(value),
    GetData: lambda value: (value[0] or b"", _stat(value[1])),
    GetChildren: lambda value: (value[0], _stat(value[1])),
    SetData: _stat,
}


class KazooPort:
    """The port on a kazoo client.

    Args:
        hosts: `host:port,host:port/chroot`.
        session_timeout_s: asked for; what the server grants is told by `SessionChange`.
        failed: told, on any thread, of an exception that kept an answer, a watch event or a change of the session from
            being told, and of the end of kazoo's own thread: who waits for them waits in vain.
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
        handler = _OneQueueHandler(self._run, tls)
        handler.sleep_func = self._wait_to_connect  # kazoo insists that the retry has the same
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_s,
            handler=handler,
            use_ssl=tls is not None,
            # Never give up, and look again soon: the default grows to a minute, longer than any session.
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, backoff=2, max_delay=min(1.0, session_timeout_s / 10),
                sleep_func=self._wait_to_connect,
            ),
            **options,
        )
        self._asked_timeout_s = session_timeout_s
        self._granted_timeout_s = session_timeout_s
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
        self._refused_since: float | None = None
        self._unanswered = 0
        self._on_session: Callable[[SessionChange], None] = lambda change: None
        self._attempts: deque[FailedAttempt] = deque(maxlen=_KEPT_ATTEMPTS)
        self._trying: tuple[str, int] | None = None
        self._has_been_connected = False
        self._told: set[str] = set()
        self._stage = "connect"
        self._unproved = False
        self._refusal = "ZooKeeper refused our credentials"
        self._hook_granted_timeout()
        self._hook_end()
        self._hook_attempts()
        self._hook_log()

    # -- session ---------------------------------------------------------------------------------------------------

    def _wait_to_connect(self, seconds: float) -> None:
        """Wait before the next try to connect, unless a server has just told that the session is over: it is there."""
        if self._client._state != KeeperState.EXPIRED_SESSION:
            time.sleep(seconds)

    def start(self, on_session: Callable[[SessionChange], None]) -> None:
        """Begin to connect; `on_session` hears of every change from now on."""
        self._on_session = on_session
        self._client.add_listener(lambda state: self._run(self._state_changed, state))
        self._client.start_async()

    def _run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call on a thread of kazoo's, which would write a line about its exception and go on."""
        try:
            call(*arguments)
        except Exception as error:
            log.exception("what ZooKeeper said could not be told")
            self._failed(error)

    def _hook_end(self) -> None:
        """Hear of the end of kazoo's own thread: without it nothing is told any more, not even that."""
        connection, closed = self._client._connection, self._client._stopped
        loop = getattr(connection, "zk_loop", None)
        if loop is None:
            log.warning("this kazoo hides its own thread; if that dies nobody hears of it")
            return

        def told_loop() -> None:
            failure: Exception | None = None
            try:
                loop()
            except Exception as error:
                log.exception("the thread of the ZooKeeper client has ended")
                failure = error
            self._can_close.set()
            if failure is not None and not closed.is_set():
                self._failed(failure)

        connection.zk_loop = told_loop

    def _hook_granted_timeout(self) -> None:
        """Watch the Connect reply go by: kazoo keeps the time-out that was asked for and forgets the granted one."""
        connection = self._client._connection
        invoke = getattr(connection, "_invoke", None)
        if invoke is None:
            log.warning("this kazoo hides the session time-out that the server grants; the asked %g s is used",
                        self._asked_timeout_s)
            return

        def listening_invoke(timeout: float, request: Any, xid: int | None = None) -> Any:
            if not isinstance(request, Connect):
                return self._show(invoke, timeout, request, xid)
            self._stage = "session"
            # A server that is just coming up may never answer. One that is only slow gets the whole time in the end.
            patience_s = timeout * min(1.0, (1 + self._unanswered) / 3)
            try:
                result = invoke(patience_s, request, xid)
            except ConnectionDropped:
                self._resumption_refused()
                raise
            except self._client.handler.timeout_exception:
                self._unanswered += 1
                raise
            self._unanswered = 0
            self._refused_since = None
            if isinstance(result, tuple):
                granted_ms = getattr(result[0], "time_out", 0)
                if granted_ms > 0:
                    self._granted_timeout_s = granted_ms / 1000
            return result

        connection._invoke = listening_invoke

    def _show(self, invoke: Callable[..., Any], timeout: float, request: Any, xid: int | None) -> Any:
        """Show one of the credentials of `auth_data`."""
        try:
            return invoke(timeout, request, xid)
        except kx.AuthFailedError:
            self._refusal = f"ZooKeeper refused our credentials of scheme {getattr(request, 'scheme', '')!r}"
            raise

    def _hook_attempts(self) -> None:
        """Keep what an attempt to connect ends with, and say "connected" when the credentials were taken, not before.

        Kazoo takes a server that hangs up during SASL for one that refuses us, and ends by what it does not expect;
        both come of a server that is being stopped, of a ticket that has run out, of a file that is being replaced.
        """
        connection = self._client._connection
        connect = getattr(connection, "_connect", None)
        if connect is None:
            log.warning("this kazoo hides why a server could not be connected to")
            return

        def watched_connect(host: str, hostip: str, port: int) -> Any:
            with self._lock:
                self._trying, self._stage = (host, port), "connect"
            self._client.handler.host = host
            self._unproved = True
            try:
                result = connect(host, hostip, port)
            except Exception as error:
                self._attempt_failed((host, port), error)
                raise
            self._proved()
            return result

        connection._connect = watched_connect

    def _proved(self) -> None:
        if not self._unproved:
            return
        self._unproved = False
        with self._lock:
            self._attempts.clear()
            self._trying = None
            connection = self._connections
        self._has_been_connected = True
        self._told.clear()
        self._run(self._queue_connected, connection)

    def _attempt_failed(self, server: tuple[str, int], error: Exception) -> None:
        """Note it, and raise in its place what makes kazoo go on trying, or end when the server has said no."""
        cause = _without_wrapping(error)
        attempt = FailedAttempt(server, self._stage, cause)
        with self._lock:
            self._attempts.append(attempt)
            self._trying = None
        self._tell(attempt)
        if isinstance(error, _CredentialsDemanded):
            raise kx.AuthFailedError from error
        hung_up = isinstance(error, kx.AuthFailedError) and isinstance(error.__cause__, ConnectionDropped)
        expected = (ConnectionDropped, self._client.handler.timeout_exception, kx.AuthFailedError,
                    kx.SessionExpiredError)
        if hung_up or not isinstance(error, expected):
            raise ConnectionDropped(f"{type(cause).__name__}: {cause}") from error

    def _tell(self, attempt: FailedAttempt) -> None:
        """Say once what keeps a member from coming back that time alone will not mend; before it was there, it raises.

        A server that is not there is not worth a line: its return is.
        """
        error = attempt.error
        is_told = isinstance(error, ssl.SSLError) or not isinstance(error, OSError | kx.KazooException)
        if not self._has_been_connected or not is_told or isinstance(error, ssl.SSLEOFError):
            return
        line = f"ZooKeeper {attempt.server[0]}:{attempt.server[1]} cannot be connected to: {error}"
        if line not in self._told:
            self._told.add(line)
            log.warning("%s", line)

    def _hook_log(self) -> None:
        """Keep credentials and the session's password out of kazoo's log."""
        connection = self._client._connection
        submit = getattr(connection, "_submit", None)
        if submit is None:
            return

        def hiding_submit(request: Any, timeout: float, xid: int | None = None) -> Any:
            hides = isinstance(request, (Auth, Connect, SASL))
            return submit(_Hidden(request) if hides else request, timeout, xid)

        connection._submit = hiding_submit

    def failed_attempts(self) -> list[FailedAttempt]:
        """What the latest attempts to connect came to since there was a session; at most 64.

        The one that is under way is among them, with a `TimeoutError`: its server is silent so far.
        """
        with self._lock:
            silent = [] if self._trying is None else [FailedAttempt(self._trying, self._stage, TimeoutError())]
            return [*self._attempts, *silent]

    def _resumption_refused(self) -> None:
        """A server hung up on the Connect request.

        A server that lost its data does so for ever with a client that has seen more than it: forget what was seen,
        and it says that the session is over. Not at once: a server that is only behind catches up.
        """
        now = lease_clock()
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > 2 * self._granted_timeout_s and self._client.last_zxid:
            log.warning("ZooKeeper has refused to resume session 0x%x for %.0f s; its data may be lost, trying without "
                        "what was seen last", self._client._session_id or 0, now - self._refused_since)
            self._client.last_zxid = 0

    def _state_changed(self, state: str) -> None:
        """Kazoo's listener: runs on the connection thread, so it only queues, in line with replies and watches."""
        if state == KazooState.SUSPENDED:
            self._can_close.clear()
        else:
            self._can_close.set()
        with self._lock:
            self._connections += 1
        client = self._client
        unproved, self._unproved = self._unproved, False
        if state == KazooState.CONNECTED:
            if unproved:  # the credentials come next, on this thread
                self._stage, self._unproved = "credentials", True
                self._refusal = "ZooKeeper refused our SASL credentials"
            else:
                self._queue_connected(self._connections)
        elif state == KazooState.SUSPENDED:
            if not unproved:  # else nobody has heard of this connection
                self._emit(SessionChange("suspended"))
        elif client._state == KeeperState.AUTH_FAILED:
            self._emit(SessionChange("refused", reason=self._refusal))
        else:
            self._emit(SessionChange("expired"))

    def _emit(self, change: SessionChange) -> None:
        self._client.handler.completion_queue.put(lambda: self._run(self._on_session, change))

    def _queue_connected(self, connection: int) -> None:
        change = SessionChange("connected", self._client._session_id or 0, self._granted_timeout_s)
        peer = self._peer()
        if peer is None or self._use_tls or peer in self._versions:
            self._atomic = self._versions.get(peer, True) if peer else True
            self._emit(change)
            return

        def ask_version() -> None:
            atomic = not is_version_33(peer, min(2.0, self._asked_timeout_s / 3))
            self._versions[peer] = atomic
            if not atomic:
                log.warning("ZooKeeper %s:%d is 3.3: it has no multi, so commits and releases are checked first and "
                            "not fenced atomically", *peer)
            with self._lock:
                # Not after a later change: "connected" would then be the last word about a lost connection.
                if self._connections == connection:
                    self._atomic = atomic
                    self._emit(change)

        # On a thread of its own: the server may be slow to answer and the connection must go on meanwhile.
        threading.Thread(target=self._run, args=[ask_version], name="zookeeper-version", daemon=True).start()

    def _peer(self) -> tuple[str, int] | None:
        try:
            address = self._client._connection._socket.getpeername()
            return str(address[0]), int(address[1])
        except (AttributeError, OSError):
            return None

    def drop_connection(self) -> None:
        """Give up the present connection and go to the next server; the session lives on.

        Our own requests keep kazoo from sending pings, and with them from noticing a server that went silent.
        """
        client = self._client
        try:
            from kazoo.protocol.connection import _CONNECTION_DROP
        except ImportError:
            log.warning("this kazoo has no way to drop a silent connection; waiting for its own time-out")
            return
        # At the tail, as kazoo's own tests do: putting it first would race with the thread that is sending.
        client._call(_CONNECTION_DROP, client.handler.async_result())

    def close(self, timeout_s: float) -> None:
        """End the session (its ephemeral nodes go with it); back after `timeout_s` at the latest.

        With 0 it is only begun; a later call waits for its end. Without a connection the next one is waited for, as
        long as the session may last: kazoo would go without a word, and the nodes would stay.
        """
        self._on_session = lambda change: None

        def stop() -> None:
            self._can_close.wait(self._granted_timeout_s)
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
            log.warning("ZooKeeper did not take leave within %.1f s; the session ends by its time-out", timeout_s)

    # -- requests ----------------------------------------------------------------------------------------------------

    def send(self, request: Request, done: Callable[[Reply], None]) -> None:
        """Send a request; `done` is called once with the reply. Source: `ZooKeeperPort`."""
        if isinstance(request, Multi) and not self._atomic:
            OneByOne(self, request.operations, done).next()
            return
        sent_at = lease_clock()
        try:
            result = self._submit(request)
        except kx.KazooException as error:
            self._complete(done, Reply(None, _fault(error), sent_at, str(error)))
            return
        result.rawlink(lambda outcome: self._run(self._answered, request, outcome, sent_at, done))

    def _answered(self, request: Request, outcome: Any, sent_at: float, done: Callable[[Reply], None]) -> None:
        reply = _reply(request, outcome, sent_at)
        if reply.fault is Fault.CONNECTION_LOSS and outcome.exception is None:
            self._session_moved()
        done(reply)

    def _session_moved(self) -> None:
        """The leader takes another server for the one that has this session: come anew, then it is this one again.

        A late word of a server that was tried in vain does that. Of any other request such a server closes the
        connection; to a multi ZooKeeper 3.4 answers, and would for as long as the session lives.
        """
        with self._lock:
            if self._moved_at == self._connections:
                return
            self._moved_at = self._connections
        log.warning("ZooKeeper takes session 0x%x for moved to another server; connecting anew",
                    self._client._session_id or 0)
        self.drop_connection()

    def _complete(self, done: Callable[[Reply], None], reply: Reply) -> None:
        self._client.handler.completion_queue.put(lambda: self._run(done, reply))

    def _submit(self, request: Request) -> Any:
        client = self._client
        match request:
            case Exists(path, watch):
                return client.exists_async(path, _watcher(watch))
            case GetData(path, watch):
                return client.get_async(path, _watcher(watch))
            case GetChildren(path, watch):
                return client.get_children_async(path, _watcher(watch), include_data=True)
            case Create(path, data, ephemeral):
                return client.create_async(path, data, ephemeral=ephemeral)
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
            case Create(path, data, ephemeral):
                transaction.create(path, data, ephemeral=ephemeral)
            case SetData(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
            case Check(path, version):
                transaction.check(path, version)
    return transaction


def _reply(request: Request, outcome: Any, sent_at: float) -> Reply:
    error = outcome.exception
    if error is not None:
        return Reply(None, _fault(error), sent_at, f"{type(error).__name__} {error}".strip())
    value = outcome.value
    if isinstance(request, Multi):
        # kazoo does not raise for a failed multi: each item has to be looked at.
        over = next((item for item in value if isinstance(item, (kx.SessionMovedError, kx.SessionExpiredError))), None)
        if over is not None:
            return Reply(None, _fault(over), sent_at, repr(over))
        results = [
            _fault(item) if isinstance(item, Exception) else _read(operation, item)
            for operation, item in zip(request.operations, value, strict=True)
        ]
        reasons = [repr(item) for item in value if isinstance(item, Exception)]
        return Reply(results, None, sent_at, "; ".join(reasons))
    return Reply(_read(request, value), None, sent_at)


def _read(request: Request | Check, value: Any) -> Any:
    """What kazoo answers, as `rebalance.requests` promises it."""
    return _READERS.get(type(request), lambda plain: plain)(value)


def _watcher(watch: Watch | None) -> Callable[[Any], None] | None:
    """Kazoo's form of a watch; equal for equal watches, so that kazoo keeps it once a path."""
    if watch is None:
        return None
    return _KazooWatch(watch)


class _KazooWatch:
    """A watch that ignores kazoo's NONE events: those tell of the connection and are handled as session changes."""

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


def access_list(entries: Iterable[tuple[str, str, str]]) -> list[Any]:
    """The ACL of nodes to be created, from (scheme, id, letters of `cdrwa`)."""
    return [
        make_acl(
            scheme, credential, read="r" in letters, write="w" in letters, create="c" in letters,
            delete="d" in letters, admin="a" in letters,
        )
        for scheme, credential, letters in entries
    ]
