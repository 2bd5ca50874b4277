"""TLS to a real ZooKeeper 3.9: what works, and the error for each thing that does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import PASSWORD, Certificates
from secured import PATIENCE_S, SecureServer, refused
from tls_relay import tls_relay

from rebalance.zookeeper.port.kazoo_port import KazooPort
from rebalance.zookeeper.port.requests import Create, Exists, Reply, SessionChange
from simpleconsumer.consumer import SimpleConsumer
from zkconsumer import ConfigError, ConsumerConfig, ConsumerConnector, ZooKeeperUnavailable
from zkconsumer.cluster.zookeeper_connection import read_all, zookeeper_connection
from zkconsumer.config.zookeeper_tls import zookeeper_options
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


def tls(certificates: Certificates, **settings: object) -> dict[str, object]:
    return {"zookeeper_use_ssl": True, "zookeeper_ssl_cafile": str(certificates.authority), **settings}


def as_client(certificates: Certificates, **settings: object) -> dict[str, object]:
    return tls(
        certificates,
        zookeeper_ssl_certfile=str(certificates.client),
        zookeeper_ssl_keyfile=str(certificates.client_key),
        **settings,
    )


# -- what works --------------------------------------------------------------------------------------------------------


def test_a_member_consumes_over_tls_with_a_certificate_and_an_encrypted_key(
    strict_server: SecureServer, certificates: Certificates, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    settings = tls(
        certificates, zookeeper_ssl_certfile=str(certificates.client),
        zookeeper_ssl_keyfile=str(certificates.encrypted_key), zookeeper_ssl_keyfile_password=PASSWORD,
        zookeeper_ssl_check_hostname=True, auto_offset_reset="smallest", consumer_timeout_ms=int(PATIENCE_S * 1000),
    )  # fmt: skip
    topic = fresh_topic()
    with EmbeddedCluster(zookeeper=strict_server, chroot=f"/{topic}") as cluster:
        cluster.create_topic(topic, partitions=4)
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            for partition in range(4):
                broker.produce(topic, partition, [b"%d-%d" % (partition, number) for number in range(25)])
        config = ConsumerConfig(f"{strict_server.secure}/{topic}", fresh_group, **settings)
        with ConsumerConnector(config) as consumer:
            [stream] = consumer.create_message_streams({topic: 1})[topic]
            read = sorted(next(stream).value for _ in range(100))
            consumer.commit_offsets()
    assert read == sorted(b"%d-%d" % (partition, number) for partition in range(4) for number in range(25))


def test_certificate_and_key_may_stand_in_one_file(strict_server: SecureServer, certificates: Certificates) -> None:
    both = ConsumerConfig(
        strict_server.secure, "g", **tls(certificates, zookeeper_ssl_certfile=str(certificates.client_both))
    )
    with zookeeper_connection(strict_server.secure, PATIENCE_S, **zookeeper_options(both)) as port:
        assert read_all(port, [Exists("/")], PATIENCE_S) != [None]


def test_answers_that_come_in_one_record_are_all_read_at_once(
    zookeeper: ZooKeeperServer, certificates: Certificates
) -> None:
    """Replies behind the first wait in the buffer of TLS, while the socket has no more data."""
    config = ConsumerConfig("zk:1", "g", **tls(certificates))
    with tls_relay(("127.0.0.1", zookeeper.port), certificates.server) as address:
        changes: list[SessionChange] = []
        port = KazooPort(address, 60.0, **zookeeper_options(config))  # pings every 20 s
        try:
            port.start(changes.append)
            wait_until(lambda: changes, PATIENCE_S, "the session")
            replies: list[Reply] = []
            for _ in range(200):
                port.send(Exists("/"), replies.append)
            wait_until(lambda: len(replies) == 200, 10.0, "all answers", state=lambda: len(replies))
        finally:
            port.close(5.0)


def test_files_that_were_replaced_are_read_again_at_the_next_connection(
    strict_server: SecureServer, certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = tmp_path / "client.pem"
    mine.write_bytes(certificates.client_both.read_bytes())
    config = ConsumerConfig(strict_server.secure, "g", **tls(certificates, zookeeper_ssl_certfile=str(mine)))
    changes: list[SessionChange] = []
    with TcpProxy(strict_server.secure) as proxy:
        port = KazooPort(proxy.address, 20.0, **zookeeper_options(config))
        try:
            port.start(changes.append)
            wait_until(lambda: changes, PATIENCE_S, "the session")
            mine.rename(tmp_path / "aside")
            proxy.drop()
            wait_until(
                lambda: any("client.pem" in str(each.error) for each in port.failed_attempts()),
                PATIENCE_S,
                "an attempt without the file",
                state=port.failed_attempts,
            )
            wait_until(lambda: "cannot be connected to: zookeeper.ssl.certfile is" in caplog.text, PATIENCE_S, "a line")
            (tmp_path / "aside").rename(mine)
            wait_until(
                lambda: changes[-1].what == "connected" and len(changes) > 1,
                PATIENCE_S,
                "the way back",
                state=lambda: changes,
            )
            assert changes[-1].session_id == changes[0].session_id
        finally:
            port.close(5.0)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "setting", "said"),
    [
        ({"cafile": "no-such.pem"}, "zookeeper.ssl.cafile", r"no-such\.pem'; .*\(No such file or directory\)"),
        ({"cafile": "."}, "zookeeper.ssl.cafile", "Is a directory"),
        ({"cafile": "client.p12"}, "zookeeper.ssl.cafile", "PEM file with certificates, but it has none .*keystore"),
        ({"cafile": "client.key"}, "zookeeper.ssl.cafile", "it has none"),
        ({"certfile": "no-such.pem"}, "zookeeper.ssl.certfile", "No such file"),
        ({"certfile": "broken.pem"}, "zookeeper.ssl.certfile", "whose certificates can be read"),
        ({"certfile": "client.crt"}, "zookeeper.ssl.keyfile", r"not set; .* client\.crt' has no private key"),
        ({"certfile": "client.crt", "keyfile": "gone.key"}, "zookeeper.ssl.keyfile", "gone.key'; .*No such file"),
        ({"certfile": "client.crt", "keyfile": "client.crt"}, "zookeeper.ssl.keyfile", "it has none"),
        ({"certfile": "client.crt", "keyfile": "server.key"}, "zookeeper.ssl.keyfile", "it is another key"),
        ({"certfile": "client.crt", "keyfile": "broken.key"}, "zookeeper.ssl.keyfile", "can be used"),
        ({"certfile": "client.crt", "keyfile": "encrypted.key"}, "zookeeper.ssl.keyfile.password",
         r"not set; .* encrypted\.key' is encrypted"),
        ({"certfile": "client.crt", "keyfile": "encrypted.key", "keyfile_password": "wrong-secret"},
         "zookeeper.ssl.keyfile.password", r"is '\*\*\*'; .* encrypted\.key', and it does not open it"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_named_with_its_setting(
    certificates: Certificates, settings: dict[str, str], setting: str, said: str
) -> None:
    folder = certificates.authority.parent
    (folder / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (folder / "broken.key").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    given = {f"zookeeper_ssl_{name}": value if name == "keyfile_password" else str(folder / value)
             for name, value in settings.items()}  # fmt: skip
    sentence = refused(
        "127.0.0.1:1",
        ConfigError,
        said.replace(" client", ".*client").replace(" encrypted", ".*encrypted"),
        "wrong-secret",
        zookeeper_use_ssl=True,
        **given,
    )
    assert sentence.startswith(f"{setting} is ")


def test_a_file_that_may_not_be_read_is_named(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str, mode: str) -> object:
        raise PermissionError(13, "Permission denied", path)  # root may read everything, so no mode of a file does it

    monkeypatch.setattr("zkconsumer.config.zookeeper_tls.open", denied, raising=False)
    refused(
        "127.0.0.1:1",
        ConfigError,
        r"^zookeeper.ssl.cafile is '.*authority.pem'; .*\(Permission denied\)",
        **tls(certificates),
    )


# -- connections -------------------------------------------------------------------------------------------------------


def test_a_server_whose_authority_is_not_trusted(open_server: SecureServer, certificates: Certificates) -> None:
    said = refused(
        open_server.secure, ZooKeeperUnavailable,
        f"{open_server.secure} shows a certificate that this client does not trust .*; set zookeeper.ssl.cafile to the "
        "certificate of the authority that signed it, which '.*untrusted.pem' does not have",
        zookeeper_use_ssl=True, zookeeper_ssl_cafile=str(certificates.untrusted),
    )  # fmt: skip
    assert said.startswith("no session with ZooKeeper within 3 s: ")


def test_a_server_whose_authority_the_system_does_not_know(open_server: SecureServer) -> None:
    refused(
        open_server.secure,
        ZooKeeperUnavailable,
        "does not trust .*; set zookeeper.ssl.cafile to .* signed it$",
        zookeeper_use_ssl=True,
    )


def test_an_unknown_authority_does_not_matter_without_a_check(open_server: SecureServer) -> None:
    config = ConsumerConfig(open_server.secure, "g", zookeeper_use_ssl=True, zookeeper_ssl_verify_certs=False)
    with zookeeper_connection(open_server.secure, PATIENCE_S, **zookeeper_options(config)) as port:
        assert read_all(port, [Exists("/")], PATIENCE_S) != [None]


def test_tls_to_a_plain_port_of_netty(open_server: SecureServer, certificates: Certificates) -> None:
    refused(
        open_server.connect,
        ZooKeeperUnavailable,
        f"{open_server.connect} does not speak TLS at this port; set zookeeper.use.ssl=false, or give the server's "
        "secureClientPort",
        **tls(certificates),
    )


def test_tls_to_a_server_that_knows_none(zookeeper: ZooKeeperServer, certificates: Certificates) -> None:
    refused(
        zookeeper.connect,
        ZooKeeperUnavailable,
        f"{zookeeper.connect} does not speak TLS at this port; set zookeeper.use.ssl=false",
        **tls(certificates),
    )


def test_plain_to_a_tls_port(open_server: SecureServer) -> None:
    refused(
        open_server.secure,
        ZooKeeperUnavailable,
        f"{open_server.secure} speaks TLS at this port; set zookeeper.use.ssl=true, or give the server's clientPort",
    )


def test_plain_to_a_tls_port_that_demands_certificates(strict_server: SecureServer) -> None:
    refused(strict_server.secure, ZooKeeperUnavailable, "speaks TLS at this port; set zookeeper.use.ssl=true")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_no_certificate_where_one_is_demanded(certificates: Certificates, version: str) -> None:
    """With 1.3 the handshake ends well, and the refusal comes in place of the first answer."""
    protocol = {"ssl.protocol": version, "ssl.enabledProtocols": version}
    with SecureServer(certificates.server, certificates.authority, "need", **protocol) as server:
        refused(
            server.secure,
            ZooKeeperUnavailable,
            r"requires a certificate from its clients \(.*\); set zookeeper.ssl.certfile and zookeeper.ssl.keyfile",
            **tls(certificates),
        )


def test_a_certificate_that_the_server_does_not_trust(strict_server: SecureServer, certificates: Certificates) -> None:
    refused(
        strict_server.secure,
        ZooKeeperUnavailable,
        r"does not accept the certificate in '.*unknown.crt' \(.*\); set zookeeper.ssl.certfile to a certificate "
        r"that the server's trust store knows",
        **tls(
            certificates,
            zookeeper_ssl_certfile=str(certificates.unknown),
            zookeeper_ssl_keyfile=str(certificates.unknown_key),
        ),
    )


def test_a_certificate_that_has_expired(certificates: Certificates) -> None:
    with SecureServer(certificates.expired, certificates.authority) as server:
        refused(
            server.secure,
            ZooKeeperUnavailable,
            r"shows a certificate that has expired \(certificate has expired\); renew the certificate of the "
            r"server",
            **tls(certificates),
        )


def test_a_certificate_of_another_host_matters_if_it_is_checked(certificates: Certificates) -> None:
    with SecureServer(certificates.elsewhere, certificates.authority) as server:
        refused(
            server.secure,
            ZooKeeperUnavailable,
            r"shows a certificate of another host \(.*127\.0\.0\.1.*\); use the host name of the certificate in "
            r"zookeeper.connect",
            **tls(certificates, zookeeper_ssl_check_hostname=True),
        )
        config = ConsumerConfig(server.secure, "g", **tls(certificates))
        with zookeeper_connection(server.secure, PATIENCE_S, **zookeeper_options(config)):
            pass


def test_each_server_of_several_has_its_own_cause(open_server: SecureServer, certificates: Certificates) -> None:
    gone = "127.0.0.1:1"
    said = refused(
        f"{open_server.secure},{open_server.connect},{gone}",
        ZooKeeperUnavailable,
        "no session",
        zookeeper_use_ssl=True,
        zookeeper_ssl_cafile=str(certificates.untrusted),
    )
    assert f"{open_server.secure} shows a certificate that this client does not trust" in said
    assert f"{open_server.connect} does not speak TLS at this port" in said
    assert f"{gone}: connection refused" in said


def test_one_good_server_of_several_is_enough(open_server: SecureServer, certificates: Certificates) -> None:
    hosts = f"127.0.0.1:1,{open_server.connect},{open_server.secure}"
    config = ConsumerConfig(hosts, "g", **tls(certificates))
    with zookeeper_connection(hosts, PATIENCE_S, **zookeeper_options(config)) as port:
        assert read_all(port, [Exists("/")], PATIENCE_S) != [None]


# -- what is kept secret -----------------------------------------------------------------------------------------------


def test_no_log_of_any_level_holds_a_secret(
    open_server: SecureServer, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        config = ConsumerConfig(
            open_server.secure, "g", zookeeper_auth="digest:alice:digest-secret",
            **tls(certificates, zookeeper_ssl_certfile=str(certificates.client),
                  zookeeper_ssl_keyfile=str(certificates.encrypted_key), zookeeper_ssl_keyfile_password=PASSWORD),
        )  # fmt: skip
        with zookeeper_connection(open_server.secure, PATIENCE_S, **zookeeper_options(config)) as port:
            replies: list[Reply] = []
            port.send(Create("/seen-in-the-log"), replies.append)
            wait_until(lambda: replies, PATIENCE_S, "the answer")
    assert "/seen-in-the-log" in caplog.text, "the log of the ZooKeeper client is looked at"
    assert "Auth(***)" in caplog.text
    for secret in ("digest-secret", PASSWORD):
        assert secret not in caplog.text
