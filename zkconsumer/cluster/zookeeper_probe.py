"""Finds out what a server speaks at a port: TLS, or plain ZooKeeper. Opens no session.

A server that is addressed in the wrong protocol closes the connection without an answer, as one does that is being
stopped; so the other protocol is tried. Threads: any; each question blocks its caller, with a deadline.
"""

from __future__ import annotations

import socket
import ssl
import time

__all__ = ["speaks_tls", "zookeeper_answer"]

_MOST_BYTES = 4096
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG",
           "RECORD_LAYER_FAILURE", "BAD_RECORD_TYPE", "UNEXPECTED_MESSAGE")


def speaks_tls(server: tuple[str, int], timeout_s: float) -> bool:
    """Return True if the port answers a TLS handshake, with whatever certificate.

    Raises:
        OSError: Nobody accepts the connection, or there is no answer in time (`TimeoutError`).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(server, timeout_s) as plain:
        try:
            with context.wrap_socket(plain):
                return True
        except ssl.SSLError as error:  # an alert is TLS, too
            return error.reason not in _NO_TLS
        except TimeoutError:
            raise
        except OSError:
            return False


def tls_refusal(server: tuple[str, int], context: ssl.SSLContext, timeout_s: float) -> ssl.SSLError | bool:
    """Return the error with which a TLS connection is refused; without an error, whether there was a handshake.

    Nothing is sent behind the handshake: a server that refuses our certificate would reset the connection then, and the
    alert that says why would be lost.

    Raises:
        OSError: Nobody accepts the connection, or there is no answer in time (`TimeoutError`).
    """
    with socket.create_connection(server, timeout_s) as plain:
        stands = False
        try:
            with context.wrap_socket(plain, server_hostname=server[0]) as secured:
                stands = True
                secured.recv(1)
        except ssl.SSLEOFError:
            return stands
        except ssl.SSLError as error:
            return error
        except OSError as error:
            if isinstance(error, TimeoutError) and not stands:
                raise
            return stands
    return True


def zookeeper_answer(server: tuple[str, int], timeout_s: float) -> str | None:
    """Return what the port answers to `srvr`, None if that is no answer of ZooKeeper.

    Raises:
        OSError: Nobody accepts the connection.
    """
    ends_at = time.monotonic() + timeout_s
    answer = b""
    with socket.create_connection(server, timeout_s) as connection:
        try:
            connection.sendall(b"srvr")
            while len(answer) < _MOST_BYTES:
                connection.settimeout(max(0.001, ends_at - time.monotonic()))
                chunk = connection.recv(_MOST_BYTES)
                if not chunk:
                    break
                answer += chunk
        except OSError:
            pass  # what came before counts
    said = answer.decode("utf-8", "replace")
    # Newer servers also answer words that are not allowed, and while they have no quorum.
    return said if any(word in said for word in ("Zookeeper version", "ZooKeeper instance", "whitelist")) else None
