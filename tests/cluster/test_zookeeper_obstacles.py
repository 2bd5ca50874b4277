"""What is found in the way to ZooKeeper, of attempts that cannot be had from a real server, and of ports of others."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from rebalance.zookeeper.port.requests import FailedAttempt
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.cluster.zookeeper_obstacles import ObstacleSearch, explain
from zkconsumer.config.zookeeper_tls import ZooKeeperTls
from zkconsumer.errors import ConfigError, Obstacle, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.waiting import Deadline, wait_until
from zkconsumer.testing.zookeeper import ZooKeeperEnsemble

SERVER = ("zk1", 2281)
WITHOUT = ZooKeeperTls("/ca.pem", None, None, None)
WITH = ZooKeeperTls("/ca.pem", "/me.pem", "/me.key", "hidden")


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def not_verified(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.verify_code, error.verify_message = code, message
    return error


# -- what an attempt tells ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "tls", "said"),
    [
        (not_verified(9, "certificate is not yet valid"), WITH, "is not valid yet .*; check the clocks of both "
                                                                "machines"),
        (not_verified(10, "certificate has expired"), WITH, "has expired .*; renew the certificate"),
        (not_verified(18, "self-signed certificate"), WITHOUT, "not trust .*'/ca.pem' does not have"),
        (not_verified(62, "Hostname mismatch."), WITH, "of another host .*Hostname mismatch.*; use the host name"),
        (tls_error("SSLV3_ALERT_BAD_CERTIFICATE"), WITHOUT, "requires a certificate from its clients .*ssl.certfile"),
        (tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), WITHOUT, "requires a certificate from its clients"),
        (tls_error("TLSV1_ALERT_UNKNOWN_CA"), WITH, "does not accept the certificate in '/me.pem' .*trust store"),
        (tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), WITHOUT, "refuses the TLS handshake .*if it requires a"),
        (tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), WITH, "no TLS version .*; check its TLS versions and ciphers"),
        (tls_error("UNSUPPORTED_PROTOCOL"), WITH, "no TLS version .*unsupported protocol"),
        (tls_error("WRONG_VERSION_NUMBER"), WITH, "does not speak TLS at this port; set zookeeper.use.ssl=false"),
        (ConfigError("zookeeper.ssl.cafile", "/ca.pem", "a file that can be read"), WITH, "not contacted: .*cafile"),
        (ConnectionRefusedError(111, "Connection refused"), WITH, "^zk1:2281: connection refused; $"),
    ],
)  # fmt: skip
def test_an_attempt_that_explains_itself(error: Exception, tls: ZooKeeperTls, said: str) -> None:
    obstacle = explain(FailedAttempt(SERVER, "connect", error), tls)
    assert obstacle is not None
    assert obstacle.server == "zk1:2281"
    assert re.search(said, f"{obstacle}; {obstacle.remedy}")
    assert "hidden" not in str(obstacle)


@pytest.mark.parametrize(
    "error", [ssl.SSLEOFError(8, "EOF"), ConnectionResetError(104, "reset"), TimeoutError("timed out"), EOFError()]
)
def test_an_attempt_that_explains_nothing(error: Exception) -> None:
    assert explain(FailedAttempt(SERVER, "connect", error), WITH) is None
    assert explain(FailedAttempt(SERVER, "session", error), None) is None


def test_an_attempt_with_an_obstacle_is_kept_before_one_without() -> None:
    attempts = [FailedAttempt(SERVER, "connect", error) for error in (
        ConnectionRefusedError(111, "Connection refused"), tls_error("SSLV3_ALERT_BAD_CERTIFICATE"),
        ConnectionResetError(104, "reset"), ConnectionRefusedError(111, "Connection refused"),
    )]  # fmt: skip
    [found] = ObstacleSearch([SERVER], attempts, WITHOUT, 0.1).found()
    assert "requires a certificate" in found.cause


def test_a_name_in_capital_letters_is_the_same_server() -> None:
    attempts = [FailedAttempt(("zk1", 2281), "connect", tls_error("WRONG_VERSION_NUMBER"))]
    [found] = ObstacleSearch([("ZK1", 2281)], attempts, WITHOUT, 0.1).found()
    assert "does not speak TLS" in found.cause


# -- what a port tells -------------------------------------------------------------------------------------------------


@contextmanager
def listener(says: bytes | None) -> Iterator[int]:
    """A port of somebody else: silent, or it says a word to whatever comes, and hangs up."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        held: list[socket.socket] = []

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    connection, _ = server.accept()
                    held.append(connection)
                    if says is not None:
                        connection.settimeout(1.0)
                        connection.recv(4096)
                        connection.sendall(says)
                        connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            thread.join(10.0)
            for connection in held:
                connection.close()


