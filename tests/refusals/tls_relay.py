"""A TLS relay in front of a plain port, like stunnel: bytes that arrive together are sent as one TLS record."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RECORD_BYTES = 16 * 1024


@contextmanager
def tls_relay(plain: tuple[str, int], certificate: Path) -> Iterator[str]:
    """The address of a relay of one connection after the other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    taken, _ = listener.accept()
                    with context.wrap_socket(taken, server_side=True) as near, socket.create_connection(plain) as far:
                        _pump(near, far, ended)

        thread = threading.Thread(target=serve, name="tls-relay", daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(10.0)


def _pump(near: ssl.SSLSocket, far: socket.socket, ended: threading.Event) -> None:
    while not ended.is_set():
        ready = [near] if near.pending() else select.select([near, far], [], [], 0.1)[0]
        if near in ready:
            data = near.recv(RECORD_BYTES)
            if not data:
                return
            far.sendall(data)
        if far in ready:
            # Until there is a pause: a record that holds many answers.
            data = b""
            while len(data) < RECORD_BYTES and select.select([far], [], [], 0.02)[0]:
                more = far.recv(RECORD_BYTES - len(data))
                if not more:
                    return
                data += more
            near.sendall(data)
