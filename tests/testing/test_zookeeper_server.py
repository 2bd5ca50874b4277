"""ZooKeeperServer and ZooKeeperEnsemble against the real thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.server import ZooKeeperEnsemble, ZooKeeperServer, pyspark_jars
from zkconsumer.testing.zookeeper.wire import end_session, handshake, session_password, split_connect

pytestmark = pytest.mark.real


@contextmanager
def client_of(connect: str, timeout_s: float = 4.0) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=timeout_s)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_data_and_port_survive_kill_and_stop() -> None:
    with ZooKeeperServer() as server:
        connect = server.connect
        # A server that is just coming up may leave a handshake without an answer; kazoo waits for it as long as the
        # session may last, divided by the number of hosts.
        with client_of(",".join([connect] * 10), timeout_s=30.0) as client:
            client.create("/a", b"1")
            session = client.client_id
            server.kill()
            assert not server.running
            server.start()
            assert client.retry(client.get, "/a")[0] == b"1"
            assert client.client_id == session  # an outage is not an expiry
        server.restart()
        assert server.connect == connect
        with client_of(connect) as client:
            assert client.get("/a")[0] == b"1"
    assert not server.running
    assert not server.folder.exists()


def test_wipe_loses_everything() -> None:
    with ZooKeeperServer() as server:
        with client_of(server.connect) as client:
            client.create("/a", b"1")
        server.wipe()
        with client_of(server.connect) as client, pytest.raises(NoNodeError):
            client.get("/a")


def test_a_paused_server_answers_nobody_and_expires_sessions_when_it_wakes() -> None:
    with (
        ZooKeeperServer() as server,
        TcpProxy(server.connect) as proxy,
        client_of(proxy.address, 0.5) as client,
        client_of(server.connect, 30) as watcher,
    ):
        client.create("/a", b"", ephemeral=True)
        server.pause()
        proxy.cut()  # else the client may reconnect before the server looks at the time
        assert not server.accepts_sessions(timeout_s=0.7)  # longer than the session
        server.resume()
        wait_until(lambda: watcher.exists("/a") is None, 10, "the session to expire")


def test_sessions_expire_soon_after_their_time_out(zookeeper: ZooKeeperServer) -> None:
    granted = handshake("127.0.0.1", zookeeper.port, session_timeout_ms=10)
    assert granted.session_timeout_ms == 200  # the smallest the kit's server grants


def test_any_session_can_be_ended_by_its_id_alone(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    with client_of(zookeeper.connect) as victim, client_of(zookeeper.connect) as watcher:
        victim.create(f"/{fresh_group}", b"", ephemeral=True)
        owner = watcher.exists(f"/{fresh_group}").ephemeralOwner
        assert victim.client_id == (owner, session_password(owner))
        end_session(f"{zookeeper.connect}/any/chroot", owner)
        assert watcher.exists(f"/{fresh_group}") is None
        with pytest.raises(KitError, match="could not be ended"):
            zookeeper.end_session(owner)


def test_four_letter_words_are_answered(zookeeper: ZooKeeperServer) -> None:
    assert "Zookeeper version: 3.9" in zookeeper.four_letter("srvr")
    assert zookeeper.mode == "standalone"


def test_a_start_that_fails_shows_the_log(tmp_path: Path) -> None:
    server = ZooKeeperServer(settings={"tickTime": "never"})
    with pytest.raises(StartFailed, match=r"ended with code[\s\S]*never"), server:
        pass
    assert not server.folder.exists()


def test_a_server_that_answers_in_the_place_of_this_one_is_told_from_it(zookeeper: ZooKeeperServer) -> None:
    """Another process has chosen the same port, and was faster."""
    server = ZooKeeperServer()
    server.port = zookeeper.port
    with server:
        assert server.port != zookeeper.port
        assert server.mode == "standalone"


def test_a_server_that_never_ran_says_so() -> None:
    server = ZooKeeperServer()
    try:
        with pytest.raises(KitError, match="never started"):
            server.kill()
    finally:
        server.close()


def test_the_jars_inside_pyspark_are_found_without_importing_it() -> None:
    import sys

    before = "pyspark" in sys.modules
    found = pyspark_jars()
    assert ("pyspark" in sys.modules) == before
    if found is None:
        pytest.skip("pyspark is not installed")
    assert any(path.name.startswith("zookeeper-3.9") for path in found)


@pytest.mark.parametrize(
    ("connect", "pairs"),
    [
        ("a:1", [("a", 1)]),
        ("a:1,b:2/chroot/x", [("a", 1), ("b", 2)]),
        ("a, b:2", [("a", 2181), ("b", 2)]),
    ],
)
def test_connect_strings_are_split(connect: str, pairs: list[tuple[str, int]]) -> None:
    assert split_connect(connect) == pairs


def test_an_ensemble_goes_on_without_its_leader() -> None:
    with ZooKeeperEnsemble(3) as ensemble, client_of(ensemble.connect) as client:
        client.create("/a", b"1")
        client.create("/b", b"", ephemeral=True)
        leader = ensemble.leader()
        assert len(ensemble.followers()) == 2
        leader.kill()
        client.retry(client.set, "/a", b"2")
        assert client.retry(client.exists, "/b") is not None
        leader.start()
        wait_until(lambda: leader.mode == "follower", 20, "the old leader to follow", state=lambda: leader.mode)
        ensemble.end_session(client.exists("/b").ephemeralOwner)
        with client_of(ensemble.connect) as other:
            wait_until(lambda: other.exists("/b") is None, 10, "the ephemeral node to vanish")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["zk-3.3.6", "zk-3.4.14", "zk-3.9", "0.8.2.2"])
def test_other_versions_of_zookeeper_start_and_keep_their_data(version: str) -> None:
    with ZooKeeperServer(version=version) as server:
        with client_of(server.connect) as client:
            client.create("/a", b"1")
        server.kill()
        server.start()
        with client_of(server.connect) as client:
            assert client.get("/a")[0] == b"1"


def test_close_is_safe_to_repeat(fresh_topic: Callable[[], str]) -> None:
    server = ZooKeeperServer()
    server.close()
    server.close()
