"""A kazoo client that keeps what kazoo hides: failed attempts to connect, the granted time-out, the end of its thread.

It also puts watch events on the queue of the replies, makes TLS connections itself, and keeps credentials out of
kazoo's log. The methods of kazoo that it wraps are private ones; where a release does not have one, a warning says what
is missing, and the client works without it.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kazoo import exceptions as kx
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import SASL, Auth, Connect
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import make_acl

from rebalance.lease import lease_clock
from rebalance.zookeeper.port.kazoo_requests import CredentialsDemanded
from rebalance.zookeeper.port.requests import FailedAttempt

log = logging.getLogger(__name__)

_KEPT_ATTEMPTS = 64


Run = Callable[..., None]
"""Runs a function with arguments."""


class _OneQueueHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Puts watch events on the queue of the replies, so that neither overtakes the other.

    kazoo runs them on two threads, where a watch event can be handled before the reply of the read that set the watch;
    the change that it reports would then be taken for older than the read.

    Args:
        tls: makes the context of a TLS connection, anew for each: files may have been replaced. `None`: no TLS.
    """

    def __init__(self, run: Run, tls: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._run = run
        self._tls = tls
        self.host = ""
        """The host that is being connected to, as it was given; kazoo 2.10 does not pass it on."""

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
        if buffered:  # a record held several answers; the socket itself may have nothing more
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
    """A request of kazoo that holds a secret, which kazoo would log."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.type = request.type

    def serialize(self) -> Any:
        return self._request.serialize()

    def __repr__(self) -> str:
        return f"{type(self._request).__name__}(***)"


def hide_secrets(client: KazooClient) -> None:
    """Keep credentials and the session's password out of the log of a kazoo client, at every level."""
    connection = client._connection
    submit = getattr(connection, "_submit", None)
    if submit is None:
        return

    def hiding_submit(request: Any, timeout: float, xid: int | None = None) -> Any:
        hides = isinstance(request, (Auth, Connect, SASL))
        return submit(_Hidden(request) if hides else request, timeout, xid)

    connection._submit = hiding_submit


def _without_wrapping(error: BaseException) -> BaseException:
    """The error of the socket, TLS or SASL, over which kazoo raises its own exceptions."""
    inner: BaseException | None = error
    while inner is not None and isinstance(inner, kx.KazooException):
        error, inner = inner, inner.__cause__ or inner.__context__
    return inner or error


class ClientOwner(Protocol):
    """Is notified by the client, on kazoo's threads."""

    def run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call, and handle its exception."""

    def proved(self) -> None:
        """A connection stands, and the server has accepted the credentials."""

    def thread_ended(self, failure: Exception | None) -> None:
        """kazoo's own thread has ended, by a failure unless the client was closed."""


class WatchedClient:
    """A kazoo client and its reports.

    Args:
        hosts: `host:port,host:port/chroot`.
        session_timeout_s: asked for.
        owner: is notified.
        tls: makes the TLS context of a connection; `None`: plain connections.
        options: further arguments of `KazooClient`.

    Attributes:
        kazoo: the client.
        granted_timeout_s: the session time-out that the server granted last, or the one that was asked for.
        is_unproved: whether the present connection has not passed the check of the credentials yet.
        refusal: the reason of the server when it ended the session, as a sentence.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_s: float,
        owner: ClientOwner,
        tls: Callable[[], ssl.SSLContext] | None,
        options: dict[str, Any],
    ) -> None:
        self._owner = owner
        handler = _OneQueueHandler(owner.run, tls)
        handler.sleep_func = self._wait_to_connect  # kazoo insists that the retry has the same
        self.kazoo = KazooClient(
            hosts=hosts,
            timeout=session_timeout_s,
            handler=handler,
            use_ssl=tls is not None,
            # Never give up, and try again soon: the default grows to a minute, longer than any session.
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=0.05,
                backoff=2,
                max_delay=min(1.0, session_timeout_s / 10),
                sleep_func=self._wait_to_connect,
            ),
            **options,
        )
        self.granted_timeout_s = session_timeout_s
        self.is_unproved = False
        self.refusal = "ZooKeeper refused the credentials"
        self._lock = threading.Lock()
        self._refused_since: float | None = None
        self._unanswered = 0
        self._attempts: deque[FailedAttempt] = deque(maxlen=_KEPT_ATTEMPTS)
        self._trying: tuple[str, int] | None = None
        self._has_been_connected = False
        self._logged: set[str] = set()
        self._stage = "connect"
        self._hook_granted_timeout()
        self._hook_end()
        self._hook_attempts()
        hide_secrets(self.kazoo)

    def expect_credentials(self) -> None:
        """The session is open, and the server checks the credentials next."""
        self._stage, self.is_unproved = "credentials", True
        self.refusal = "ZooKeeper refused the SASL credentials"

    def _wait_to_connect(self, seconds: float) -> None:
        """Wait before the next try to connect, unless a server has just reported that the session is over: it is up."""
        if self.kazoo._state != KeeperState.EXPIRED_SESSION:
            time.sleep(seconds)

    def _hook_end(self) -> None:
        """Report the end of kazoo's own thread: without it nothing is reported any more, not even its end."""
        connection, closed = self.kazoo._connection, self.kazoo._stopped
        loop = getattr(connection, "zk_loop", None)
        if loop is None:
            log.warning("this version of kazoo hides its own thread, so the end of that thread is not noticed")
            return

        def reported_loop() -> None:
            failure: Exception | None = None
            try:
                loop()
            except Exception as error:
                log.exception("the thread of the ZooKeeper client has ended")
                failure = error
            self._owner.thread_ended(None if closed.is_set() else failure)

        connection.zk_loop = reported_loop

    def _hook_granted_timeout(self) -> None:
        """Keep the time-out of the Connect reply: kazoo keeps only the one that was asked for."""
        connection = self.kazoo._connection
        invoke = getattr(connection, "_invoke", None)
        if invoke is None:
            log.warning(
                "this version of kazoo hides the session time-out that the server grants; the requested %g s "
                "are assumed",
                self.granted_timeout_s,
            )
            return

        def listening_invoke(timeout: float, request: Any, xid: int | None = None) -> Any:
            if not isinstance(request, Connect):
                return self._send_credentials(invoke, timeout, request, xid)
            self._stage = "session"
            # A server that is starting may never answer. One that is only slow gets the whole time in the end.
            patience_s = timeout * min(1.0, (1 + self._unanswered) / 3)
            try:
                result = invoke(patience_s, request, xid)
            except ConnectionDropped:
                self._resumption_refused()
                raise
            except self.kazoo.handler.timeout_exception:
                self._unanswered += 1
                raise
            self._unanswered = 0
            self._refused_since = None
            if isinstance(result, tuple):
                granted_ms = getattr(result[0], "time_out", 0)
                if granted_ms > 0:
                    self.granted_timeout_s = granted_ms / 1000
            return result

        connection._invoke = listening_invoke

    def _send_credentials(self, invoke: Callable[..., Any], timeout: float, request: Any, xid: int | None) -> Any:
        """Send a request that may hold one of the credentials of `auth_data`."""
        try:
            return invoke(timeout, request, xid)
        except kx.AuthFailedError:
            self.refusal = f"ZooKeeper refused the credentials of scheme {getattr(request, 'scheme', '')!r}"
            raise

    def _hook_attempts(self) -> None:
        """Keep how an attempt to connect ends, and report a connection only when the credentials were accepted.

        kazoo takes a server that hangs up during SASL for one that refuses the credentials, and ends by an exception
        that it does not expect. Both happen when a server is being stopped, a ticket has run out, or a file is being
        replaced.
        """
        connection = self.kazoo._connection
        connect = getattr(connection, "_connect", None)
        if connect is None:
            log.warning("this version of kazoo hides why a connection to a server failed")
            return

        def watched_connect(host: str, hostip: str, port: int) -> Any:
            with self._lock:
                self._trying, self._stage = (host, port), "connect"
            self.kazoo.handler.host = host
            self.is_unproved = True
            try:
                result = connect(host, hostip, port)
            except Exception as error:
                self._attempt_failed((host, port), error)
                raise
            self._proved()
            return result

        connection._connect = watched_connect

    def _proved(self) -> None:
        if not self.is_unproved:
            return
        self.is_unproved = False
        with self._lock:
            self._attempts.clear()
            self._trying = None
        self._has_been_connected = True
        self._logged.clear()
        self._owner.proved()

    def _attempt_failed(self, server: tuple[str, int], error: Exception) -> None:
        """Keep it, and raise what makes kazoo try again, or end when the server has refused the credentials."""
        cause = _without_wrapping(error)
        attempt = FailedAttempt(server, self._stage, cause)
        with self._lock:
            self._attempts.append(attempt)
            self._trying = None
        self._log(attempt)
        if isinstance(error, CredentialsDemanded):
            raise kx.AuthFailedError from error
        hung_up = isinstance(error, kx.AuthFailedError) and isinstance(error.__cause__, ConnectionDropped)
        expected = (ConnectionDropped, self.kazoo.handler.timeout_exception, kx.AuthFailedError, kx.SessionExpiredError)
        if hung_up or not isinstance(error, expected):
            raise ConnectionDropped(f"{type(cause).__name__}: {cause}") from error

    def _log(self, attempt: FailedAttempt) -> None:
        """Log once an obstacle to a new connection that will not go away by itself; at the start it is raised instead.

        A server that is down is not logged.
        """
        error = attempt.error
        is_lasting = isinstance(error, ssl.SSLError) or not isinstance(error, OSError | kx.KazooException)
        if not self._has_been_connected or not is_lasting or isinstance(error, ssl.SSLEOFError):
            return
        line = f"ZooKeeper {attempt.server[0]}:{attempt.server[1]} cannot be connected to: {error}"
        if line not in self._logged:
            self._logged.add(line)
            log.warning("%s", line)

    def failed_attempts(self) -> list[FailedAttempt]:
        """The attempts to connect that have failed since the last session, the latest 64 at most.

        The one that is under way is among them, with a `TimeoutError`: its server has not answered so far.
        """
        with self._lock:
            silent = [] if self._trying is None else [FailedAttempt(self._trying, self._stage, TimeoutError())]
            return [*self._attempts, *silent]

    def _resumption_refused(self) -> None:
        """Handle that a server hung up on the Connect request.

        A server that lost its data always does so with a client that has seen a later transaction. When the client
        forgets that transaction, the server answers that the session is over. Not at once: a server that only lags
        catches up.
        """
        now = lease_clock()
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > 2 * self.granted_timeout_s and self.kazoo.last_zxid:
            log.warning(
                "ZooKeeper has refused to resume session 0x%x for %.0f s; its data may be lost; connecting "
                "without the last seen zxid",
                self.kazoo._session_id or 0,
                now - self._refused_since,
            )
            self.kazoo.last_zxid = 0


def access_list(entries: Iterable[tuple[str, str, str]]) -> list[Any]:
    """The ACL of nodes to be created, from (scheme, id, letters of `cdrwa`)."""
    return [
        make_acl(
            scheme,
            credential,
            read="r" in letters,
            write="w" in letters,
            create="c" in letters,
            delete="d" in letters,
            admin="a" in letters,
        )
        for scheme, credential, letters in entries
    ]
