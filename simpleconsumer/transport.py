"""The socket of a connection to a broker: sends packets, and receives exactly the bytes that are asked for.

It needs few system calls, as another thread may take the GIL at each of them: the socket stays blocking, the
system watches the deadline (SO_RCVTIMEO, SO_SNDTIMEO), and it waits for all bytes at once (MSG_WAITALL).

Threads: One at a time, and `wake` from any thread.
"""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final

_SILENT_S: Final = 600.0
"""How long an address that dropped packets is tried last."""
_MOST_SILENT: Final = 1000
_TIMEVAL = Struct("@ll")


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
            filled += some(count, filled, len(view))

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
        raise OSError(f"port {port} is not from 1 to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # zero bytes, or labels that are not legal in a name
        raise OSError(f"not a host name: {error}") from error
    return sorted(found, key=lambda row: SILENT.is_silent(row[-1]))


def some(count: int, filled: int, size: int) -> int:
    """Return the number of bytes that have come; 0 is the end of the connection, a ConnectionResetError."""
    if count == 0:
        raise ConnectionResetError(f"closed by the broker after {filled} of {size} bytes")
    return count


def _timeval(seconds: float) -> bytes:
    """Return a C timeval of at least a microsecond, as zero would mean no limit."""
    microseconds = max(int(seconds * 1_000_000), 1)
    return _TIMEVAL.pack(microseconds // 1_000_000, microseconds % 1_000_000)