def sentence(hosts: str, timeout_s: float = 2.0, **options: object) -> str:
    deadline = Deadline(20.0)
    with pytest.raises(ZooKeeperUnavailable) as raised, zookeeper_connection(hosts, timeout_s, **options):
        pass
    assert not deadline.expired
    assert "\n" not in str(raised.value)
    return str(raised.value)


def tls() -> dict[str, object]:
    return {"tls": ZooKeeperTls(None, None, None, None, verify_certs=False)}


def test_a_port_that_is_silent() -> None:
    with listener(None) as port:
        hosts = f"127.0.0.1:{port}"
        plain = f"no ZooKeeper server answered at {hosts} within 2 s; is it running there? ({hosts} "
        assert sentence(hosts) == f"{plain}accepts connections, but does not answer in time)"
        assert sentence(hosts, **tls()) == f"{plain}accepts connections, but does not answer the TLS handshake in time)"


@pytest.mark.parametrize("word", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_a_port_of_another_server(word: bytes) -> None:
    with listener(word) as port:
        hosts = f"127.0.0.1:{port}"
        assert f"({hosts} accepts connections, but does not speak as ZooKeeper)" in sentence(hosts)
        said = sentence(hosts, **tls())
        assert f"{hosts} does not speak TLS at this port" in said or f"{hosts} accepts connections, but " in said


def test_unknown_host_names_and_closed_ports() -> None:
    gone = f"127.0.0.1:{free_port()}"
    said = sentence(f"no-such-host.invalid:2181,{gone}")
    assert "no-such-host.invalid is not a known host name" in said
    assert f"{gone}: connection refused" in said


def test_a_server_without_a_quorum() -> None:
    ensemble = ZooKeeperEnsemble(3)
    try:
        alone = ensemble.members[0]
        alone.launch()
        wait_until(lambda: alone.running and _takes_connections(alone.port), 60.0, "its port")
        assert f"({alone.connect} serves no requests now, perhaps because" in sentence(alone.connect, 5.0)
        assert f"{alone.connect} does not speak TLS at this port" in sentence(alone.connect, 5.0, **tls())
    finally:
        ensemble.close()


def _takes_connections(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


# -- the sentence ------------------------------------------------------------------------------------------------------


def test_equal_remedies_are_named_once() -> None:
    both = [Obstacle(f"zk{number}:2181", " speaks TLS at this port", "set zookeeper.use.ssl=true") for number in (1, 2)]
    error = ZooKeeperUnavailable("zk1:2181,zk2:2181", 6.0, [*both, Obstacle("zk3:2181", ": connection refused")])
    assert str(error) == (
        "no session with ZooKeeper within 6 s: zk1:2181 speaks TLS at this port; zk2:2181 speaks TLS at this port; "
        "zk3:2181: connection refused; set zookeeper.use.ssl=true"
    )


def test_a_refusal_is_a_kind_of_unavailable() -> None:
    error = ZooKeeperRefused("zk:1", "ZooKeeper refused the SASL credentials; check them")
    assert isinstance(error, ZooKeeperUnavailable)
    assert str(error) == "ZooKeeper refused the SASL credentials; check them (zk:1)"
