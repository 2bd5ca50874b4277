"""The ZooKeeper port against real servers: every request and fault, the order of answers, and what sessions become."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.utils import selector_select
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError

from rebalance.lease import lease_clock
from rebalance.zookeeper.port.kazoo_client import access_list
from rebalance.zookeeper.port.kazoo_port import KazooPort, call
from rebalance.zookeeper.port.requests import (
    Check,
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Reply,
    Request,
    SessionChange,
    SetData,
    Stat,
    Sync,
    WatchEvent,
)
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from zkconsumer.testing.zookeeper.wire import move_session, split_connect


class Opened:
    """A started port, what it said about its session, and blocking requests."""

    def __init__(self, connect: str, session_s: float = 10.0, **options: Any) -> None:
        self.port = KazooPort(connect, session_s, **options)
        self.changes: list[SessionChange] = []
        self.port.start(self.changes.append)

    def connected(self) -> Opened:
        wait_until(
            lambda: self.changes and self.changes[-1].what == "connected", 15.0, "a session", state=lambda: self.changes
        )
        return self

    @property
    def session_id(self) -> int:
        return self.changes[-1].session_id

    def what(self) -> list[str]:
        return [change.what for change in self.changes]

    def ask(self, request: Request) -> Reply:
        return call(self.port, request, 10.0)

    def __enter__(self) -> Opened:
        return self.connected()

    def __exit__(self, *_: object) -> None:
        self.port.close(5.0)


@pytest.fixture
def root(zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str]) -> str:
    path = f"/{fresh_topic()}"
    client = KazooClient(zookeeper.connect)
    client.start()
    client.create(path)
    client.stop()
    client.close()
    return path


@pytest.fixture
def opened(zookeeper: ZooKeeperServer) -> Iterator[Opened]:
    with Opened(zookeeper.connect) as made:
        yield made


# -- sockets ------------------------------------------------------------------------------------------------------


def test_a_handler_tells_what_can_be_read_and_written_as_kazoos_own_does() -> None:
    handler = KazooPort("127.0.0.1:1", 1.0)._client.handler
    near, far = socket.socketpair()
    with near, far:
        questions: list[Any] = [([near], [], [], 0), ([], [near], [], 0), ([near, far], [], [], 0.01)]
        for byte in (b"", b"x"):
            far.sendall(byte)
            for question in questions:
                assert tuple(handler.select(*question)) == tuple(selector_select(*question))
        assert handler.select([near, far], [], [], None)[0] == [near]
        near.recv(1)
        far.close()
        assert handler.select([near], [], [], 10.0)[0] == [near], "the end can be read, too"


# -- requests and faults ------------------------------------------------------------------------------------------


def test_every_request_and_its_answer(opened: Opened, root: str) -> None:
    path = f"{root}/node"
    assert opened.ask(Exists(path)).value is None
    assert opened.ask(Create(path, b"one")).value == path
    assert opened.ask(GetData(path)).value[0] == b"one"
    changed = opened.ask(SetData(path, b"two", 0)).value
    assert isinstance(changed, Stat)
    assert changed.version == 1
    names, stat = opened.ask(GetChildren(root)).value
    assert (names, stat.cversion) == (["node"], 1)
    assert opened.ask(Sync(path)).value == path
    assert opened.ask(Exists(path)).value == changed
    assert opened.ask(Delete(path, 1)).value is True
    assert opened.ask(Create(path, b"", ephemeral=True)).fault is None
    assert opened.ask(Exists(path)).value.ephemeral_owner == opened.session_id
    assert opened.ask(GetData(path)).value[0] == b""


def test_every_fault_has_its_name(opened: Opened, root: str) -> None:
    path = f"{root}/node"
    opened.ask(Create(path))
    opened.ask(Create(f"{path}/child", ephemeral=True))
    faults = {
        GetData(f"{root}/none"): Fault.NO_NODE,
        GetChildren(f"{root}/none"): Fault.NO_NODE,
        SetData(f"{root}/none", b""): Fault.NO_NODE,
        Delete(f"{root}/none"): Fault.NO_NODE,
        Create(f"{root}/none/child"): Fault.NO_NODE,
        Create(path): Fault.NODE_EXISTS,
        SetData(path, b"", 7): Fault.BAD_VERSION,
        Delete(path): Fault.NOT_EMPTY,
        Create(f"{path}/child/grandchild"): Fault.NO_CHILDREN_FOR_EPHEMERALS,
    }
    for request, fault in faults.items():
        reply = opened.ask(request)
        assert (reply.fault, reply.value) == (fault, None), request
        assert not fault.is_unknown


def test_a_multi_tells_what_became_of_each_operation_and_does_all_or_nothing(opened: Opened, root: str) -> None:
    done = opened.ask(
        Multi(
            (
                Create(f"{root}/a", b"1"),
                SetData(f"{root}/a", b"2", 0),
                Check(f"{root}/a", 1),
                Create(f"{root}/b", ephemeral=True),
                Delete(f"{root}/b", 0),
            )
        )
    )
    assert done.fault is None
    created, changed, checked, other, deleted = done.value
    assert (created, changed.version, checked, other, deleted) == (f"{root}/a", 1, True, f"{root}/b", True)
    assert isinstance(done.value[1], Stat)
    failed = opened.ask(Multi((Check(f"{root}/a", 1), Create(f"{root}/c"), Create(f"{root}/a"), Delete(f"{root}/a"))))
    assert failed.fault is None
    assert failed.value == [Fault.ROLLED_BACK, Fault.ROLLED_BACK, Fault.NODE_EXISTS, Fault.ROLLED_BACK]
    assert "NodeExists" in failed.reason
    assert opened.ask(Exists(f"{root}/c")).value is None


@pytest.mark.parametrize(("version", "fault"), [(5, Fault.BAD_VERSION), (0, None)])
def test_a_check_guards_what_follows(opened: Opened, root: str, version: int, fault: Fault | None) -> None:
    reply = opened.ask(Multi((Check(root, version), Create(f"{root}/guarded"))))
    assert (reply.value[0] if fault else None) is fault
    assert (opened.ask(Exists(f"{root}/guarded")).value is None) == bool(fault)


def test_an_answer_says_when_its_question_was_sent(zookeeper: ZooKeeperServer) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as opened:
        proxy.delay(0.3)
        before = lease_clock()
        reply = opened.ask(Exists("/"))
        assert before <= reply.sent_at <= lease_clock() - 0.3


@pytest.mark.catalogue("M1")
def test_a_chroot_is_put_before_every_path_and_taken_off_every_answer(
    zookeeper: ZooKeeperServer, opened: Opened, root: str
) -> None:
    with Opened(f"{zookeeper.connect}{root}") as inside:
        events: list[WatchEvent] = []
        inside.ask(Exists("/node", events.append))
        assert inside.ask(Create("/node", b"x")).value == "/node"
        assert inside.ask(Multi((Check("/node", 0), Create("/other")))).value == [True, "/other"]
        assert sorted(inside.ask(GetChildren("/")).value[0]) == ["node", "other"]
        wait_until(lambda: events == [WatchEvent("/node")], 5.0, "the event", state=lambda: events)
    assert opened.ask(GetData(f"{root}/node")).value[0] == b"x"


def test_a_chroot_that_does_not_exist_is_seen_as_such(zookeeper: ZooKeeperServer) -> None:
    with Opened(f"{zookeeper.connect}/no-such-place") as inside:
        assert inside.ask(Exists("/")).value is None


def test_credentials_and_access_lists(zookeeper: ZooKeeperServer, opened: Opened, root: str) -> None:
    rights = access_list([("auth", "", "cdrwa")])
    with Opened(zookeeper.connect, auth_data=[("digest", "user:secret")], default_acl=rights) as known:
        assert known.ask(Create(f"{root}/closed", b"x")).fault is None
        assert known.ask(Multi((Create(f"{root}/also"), SetData(f"{root}/also", b"y")))).fault is None
        assert known.ask(GetData(f"{root}/also")).value[0] == b"y"
    for request in (GetData(f"{root}/closed"), SetData(f"{root}/closed", b""), GetData(f"{root}/also")):
        assert opened.ask(request).fault is Fault.NO_AUTH


# -- order --------------------------------------------------------------------------------------------------------


def test_watch_events_and_answers_come_in_the_order_of_the_socket(opened: Opened, root: str) -> None:
    seen: list[str] = []
    done = threading.Event()
    rounds = 200

    def ask(number: int) -> None:
        path = f"{root}/n{number}"
        opened.port.send(
            Exists(path, lambda event: seen.append(f"event {number}")), lambda reply: seen.append(f"armed {number}")
        )
        opened.port.send(Create(path), lambda reply: seen.append(f"created {number}"))

    for number in range(rounds):
        ask(number)
    opened.port.send(Sync(root), lambda reply: done.set())
    assert done.wait(20.0)
    for number in range(rounds):
        places = [seen.index(f"{what} {number}") for what in ("armed", "event", "created")]
        assert places == sorted(places), seen[min(places) : max(places) + 1]


def test_callbacks_run_one_at_a_time(opened: Opened, root: str) -> None:
    inside, most, answers = 0, 0, 0
    lock = threading.Lock()

    def done(reply: Reply) -> None:
        nonlocal inside, most, answers
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.001)
        with lock:
            inside -= 1
            answers += 1

    for _ in range(50):
        opened.port.send(Exists(root), done)
    wait_until(lambda: answers == 50, 10.0, "all answers")
    assert most == 1


def test_a_watch_fires_once_and_a_lost_connection_is_no_event(zookeeper: ZooKeeperServer, root: str) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as opened:
        events: list[WatchEvent] = []
        watch = events.append
        for _ in range(3):
            opened.ask(GetData(root, watch))
        opened.ask(SetData(root, b"1"))
        opened.ask(SetData(root, b"2"))
        wait_until(lambda: len(events) >= 1, 5.0, "the event")
        opened.ask(GetData(root, watch))
        proxy.drop()
        opened.connected()
        opened.ask(Sync(root))
        assert len(events) <= 3
        assert {event.path for event in events} == {root}


# -- sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("L2")
def test_the_granted_time_out_is_told_not_the_asked_one() -> None:
    with ZooKeeperServer(min_session_timeout_ms=3000, max_session_timeout_ms=5000) as server:
        with Opened(server.connect, session_s=60.0) as opened:
            assert opened.changes[0].timeout_s == 5.0
        with Opened(server.connect, session_s=0.5) as opened:
            assert opened.changes[0].timeout_s == 3.0


def test_a_session_that_is_ended_is_told_as_expired_and_followed_by_another(
    zookeeper: ZooKeeperServer, opened: Opened, root: str
) -> None:
    first = opened.session_id
    opened.ask(Create(f"{root}/mine", ephemeral=True))
    zookeeper.end_session(first)
    wait_until(lambda: "expired" in opened.what(), 10.0, "the end", state=opened.what)
    opened.connected()
    assert opened.session_id != first
    assert opened.what() == ["connected", "suspended", "expired", "connected"]
    assert opened.ask(Exists(f"{root}/mine")).value is None


def test_who_was_told_of_the_end_of_a_session_opens_the_next_without_a_wait(
    zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = set(threading.enumerate())  # clients of earlier tests, which may still be trying to connect
    with Opened(zookeeper.connect) as opened:
        states: list[str] = []

        def sleep(seconds: float) -> None:
            if threading.current_thread() not in left:
                states.append(opened.port._client._state)
            time.sleep(seconds)

        monkeypatch.setattr("rebalance.zookeeper.port.kazoo_client.time", SimpleNamespace(sleep=sleep))
        zookeeper.end_session(opened.session_id)
        wait_until(lambda: len(opened.changes) == 4, 10.0, "the next session", state=opened.what)
        assert set(states) == {KeeperState.CONNECTING}, "only before the connection that was lost is made again"


def test_each_try_to_connect_in_vain_is_followed_by_a_longer_wait_also_when_the_session_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients of a ZooKeeper that is down must not run against it."""
    client = KazooPort("127.0.0.1:1", 20.0)._client
    waits_s: list[float] = []

    def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            waits_s[-1] += seconds
        else:  # a client of an earlier test
            time.sleep(seconds)

    def connect() -> None:
        client._state = KeeperState.CONNECTING if waits_s else KeeperState.EXPIRED_SESSION
        waits_s.append(0.0)
        if len(waits_s) < 12:
            raise ForceRetryError

    monkeypatch.setattr("rebalance.zookeeper.port.kazoo_client.time", SimpleNamespace(sleep=sleep))
    retry = client._connection.retry_sleeper.copy()
    retry.interrupt = None  # it is asked whether the client is stopped
    retry(connect)
    assert waits_s[0] == 0.0
    assert all(wait_s > 0.02 for wait_s in waits_s[1:-1])
    assert all(wait_s > 0.5 for wait_s in waits_s[8:-1])


