"""The socket of a connection to a broker with TLS.

It is loaded with the first such connection: the `ssl` module is large.

Threads: One at a time, and `wake` from any thread.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable

from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.transport import Transport, seconds_left, some

__all__ = ["TlsTransport"]

_CLOSED = "closed during the TLS handshake; does this port speak TLS? (security.protocol)"


class TlsTransport(Transport):
    """A socket with TLS; `handshake` comes first.

    Args:
        connection: Connected; it belongs to this object from now on.
        context: Says whom to trust.
        host: Name that the certificate must have, which is also sent to the broker (SNI).
        port: For errors.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, host: str, port: int) -> None:
        secured = context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
        super().__init__(secured)
        self._secured = secured
        self._place = host, port
        self._has_heard = False

    def handshake(self, deadline: float) -> None:
        """Agree on keys with the broker, and check its certificate.

        Raises:
            AuthenticationFailed: The certificate is refused, by either side, or nothing can be agreed on.
            OSError: The connection is lost, perhaps since the port does not speak TLS.
        """
        self._secured.settimeout(seconds_left(deadline))
        try:
            self._secured.do_handshake()
        except ssl.SSLCertVerificationError as error:
            raise self._refused(f"its certificate is rejected: {error.verify_message}") from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            raise ConnectionResetError(_CLOSED) from error
        except ssl.SSLError as error:
            if error.reason == "WRONG_VERSION_NUMBER":
                raise self._refused("it does not speak TLS on this port (security.protocol)") from error
            raise self._refused(f"no TLS connection: {_reason(error)}") from error

    def send(self, packets: Iterable[bytes], deadline: float) -> None:
        """Send all of the packets, as a plain one."""
        for packet in packets:
            self._secured.settimeout(seconds_left(deadline))
            self._secured.sendall(packet)

    def receive(self, view: memoryview, deadline: float) -> None:
        """Fill a buffer, as a plain one.

        Raises:
            AuthenticationFailed: The broker refuses the client's certificate, which it says behind the handshake.
        """
        filled = 0
        while filled < len(view):
            self._secured.settimeout(seconds_left(deadline))
            try:
                count = self._secured.recv_into(view[filled:])
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                count = 0
            except ssl.SSLError as error:
                if self._has_heard:
                    raise
                raise self._refused(f"the broker ends the TLS connection: {_reason(error)}") from error
            filled += some(count, filled, len(view))
            self._has_heard = True

    def is_idle(self) -> bool:
        """As of a plain one; what TLS itself has to say in between is read."""
        self._secured.settimeout(0)
        try:
            self._secured.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            pass
        return False

    def _refused(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(*self._place, reason)


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason or error.strerror or error).replace("_", " ").lower()
