"""The parts of ZooKeeper's protocol that the kit speaks itself: handshake, closing a session, four-letter words."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from dataclasses import dataclass

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.waiting import Deadline

CLOSE_SESSION = -11
_CLOSE = struct.pack(">iii", 8, 1, CLOSE_SESSION)
MAX_REPLY_BYTES = 4 * 1024 * 1024
_MASK_48 = (1 << 48) - 1


@dataclass(frozen=True)
class Handshake:
    """The answer of a server to a connect request: session id, its password, the session time-out it grants (ms)."""

    session_id: int
    password: bytes
    session_timeout_ms: int


def session_password(session_id: int) -> bytes:
    """The 16 bytes that every ZooKeeper server accepts as the password of a session.

    The server makes no random secret: it derives the password from the id, as the first 16 bytes of
    `java.util.Random(id XOR 0xB3415C00)`. Source: ZooKeeper 3.4.6 and 3.9.5, ZooKeeperServer.java (generatePasswd).
    """
    state = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & _MASK_48
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & _MASK_48
        password += (state >> 16).to_bytes(4, "little")
    return password


def split_connect(connect: str) -> list[tuple[str, int]]:
    """The `(host, port)` pairs of a connect string like `a:2181,b:2181/chroot`."""
    hosts = connect.partition("/")[0]
    pairs = [entry.strip().rpartition(":") for entry in hosts.split(",") if entry.strip()]
    return [(host or port, int(port) if host else 2181) for host, _, port in pairs]


def handshake(
    host: str,
    port: int,
    *,
    timeout_s: float = 5.0,
    session_timeout_ms: int = 10_000,
    session_id: int = 0,
    password: bytes = bytes(16),
) -> Handshake:
    """The grant of the server to a new session (or to an old one, given its id and password), which is closed again at
    once.

    Raises:
        OSError: no connection, or it was closed without an answer, as a server does that is not ready or does not know
            the session; `TimeoutError` when `timeout_s` passed.
    """
    deadline = Deadline(timeout_s)
    connection, granted = _connect(host, port, session_id, password, session_timeout_ms, deadline, then=_CLOSE)
    with connection:
        try:
            _frame(connection, deadline)
        except ConnectionError:
            pass  # some versions close without a reply
        return granted


def end_session(connect: str, session_id: int, *, timeout_s: float = 10.0, tls: ssl.SSLContext | None = None) -> None:
    """Close any client's session by its id alone: the `ephemeralOwner` of any of its nodes.

    Its ephemeral nodes vanish within milliseconds; its client sees an expired session. Works on Java clients too. That
    client connects again at once, and may take the session back before it is closed: then it is done once more.

    Args:
        connect: the servers; a chroot in it does not matter.
        session_id: its id.
        timeout_s: longest wait.
        tls: for servers that speak TLS at these ports.

    Raises:
        KitError: no server of `connect` knows the session (it may have ended already), or none has closed it in time.
    """
    deadline = Deadline(timeout_s)
    taken_back = False
    while True:
        reasons, again = [], False
        for host, port in split_connect(connect):
            try:
                password = session_password(session_id)
                connection, _ = _connect(host, port, session_id, password, 10_000, deadline, then=_CLOSE, tls=tls)
                taken_back = True
                with connection:
                    _frame(connection, deadline)
                return
            except _UnknownSessionError as error:
                if taken_back:
                    return  # it was closed, and the reply was lost
                reasons.append(f"{host}:{port}: {error}")
            except OSError as error:
                again = again or isinstance(error, ConnectionResetError | BrokenPipeError)
                reasons.append(f"{host}:{port}: {error}")
        if not again or deadline.expired:
            raise KitError(f"session 0x{session_id & (1 << 64) - 1:x} could not be ended: " + "; ".join(reasons))
        time.sleep(0.01)


def move_session(host: str, port: int, session_id: int, *, timeout_s: float = 5.0) -> socket.socket:
    """A connection to another server under any client's session: for the leader the session is at that server now.

    Raises:
        OSError: no connection, or the server does not know the session.
    """
    return _connect(host, port, session_id, session_password(session_id), 10_000, Deadline(timeout_s))[0]


class _UnknownSessionError(ConnectionRefusedError):
    """The server has no such session, or not with this password."""


def _connect(
    host: str,
    port: int,
    session_id: int,
    password: bytes,
    session_timeout_ms: int,
    deadline: Deadline,
    *,
    then: bytes = b"",
    tls: ssl.SSLContext | None = None,
) -> tuple[socket.socket, Handshake]:
    """A connection under a session, a new one if its id is 0, and what the server has granted.

    Args:
        then: the first request, sent without waiting: it is served before the session's own client can come back.

    Raises:
        _UnknownSessionError: the server does not know the session.
        OSError: no connection, or it was closed without an answer.
    """
    connection = socket.create_connection((host, port), timeout=max(deadline.remaining_s, 0.001))
    try:
        if tls is not None:
            connection = tls.wrap_socket(connection)
        request = struct.pack(">iqiqi", 0, 0, session_timeout_ms, session_id, len(password)) + password + b"\0"
        connection.sendall(struct.pack(">i", len(request)) + request + then)
        reply = _frame(connection, deadline)
        _, granted_ms, granted_id, length = struct.unpack_from(">iiqi", reply)
        if granted_ms <= 0 or granted_id == 0:
            raise _UnknownSessionError(
                f"ZooKeeper at {host}:{port} does not know session 0x{session_id & (1 << 64) - 1:x}"
            )
        return connection, Handshake(granted_id, reply[20 : 20 + length], granted_ms)
    except BaseException:
        connection.close()
        raise


def four_letter(host: str, port: int, word: str, *, timeout_s: float = 5.0) -> str:
    """The server's answer to a four-letter word (`srvr`, `mntr`, `cons`, ...).

    Raises:
        OSError: no connection or no answer in time.
    """
    deadline = Deadline(timeout_s)
    answer = b""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode("ascii"))
        while len(answer) < MAX_REPLY_BYTES:
            connection.settimeout(max(deadline.remaining_s, 0.001))
            chunk = connection.recv(65536)
            if not chunk:
                break
            answer += chunk
    return answer.decode("utf-8", "replace")


def _frame(connection: socket.socket, deadline: Deadline) -> bytes:
    """The body of the next length-prefixed frame."""
    (length,) = struct.unpack(">i", deadline.receive(connection, 4))
    if not 0 <= length <= MAX_REPLY_BYTES:
        raise ConnectionError(f"frame of {length} bytes, at most {MAX_REPLY_BYTES} expected")
    return deadline.receive(connection, length)
