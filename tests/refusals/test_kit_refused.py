"""The test kit with a login that ZooKeeper refuses, or that an access list does not name: a sentence, and no thread."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl
from secured import PATIENCE_S, USER, SecureServer, sasl_server

from zkconsumer.testing import EmbeddedCluster, GroupWatch, KafkaCluster, KitError, MemberProcess, NoSession
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.waiting import Deadline, wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.testing.zookeeper.client import NodeRefused, connected_client
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

WRONG = ZooKeeperLogin(USER, "wrong-secret-1234")
WRONG_DIGEST = ZooKeeperLogin("owner", "wrong-secret-1234", scheme="digest")
PLACES = [("topic", 0)]
OWNER = ("digest", "owner:owner-secret")
CLOSED = [make_digest_acl("owner", "owner-secret", all=True)]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check that a client that was refused does not try on in the background."""
    before = set(threading.enumerate())
    yield
    wait_until(
        lambda: not [one for one in set(threading.enumerate()) - before if one.is_alive()],
        PATIENCE_S,
        "the end of all threads",
        state=threading.enumerate,
    )


def watch(hosts: str, login: ZooKeeperLogin | None) -> None:
    with GroupWatch(hosts, "group", PLACES, login=login):
        pass


def embedded_cluster(hosts: str, login: ZooKeeperLogin | None) -> None:
    with EmbeddedCluster(zookeeper=hosts, login=login):
        pass


def real_cluster(hosts: str, login: ZooKeeperLogin | None) -> None:
    with KafkaCluster("3.9.2", zookeeper=hosts, chroot="/real", login=login, timeout_s=5.0):
        pass


def member(hosts: str, login: ZooKeeperLogin | None) -> None:
    asked = MemberProcess(hosts, "group", topics={"topic": 1}, settings={} if login is None else login.settings())
    try:
        asked.session_id()
    finally:
        asked.close()


PARTS = [watch, embedded_cluster, pytest.param(real_cluster, marks=pytest.mark.real), member]
Part = Callable[[str, ZooKeeperLogin | None], None]


def refused(part: Part, hosts: str, login: ZooKeeperLogin | None, match: str) -> None:
    """Check the error of a part of the kit: one sentence, soon, without the password."""
    deadline = Deadline(PATIENCE_S)
    with pytest.raises(KitError) as raised:
        part(hosts, login)
    said = str(raised.value)
    assert re.search(match, said), said
    assert "\n" not in said
    assert "wrong-secret" not in said + repr(raised.value)
    assert not deadline.expired


@pytest.mark.parametrize("part", PARTS)
def test_a_wrong_password(sasl_only: ZooKeeperServer, part: Part) -> None:
    refused(
        part,
        sasl_only.connect,
        WRONG,
        r"^ZooKeeper refused the SASL credentials; check zookeeper\.sasl\.username "
        r"and zookeeper\.sasl\.password, .* \(the kit came with ZooKeeperLogin\(username='bob', scheme='sasl'",
    )


def test_a_wrong_password_at_an_old_server(tmp_path: Path) -> None:
    with (
        sasl_server(tmp_path, "zk-3.4.14") as server,
        pytest.raises(
            NoSession,
            match=r"hung up when this client sends its credentials; check "
            r"zookeeper\.sasl\.username and ",
        ),
    ):
        connected_client(server.connect, WRONG, session_s=10, timeout_s=3)


@pytest.mark.parametrize("part", PARTS)
def test_no_login_where_one_is_demanded(sasl_only: ZooKeeperServer, part: Part) -> None:
    refused(
        part,
        sasl_only.connect,
        None,
        r"^ZooKeeper requires credentials for every session; set zookeeper\.auth or "
        r"zookeeper\.sasl\.\* .*\(the kit came with no login\)$",
    )


@pytest.mark.parametrize("login", [None, WRONG])
def test_nothing_listens(login: ZooKeeperLogin | None) -> None:
    with pytest.raises(NoSession, match=r"^no ZooKeeper server answered at 127.0.0.1:\d+ .*connection refused"):
        connected_client(f"127.0.0.1:{free_port()}", login, session_s=10, timeout_s=1)


def test_tls_that_does_not_fit(
    open_server: SecureServer, strict_server: SecureServer, certificates: Certificates
) -> None:
    for hosts, login, said in (
        (
            open_server.secure,
            ZooKeeperLogin(authority=certificates.untrusted),
            "a certificate that this client does not trust",
        ),
        (
            strict_server.secure,
            ZooKeeperLogin(authority=certificates.authority),
            "requires a certificate from its client",
        ),
        (open_server.connect, ZooKeeperLogin(authority=certificates.authority), "does not speak TLS at this port"),
        (open_server.secure, None, "speaks TLS at this port"),
    ):
        with pytest.raises(NoSession, match=said):
            connected_client(hosts, login, session_s=10, timeout_s=2)


