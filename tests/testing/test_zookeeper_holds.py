"""A ZooKeeper client is held back at the request that a test names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.proxy.zookeeper_trace import Hold
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


@pytest.fixture
def link(zookeeper: ZooKeeperServer) -> Iterator[TcpProxy]:
    with TcpProxy(zookeeper.connect, count_zookeeper=True) as proxy:
        yield proxy


@pytest.fixture
def held(link: TcpProxy) -> Iterator[KazooClient]:
    client = KazooClient(link.address, timeout=10.0)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def free(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect, timeout=10.0)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_request_waits_until_it_is_released(
    link: TcpProxy, held: KazooClient, free: KazooClient, fresh_group: str
) -> None:
    with Hold(link, "create", f"/{fresh_group}") as hold:
        held.create(f"/other-{fresh_group}")
        asked = held.create_async(f"/{fresh_group}")
        assert hold.wait().path == f"/{fresh_group}"
        assert free.exists(f"/{fresh_group}") is None
        assert not asked.ready()
        hold.release()
        assert asked.get(timeout=10) == f"/{fresh_group}"
    held.create(f"/{fresh_group}/later")


def test_the_second_request_of_a_kind_is_held_and_a_multi_counts_once(
    link: TcpProxy, held: KazooClient, free: KazooClient, fresh_group: str
) -> None:
    root = f"/{fresh_group}"
    held.create(root)
    with Hold(link, "create", root, number=2) as hold:
        transaction = held.transaction()
        transaction.create(f"{root}/a")
        transaction.create(f"{root}/b")
        transaction.commit()
        asked = held.create_async(f"{root}/c")
        hold.wait()
        assert sorted(free.get_children(root)) == ["a", "b"]
    asked.get(timeout=10)


def test_a_session_that_ends_while_a_request_is_held_takes_the_request_with_it(
    zookeeper: ZooKeeperServer, link: TcpProxy, held: KazooClient, free: KazooClient, fresh_group: str
) -> None:
    with Hold(link, "create", f"/{fresh_group}") as hold:
        asked = held.create_async(f"/{fresh_group}")
        hold.wait()
        zookeeper.end_session(held.client_id[0])
        wait_until(asked.ready, 10, "the answer of a session that is over")
    assert asked.exception is not None
    wait_until(lambda: held.connected, 15, "a new session")
    assert free.exists(f"/{fresh_group}") is None


def test_what_never_comes_is_not_held_and_release_takes_the_trap_away(
    link: TcpProxy, held: KazooClient, fresh_group: str
) -> None:
    hold = Hold(link, "delete")
    held.create(f"/{fresh_group}")
    hold.release()
    hold.release()
    held.delete(f"/{fresh_group}")
    assert hold.held is None


def test_a_proxy_that_reads_no_requests_cannot_hold_one(zookeeper: ZooKeeperServer) -> None:
    with TcpProxy(zookeeper.connect) as link, pytest.raises(KitError, match="count_zookeeper"):
        Hold(link, "create")
