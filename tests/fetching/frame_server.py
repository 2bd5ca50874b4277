"""A server of frames on a real socket, for brokers that answer as a test says."""

from __future__ import annotations

import socket
import struct
import threading
from abc import ABC, abstractmethod
from typing import Self


class FrameServer(ABC):
    """Accepts connections, and has each of their requests answered; closed at the end of a `with` block.

    Attributes:
        port: Where it listens.
    """

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._closed = threading.Event()
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @abstractmethod
    def _answer(self, connection: socket.socket, request: bytes) -> bool:
        """Answer a request, without its size field; return whether the connection goes on."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        # Closing alone does not wake a thread that is blocked in accept or recv.
        for one in [self._server, *self._connections]:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while self._answer(connection, _frame(connection)):
                    pass
            except (OSError, EOFError):
                pass


def _frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
