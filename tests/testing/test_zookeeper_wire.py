"""Ending a session whose client connects again at the same moment: the server then closes the kit's connection."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.zookeeper.wire import end_session

GRANTED = struct.pack(">iiiqi", 36, 0, 10_000, 7, 16) + bytes(16)
UNKNOWN = struct.pack(">iiiqi", 36, 0, 0, 0, 16) + bytes(16)
CLOSED = struct.pack(">iiqi", 16, 1, 5, 0)


@pytest.fixture
def server() -> Iterator[Callable[..., str]]:
    """Serves one connection after the other: each has its replies to what comes first, and is closed."""
    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)

    def serve(*connections: tuple[bytes, ...]) -> None:
        for replies in connections:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(20)
                connection.recv(4096)
                connection.sendall(b"".join(replies))

    def start(*connections: tuple[bytes, ...]) -> str:
        threads.append(threading.Thread(target=serve, args=connections))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(30)
    listener.close()


def test_a_session_that_its_client_takes_back_is_closed_all_the_same(server: Callable[..., str]) -> None:
    end_session(server((), (GRANTED,), (GRANTED, CLOSED)), 7)


def test_a_session_that_was_closed_without_a_reply_has_ended(server: Callable[..., str]) -> None:
    end_session(server((GRANTED,), (UNKNOWN,)), 7)


def test_a_session_that_nobody_knows_is_an_error(server: Callable[..., str]) -> None:
    with pytest.raises(KitError, match=r"session 0x7 could not be ended: .*does not know session 0x7"):
        end_session(server((UNKNOWN,)), 7)


def test_a_server_that_closes_each_connection_is_given_up_in_time(server: Callable[..., str]) -> None:
    with pytest.raises(KitError, match="could not be ended"):
        end_session(server((), (), ()), 7, timeout_s=0.5)