def test_a_server_that_never_answers_the_handshake_is_tried_again_before_a_session_would_be_over() -> None:
    session_s = 18.0
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(session_s - 2)
        started = Opened(f"127.0.0.1:{silent.getsockname()[1]}", session_s)
        try:
            with silent.accept()[0], silent.accept()[0] as second:
                assert second.fileno() >= 0
        finally:
            started.port.close(0.0)


def test_a_broken_connection_is_told_and_the_session_lives_on(zookeeper: ZooKeeperServer) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as opened:
        first = opened.session_id
        proxy.drop()
        wait_until(lambda: len(opened.changes) >= 3, 10.0, "the way back", state=opened.what)
        assert opened.what() == ["connected", "suspended", "connected"]
        assert opened.session_id == first


def test_what_was_under_way_is_answered_as_unknown(zookeeper: ZooKeeperServer, root: str) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as opened:
        proxy.stall("down")
        replies: list[Reply] = []
        opened.port.send(Create(f"{root}/landed"), replies.append)
        opened.port.send(Multi((Create(f"{root}/too"),)), replies.append)
        with Opened(zookeeper.connect) as other:
            wait_until(lambda: other.ask(Exists(f"{root}/too")).value is not None, 10.0, "the writes to land")
        proxy.drop()
        proxy.clear()
        wait_until(lambda: len(replies) == 2, 10.0, "both answers")
        assert [reply.fault for reply in replies] == [Fault.CONNECTION_LOSS] * 2
        assert all(reply.fault is not None and reply.fault.is_unknown for reply in replies)


