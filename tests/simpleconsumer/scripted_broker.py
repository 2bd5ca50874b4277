"""A TCP server on loopback that follows a test's scripts, one script for each connection, in order."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

DEADLINE_S = 20.0


class Peer:
    """The broker's end of one connection."""

    def __init__(self, connection: socket.socket, over: threading.Event) -> None:
        self._socket = connection
        self._over = over
        connection.settimeout(DEADLINE_S)

    def secured(self, context: ssl.SSLContext) -> Peer:
        """Return the peer within TLS, after the handshake."""
        return Peer(context.wrap_socket(self._socket, server_side=True), self._over)

    def request(self) -> bytes:
        """Return the next whole request, without its size field."""
        return self.read(struct.unpack(">i", self.read(4))[0])

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise EOFError(f"the client closed after {len(data)} of {size} bytes")
            data += chunk
        return data

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self, body: bytes, request: bytes) -> None:
        """Answer a request with its own correlation id."""
        self.send(answer(correlation_id(request), body))

    def wait_until_closed(self) -> bytes:
        """Wait until the client closes; return what it sent meanwhile."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := self._socket.recv(65536):
                data += chunk
        return data

    def close_by_reset(self) -> None:
        """Close with RST instead of FIN, as the system does for a broker that was killed."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def wait_for_the_end(self) -> None:
        """Neither read nor write until the test is over."""
        assert self._over.wait(DEADLINE_S)

    def stall(self) -> None:
        """Do nothing until the test is over or the client closes."""
        poll = select.poll()  # `select.select` takes no descriptor above 1023
        poll.register(self._socket, select.POLLIN)
        while not self._over.is_set():
            if poll.poll(20) and not self._socket.recv(65536):
                return


Script = Callable[[Peer], None]


class ScriptedBroker:
    """`with ScriptedBroker(first, second) as broker`: the n-th connection is handled by the n-th script.

    When a script returns, its connection is closed, and counts as `served`. A script that fails, and a connection
    without a script, fail the test at the end of the block.
    """

    def __init__(self, *scripts: Script, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, 0), family=family)
        self._scripts = scripts
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.connections = 0
        self.served = 0
        self.host, self.port = host, self._server.getsockname()[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self.refuse()
        self._thread.join(DEADLINE_S)
        self._server.close()
        assert not self._thread.is_alive(), "a script did not end"
        if error is None and self._failures:
            raise self._failures[0]

    def refuse(self) -> None:
        """Take no connection any more."""
        with contextlib.suppress(OSError):  # it does not
            self._server.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                self.connections += 1
                try:
                    assert self.connections <= len(self._scripts), "a connection without a script"
                    self._scripts[self.connections - 1](Peer(connection, self._over))
                except (Exception, AssertionError) as failure:  # noqa: BLE001 - shown by __exit__
                    self._failures.append(failure)
            self.served += 1


def answer(correlation_id: int, body: bytes) -> bytes:
    """Return a whole response frame."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def correlation_id(request: bytes) -> int:
    """Return the correlation id of a request without its size field."""
    return int(struct.unpack_from(">i", request, 4)[0])
