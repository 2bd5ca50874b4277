"""A forked child has copies of all sockets: it must neither read the parent's answers nor end its connections."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from simpleconsumer.connection import Connection

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")


class Echo:
    """Answers each frame with itself, and counts connections."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the thread in accept()
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def status_of_child(work: Callable[[], bool]) -> int:
    """0 when `work` is true in a forked child."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("what", ["call", "close", "reset"])
def test_the_parents_connection_works_whatever_the_child_does(echo: Echo, what: str) -> None:
    connection = Connection("127.0.0.1", echo.port, 5.0)
    assert bytes(connection.call(frame(b"one"))) == b"one"

    def child() -> bool:
        if what == "call":
            return bytes(connection.call(frame(b"child"))) == b"child"
        getattr(connection, what)()
        return connection._transport is None

    assert status_of_child(child) == 0
    assert bytes(connection.call(frame(b"two"))) == b"two"
    assert echo.accepted == (2 if what == "call" else 1)
    connection.close()


def test_a_lock_that_was_held_at_the_fork_does_not_hang_the_child(echo: Echo) -> None:
    connection = Connection("127.0.0.1", echo.port, 5.0)
    connection.call(frame(b"one"))
    with connection._lock:
        assert status_of_child(lambda: bytes(connection.call(frame(b"child"))) == b"child") == 0
    connection.close()
