"""Nodes that the kit closes: no other session reads them, and nothing is left of them afterwards."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from zkconsumer.testing import ClosedNodes, TcpProxy, ZooKeeperServer


@pytest.fixture
def client(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[KazooClient]:
    made = KazooClient(zookeeper.connect)
    made.start()
    made.ensure_path(f"/{fresh_group}")
    yield made
    made.stop()
    made.close()


def test_what_is_closed_can_be_read_by_nobody_until_it_is_opened(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str
) -> None:
    there, made, mine = (f"/{fresh_group}/{name}" for name in ("there", "made", "mine"))
    client.create(there, b"1")
    client.create(mine, b"2", ephemeral=True)
    with ClosedNodes(zookeeper.connect) as closed:
        closed.create(made, b"3")
        closed.close(there)
        closed.write(there, b"4")
        closed.replace(mine, b"5")
        for path in (there, made, mine):
            with pytest.raises(NoAuthError):
                client.get(path)
        closed.open(made)
        assert client.get(made)[0] == b"3"
        closed.delete(mine)
    assert client.get(there)[0] == b"4", "open again at the end of the block"
    assert client.get_children(f"/{fresh_group}") == ["there"]


def test_nothing_stays_closed_when_the_connection_breaks_at_the_end(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str
) -> None:
    """The session would end by its time-out, after the next test has met what it has left."""
    there, kept, mine = (f"/{fresh_group}/{name}" for name in ("there", "kept", "mine"))
    client.create(there, b"1")
    with TcpProxy(zookeeper.connect) as link:
        with ClosedNodes(link.address) as closed:
            closed.close(there)
            closed.create(kept, b"2", ephemeral=False)
            closed.create(mine, b"3")
            link.cut()
            back = threading.Timer(0.3, link.clear)
            back.start()
        back.join()
    assert client.get_children(f"/{fresh_group}") == ["there"]
    assert client.get(there)[0] == b"1"


def test_no_log_of_any_level_holds_the_secret(zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), ClosedNodes(zookeeper.connect):
        pass
    assert "Auth(***)" in caplog.text
    assert "closed:" not in caplog.text
