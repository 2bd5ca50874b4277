"""The test kit at ZooKeeper servers that demand credentials: brokers, Java members and members of ours authenticate."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from certificates import Certificates
from kazoo.security import make_acl, make_digest_acl
from secured import PATIENCE_S, SASL_PASSWORD, USER, SecureServer, refused, sasl, sasl_server

from zkconsumer import ZooKeeperRefused
from zkconsumer.testing import (
    EmbeddedCluster,
    GroupWatch,
    JavaMember,
    KafkaCluster,
    LastingLoad,
    MemberProcess,
    NotSupported,
    StartFailed,
    SteadyLoad,
    load,
)
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

LOGIN = ZooKeeperLogin(USER, SASL_PASSWORD)
OF_DIGEST = ("kit", "digest-secret-4711")
DIGEST = ZooKeeperLogin(*OF_DIGEST, scheme="digest")


@pytest.mark.real
@pytest.mark.parametrize(
    ("zookeeper", "kafka", "settings"),
    [
        ("zk-3.4.14", "0.9.0.1", {}),
        ("zk-3.9", "1.1.1", {"sessionRequireClientSASLAuth": "true"}),
    ],
)
def test_a_mixed_group_behind_access_lists(
    tmp_path: Path, zookeeper: str, kafka: str, settings: dict[str, str]
) -> None:
    with (
        sasl_server(tmp_path, zookeeper, **settings) as server,
        KafkaCluster(kafka, zookeeper=server, chroot="/kafka", login=LOGIN,
                     settings={"zookeeper.set.acl": "true"}) as cluster,
    ):  # fmt: skip
        cluster.create_topic("topic", partitions=4)
        cluster.client.ensure_path("/consumers")
        cluster.client.set_acls("/consumers", [make_acl("sasl", USER, all=True)])
        with (
            JavaMember(cluster, "group", topics={"topic": 1}) as java,
            MemberProcess(cluster, "group", topics={"topic": 1}, settings={"zookeeper.acl": "creator"}) as ours,
        ):
            wait_until(
                lambda: len(java.owned()) == len(ours.owned()) == 2,
                PATIENCE_S,
                "two partitions each",
                state=lambda: (java.owned(), ours.owned(), java.log()),
            )
            assert _processes_with(SASL_PASSWORD) == []
            connect = cluster.zookeeper_connect
            refused(connect, ZooKeeperRefused, "set zookeeper.auth or zookeeper.sasl", group="another")
            with MemberProcess(connect, "group", topics={"topic": 1}, settings=_by_name(sasl())) as third:
                assert third.session_id()


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "zookeeper", "with_kills"),
    [
        ("3.9.2", "zk-3.9", False),
        pytest.param("3.9.2", "zk-3.9", True, marks=pytest.mark.slow),
        pytest.param("2.8.2", "zk-3.9", True, marks=pytest.mark.slow),
        pytest.param("3.9.2", "2.8.2", False, marks=pytest.mark.slow),
        pytest.param("2.8.2", "2.8.2", False, marks=pytest.mark.slow),
    ],
)
def test_brokers_speak_tls_with_zookeeper(
    certificates: Certificates, version: str, zookeeper: str, with_kills: bool
) -> None:
    """ZooKeeper 3.9 speaks TLS 1.3 alone by default, the 3.5.9 among the jars of Kafka 2.8.2 speaks TLS 1.2 alone."""
    login = ZooKeeperLogin(authority=certificates.authority, certificate=certificates.client_both)
    with (
        SecureServer(certificates.server, certificates.authority, "need", version=zookeeper) as server,
        KafkaCluster(version, zookeeper=server.secure, chroot="/kafka", login=login) as cluster,
    ):
        cluster.create_topic("topic", partitions=2)
        with MemberProcess(cluster, "group", topics={"topic": 1}) as member:
            cluster.produce("topic", [b"1", b"2"], partitions=2)
            member.wait_messages(2)
            if with_kills:
                cluster.kill(0)
                cluster.start(0)  # which ends the session that the killed broker has left
                cluster.produce("topic", [b"3"])
                member.wait_messages(3)
                cluster.kill(0, expire=True)
                wait_until(lambda: cluster.client.exists("/brokers/ids/0") is None, PATIENCE_S, "the end of its node")


@pytest.mark.real
def test_a_broker_without_the_certificate_that_is_demanded(
    strict_server: SecureServer, certificates: Certificates
) -> None:
    """The settings of a test come before those of the login."""
    login = ZooKeeperLogin(authority=certificates.authority, certificate=certificates.client_both)
    without: dict[str, object] = {
        "zookeeper.ssl.keystore.location": None,
        "zookeeper.ssl.keystore.type": None,
        "zookeeper.connection.timeout.ms": 3000,
    }
    cluster = KafkaCluster("3.9.2", zookeeper=strict_server.secure, chroot="/x", login=login, settings=without)
    with pytest.raises(StartFailed, match=r"(?s)^broker 0 .* ended with code 1.*Timed out waiting for connection"):
        cluster.start_all()
    cluster.close()


@pytest.fixture(params=["sasl", "digest", "TLS with a certificate"])
def behind_login(
    request: pytest.FixtureRequest, sasl_only: ZooKeeperServer, zookeeper: ZooKeeperServer,
    strict_server: SecureServer, certificates: Certificates,
) -> tuple[str, ZooKeeperLogin]:  # fmt: skip
    """A connect string, and the login that its ZooKeeper or the access lists behind it demand."""
    if request.param == "sasl":
        return sasl_only.connect, LOGIN
    if request.param == "digest":
        return zookeeper.connect, DIGEST
    return strict_server.secure, ZooKeeperLogin(
        DIGEST.username,
        DIGEST.password,
        scheme="digest",
        authority=certificates.authority,
        certificate=certificates.client_both,
    )


def test_an_embedded_cluster_its_watch_and_its_loads(
    behind_login: tuple[str, ZooKeeperLogin], fresh_group: str
) -> None:
    hosts, login = behind_login
    with EmbeddedCluster(2, zookeeper=hosts, chroot=f"/{fresh_group}", login=login) as cluster:
        cluster.create_topic("topic", assignment={0: [0], 1: [1]})
        user = make_acl("sasl", USER, all=True) if login is LOGIN else make_digest_acl(*OF_DIGEST, all=True)
        for path in ("/consumers", "/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/topic"):
            cluster.client.set_acls(path, [user])
        cluster.kill(1)
        cluster.start(1)
        places = [("topic", 0), ("topic", 1)]
        with (
            GroupWatch(cluster, fresh_group, places) as watch,
            MemberProcess(cluster, fresh_group, topics={"topic": 1}, settings={"zookeeper.acl": "creator"}) as member,
        ):
            acked = load(cluster, "topic", 20)
            with SteadyLoad(cluster, ["topic"], 2) as steady, LastingLoad(cluster, ["topic"], 2) as lasting:
                steady.grow(20)
                lasting.grow(20)
            steady.stop()
            total = len(acked) + len(steady.acked) + len(lasting.acked)
            member.wait_messages(total)
            assert member.owned() == places
            member.stop()
            wait_until(
                lambda: {each.kind for each in watch.events} == {"owner_gone", "offset_node"},
                PATIENCE_S,
                "the end of the member",
                state=lambda: watch.events,
            )


def test_what_java_programs_cannot_do(certificates: Certificates) -> None:
    over_tls = ZooKeeperLogin(authority=certificates.authority)
    with pytest.raises(NotSupported, match=r"^a broker of Kafka 0\.9\.0\.1 sends no digest to ZooKeeper: use"):
        KafkaCluster("0.9.0.1", login=DIGEST)
    with pytest.raises(NotSupported, match=r"^a broker of Kafka 1\.1\.1 speaks no TLS with ZooKeeper .*without TLS"):
        KafkaCluster("1.1.1", login=over_tls)
    with pytest.raises(NotSupported, match=r"^Java's high-level consumer of Kafka 0\.8\.2\.2 speaks no TLS with Zoo"):
        JavaMember(EmbeddedCluster(zookeeper="127.0.0.1:1", login=over_tls), "group", topics={"topic": 1})


def test_a_login_keeps_its_password_to_itself_and_says_what_it_lacks() -> None:
    assert DIGEST.password not in repr(DIGEST)
    assert ZooKeeperLogin.of_settings(DIGEST.settings()) == DIGEST
    assert ZooKeeperLogin.of_settings(LOGIN.settings()) == LOGIN
    for wrong, said in (
        ({}, "a login needs a username"), ({"certificate": "a.pem"}, "certificate needs authority"),
        ({"username": "bob", "scheme": "plain"}, "scheme is 'plain'; it must be 'sasl' or 'digest'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            ZooKeeperLogin(**wrong)


def _by_name(settings: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _processes_with(text: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in shown:
            found.append(shown)
    return found


def test_no_log_of_any_level_holds_the_password(
    behind_login: tuple[str, ZooKeeperLogin], fresh_group: str, caplog: pytest.LogCaptureFixture
) -> None:
    hosts, login = behind_login
    with (
        caplog.at_level(logging.DEBUG),
        EmbeddedCluster(zookeeper=hosts, chroot=f"/{fresh_group}", login=login) as cluster,
        GroupWatch(cluster, fresh_group, [("topic", 0)]),
    ):
        cluster.create_topic("topic")
        cluster.kill(0)
        cluster.start(0)
    assert "Sending request" in caplog.text, "the log of the ZooKeeper client is looked at"
    assert ("SASL(***)" if login is LOGIN else "Auth(***)") in caplog.text
    assert login.password not in caplog.text
