"""SASL and digests at a real ZooKeeper 3.9: what works, and the error for each thing that does not."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from secured import PATIENCE_S, SASL_PASSWORD, USER, refused, sasl, sasl_server

from rebalance.zookeeper.port.kazoo_port import KazooPort, call
from rebalance.zookeeper.port.requests import Create, Exists, Reply, SessionChange
from zkconsumer import ConsumerConfig, ConsumerConnector, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.cluster.zookeeper_connection import read_all, zookeeper_connection
from zkconsumer.config.zookeeper_tls import zookeeper_options
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


def test_a_member_that_authenticates_makes_nodes_of_its_own(with_sasl: ZooKeeperServer, fresh_group: str) -> None:
    config = ConsumerConfig(with_sasl.connect, fresh_group, zookeeper_acl="creator", **sasl())
    with ConsumerConnector(config) as consumer:
        consumer.create_message_streams({"topic": 1})
        with zookeeper_connection(with_sasl.connect, PATIENCE_S, **zookeeper_options(config)) as port:
            refusal = call(port, Create(f"/consumers/{fresh_group}/mine"), PATIENCE_S)
            assert refusal.fault is None
    refused(with_sasl.connect, ZooKeeperRefused, f"/consumers/{fresh_group}/ids", group=fresh_group)


@pytest.mark.parametrize("wrong", [sasl(password="wrong-secret"), sasl(user="nobody")])
def test_sasl_that_is_refused(with_sasl: ZooKeeperServer, wrong: dict[str, object]) -> None:
    refused(
        with_sasl.connect,
        ZooKeeperRefused,
        "^ZooKeeper refused the SASL credentials; check zookeeper.sasl.username and zookeeper.sasl.password, and ",
        "wrong-secret",
        SASL_PASSWORD,
        **wrong,
    )


def test_sasl_that_is_refused_where_it_is_demanded(sasl_only: ZooKeeperServer) -> None:
    refused(
        sasl_only.connect,
        ZooKeeperRefused,
        "^ZooKeeper refused the SASL credentials; check",
        "wrong-secret",
        **sasl(password="wrong-secret"),
    )


def test_sasl_that_an_old_server_refuses_by_hanging_up(tmp_path: Path) -> None:
    with sasl_server(tmp_path, "zk-3.4.14") as server:
        refused(
            server.connect,
            ZooKeeperUnavailable,
            f"{server.connect} (hung up|does not answer) when this client sends its credentials; check "
            "zookeeper.sasl.user",
            "wrong-secret",
            **sasl(password="wrong-secret"),
        )


def test_sasl_to_a_server_without_it(zookeeper: ZooKeeperServer) -> None:
    refused(
        zookeeper.connect,
        ZooKeeperUnavailable,
        f"{zookeeper.connect} (hung up|does not answer) when this client sends its credentials; .* the "
        "login configuration",
        SASL_PASSWORD,
        **sasl(),
    )


def test_no_credentials_where_they_are_demanded(sasl_only: ZooKeeperServer) -> None:
    refused(
        sasl_only.connect,
        ZooKeeperRefused,
        r"^ZooKeeper requires credentials for every session; set zookeeper.auth or zookeeper.sasl.\*",
    )


def test_a_scheme_that_the_server_does_not_know(zookeeper: ZooKeeperServer) -> None:
    refused(
        zookeeper.connect,
        ZooKeeperRefused,
        "^ZooKeeper refused the credentials of scheme 'guess'; check zookeeper.auth",
        "hidden",
        zookeeper_auth="guess:hidden",
    )


def test_a_digest_that_is_not_taken() -> None:
    with ZooKeeperServer(version="zk-3.9", settings={"DigestAuthenticationProvider.enabled": "false"}) as server:
        refused(
            server.connect,
            ZooKeeperRefused,
            "refused the credentials of scheme 'digest'; check zookeeper.auth",
            "hidden",
            zookeeper_auth="digest:alice:hidden",
        )


def test_a_session_is_told_of_only_when_its_credentials_were_taken(with_sasl: ZooKeeperServer) -> None:
    config = ConsumerConfig(with_sasl.connect, "g", **sasl(password="wrong-secret"))
    changes: list[SessionChange] = []
    port = KazooPort(with_sasl.connect, 10.0, **zookeeper_options(config))
    try:
        port.start(changes.append)
        wait_until(lambda: changes, PATIENCE_S, "a change")
        assert [change.what for change in changes] == ["refused"]
    finally:
        port.close(5.0)


def test_a_connection_that_ends_while_credentials_are_shown_is_made_anew(with_sasl: ZooKeeperServer) -> None:
    """A server that is stopped in that moment refuses no client: the member must not fail for good."""
    config = ConsumerConfig(with_sasl.connect, "g", **sasl())
    changes: list[SessionChange] = []
    with TcpProxy(with_sasl.connect) as proxy:
        port = KazooPort(proxy.address, 20.0, **zookeeper_options(config))
        try:
            port.start(changes.append)
            wait_until(lambda: changes, PATIENCE_S, "the session")
            show = port._client._connection._authenticate_with_sasl

            def cut_once(host: str, timeout: float) -> None:
                port._client._connection._authenticate_with_sasl = show
                proxy.drop()
                show(host, timeout)

            port._client._connection._authenticate_with_sasl = cut_once
            proxy.drop()
            wait_until(lambda: len(changes) >= 3, PATIENCE_S, "the way back", state=lambda: changes)
            assert [change.what for change in changes] == ["connected", "suspended", "connected"]
            assert changes[2].session_id == changes[0].session_id
        finally:
            port.close(5.0)


def test_a_running_member_hears_when_its_credentials_are_not_taken_any_more(tmp_path: Path, fresh_group: str) -> None:
    with sasl_server(tmp_path) as server:
        settings = {"zookeeper_session_timeout_ms": 20_000, "consumer_timeout_ms": 200}
        with ConsumerConnector(ConsumerConfig(server.connect, fresh_group, **settings, **sasl())) as consumer:
            consumer.create_message_streams({"topic": 1})
            jaas = tmp_path / "jaas.conf"
            jaas.write_text(jaas.read_text().replace(SASL_PASSWORD, "another"))
            server.restart()
            wait_until(lambda: consumer.status().error, PATIENCE_S, "the end", state=consumer.status)
            assert "ZooKeeper refused the SASL credentials; check zookeeper.sasl" in str(consumer.status().error)


# -- libraries ---------------------------------------------------------------------------------------------------------


def _blocked(name: str, mechanism: str) -> str:
    """The error of a member in a process without one of the packages."""
    program = f"""
