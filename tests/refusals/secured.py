"""ZooKeeper servers with TLS, SASL and access lists, and helpers that start members at them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.cluster.zookeeper_obstacles import speaks_tls
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.waiting import Deadline, wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

PATIENCE_S = 30.0
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
SASL_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
USER, SASL_PASSWORD = "bob", "sasl-secret-0815"


class SecureServer(ZooKeeperServer):
    """A server that speaks TLS at a port of its own, and plainly at the other.

    Attributes:
        secure: connect string of the TLS port.
    """

    def __init__(
        self, keystore: Path, truststore: Path, client_auth: str = "none", *, version: str = "zk-3.9",
        **settings: object,
    ) -> None:  # fmt: skip
        port = free_port()
        super().__init__(
            version=version,  # a pinned one: the netty of PySpark is another one each time
            settings={
                "serverCnxnFactory": NETTY, "secureClientPort": port, "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": keystore, "ssl.trustStore.location": truststore,
                "ssl.clientAuth": client_auth, **settings,
            },
        )  # fmt: skip
        self.secure = f"127.0.0.1:{port}"
        self._tls_port = port

    def start(self) -> Self:
        """Start it; returns when it has done a handshake, the first of which takes a new JVM seconds."""
        super().start()
        wait_until(self._has_handshaken, PATIENCE_S, "a TLS handshake")
        return self

    def _has_handshaken(self) -> bool:
        """Whether a handshake is done; the port without TLS may be open before this one is."""
        try:
            return speaks_tls(("127.0.0.1", self._tls_port), PATIENCE_S)
        except ConnectionRefusedError:
            return False


def sasl_server(folder: Path, version: str = "zk-3.9", **settings: object) -> ZooKeeperServer:
    """A server whose one user is `USER`."""
    jaas = folder / "jaas.conf"
    jaas.write_text(
        "Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        f'  user_{USER}="{SASL_PASSWORD}";\n}};\n'
    )
    return ZooKeeperServer(
        version=version,
        settings={"authProvider.1": SASL_PROVIDER, **settings},
        jvm_flags=[f"-Djava.security.auth.login.config={jaas}"],
    )


def sasl(password: str = SASL_PASSWORD, user: str = USER) -> dict[str, object]:
    """The settings of a member that authenticates."""
    return {"zookeeper_sasl_mechanism": "DIGEST-MD5", "zookeeper_sasl_username": user,
            "zookeeper_sasl_password": password}  # fmt: skip


def refused(
    hosts: str, error: type[Exception], match: str, *secrets: str, group: str = "group", **settings: object
) -> str:
    """The error of a member that cannot start: one sentence, in time, without a secret."""
    config = ConsumerConfig(hosts, group, **{"zookeeper_connection_timeout_ms": 3000, **settings})
    consumer = ConsumerConnector(config)
    deadline = Deadline(PATIENCE_S)
    with pytest.raises(error) as raised:
        consumer.create_message_streams({"topic": 1})
    said = str(raised.value)
    assert re.search(match, said), said
    assert "\n" not in said
    assert not deadline.expired
    assert consumer.status().state == "closed"
    for secret in secrets:
        assert secret not in said
        assert secret not in repr(raised.value)
    return said