def test_what_is_asked_while_away_is_answered_when_back(zookeeper: ZooKeeperServer, root: str) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as opened:
        proxy.cut()
        wait_until(lambda: opened.what()[-1] == "suspended", 5.0, "the loss")
        replies: list[Reply] = []
        opened.port.send(Exists(root), replies.append)
        proxy.clear()
        opened.connected()
        wait_until(lambda: replies, 5.0, "the answer")
        assert replies[0].fault is None


def test_a_write_queued_under_an_ended_session_fails_its_check_under_the_next(
    zookeeper: ZooKeeperServer, root: str
) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address, session_s=20.0) as opened:
        registration = f"{root}/registration"
        opened.ask(Create(registration, ephemeral=True))
        proxy.cut()
        wait_until(lambda: opened.what()[-1] == "suspended", 5.0, "the loss")
        replies: list[Reply] = []
        opened.port.send(Multi((Check(registration, 0), Create(f"{root}/zombie"))), replies.append)
        zookeeper.end_session(opened.changes[0].session_id)
        proxy.clear()
        wait_until(lambda: opened.what()[-1] == "connected", 10.0, "the next session")
        wait_until(lambda: replies, 5.0, "the answer")
        assert replies[0].fault is Fault.SESSION_EXPIRED or replies[0].value[0] is Fault.NO_NODE
        assert opened.ask(Exists(f"{root}/zombie")).value is None