import sys
sys.modules[{name!r}] = None
from zkconsumer import ConsumerConfig, ConsumerConnector, ConfigError
named = {{"zookeeper_sasl_username": "u", "zookeeper_sasl_password": "hidden"}}
config = ConsumerConfig("127.0.0.1:1", "g", zookeeper_sasl_mechanism={mechanism!r}, **named)
try:
    ConsumerConnector(config).create_message_streams({{"t": 1}})
except ConfigError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "hidden" not in ran.stdout + ran.stderr
    return ran.stdout


def test_sasl_without_its_library() -> None:
    assert _blocked("puresasl", "DIGEST-MD5") == (
        "zookeeper.sasl.mechanism is 'DIGEST-MD5'; it must be left out while the package pure-sasl is not installed "
        "(pip install 'zkconsumer[sasl]')\n"
    )


def test_kerberos_without_its_library() -> None:
    assert "'GSSAPI'; it must be left out while the package kerberos is not installed" in _blocked("kerberos", "GSSAPI")


def test_a_mechanism_that_fails_on_our_side_is_said(
    with_sasl: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Kerberos is at hand: its library is taken to be there, and pure-sasl then finds that it is not."""
    monkeypatch.setattr("zkconsumer.config.zookeeper_tls._check_sasl_library", lambda mechanism: None)
    refused(
        with_sasl.connect,
        ZooKeeperUnavailable,
        r"got no credentials: SASL failed in this client \(kerberos module not installed.*\); check "
        "zookeeper.sasl.mechanism",
        zookeeper_sasl_mechanism="GSSAPI",
    )


def test_plain_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    ConsumerConfig(
        "zk:1", "g", zookeeper_sasl_mechanism="PLAIN", zookeeper_sasl_username="u", zookeeper_sasl_password="hidden"
    )
    assert "zookeeper.sasl.mechanism is PLAIN, which ZooKeeper's own servers do not support" in caplog.text
    assert "hidden" not in caplog.text


# -- what is kept secret -----------------------------------------------------------------------------------------------


def test_no_log_of_any_level_holds_a_secret(with_sasl: ZooKeeperServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for mechanism in ("DIGEST-MD5", "PLAIN"):
            config = ConsumerConfig(
                with_sasl.connect, "g", zookeeper_sasl_mechanism=mechanism, zookeeper_sasl_username=USER,
                zookeeper_sasl_password=SASL_PASSWORD, zookeeper_auth="digest:alice:digest-secret",
            )  # fmt: skip
            with zookeeper_connection(with_sasl.connect, PATIENCE_S, **zookeeper_options(config)) as port:
                replies: list[Reply] = []
                port.send(Exists("/seen-in-the-log"), replies.append)
                wait_until(lambda: replies, PATIENCE_S, "the answer")  # noqa: B023
                assert read_all(port, [Exists("/")], PATIENCE_S) != [None]
    assert "/seen-in-the-log" in caplog.text, "the log of the ZooKeeper client is looked at"
    assert "SASL(***)" in caplog.text
    for secret in ("digest-secret", SASL_PASSWORD):
        assert secret not in caplog.text
