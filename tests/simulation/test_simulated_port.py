"""The simulated port: what is answered when, under which session, and what may overtake what."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from simulated_clients import STEADY, Sim

from rebalance.zookeeper.port.requests import (
    Check,
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    SetData,
    Sync,
    ZooKeeperPort,
)
from tests.simulator import Latency, PortSettings, SimulatedPort

# -- asking ---------------------------------------------------------------------------------------------------------


def test_it_is_a_port() -> None:
    port: ZooKeeperPort = Sim().client().port
    assert isinstance(port, SimulatedPort)


def test_nothing_is_answered_within_the_call() -> None:
    sim = Sim()
    client = sim.client()
    for step in (lambda: None, client.start, lambda: sim.run(1.0), lambda: client.port.close(1.0)):
        step()
        number = client.send(Exists("/"))
        assert number not in client.replies
    sim.run(1.0)
    assert [reply.fault for _, reply in sorted(client.replies.items())] == [
        Fault.CONNECTION_LOSS,
        None,
        None,
        Fault.CONNECTION_LOSS,
    ]


def test_the_moment_of_sending_is_that_of_the_process_clock() -> None:
    sim = Sim()
    client = sim.open(clock_offset_s=1000.0)
    sim.run(5.0)
    asked_at = client.process.clock()
    assert sim.ask(client, Exists("/")).sent_at == asked_at > 1000.0


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/", "//", "/a//b"])
def test_a_path_that_is_none_is_named(path: str) -> None:
    client = Sim().open()
    for request in (Exists(path), Multi((Check("/", 0), Create(path)))):
        with pytest.raises(ValueError, match="no path of ZooKeeper's"):
            client.send(request)


def test_a_process_that_does_not_run_cannot_ask() -> None:
    client = Sim().open()
    client.process.pause()
    with pytest.raises(RuntimeError, match="client0 is paused"):
        client.send(Exists("/"))
    client.process.kill()
    with pytest.raises(RuntimeError, match="client0 is gone"):
        client.send(Exists("/"))


# -- watches --------------------------------------------------------------------------------------------------------


def test_watches_of_one_path_fire_once_each_and_equal_ones_together() -> None:
    sim = Sim()
    client = sim.open()
    sim.ask(client, Create("/a"))
    for request in (
        GetData("/a", client.watch("red")),
        Exists("/a", client.watch("red")),
        Exists("/a", client.watch("blue")),
        GetChildren("/a", client.watch("red")),
    ):
        sim.ask(client, request)
    client.received()
    sim.ask(client, SetData("/a", b""))
    sim.ask(client, SetData("/a", b""))
    events = [entry for entry in client.received() if entry[0] == "event"]
    assert sorted(events) == [("event", "blue", "/a"), ("event", "red", "/a")]
    sim.ask(client, Create("/a/b"))
    sim.ask(client, Create("/a/c"))
    assert client.received() == [("event", "red", "/a")]


def test_a_deletion_fires_data_and_child_watches() -> None:
    sim = Sim()
    client = sim.open()
    sim.ask(client, Create("/a"))
    sim.ask(client, GetData("/a", client.watch("data")))
    sim.ask(client, GetChildren("/a", client.watch("children")))
    sim.ask(client, GetChildren("/", client.watch("parent")))
    client.received()
    sim.ask(client, Delete("/a"))
    events = sorted(client.received()[:3])
    assert events == [("event", "children", "/a"), ("event", "data", "/a"), ("event", "parent", "/")]


def test_only_exists_watches_a_node_that_is_not_there() -> None:
    sim = Sim()
    client = sim.open()
    for request in (
        GetData("/a", client.watch("data")),
        GetChildren("/a", client.watch("children")),
        Exists("/a", client.watch("exists")),
    ):
        sim.ask(client, request)
    client.received()
    sim.zookeeper.create("/a")
    sim.run(1.0)
    assert client.received() == [("event", "exists", "/a")]


# -- lost connections -----------------------------------------------------------------------------------------------


def test_a_request_queued_under_one_session_goes_out_under_the_next() -> None:
    """Once the client has started to open the next one, which is not reported yet; only its check stops it then."""
    sim = Sim()
    client = sim.open()
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.zookeeper.end_session(client.ids[0])
    for moment in range(1000):
        sim.schedule.after(moment * 0.0003, client.send, Multi((Check("/mine", 0), Create("/zombie"))))
    told: list[float] = []
    sim.until(lambda: len(client.ids) == 2)
    told.append(client.process.clock())
    sim.run(1.0)
    outcomes = [str(reply.fault or reply.value[0]) for reply in client.replies.values() if reply.sent_at < told[0]]
    assert set(outcomes) >= {str(Fault.CONNECTION_LOSS), str(Fault.SESSION_EXPIRED), str(Fault.NO_NODE)}
    assert sim.zookeeper.read("/zombie") is None


def test_what_was_handed_over_before_a_drop_goes_out_and_what_came_after_it_goes_with_the_next() -> None:
    sim = Sim()
    client = sim.open()
    before = client.send(Create("/before"))
    client.port.drop_connection()
    client.port.drop_connection()
    sim.run(0.0)
    after = client.send(Create("/after"))
    sim.until(lambda: after in client.replies)
    sim.run(10.0)
    assert (client.replies[before].fault, client.replies[after].fault) == (Fault.CONNECTION_LOSS, None)
    assert sim.zookeeper.children("/") == ["after", "before", "zookeeper"]
    assert client.received() == ["suspended", "connected again"]


def test_a_drop_that_was_asked_for_while_away_hits_the_next_connection() -> None:
    sim = Sim()
    client = sim.open()
    sim.zookeeper.cut(client.port)
    sim.until(lambda: client.state == "suspended")
    first = client.send(Create("/first"))
    client.port.drop_connection()
    second = client.send(Create("/second"))
    sim.zookeeper.heal(client.port)
    sim.run(10.0)
    assert [client.replies[number].fault for number in (first, second)] == [Fault.CONNECTION_LOSS] * 2
    assert client.received() == ["suspended", "connected again", "suspended", "connected again"]
    assert sim.zookeeper.children("/") == ["first", "zookeeper"]


def test_requests_keep_pings_away_and_with_them_the_notice_of_a_silent_server() -> None:
    sim = Sim()
    idle = sim.open(STEADY._replace(session_timeout_s=12.0))
    busy = sim.open(STEADY._replace(session_timeout_s=12.0))
    for client in (idle, busy):
        sim.zookeeper.stall(client.port)
    for moment in range(20):
        sim.schedule.after(moment * 1.0, busy.send, Exists("/"))
    sim.run(8.0)
    assert (idle.received(), busy.received()) == (["suspended"], [])
    sim.run(8.0)
    assert busy.received() == []


def test_a_stalled_link_is_noticed_after_two_thirds_of_the_time_out() -> None:
    for seed in range(20):
        sim = Sim(seed)
        client = sim.open(STEADY._replace(session_timeout_s=12.0))
        sim.run(100.0)
        sim.zookeeper.stall(client.port)
        began = sim.now
        sim.until(lambda client=client: client.state == "suspended")
        assert 12.0 / 3 - 0.5 <= sim.now - began <= 12.0 * 2 / 3


# -- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        Create("/new"),
        SetData("/a", b"x"),
        Delete("/a"),
        Multi((Check("/a", 0), SetData("/a", b"x"))),
    ],
    ids=lambda request: type(request).__name__,
)
@pytest.mark.parametrize("servers", [1, 3])
def test_the_reply_to_a_write_that_was_applied_can_be_lost(request_: Any, servers: int) -> None:
    sim = Sim(servers=servers)
    client = sim.open()
    sim.ask(client, Create("/a"))
    client.received()
    writes: list[Any] = []
    sim.zookeeper.observe(writes.append)
    sim.zookeeper.lose_reply(client.port, lambda request: request is request_)
    refused = client.send(SetData("/a", b"", 7))
    lost = client.send(request_)
    after = client.send(GetData("/a"))
    sim.until(lambda: client.state == "connected" and len(client.changes) == 3)
    assert client.replies[refused].fault is Fault.BAD_VERSION
    assert [client.replies[number].fault for number in (lost, after)] == [Fault.CONNECTION_LOSS] * 2
    assert [len(record.changes) for record in writes] == [0, 1]
    assert sim.ask(client, Create("/once more")).fault is None, "it happens once"


def test_a_request_can_be_lost_before_it_is_applied() -> None:
    sim = Sim()
    client = sim.open()
    sim.zookeeper.lose_request(client.port, lambda request: isinstance(request, Create))
    lost = client.send(Create("/a"))
    sim.until(lambda: client.state == "connected" and len(client.changes) == 3)
    assert client.replies[lost].fault is Fault.CONNECTION_LOSS
    assert sim.zookeeper.read("/a") is None
    assert sim.ask(client, Create("/a")).fault is None


def test_a_late_event_holds_up_what_follows_on_its_link() -> None:
    sim = Sim()
    client, other = sim.open(), sim.open()
    for path in ("/a", "/b"):
        sim.ask(client, Create(path))
        sim.ask(client, GetData(path, client.watch(path)))
    client.received()
    sim.zookeeper.delay_watch(client.port, 3.0, lambda path: path == "/b")
    sim.ask(other, SetData("/a", b"x"))
    sim.ask(other, SetData("/b", b"x"))
    number = client.send(GetData("/b"))
    sim.run(2.9)
    assert client.received() == [("event", "/a", "/a")]
    sim.run(0.2)
    assert client.received() == [("event", "/b", "/b"), ("reply", number, None)]
    assert sim.ask(client, GetData("/b")).fault is None


def test_stalled_answers_come_in_their_order_when_the_link_heals() -> None:
    sim = Sim()
    client = sim.open(STEADY._replace(session_timeout_s=20.0))
    sim.ask(client, Create("/a"))
    client.received()
    sim.zookeeper.stall(client.port, answers_only=True)
    numbers = [
        client.send(request) for request in (GetData("/a", client.watch("data")), SetData("/a", b"x"), Exists("/a"))
    ]
    sim.run(3.0)
    assert client.received() == []
    assert sim.zookeeper.read("/a")[0] == b"x"  # type: ignore[index]
    sim.zookeeper.heal(client.port)
    sim.run(0.1)
    assert client.received() == [
        ("reply", numbers[0], None),
        ("event", "data", "/a"),
        ("reply", numbers[1], None),
        ("reply", numbers[2], None),
    ]


def test_one_link_of_several_can_be_cut() -> None:
    sim = Sim(servers=3)
    client = sim.open(at=1)
    sim.zookeeper.cut(client.port, 1)
    sim.until(lambda: len(client.changes) == 3)
    assert client.port.server in (0, 2)
    sim.zookeeper.cut(client.port)
    sim.run(30.0)
    assert (client.port.server, client.state) == (None, "suspended")
    sim.zookeeper.heal(client.port)
    sim.until(lambda: client.state == "connected")


def test_a_client_opened_while_a_server_is_frozen_takes_another() -> None:
    for seed in range(10):
        sim = Sim(seed, servers=3)
        sim.zookeeper.freeze(1)
        client = sim.client()
        client.start()
        sim.until(lambda client=client: client.state == "connected", 10.0)
        assert client.port.server in (0, 2)


# -- order ----------------------------------------------------------------------------------------------------------


def orders(settings: PortSettings, seeds: int = 200) -> set[tuple[str, ...]]:
    """The orders in which replies to a write and a read, and the loss of the connection, are reported."""
    found = set()
    for seed in range(seeds):
        sim = Sim(seed)
        client = sim.open(settings)
        client.send(SetData("/", b""))
        client.send(Exists("/"))
        client.port.drop_connection()
        sim.until(lambda client=client: len(client.replies) == 2 and client.state == "connected")
        found.add(tuple(entry if isinstance(entry, str) else entry[0] for entry in client.received()))
    return found


def test_a_change_of_the_session_may_overtake_answers_where_that_is_wanted() -> None:
    assert orders(STEADY) == {("reply", "reply", "suspended", "connected again")}
    assert orders(STEADY._replace(overtaking=0.5)) == {
        ("reply", "reply", "suspended", "connected again"),
        ("suspended", "reply", "reply", "connected again"),
        ("suspended", "connected again", "reply", "reply"),
    }


def test_a_process_that_wakes_may_hear_of_its_session_before_it_hears_what_waited() -> None:
    found = set()
    for seed in range(60):
        sim = Sim(seed)
        client = sim.open(STEADY._replace(overtaking=0.5))
        client.send(Exists("/"))
        client.process.pause()
        sim.run(30.0)
        client.process.resume()
        sim.until(lambda client=client: len(client.ids) == 2)
        sim.run(1.0)
        found.add(tuple(entry if isinstance(entry, str) else entry[2] for entry in client.received()))
    assert (None, "suspended", "expired", "connected anew") in found
    assert ("suspended", None, "expired", "connected anew") in found
    assert ("suspended", "expired", None, "connected anew") in found


def test_connected_is_reported_late_for_a_server_that_is_not_known_yet() -> None:
    sim = Sim()
    client = sim.client(STEADY._replace(version_answer=Latency(1.0, 1.0)))
    client.start()
    number = client.send(Exists("/"))
    sim.run(0.9)
    assert client.received() == [("reply", number, None)]
    sim.run(0.2)
    assert client.received() == ["connected anew"]
    client.port.drop_connection()
    sim.run(0.5)
    assert client.received() == ["suspended", "connected again"]


def test_a_late_connected_is_not_reported_for_a_lost_connection() -> None:
    sim = Sim()
    client = sim.client(STEADY._replace(version_answer=Latency(1.0, 1.0)))
    client.start()
    sim.run(0.5)
    sim.zookeeper.cut(client.port)
    sim.run(5.0)
    assert client.received() == ["suspended"]


def test_replies_to_creates_and_syncs_may_be_overtaken() -> None:
    sim = Sim()
    client = sim.open(STEADY._replace(extra_turn=Latency(0.5, 0.5)))
    heard: list[str] = []
    requests = {"create": Create("/a"), "sync": Sync("/a"), "exists": Exists("/a"), "multi": Multi((Create("/b"),))}
    for name, request in requests.items():
        client.port.send(request, lambda reply, name=name: heard.append(name))
    sim.run(1.0)
    assert heard == ["exists", "multi", "create", "sync"]


# -- the end --------------------------------------------------------------------------------------------------------


def test_after_close_no_session_change_is_reported_and_every_request_is_answered() -> None:
    sim = Sim()
    client = sim.open()
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.ask(client, GetData("/mine", client.watch("mine")))
    client.received()
    before = client.send(Exists("/mine"))
    client.port.close(1.0)
    client.port.close(1.0)
    after = client.send(Exists("/mine"))
    sim.run(60.0)
    assert client.received() == [("reply", before, None), ("reply", after, Fault.CONNECTION_LOSS)]
    assert sim.zookeeper.sessions == []
    assert sim.zookeeper.read("/mine") is None


def test_a_port_closed_before_or_while_it_connects_leaves_nothing_behind() -> None:
    for wait_s in (None, 0.0, 0.0005, 0.001, 0.002, 0.01):
        sim = Sim()
        client = sim.client()
        if wait_s is not None:
            client.start()
            sim.run(wait_s)
        client.port.close(1.0)
        sim.run(60.0)
        assert client.received() in ([], ["connected anew"])
        assert sim.zookeeper.sessions == []
        assert not sim.zookeeper._ensemble.servers[0].links, "servers keep nothing of a process that is gone"


# -- one seed, one course -------------------------------------------------------------------------------------------


def course(seed: int) -> list[Any]:
    """All that happens in a busy minute with faults."""
    sim = Sim(seed, servers=3)
    events: list[Any] = []
    sim.schedule.trace = lambda now, call, arguments: events.append((now, call.__qualname__))
    clients = [sim.open(PortSettings()) for _ in range(5)]
    rng = random.Random(seed)
    for moment in range(300):
        client = rng.choice(clients)
        request = rng.choice(
            [
                Create("/a", ephemeral=True),
                GetData("/a", client.watch("a")),
                Delete("/a"),
                GetChildren("/", client.watch("root")),
                Sync("/"),
                Multi((Check("/", -1), Create("/b"))),
            ]
        )
        sim.schedule.at(
            moment / 5, lambda client=client, request=request: client.process.is_paused or client.send(request)
        )
    for moment, fault in enumerate(
        (
            lambda: sim.zookeeper.freeze(0),
            lambda: sim.zookeeper.cut(clients[0].port),
            clients[1].process.pause,
            lambda: sim.zookeeper.thaw(0),
            lambda: sim.zookeeper.heal(clients[0].port),
            clients[1].process.resume,
        )
    ):
        sim.schedule.at(5.0 + 8 * moment, fault)
    sim.run(70.0)
    return [*events, *(client.transcript for client in clients)]


def test_a_seed_tells_the_whole_course() -> None:
    assert course(1) == course(1)
    assert course(1) != course(2)


def test_a_seed_tells_the_same_course_in_every_process() -> None:
    """Whatever the hashes of strings are there."""
    script = "import test_simulated_port as test; print(repr(test.course(3)))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 10_000
