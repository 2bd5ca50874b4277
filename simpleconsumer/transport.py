"""The socket of a connection to a broker, plain or with TLS: sends packets, and receives exactly what is asked for.

A plain one needs few system calls, as another thread may take the GIL at each of them: the socket stays blocking, the
system watches the deadline (SO_RCVTIMEO, SO_SNDTIMEO), and it waits for all bytes at once (MSG_WAITALL).

Threads: One at a time, and `wake` from any thread.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final

from simpleconsumer.errors import AuthenticationFailed

__all__ = ["SILENT", "TlsTransport", "Transport", "addresses_of", "connected", "is_deadline", "seconds_left"]

_SILENT_S: Final = 600.0
"""How long an address that dropped packets is tried last."""
_MOST_SILENT: Final = 1000
_TIMEVAL = Struct("@ll")
_CLOSED = "closed during the TLS handshake; does this port speak TLS? (security.protocol)"


class Transport:
    """A plain socket that is connected, or is being connected.

    Attributes:
        socket: The socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, packets: Iterable[bytes], deadline: float) -> None:
        """Send all of the packets.

        Raises:
            OSError: The connection is lost; a TimeoutError without a number if the deadline is over.
        """
        for packet in packets:
            left = memoryview(packet)
            while left:
                self._limit(socket.SO_SNDTIMEO, deadline)
                try:
                    left = left[self.socket.send(left) :]
                except BlockingIOError:
                    continue  # SO_SNDTIMEO; seconds_left raises when the deadline is over

    def receive(self, view: memoryview, deadline: float) -> None:
        """Fill a buffer; errors are those of `send`."""
        filled = 0
        while filled < len(view):
            self._limit(socket.SO_RCVTIMEO, deadline)
            try:
                count = self.socket.recv_into(view[filled:], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                continue  # SO_RCVTIMEO; seconds_left raises when the deadline is over
            filled += _some(count, filled, len(view))

    def _limit(self, option: int, deadline: float) -> None:
        """Have the system end a wait at the deadline; TimeoutError if it is over."""
        self.socket.setsockopt(socket.SOL_SOCKET, option, _timeval(seconds_left(deadline)))

    def wait_readable(self, timeout_s: float) -> bool:
        """Wait for a first byte, or for the end of the connection, between two answers; return whether one has come."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(max(timeout_s, 0.0) * 1000))

    def is_idle(self) -> bool:
        """Return True for a connection without unread bytes that was not closed; any other one is not used again."""
        try:
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def wake(self) -> None:
        """Shut the socket down, which wakes the threads that are blocked in it."""
        try:
            # Not SSLSocket.shutdown: it would have the other thread go on without TLS.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        except OSError:
            pass  # not connected

    def close(self) -> None:
        """Close the socket, without a word to the broker."""
        self.socket.close()


class TlsTransport(Transport):
    """A socket with TLS; `handshake` comes first.

    Args:
        connection: Connected; it belongs to this object from now on.
        context: Says whom to trust.
        host: Name that the certificate must have, which is also sent to the broker (SNI).
        port: For errors.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, host: str, port: int) -> None:
        secured = context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
        super().__init__(secured)
        self._secured = secured
        self._place = host, port
        self._has_heard = False

    def handshake(self, deadline: float) -> None:
        """Agree on keys with the broker, and check its certificate.

        Raises:
            AuthenticationFailed: The certificate is refused, by either side, or nothing can be agreed on.
            OSError: The connection is lost, perhaps since the port does not speak TLS.
        """
        self._secured.settimeout(seconds_left(deadline))
        try:
            self._secured.do_handshake()
        except ssl.SSLCertVerificationError as error:
            raise self._refused(f"its certificate is refused: {error.verify_message}") from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            raise ConnectionResetError(_CLOSED) from error
        except ssl.SSLError as error:
            if error.reason == "WRONG_VERSION_NUMBER":
                raise self._refused("it does not speak TLS on this port (security.protocol)") from error
            raise self._refused(f"no TLS connection: {_reason(error)}") from error

    def send(self, packets: Iterable[bytes], deadline: float) -> None:
        """Send all of the packets, as a plain one."""
        for packet in packets:
            self._secured.settimeout(seconds_left(deadline))
            self._secured.sendall(packet)

    def receive(self, view: memoryview, deadline: float) -> None:
        """Fill a buffer, as a plain one.

        Raises:
            AuthenticationFailed: The broker refuses the client's certificate, which it says behind the handshake.
        """
        filled = 0
        while filled < len(view):
            self._secured.settimeout(seconds_left(deadline))
            try:
                count = self._secured.recv_into(view[filled:])
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                count = 0
            except ssl.SSLError as error:
                if self._has_heard:
                    raise
                raise self._refused(f"the broker ends the TLS connection: {_reason(error)}") from error
            filled += _some(count, filled, len(view))
            self._has_heard = True

    def is_idle(self) -> bool:
        """As of a plain one; what TLS itself has to say in between is read."""
        self._secured.settimeout(0)
        try:
            self._secured.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            pass
        return False

    def _refused(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(*self._place, reason)


def connected(
    host: str,
    port: int,
    deadline: float,
    buffer_bytes: tuple[int, int],
    adopt: Callable[[Transport], None],
    closed: threading.Event,
) -> Transport:
    """Return a new socket, connected to the first address of a host that answers.

    Each address gets an equal share of the time that is left: one that drops packets must not use up all of it. Later
    connections try that one last, so that it costs its time once.

    Args:
        buffer_bytes: Of receiving and of sending; 0 leaves it to the system.
        adopt: Called with each socket before it is connected.
        closed: Set when no further address is to be tried.
    """
    failure = OSError(f"no address for {host}")
    addresses = addresses_of(host, port)
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        transport = Transport(connection)
        adopt(transport)
        try:
            for option, size in zip((socket.SO_RCVBUF, socket.SO_SNDBUF), buffer_bytes, strict=True):
                if size:
                    connection.setsockopt(socket.SOL_SOCKET, option, size)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.settimeout(seconds_left(deadline) / (len(addresses) - index))
            connection.connect(address)
            # With a time-out set in Python, MSG_WAITALL would not wait for all bytes, and MSG_DONTWAIT would wait.
            connection.settimeout(None)
            SILENT.forget(address)
            return transport
        except OSError as error:
            failure = error
            if is_deadline(error) or error.errno == errno.ETIMEDOUT:
                SILENT.note(address)
            if closed.is_set():
                break
    raise failure


def seconds_left(deadline: float) -> float:
    """Return the seconds left, or raise TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def is_deadline(error: OSError) -> bool:
    """Return True if our own deadline is over; a time-out of the kernel (ETIMEDOUT) carries a number."""
    return isinstance(error, TimeoutError) and error.errno is None


class SilentAddresses:
    """The addresses of this process that have lately let a connection time out, as those do that drop packets.

    Threads: any; each step is one of a dict.
    """

    def __init__(self) -> None:
        self._until: dict[Any, float] = {}

    def note(self, address: Any) -> None:
        """Take note that an address did not answer in time."""
        if len(self._until) >= _MOST_SILENT:
            self._until.clear()
        self._until[address] = time.monotonic() + _SILENT_S

    def forget(self, address: Any) -> None:
        """Take note that an address has answered."""
        self._until.pop(address, None)

    def is_silent(self, address: Any) -> bool:
        """Return whether an address did not answer lately."""
        return self._until.get(address, 0.0) > time.monotonic()


SILENT: Final = SilentAddresses()
"""Those of this process."""


def addresses_of(host: str, port: int) -> list[tuple[int, int, int, str, Any]]:
    """Return the addresses of a host in the order of getaddrinfo, but those last that have lately not answered.

    A host that has none is an OSError.
    """
    if not 0 < port < 65536:
        raise OSError(f"there is no port {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # zero bytes, or labels that are not legal in a name
        raise OSError(f"not a host name: {error}") from error
    return sorted(found, key=lambda row: SILENT.is_silent(row[-1]))


def _some(count: int, filled: int, size: int) -> int:
    """The number of bytes that have come, of which 0 are the end of the connection."""
    if count == 0:
        raise ConnectionResetError(f"closed by the broker after {filled} of {size} bytes")
    return count


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason or error.strerror or error).replace("_", " ").lower()


def _timeval(seconds: float) -> bytes:
    """Return a C timeval of at least a microsecond, as zero would mean no limit."""
    microseconds = max(int(seconds * 1_000_000), 1)
    return _TIMEVAL.pack(microseconds // 1_000_000, microseconds % 1_000_000)
