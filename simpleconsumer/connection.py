"""A connection to one broker: one request, one answer and one deadline at a time, or several requests ahead.

A call connects if there is no connection, sends the request and reads exactly one frame, all before one deadline. After
any fault, a time-out included, the socket is closed: a late answer is lost with its connection and can never be read
as the answer to a later request. Correlation ids are checked in addition.

A broker that throttles the client reads no request until that is over (`throttling`): a call waits for it first, and
fails at once, without a request, if that takes longer than the call may.

Requests may also be sent ahead of the answers to earlier ones, over a connection that stands (`send_ahead`). Such a
request never makes a connection: whoever sends it has learned something on this one that does not hold on another.

Each answer is read into a buffer of exactly its size. TLS and SASL come before the first request of a connection, and
SASL again before its session ends, within the deadline of the call that needs it.

Source: kafka.network.BlockingChannel, kafka.consumer.SimpleConsumer (0.8.2.2); KAFKA-738, 1147, 1228, 2241.

How many requests of this process are under way at each broker, over whatever connections.

Look-ups go to the broker that has the fewest of them. A process that was forked starts from zero.

Source: org.apache.kafka.clients.NetworkClient.leastLoadedNode (2.8).
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Final, TypeVar

from simpleconsumer.errors import AuthenticationFailed, ConnectionFailed, DecodeError, Throttled
from simpleconsumer.primitives import MAX_FRAME_BYTES, MAX_OPENING_FRAME_BYTES, SIZE_BYTES, Frame, frame_size, packets
from simpleconsumer.security.authentication import Exchange, Session, in_tries, sasl_demand
from simpleconsumer.security.sasl import SaslRefused
from simpleconsumer.security.secret import WrongSecuritySetting
from simpleconsumer.security.security import Security
from simpleconsumer.security.tls import Tls
from simpleconsumer.throttling import LONGEST_THROTTLE_S, Patience, throttled_beyond
from simpleconsumer.transport import Transport, connected, is_deadline

Address = tuple[str, int]
"""Host and port."""


class RequestsUnderWay:
    """Counts requests by the address of their broker.

    Threads: any.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start from zero."""
        self._lock = threading.Lock()  # another thread may have held that of the parent process
        self._counts: dict[Address, int] = {}

    def begin(self, address: Address) -> None:
        """Count a request."""
        with self._lock:
            self._counts[address] = self._counts.get(address, 0) + 1

    def end(self, address: Address) -> None:
        """Take a request back that was counted; nothing happens in a process that was forked in between."""
        with self._lock:
            left = self._counts.get(address, 0) - 1
            if left > 0:
                self._counts[address] = left
            else:
                self._counts.pop(address, None)

    def at(self, address: Address) -> int:
        """Return how many are under way at a broker."""
        return self._counts.get(address, 0)


UNDER_WAY: Final = RequestsUnderWay()
"""Those of this process."""
os.register_at_fork(after_in_child=UNDER_WAY.forget)


T = TypeVar("T")
_INT32 = Struct(">i")
_TLS_ALERT = b"\x15\x03"
_MOST_KEPT_BYTES = 16 * 1024 * 1024
"""Largest answer whose memory is used again for the next one."""
_LARGE_BYTES = 1024 * 1024


class Connection:
    """A connection to one broker, made at the first call and again after a fault.

    A forked child makes a new connection.

    Threads: One call at a time (a second one is a RuntimeError). `close()` from any thread ends a blocked call at
    once with ConnectionFailed; it is final.

    Attributes:
        opening: Called for each new connection before the first request, within the deadline of that call; None for
            nothing. An error of it ends the call and closes the connection.
        connects: How often it has tried to connect.
        ahead: How many requests were sent ahead whose answers have not been received.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = 30.0,
        receive_buffer_bytes: int = 0,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        *,
        reuse_answers: bool = False,
        send_buffer_bytes: int = 0,
        connect_timeout_s: float | None = None,
        security: Security | None = None,
        client_id: str = "",
    ) -> None:
        """
        Args:
            host: Name or address; an IPv6 address may be in brackets.
            timeout_s: Deadline of each call. It does not include the time in which the system resolves a name.
            receive_buffer_bytes: Socket receive buffer, `socket.receive.buffer.bytes`; 0 or less leaves it to the
                system, which lets it grow.
            max_frame_bytes: Largest answer that is taken, by default 256 MiB.
            reuse_answers: An answer is valid until the next call only, which uses its memory again. New memory for each
                megabyte costs as much as receiving it.
            send_buffer_bytes: Socket send buffer; 0 leaves it to the system.
            connect_timeout_s: Longest part of `timeout_s` for connecting; None: all of it.
            security: TLS and SASL; None for neither. Both are done within the deadline of the call that connects.
            client_id: Name under which the broker logs an authentication.
        """
        if timeout_s <= 0:
            raise ValueError(f"timeout_s is {timeout_s}, it must be positive")
        self.host = host.removeprefix("[").removesuffix("]")
        self.port = port
        self.timeout_s = timeout_s
        self._receive_buffer_bytes = max(receive_buffer_bytes, 0)
        self._send_buffer_bytes = send_buffer_bytes
        self._connect_timeout_s = connect_timeout_s
        self.opening: Callable[[Exchange], None] | None = None
        self._max_frame_bytes = max_frame_bytes
        self._kept: bytearray | None = bytearray() if reuse_answers else None
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._security = security or Security()
        self._client_id = client_id
        self._session: Session | None = None
        self._has_started = False
        self._busy = False
        self._closed = False
        self._close_called = threading.Event()
        self.connects = 0
        self.ahead = 0
        self._muted_until = 0.0
        self._pid = os.getpid()

    def call(
        self,
        request: Frame | Callable[[], Frame],
        *,
        correlation_id: int | None = None,
        has_answer: bool = True,
        resend: bool = False,
        meanwhile: Callable[[], None] | None = None,
        patience: Patience | None = None,
    ) -> memoryview:
        """Return the body of the answer to one request frame, after the correlation id; empty if no answer comes.

        Args:
            request: The frame, or what returns it when the connection is open; empty to open a connection alone. The
                pieces of a large one are sent one after the other, without a copy.
            correlation_id: The number that the answer must start with; None for Kafka 0.7, which has none.
            has_answer: False for requests that are never answered (produce with acks 0, produce of 0.7).
            resend: The request may be sent twice: if an idle connection turns out to be closed before the first byte of
                the answer, it is sent once more over a new connection, within the same deadline.
            meanwhile: Called once, when the request is sent and its answer is not read yet, or before what may take
                long: a new connection, or a new authentication. It must not raise.
            patience: Waits longer than the deadline for an answer that is held back; None: no longer.

        Raises:
            ConnectionFailed: Refused, lost, timed out, or closed by `close()`.
            Throttled: The broker reads no request before the deadline; the connection stays open.
            AuthenticationFailed: Broker or client refuse each other; another try would end in the same way.
            DecodeError: The frame size is negative or above the limit, or the correlation id is another one.
        """
        deadline = time.monotonic() + self.timeout_s
        self._enter()
        keep = False
        try:
            self._wait_for_end_of_throttle(deadline)
            answer = self._exchange(request, has_answer, resend, deadline, meanwhile, patience)
            body = self._body(answer, correlation_id) if has_answer else memoryview(b"")
            keep = True
            return body
        except Throttled:
            keep = True
            raise
        finally:
            self._leave(keep)

    def send_ahead(self, request: Callable[[], Frame]) -> None:
        """Send a request over the connection that stands, also while earlier ones wait for their answers.

        Args:
            request: Returns the frame; called if there is a connection.

        Raises:
            ConnectionFailed: There is no connection, or it was lost; answers to earlier requests are lost, too.
            Throttled: The broker reads no request before the deadline; nothing was sent, and the connection is open.
            AuthenticationFailed: The broker refuses the next authentication, which comes when no answer is awaited.
        """
        deadline = time.monotonic() + self.timeout_s
        self._enter(is_ahead=True)
        keep, is_sent = False, False
        try:
            self._wait_for_end_of_throttle(deadline)
            transport = self._transport
            if transport is None or (not self.ahead and not transport.is_idle()):
                raise self._failed("the connection was closed", False)
            if not self.ahead:
                self._authenticate_again(transport, deadline)
            frame = request()
            is_sent = True
            transport.send(packets(frame), deadline)
            self.ahead += 1
            UNDER_WAY.begin((self.host, self.port))
            keep = True
        except Throttled:
            keep = True
            raise
        except OSError as error:
            raise self._lost(error, is_sent) from error
        finally:
            self._leave(keep)

    def receive_next(self, correlation_id: int, patience: Patience | None = None) -> memoryview:
        """Return the body of the answer to the earliest request that was sent ahead, behind the correlation id.

        Args:
            correlation_id: What the answer must start with.
            patience: As for `call`.

        Raises:
            ConnectionFailed, DecodeError: As for `call`; the answers to all other requests are lost, too.
        """
        deadline = time.monotonic() + self.timeout_s
        self._enter(is_ahead=True)
        keep = False
        try:
            transport = self._transport
            if transport is None or not self.ahead:
                raise self._failed("the connection was closed", True)
            if patience is not None:
                deadline = patience.wait(transport.wait_readable, deadline, self._close_called)
            body = self._body(self._receive(transport, deadline, self._max_frame_bytes), correlation_id)
            self.ahead -= 1
            UNDER_WAY.end((self.host, self.port))
            keep = True
            return body
        except OSError as error:
            raise self._lost(error, True) from error
        finally:
            self._leave(keep)

    @property
    def must_pause(self) -> bool:
        """Whether the broker is to be authenticated to again, for which no answer may be awaited."""
        return not self._is_authenticated()

    def _lost(self, error: OSError, is_sent: bool) -> ConnectionFailed:
        if self._closed:
            return self._failed("closed by close()", is_sent)
        reason = f"no answer within {self.timeout_s:g} s" if is_deadline(error) else error.strerror or str(error)
        return self._failed(reason, is_sent)

    def mute(self, seconds: float) -> None:
        """Send nothing for some time, an hour at most, over this connection or a later one: the broker throttles."""
        self._muted_until = max(self._muted_until, time.monotonic() + min(seconds, LONGEST_THROTTLE_S))

    @property
    def muted_s(self) -> float:
        """For how many seconds nothing may be sent yet; 0 if something may."""
        return max(0.0, self._muted_until - time.monotonic()) if self._muted_until else 0.0

    def _wait_for_end_of_throttle(self, deadline: float) -> None:
        left_s = self.muted_s
        if not left_s:
            return
        if time.monotonic() + left_s > deadline:
            raise throttled_beyond(self.host, self.port, left_s)
        if self._close_called.wait(left_s):
            raise self._failed("closed by close()", False)

    def reset(self) -> None:
        """Close the socket after an answer that cannot be decoded; the next call connects again."""
        self._leave_to_parent()
        with self._lock:
            if not self._busy:
                self._drop()

    def close(self) -> None:
        """Close for good. A call that is blocked in another thread ends at once with ConnectionFailed."""
        self._leave_to_parent()
        with self._lock:
            self._closed = True
            self._close_called.set()
            if self._transport is None:
                return
            if self._busy:
                # Only wake the other thread, which closes the socket. A close here could free a descriptor in use.
                self._transport.wake()
            else:
                self._drop()

    def _leave_to_parent(self) -> None:
        """In a forked child: leave the parent's socket, whose answers would go to the process that reads first."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._lock = threading.Lock()  # if another thread of the parent held it, it is never released here
        self._close_called = threading.Event()
        self._busy = False
        if self._transport is not None:
            self._transport.close()  # without a shutdown, which would end the connection for the parent, too
            self._transport = None
        self.ahead = 0  # the process counts from zero

    def _enter(self, *, is_ahead: bool = False) -> None:
        self._leave_to_parent()
        with self._lock:
            if self._closed:
                raise self._failed("closed", False)
            if self._busy:
                raise RuntimeError(
                    f"{self.host}:{self.port}: a second call was made while one was under way; a "
                    "connection is for one call at a time"
                )
            if self.ahead and not is_ahead:
                raise RuntimeError(
                    f"{self.host}:{self.port}: a call was made while {self.ahead} requests that were sent ahead wait "
                    "for their answers"
                )
            self._busy = True
        UNDER_WAY.begin((self.host, self.port))

    def _leave(self, keep: bool) -> None:
        UNDER_WAY.end((self.host, self.port))
        with self._lock:
            self._busy = False
            if not keep or self._closed:
                self._drop()

    def _exchange(
        self,
        request: Frame | Callable[[], Frame],
        has_answer: bool,
        resend: bool,
        deadline: float,
        meanwhile: Callable[[], None] | None,
        patience: Patience | None,
    ) -> memoryview:
        """Return the whole answer; if an idle connection was closed, try a second time if the request allows it."""
        reused, until = self._reusable(), deadline
        if meanwhile is not None and not (reused and self._is_authenticated()):
            meanwhile()
            meanwhile = None
        while True:
            is_sent = False
            try:
                transport = self._transport if reused and self._transport else self._open(deadline)
                if reused:
                    self._authenticate_again(transport, deadline)
                frame = request() if callable(request) else request
                is_sent, self._has_started = bool(frame), False
                transport.send(packets(frame), deadline)
                if not has_answer:
                    return memoryview(b"")
                if meanwhile is not None:
                    meanwhile()
                    meanwhile = None
                if patience is not None:
                    deadline = patience.wait(transport.wait_readable, deadline, self._close_called)
                return self._receive(transport, deadline, self._max_frame_bytes)
            except OSError as error:
                if self._closed:
                    raise self._failed("closed by close()", is_sent) from error
                if is_deadline(error):
                    raise self._failed(f"no answer within {self.timeout_s + deadline - until:g} s", is_sent) from error
                if not reused or (is_sent and (not resend or self._has_started)):
                    why = "" if reused or not is_sent or self._has_started else self._why_closed(error, deadline)
                    raise self._failed((error.strerror or str(error)) + why, is_sent) from error
                reused = False

    def _reusable(self) -> bool:
        """Return True for a connection without unread bytes that was not closed; any other one is not used again."""
        return self._transport is not None and self._transport.is_idle()

    def _why_closed(self, error: OSError, deadline: float) -> str:
        """Say more about a new connection that the broker has closed upon its first request.

        Raises:
            AuthenticationFailed: The port demands SASL.
        """
        if self._security.sasl is not None or not isinstance(error, ConnectionError):
            return ""
        if self.opening is None:  # only brokers that list their versions can be asked, and others would log an error
            return "; brokers do this on requests that they do not know, and on ports with SASL (security.protocol)"
        try:
            exchange = functools.partial(self._exchange_in_opening, self._start(deadline), deadline)
            demand = sasl_demand(exchange, self._client_id, self._security.protocol)
        except (OSError, DecodeError):
            return ""
        if demand is None:
            return ""
        raise AuthenticationFailed(self.host, self.port, demand) from error

    def _open(self, deadline: float) -> Transport:
        """Return a new connection that is ready for requests."""
        attempt = functools.partial(self._open_once, deadline)
        return self._authenticated(lambda: in_tries(attempt, deadline, self._close_called.wait))

    def _open_once(self, deadline: float) -> Transport:
        transport = self._start(deadline)
        exchange = functools.partial(self._exchange_in_opening, transport, deadline)
        self._session = None
        if self._security.sasl is not None:
            session = Session(self._security.sasl, self._client_id)
            session.start(exchange)
            self._session = session
        if self.opening is not None:
            self.opening(exchange)
        return transport

    def _start(self, deadline: float) -> Transport:
        """Return a new connection, with TLS if that is wanted."""
        transport = self._connect(deadline)
        return transport if self._security.tls is None else self._start_tls(transport, self._security.tls, deadline)

    def _start_tls(self, plain: Transport, tls: Tls, deadline: float) -> Transport:
        from simpleconsumer.security.tls_context import (
            TlsTransport,
            tls_context,  # they load the ssl module, which is large
        )

        try:
            context = tls_context(tls)
        except WrongSecuritySetting as error:
            raise AuthenticationFailed(self.host, self.port, str(error)) from None
        with self._lock:  # close() must find the socket that is in use
            secured = TlsTransport(plain.socket, context, self.host, self.port)
            self._transport = secured
            if self._closed:
                raise OSError("closed")
        secured.handshake(deadline)
        return secured

    def _authenticated(self, step: Callable[[], T]) -> T:
        """Return the result of a step in which broker or client may refuse each other."""
        try:
            return step()
        except SaslRefused as error:
            if self._closed:  # then nobody has refused anything
                raise OSError("closed") from error
            raise AuthenticationFailed(self.host, self.port, str(error)) from error

    def _is_authenticated(self) -> bool:
        """Return whether the broker would not soon close the connection for want of another authentication."""
        return self._session is None or not self._session.is_due()

    def _authenticate_again(self, transport: Transport, deadline: float) -> None:
        """Authenticate once more if that is due."""
        if self._session is not None and not self._is_authenticated():
            exchange = functools.partial(self._exchange_in_opening, transport, deadline)
            self._authenticated(functools.partial(self._session.renew, exchange))

    def _exchange_in_opening(
        self, transport: Transport, deadline: float, frame: bytes, correlation_id: int | None
    ) -> memoryview:
        transport.send([frame], deadline)
        most_bytes = min(self._max_frame_bytes, MAX_OPENING_FRAME_BYTES)
        return self._body(self._receive(transport, deadline, most_bytes), correlation_id)

    def _connect(self, deadline: float) -> Transport:
        """Return a new socket, connected to the first address that answers."""
        if self._connect_timeout_s is not None:
            deadline = min(deadline, time.monotonic() + self._connect_timeout_s)
        buffers = self._receive_buffer_bytes, self._send_buffer_bytes
        try:
            return connected(self.host, self.port, deadline, buffers, self._adopt, self._close_called)
        except OSError as failure:
            if self._connect_timeout_s is not None and is_deadline(failure):
                raise OSError(f"no connection within {min(self._connect_timeout_s, self.timeout_s):g} s") from failure
            raise

    def _adopt(self, transport: Transport) -> None:
        """Make this the socket that close() shuts down, and close the one before."""
        with self._lock:
            self._drop()
            if self._closed:
                transport.close()
                raise OSError("closed")
            self._transport = transport
            self.connects += 1

    def _receive(self, transport: Transport, deadline: float, max_frame_bytes: int) -> memoryview:
        """Return the body of the next frame."""
        header = self._view(SIZE_BYTES)
        transport.receive(header, deadline)
        self._has_started = True
        if bytes(header[:2]) == _TLS_ALERT and self._security.tls is None:
            reason = "it answers with an alert of TLS; set security.protocol to SSL or SASL_SSL, or use another port"
            raise AuthenticationFailed(self.host, self.port, reason)
        try:
            size = frame_size(header, max_frame_bytes)
        except DecodeError as error:
            raise type(error)(f"{self.host}:{self.port}: {error}") from None
        body = self._view(size)
        transport.receive(body, deadline)
        return body

    def _view(self, size: int) -> memoryview:
        return memoryview(self._memory(size))[:size]

    def _memory(self, size: int) -> bytearray | mmap:
        """Return at least `size` bytes of memory: that of the last answer if it may be used again and is enough.

        Four bytes are enough to ask for much of it. So that for large answers is taken as their bytes come.
        """
        if self._kept is None or size > _MOST_KEPT_BYTES:
            return bytearray(size) if size < _LARGE_BYTES else mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)
        if len(self._kept) < size:
            self._kept = bytearray(size)
        return self._kept

    def _body(self, answer: memoryview, correlation_id: int | None) -> memoryview:
        if correlation_id is None:
            return answer
        if len(answer) < _INT32.size:
            raise DecodeError(f"{self.host}:{self.port}: answer of {len(answer)} bytes, too short for a correlation id")
        found = _INT32.unpack_from(answer)[0]
        if found != correlation_id:
            raise DecodeError(f"{self.host}:{self.port}: answer to request {found}, expected {correlation_id}")
        return answer[_INT32.size :]

    def _drop(self) -> None:
        """Close the socket; the lock is held."""
        if self._transport is not None:
            self._transport.wake()
            self._transport.close()
            self._transport = None
        for _ in range(self.ahead):
            UNDER_WAY.end((self.host, self.port))
        self.ahead = 0

    def _failed(self, reason: str, is_sent: bool) -> ConnectionFailed:
        return ConnectionFailed(self.host, self.port, reason, is_sent)