def test_a_file_of_the_login_that_is_missing(certificates: Certificates) -> None:
    for login, said in (
        (ZooKeeperLogin(authority="/no/ca.pem"), r"zookeeper.ssl.cafile is '/no/ca.pem'; it must be a file that"),
        (ZooKeeperLogin(authority=certificates.authority, certificate="/no/a"), r"zookeeper.ssl.certfile is '/no/a'"),
    ):
        refused(watch, "127.0.0.1:1", login, f"^{said}")


@pytest.mark.parametrize("part", PARTS)
def test_sasl_without_its_library(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    refused(
        part,
        "127.0.0.1:1",
        WRONG,
        r"^the kit cannot authenticate by SASL: the package pure-sasl is not "
        r"installed; pip install 'zkconsumer\[sasl\]'$",
    )


# -- access lists ------------------------------------------------------------------------------------------------------


@pytest.fixture
def closed(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[tuple[str, KazooClient]]:
    """A chroot whose node nobody but its owner may use, and a client of the owner inside it."""
    root = f"/{fresh_group}"
    client = KazooClient(zookeeper.connect, auth_data=[OWNER])
    client.start(timeout=PATIENCE_S)
    client.create(root)
    client.chroot = root
    yield f"{zookeeper.connect}{root}", client
    client.stop()
    client.close()


def test_a_watched_node_that_is_closed(closed: tuple[str, KazooClient]) -> None:
    connect, owner = closed
    owner.create("/consumers/group/owners/topic/0", b"group_member-0", makepath=True, acl=CLOSED)
    refused(
        watch,
        connect,
        WRONG_DIGEST,
        r"^ZooKeeper does not let the kit read /consumers/group/owners/topic/0 \(NoAuth\): the access list of "
        r"/consumers/group/owners/topic/0 does not name its login; give the kit a login=ZooKeeperLogin",
    )


def test_a_node_that_is_closed_while_it_is_watched(closed: tuple[str, KazooClient]) -> None:
    connect, owner = closed
    path = "/consumers/group/offsets/topic/0"
    owner.create(path, b"1", makepath=True)
    watched = GroupWatch(connect, "group", PLACES)
    with pytest.raises(KitError, match=f"^the watch of group group misses events: .* read {path} "), watched:  # noqa: PT012
        owner.set_acls(path, CLOSED)
        owner.set(path, b"2")
    assert [event.offset for event in watched.events] == [1]


def test_an_error_of_the_test_is_not_hidden_by_that_of_the_watch(closed: tuple[str, KazooClient]) -> None:
    connect, owner = closed
    path = "/consumers/group/offsets/topic/0"
    owner.create(path, b"1", makepath=True)
    with pytest.raises(AssertionError, match="of the test"), GroupWatch(connect, "group", PLACES):  # noqa: PT012
        owner.set_acls(path, CLOSED)
        raise AssertionError("of the test")


def test_an_embedded_cluster_may_not_make_its_nodes(closed: tuple[str, KazooClient]) -> None:
    connect, owner = closed
    owner.set_acls("/", CLOSED)
    hosts, _, root = connect.partition("/")
    cluster = EmbeddedCluster(zookeeper=hosts, chroot=f"/{root}", login=WRONG_DIGEST)
    said = rf"read or create /{root} \(NoAuth\): the access list of /{root} does not name its login"
    with pytest.raises(NodeRefused, match=said), cluster:
        pass


@pytest.mark.real
def test_a_cluster_may_not_make_its_chroot(closed: tuple[str, KazooClient]) -> None:
    connect, owner = closed
    owner.set_acls("/", CLOSED)
    hosts, _, root = connect.partition("/")
    cluster = KafkaCluster("3.9.2", zookeeper=hosts, chroot=f"/{root}/x")
    said = rf"read or create /{root}/x \(NoAuth\): the access list of /{root} does not name its login"
    with pytest.raises(NodeRefused, match=said), cluster:
        pass


def test_each_request_of_the_kits_client_names_the_node(closed: tuple[str, KazooClient]) -> None:
    connect, owner = closed
    owner.create("/a", b"", acl=CLOSED)
    client = connected_client(connect, None, session_s=10, timeout_s=PATIENCE_S)
    try:
        for call, said in (
            (lambda: client.get("/a"), "read /a (NoAuth): the access list of /a does"),
            (lambda: client.get_children("/a"), "read /a (NoAuth)"),
            (lambda: client.set("/a", b""), "write /a (NoAuth): the access list of /a does"),
            (lambda: client.set_acls("/a", CLOSED), "change the access list of /a (NoAuth)"),
            (lambda: client.create("/a/b"), "create /a/b (NoAuth): the access list of /a does"),
            (lambda: client.create("/a/b/c", makepath=True), "create /a/b/c (NoAuth): the access list of /a does"),
            (lambda: client.ensure_path("/a/b/c"), "read or create /a/b/c (NoAuth): the access list of /a does"),
            (lambda: client.delete("/a", recursive=True), "read /a (NoAuth): the access list of /a does"),
        ):
            with pytest.raises(NoAuthError, match=re.escape(said)):
                call()
    finally:
        client.stop()
        client.close()
