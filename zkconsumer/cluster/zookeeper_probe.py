"""What a server speaks at a port that let nobody in: TLS, or plain ZooKeeper. Asked once, without a session.

A server that is spoken to in the wrong way hangs up without a word, like one that is being stopped; so it is asked in
the other way. Threads: any; each question blocks its caller, with a deadline.
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
    """Whether the port answers to the beginning of a TLS connection; whose certificate it shows does not matter.

    Raises:
        OSError: nobody takes the connection.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(server, timeout_s) as plain:
        try:
            with context.wrap_socket(plain):
                return True
        except ssl.SSLError as error:  # an alert is spoken in TLS, too
            return error.reason not in _NO_TLS
        except OSError:
            return False


def tls_refusal(server: tuple[str, int], context: ssl.SSLContext, timeout_s: float) -> ssl.SSLError | bool:
    """What a TLS connection is refused with; else whether there was one.

    Nothing is sent behind the handshake: a server that refuses our certificate then would reset the connection, and
    with it the word that says why.

    Raises:
        OSError: nobody takes the connection, or there is no answer in it (`TimeoutError`).
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
    """What the port answers to `srvr`, `None` if that is nothing that ZooKeeper says.

    Raises:
        OSError: nobody takes the connection.
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
    # Newer servers answer so also to words that are not allowed, and while they have no quorum.
    return said if any(word in said for word in ("Zookeeper version", "ZooKeeper instance", "whitelist")) else None