def test_a_silent_connection_is_dropped_and_another_server_is_taken() -> None:
    with ZooKeeperEnsemble(3) as ensemble, Opened(ensemble.connect, session_s=8.0) as opened:
        peer = opened.port._peer()
        assert peer is not None
        silent = next(member for member in ensemble if member.port == peer[1])
        opened.ask(Create("/there"))
        silent.pause()
        replies: list[Reply] = []
        opened.port.send(Exists("/there"), replies.append)
        opened.port.drop_connection()
        wait_until(lambda: opened.what()[-2:] == ["suspended", "connected"], 8.0, "another server", state=opened.what)
        assert [reply.fault for reply in replies] == [Fault.CONNECTION_LOSS]
        assert opened.session_id == opened.changes[0].session_id
        assert opened.ask(Exists("/there")).value is not None
        silent.resume()


@pytest.mark.catalogue("K7")
def test_a_session_that_its_leader_takes_for_moved_is_fetched_back() -> None:
    """ZooKeeper 3.4 refuses each multi of such a session, for good, and leaves the connection as it is."""
    with ZooKeeperEnsemble(3, version="zk-3.4.14") as ensemble:
        here, there = ensemble.members[:2]
        with Opened(here.connect, session_s=20.0) as opened, Opened(here.connect) as other:
            other.ask(Create("/guard"))
            [address] = split_connect(there.connect)
            with move_session(*address, opened.session_id):
                replies = [opened.ask(Multi((Check("/guard", 0), Create("/late"))))]
                wait_until(
                    lambda: opened.what()[-2:] == ["suspended", "connected"],
                    15.0,
                    "another connection",
                    state=opened.what,
                )
                replies.append(opened.ask(Multi((Check("/guard", 0), Create("/late")))))
            assert [reply.fault for reply in replies] == [Fault.CONNECTION_LOSS, None]
            assert opened.session_id == opened.changes[0].session_id


