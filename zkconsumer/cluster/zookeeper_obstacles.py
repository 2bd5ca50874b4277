"""Finds out why no ZooKeeper server opened a session: a cause and a remedy for each server.

The errors of the attempts to connect explain most cases. A server that only closed the connection is asked once more,
with TLS if the attempt was plain, and without TLS otherwise.

Finds out what a server speaks at a port: TLS, or plain ZooKeeper. Opens no session.

A server that is addressed in the wrong protocol closes the connection without an answer, as one does that is being
stopped; so the other protocol is tried. Threads: any; each question blocks its caller, with a deadline.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Sequence

from rebalance.zookeeper.port.requests import FailedAttempt
from zkconsumer.config.zookeeper_tls import ZooKeeperTls
from zkconsumer.errors import ConfigError, Obstacle

_MOST_BYTES = 4096
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "UNEXPECTED_EOF_WHILE_READING",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
    "BAD_RECORD_TYPE",
    "UNEXPECTED_MESSAGE",
)


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

    Nothing is sent after the handshake: a server that refuses our certificate would reset the connection then, and the
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
            pass  # the bytes so far count
    said = answer.decode("utf-8", "replace")
    # Newer servers also answer words that are not allowed, and while they have no quorum.
    return said if any(word in said for word in ("Zookeeper version", "ZooKeeper instance", "whitelist")) else None


Server = tuple[str, int]
_EXPIRED, _NOT_YET_VALID, _OTHER_HOST = (10,), (9,), (62, 64)
"""X509_V_ERR_* of OpenSSL."""
_ABOUT_OUR_CERTIFICATE = (
    "BAD_CERTIFICATE", "CERTIFICATE_REQUIRED", "UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
)  # fmt: skip
_TRIES = 3
"""A server that refuses us and closes may reset the connection; then its alert is lost, and it is asked again."""
_GIVE_CERTIFICATE = "set zookeeper.ssl.certfile and zookeeper.ssl.keyfile"
_CHECK_SASL = (
    "check zookeeper.sasl.username and zookeeper.sasl.password, and the login configuration (jaas) of the server"
)
_SILENT_TLS = " accepts connections, but does not answer the TLS handshake in time"
_PLAIN_PORT = "set zookeeper.use.ssl=false, or give the server's secureClientPort in zookeeper.connect"
_TLS_PORT = "set zookeeper.use.ssl=true, or give the server's clientPort in zookeeper.connect"


def explain(attempt: FailedAttempt, tls: ZooKeeperTls | None) -> Obstacle | None:
    """Return the obstacle that an attempt met, None when the server only closed the connection or was silent."""
    server, error = _text(attempt.server), attempt.error
    if isinstance(error, ConfigError):
        return Obstacle(server, *_of_a_file(error))
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_its_certificate(server, error, tls)
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return _of_tls(server, str(error.reason or error), tls)
    if attempt.stage == "credentials":
        return _of_credentials(server, error)
    if attempt.stage == "connect" and isinstance(error, OSError) and not _is_hang_up(error):
        return Obstacle(server, f": {(error.strerror or str(error)).lower()}")
    return None


def _of_a_file(error: ConfigError) -> tuple[str, str]:
    return f" was not contacted: {error}", "put the file back"


def _is_hang_up(error: OSError) -> bool:
    """Return True if a server accepted the connection, or may have."""
    return isinstance(error, (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError, TimeoutError))


def _of_its_certificate(server: str, error: ssl.SSLCertVerificationError, tls: ZooKeeperTls | None) -> Obstacle:
    said = error.verify_message.rstrip(".")
    if error.verify_code in _EXPIRED:
        return Obstacle(
            server, f" shows a certificate that has expired ({said})", "renew the certificate of the server"
        )
    if error.verify_code in _NOT_YET_VALID:
        return Obstacle(
            server, f" shows a certificate that is not valid yet ({said})", "check the clocks of both machines"
        )
    if error.verify_code in _OTHER_HOST:
        return Obstacle(
            server,
            f" shows a certificate of another host ({said})",
            "use the host name of the certificate in zookeeper.connect",
        )
    given = "" if tls is None or tls.cafile is None else f", which {tls.cafile!r} does not have"
    return Obstacle(
        server,
        f" shows a certificate that this client does not trust ({said})",
        f"set zookeeper.ssl.cafile to the certificate of the authority that signed it{given}",
    )


def _of_tls(server: str, reason: str, tls: ZooKeeperTls | None) -> Obstacle:
    said = reason.replace("_", " ").lower()
    if reason == "WRONG_VERSION_NUMBER":
        return Obstacle(server, " does not speak TLS at this port", _PLAIN_PORT)
    certfile = None if tls is None else tls.certfile
    if any(reason.endswith(f"ALERT_{word}") for word in _ABOUT_OUR_CERTIFICATE):
        if certfile is None:
            return Obstacle(server, f" requires a certificate from its clients ({said})", _GIVE_CERTIFICATE)
        return Obstacle(
            server,
            f" does not accept the certificate in {certfile!r} ({said})",
            "set zookeeper.ssl.certfile to a certificate that the server's trust store knows",
        )
    if reason.endswith("HANDSHAKE_FAILURE") and certfile is None:
        return Obstacle(
            server,
            f" refuses the TLS handshake ({said})",
            f"{_GIVE_CERTIFICATE} if it requires a certificate, or check its TLS versions and ciphers",
        )
    return Obstacle(
        server,
        f" and this client have no TLS version or cipher in common ({said})",
        "check its TLS versions and ciphers",
    )


def _of_credentials(server: str, error: BaseException) -> Obstacle:
    if type(error).__module__.startswith("puresasl"):
        return Obstacle(
            server,
            f" got no credentials: SASL failed in this client ({error})",
            "check zookeeper.sasl.mechanism and, for GSSAPI, the Kerberos ticket (klist)",
        )
    did = "does not answer" if isinstance(error, TimeoutError) else "hung up"
    return Obstacle(server, f" {did} when this client sends its credentials", _CHECK_SASL)


def _text(server: Server) -> str:
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _key(server: Server) -> Server:
    """The server as the ZooKeeper client names it, which writes names in small letters."""
    return server[0].lower(), server[1]


class ObstacleSearch:
    """Finds what is in the way, while a session is still waited for.

    Args:
        servers: Of the connection string.
        attempts: The attempts that failed so far.
        tls: The settings when TLS was spoken, None when not.
        timeout_s: For each question to a server.

    Threads: One of its own for each server that has to be asked, ended by the time-out; `found` may be called by any.
    """

    def __init__(
        self, servers: Sequence[Server], attempts: Iterable[FailedAttempt], tls: ZooKeeperTls | None, timeout_s: float
    ) -> None:
        self._servers = servers
        self._tls = tls
        self._timeout_s = timeout_s
        self._answers: dict[Server, Obstacle] = {}
        self._explained: dict[Server, Obstacle] = {}
        self._hung_up: set[Server] = set()
        self._threads: list[threading.Thread] = []
        self.note(attempts)

    def note(self, attempts: Iterable[FailedAttempt]) -> None:
        """Take note of attempts: the last one with an obstacle is kept, one with a remedy before others."""
        for attempt in attempts:
            obstacle = explain(attempt, self._tls)
            server = _key(attempt.server)
            known = self._explained.get(server)
            if obstacle is None:
                self._hung_up.add(server)
            elif known is None or obstacle.remedy or not known.remedy:
                self._explained[server] = obstacle

    def start(self) -> None:
        """Ask the servers whose attempts explain nothing."""
        for server in self._servers:
            known = self._explained.get(_key(server))
            # A name may have two addresses, of which one is closed.
            if known is None or (not known.remedy and _key(server) in self._hung_up):
                thread = threading.Thread(target=self._ask, args=(server,), name="zookeeper-obstacle", daemon=True)
                self._threads.append(thread)
                thread.start()

    def found(self) -> list[Obstacle]:
        """Return the obstacle at each server, as far as it is known by now."""
        known = {**self._explained, **self._answers}
        return [known.get(_key(server), Obstacle(_text(server), " does not answer")) for server in self._servers]

    def _ask(self, server: Server) -> None:
        try:
            tls = self._tls
            obstacle = self._asked_in_plain_text(server) if tls is None else self._asked_by_tls(server, tls)
        except socket.gaierror:
            obstacle = Obstacle(server[0], " is not a known host name")
        except TimeoutError:
            obstacle = Obstacle(_text(server), " does not answer")
        except OSError as error:
            obstacle = Obstacle(_text(server), f": {(error.strerror or str(error)).lower()}")
        self._answers[_key(server)] = obstacle

    def _asked_by_tls(self, server: Server, tls: ZooKeeperTls) -> Obstacle:
        """Return the obstacle at a port that closed the connection, or was silent, when TLS was tried."""
        text = _text(server)
        stands: ssl.SSLError | bool = False
        is_silent = False
        for _ in range(_TRIES):
            try:
                stands = tls_refusal(server, tls(), self._timeout_s)
            except ConfigError as error:
                return Obstacle(text, *_of_a_file(error))
            except TimeoutError:
                is_silent = True
                # The next question takes as long again, and the answer may be wanted before.
                self._answers[_key(server)] = Obstacle(text, _SILENT_TLS)
                break
            if stands is True:
                break
            if isinstance(stands, ssl.SSLError):
                obstacle = explain(FailedAttempt(server, "connect", stands), tls)
                if obstacle is not None:
                    return obstacle
        if not stands and zookeeper_answer(server, self._timeout_s) is not None:
            return Obstacle(text, " does not speak TLS at this port", _PLAIN_PORT)
        if is_silent:
            return Obstacle(text, _SILENT_TLS)
        if not stands:
            return Obstacle(text, " accepts connections, but does not speak TLS")
        return Obstacle(
            text,
            " opens no session after the TLS handshake",
            ""
            if tls.certfile
            else f"{_GIVE_CERTIFICATE} if it requires a certificate, or check that it serves requests",
        )

    def _asked_in_plain_text(self, server: Server) -> Obstacle:
        """Return the obstacle at a port that closed the connection, or was silent, when TLS was not tried."""
        text = _text(server)
        is_silent = False
        try:
            if speaks_tls(server, self._timeout_s):
                return Obstacle(text, " speaks TLS at this port", _TLS_PORT)
        except TimeoutError:
            is_silent = True
        answer = zookeeper_answer(server, self._timeout_s)
        if answer is None:
            does_not = "answer in time" if is_silent else "speak as ZooKeeper"
            return Obstacle(text, f" accepts connections, but does not {does_not}")
        if "not currently serving" in answer:
            return Obstacle(text, " serves no requests now, perhaps because it has no quorum")
        return Obstacle(text, " is ZooKeeper, but opens no session")
