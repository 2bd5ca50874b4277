"""The sockets of an embedded broker: one thread for each connection, one request after the other.

Source: kafka.network.SocketServer (0.8.2.2), which too answers the requests of a connection one by one.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Final

from zkconsumer.testing.embedded.disk.messages import Bytes
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.errors import StartFailed

IDLE_TIMEOUT_S: Final = 600
SEND_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 10.0
ACCEPT_PAUSE_S: Final = 0.05
_INLINE_BYTES = 16 * 1024
_COPY_BYTES = 256 * 1024
_MORE = getattr(socket, "MSG_MORE", 0)
_SIZE = struct.Struct(">i")
_NO_SENDFILE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

Part = Bytes | LogSlice


class Connection:
    """One client's connection, blocking, with time-outs kept by the kernel so that `sendfile` works on it.

    Threads: one reads and writes; `interrupt` from any thread.
    """

    def __init__(self, sock: socket.socket, max_request_bytes: int) -> None:
        self._sock = sock
        self._max_request_bytes = max_request_bytes
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", IDLE_TIMEOUT_S, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))

    def read_frame(self) -> bytearray | None:
        """Return the next request without its size; None when the client left, or asked what is never read.

        Raises:
            OSError: the connection broke, or was silent for ten minutes.
        """
        head = self._read(4)
        if head is None:
            return None
        size = _SIZE.unpack(head)[0]
        return self._read(size) if 0 < size <= self._max_request_bytes else None

    def has_request(self) -> bool:
        """Return whether some of a next request has come."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False

    def _read(self, size: int) -> bytearray | None:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = self._sock.recv_into(view[at:])
            if count == 0:
                return None
            at += count
        return data

    def send(self, parts: Sequence[Part]) -> None:
        """Send an answer; large slices of logs go from the file to the socket within the kernel.

        Raises:
            OSError: the client is gone, or takes nothing for a minute; or a file was cut meanwhile.
        """
        pending = bytearray()
        for part in parts:
            if not isinstance(part, LogSlice):
                pending += part
            elif part.length <= _INLINE_BYTES:
                pending += _whole(part)
            else:
                self._sock.sendall(pending, _MORE)
                pending.clear()
                self._send_file(part)
        if pending:
            self._sock.sendall(pending)

    def _send_file(self, part: LogSlice) -> None:
        at, end = part.position, part.position + part.length
        while at < end:
            try:
                sent = os.sendfile(self._sock.fileno(), part.fd, at, end - at)
            except OSError as error:
                if error.errno not in _NO_SENDFILE:
                    raise
                sent = self._copy(part, at, end)
            if sent == 0:
                raise ConnectionAbortedError(f"the log ends {end - at} bytes before the slice that is sent")
            at += sent

    def _copy(self, part: LogSlice, at: int, end: int) -> int:
        """The same through our own memory, for file systems and sockets without `sendfile`."""
        data = os.pread(part.fd, min(end - at, _COPY_BYTES), at)
        self._sock.sendall(data)
        return len(data)

    def interrupt(self, *, abruptly: bool) -> None:
        """Wake the thread that reads, with the end of the stream; `abruptly`: the client will see a reset."""
        if abruptly:
            self._reset_at_close()
        try:
            self._sock.shutdown(socket.SHUT_RD if abruptly else socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended by itself

    def close(self, *, abruptly: bool = False) -> None:
        """Close the socket; `abruptly` with a reset."""
        if abruptly:
            self._reset_at_close()
        self._sock.close()

    def _reset_at_close(self) -> None:
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # the client was faster


def _whole(part: LogSlice) -> bytes:
    data = part.read()
    if len(data) != part.length:
        raise ConnectionAbortedError(f"the log ends {part.length - len(data)} bytes before the slice that is sent")
    return data


class BrokerServer:
    """Listens, and runs a function on a thread of its own for each connection."""

    def __init__(
        self, host: str, port: int, name: str, serve: Callable[[Connection], None], *,
        max_connections: int, max_request_bytes: int,
    ) -> None:  # fmt: skip
        """Listen.

        Args:
            port: 0 for a free one.
            serve: returns when the connection is done with; it is closed then.
            max_connections: more are closed as soon as they are accepted.

        Raises:
            StartFailed: the port is taken.
        """
        try:
            self._listener = socket.create_server((host, port), backlog=512)
        except OSError as error:
            raise StartFailed(f"{name} cannot listen on {host}:{port}: {error}") from error
        self.port: int = self._listener.getsockname()[1]
        self._name = name
        self._serve = serve
        self._max_connections = max_connections
        self._max_request_bytes = max_request_bytes
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, Connection] = {}
        self._closed = False
        self._breaking = False
        self._waker, self._woken = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, name=f"{name} accept", daemon=True)
        self._acceptor.start()

    @property
    def connections(self) -> int:
        """How many are open."""
        with self._lock:
            return len(self._threads)

    def _accept(self) -> None:
        woken, either = select.poll(), select.poll()  # `select.select` takes no descriptor above 1023
        for poll in (woken, either):
            poll.register(self._woken, select.POLLIN)
        either.register(self._listener, select.POLLIN)
        while True:
            if self._woken.fileno() in dict(either.poll()):
                return
            try:
                sock, _ = self._listener.accept()
            except OSError:
                # The client left before it was accepted, or no descriptor is free: then the listener stays ready.
                woken.poll(ACCEPT_PAUSE_S * 1000)
                continue
            self._start(sock)

    def _start(self, sock: socket.socket) -> None:
        try:
            connection = Connection(sock, self._max_request_bytes)
        except OSError:
            sock.close()
            return
        thread = threading.Thread(target=self._run, args=(connection,), name=f"{self._name} connection", daemon=True)
        with self._lock:
            accepted = not self._closed and len(self._threads) < self._max_connections
            if accepted:
                self._threads[thread] = connection
        if accepted:
            thread.start()
        else:
            sock.close()

    def _run(self, connection: Connection) -> None:
        try:
            self._serve(connection)
        finally:
            connection.close(abruptly=self._breaking)
            with self._lock:
                self._threads.pop(threading.current_thread(), None)

    def break_off(self) -> None:
        """From now on connections end with a reset, whatever ends them."""
        self._breaking = True

    def close(self, *, abruptly: bool = False) -> None:
        """Close the listener and all connections; `abruptly` as the death of a process does, with resets."""
        if abruptly:
            self.break_off()
        self._waker.send(b"\0")
        self._acceptor.join(STOP_TIMEOUT_S)
        self._listener.close()
        with self._lock:
            self._closed = True
            running = dict(self._threads)
        for connection in running.values():
            connection.interrupt(abruptly=abruptly)
        for thread in running:
            if thread is not threading.current_thread():
                thread.join(STOP_TIMEOUT_S)
        self._waker.close()
        self._woken.close()