def test_dropping_a_connection_twice_does_not_go_on_dropping(zookeeper: ZooKeeperServer) -> None:
    with Opened(zookeeper.connect) as opened:
        opened.port.drop_connection()
        opened.port.drop_connection()
        wait_until(lambda: len(opened.changes) >= 3, 5.0, "the way back", state=opened.what)
        for _ in range(20):
            opened.connected()
            reply = opened.ask(Exists("/"))
        assert reply.fault is None
        assert len(opened.changes) <= 5


# -- the end ------------------------------------------------------------------------------------------------------


def test_closing_ends_the_session_at_once(zookeeper: ZooKeeperServer, opened: Opened, root: str) -> None:
    leaving = Opened(zookeeper.connect, session_s=30.0).connected()
    leaving.ask(Create(f"{root}/mine", ephemeral=True))
    leaving.port.close(5.0)
    assert opened.ask(Exists(f"{root}/mine")).value is None
    assert leaving.what() == ["connected"], "after close nothing is told"


def test_closing_is_bounded_when_the_server_is_frozen_or_gone() -> None:
    with ZooKeeperServer() as server:
        frozen, gone = Opened(server.connect).connected(), Opened(server.connect).connected()
        server.pause()
        began = lease_clock()
        frozen.port.close(0.5)
        assert lease_clock() - began < 3.0
        server.kill()
        began = lease_clock()
        gone.port.close(0.5)
        assert lease_clock() - began < 3.0


def test_a_close_that_was_only_begun_can_be_waited_for(zookeeper: ZooKeeperServer, opened: Opened, root: str) -> None:
    leaving = Opened(zookeeper.connect, session_s=30.0).connected()
    leaving.ask(Create(f"{root}/mine", ephemeral=True))
    leaving.port.close(0.0)
    leaving.port.close(5.0)
    assert opened.ask(Exists(f"{root}/mine")).value is None


def test_a_request_without_an_answer_in_time_is_unknown(zookeeper: ZooKeeperServer) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as opened:
        proxy.stall()
        reply = call(opened.port, Exists("/"), 0.2)
        assert reply.fault is Fault.CONNECTION_LOSS
        assert "0.2 s" in reply.reason
        proxy.drop()
        proxy.clear()
