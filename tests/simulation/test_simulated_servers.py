"""Several simulated servers: lag, sync, order, what can be read where, and changes of leaders."""

from __future__ import annotations

import random
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
)
from tests.simulator import Latency, SimulatedZooKeeper

PATIENT = STEADY._replace(session_timeout_s=20.0)

# -- lag, sync, order -----------------------------------------------------------------------------------------------


def test_a_server_answers_reads_from_what_it_has() -> None:
    sim = Sim(servers=3)
    ahead, behind = sim.open(at=0), sim.open(at=1)
    sim.lag(1, 5.0)
    assert sim.ask(ahead, Create("/a", b"x")).value == "/a"
    assert sim.ask(behind, GetData("/a")).fault is Fault.NO_NODE
    assert sim.zookeeper.zxid(1) < sim.zookeeper.zxid(0)
    sim.run(5.1)
    assert sim.ask(behind, GetData("/a")).value[0] == b"x"
    assert sim.zookeeper.zxid(1) == sim.zookeeper.zxid(0)


def test_of_a_closed_node_is_told_that_it_is_there_and_no_watch_tells_that_it_can_be_read() -> None:
    sim = Sim(servers=1)
    client = sim.open(at=0)
    assert sim.ask(client, Create("/a", b"x")).fault is None
    fired: list[object] = []
    assert sim.ask(client, GetData("/a", fired.append)).fault is None
    sim.zookeeper.set_access("/a", True)
    assert sim.ask(client, GetData("/a", fired.append)).fault is Fault.NO_AUTH
    assert sim.ask(client, GetChildren("/a", fired.append)).fault is Fault.NO_AUTH
    assert sim.ask(client, Exists("/a")).fault is None  # as ZooKeeper up to 3.8
    sim.zookeeper.set_access("/a", False)
    sim.run(1.0)
    assert fired == []
    assert sim.ask(client, GetData("/a")).value[0] == b"x"


def test_a_sync_waits_until_the_server_has_caught_up() -> None:
    sim = Sim(servers=3)
    ahead, behind = sim.open(at=0), sim.open(at=1)
    sim.lag(1, 5.0)
    sim.ask(ahead, Create("/a"))
    began = sim.now
    first, second = behind.send(Sync("/a")), behind.send(GetData("/a"))
    sim.until(lambda: len(behind.replies) == 2)
    assert behind.replies[first].value == "/a"
    assert behind.replies[second].fault is None
    assert sim.now - began > 4.5


def test_a_write_is_answered_when_the_servers_own_copy_has_it() -> None:
    sim = Sim(servers=3)
    ahead, behind = sim.open(at=0), sim.open(at=1)
    sim.lag(1, 3.0)
    began, numbers = sim.now, [behind.send(Create("/a", b"x")), behind.send(GetData("/a"))]
    sim.until(lambda: sim.zookeeper.read("/a") is not None)
    assert sim.now - began < 0.1
    assert sim.ask(ahead, GetData("/a")).value[0] == b"x", "others see it before its author"
    assert not behind.replies
    sim.until(lambda: numbers[1] in behind.replies)
    assert behind.replies[numbers[1]].value[0] == b"x"
    assert sim.now - began >= 3.0


@pytest.mark.parametrize("seed", range(20))
def test_answers_come_in_the_order_of_the_requests(seed: int) -> None:
    sim = Sim(seed, servers=3, peer_latency=Latency(0.0, 1.0), client_latency=Latency(0.0, 1.0))
    client = sim.open()
    rng = random.Random(seed)
    made = [SetData("/", b""), GetData("/"), Multi((Check("/", -1),)), Exists("/"), Delete("/none"), GetChildren("/")]
    requests = [rng.choice(made) for _ in range(40)]
    numbers = [client.send(request) for request in requests]
    sim.until(lambda: len(client.replies) == 40)
    assert [entry[1] for entry in client.transcript] == numbers
    versions = [
        reply.value[1].version
        for number, reply in sorted(client.replies.items())
        if isinstance(requests[number - 1], GetData)
    ]
    sets = [
        sum(isinstance(request, SetData) for request in requests[:place])
        for place, request in enumerate(requests)
        if isinstance(request, GetData)
    ]
    assert versions == sets, "a read sees all writes of its session before it, and none after it"


@pytest.mark.parametrize("seed", range(20))
def test_an_event_comes_before_any_answer_that_shows_the_change(seed: int) -> None:
    sim = Sim(seed, servers=3, peer_latency=Latency(0.0, 0.5), client_latency=Latency(0.0, 0.5))
    writer, reader = sim.open(at=0), sim.open(at=1)
    sim.ask(writer, Create("/a"))
    sim.ask(reader, Sync("/a"))
    armed = sim.ask(reader, GetData("/a", reader.watch("changed")))
    assert armed.value[1].version == 0
    sim.schedule.after(1.0, writer.send, SetData("/a", b"x"))
    for moment in range(100):
        sim.schedule.after(moment * 0.02, reader.send, GetData("/a"))
    sim.run(10.0)
    event = reader.transcript.index(("event", "changed", "/a"))
    after = [reader.replies[entry[1]].value[1].version for entry in reader.transcript[event:] if entry[0] == "reply"]
    before = [reader.replies[entry[1]].value[1].version for entry in reader.transcript[1:event]]
    assert set(before) <= {0}
    assert set(after) == {1}


def test_all_nodes_of_a_session_go_at_one_zxid() -> None:
    sim = Sim(servers=3)
    leaver, watcher = sim.open(), sim.open()
    for name in "abc":
        sim.ask(leaver, Create(f"/{name}", ephemeral=True))
    sim.ask(watcher, Sync("/"))
    before = sim.ask(watcher, GetChildren("/", watcher.watch("root"))).value[1]
    records: list[Any] = []
    sim.zookeeper.observe(records.append)
    leaver.port.close(1.0)
    sim.until(lambda: ("event", "root", "/") in watcher.transcript)
    after = sim.ask(watcher, GetChildren("/")).value[1]
    assert (after.cversion, after.pzxid) == (before.cversion + 3, records[0].zxid)
    assert len(records) == 1
    assert (records[0].closes, records[0].session_id) == (True, leaver.ids[0])
    assert sorted(change.path for change in records[0].changes) == ["/a", "/b", "/c"]


# -- a session never goes back in time ------------------------------------------------------------------------------


def test_a_server_that_is_behind_what_a_client_has_seen_refuses_it() -> None:
    sim = Sim(servers=3)
    client = sim.open(PATIENT, at=0)
    sim.lag(1, 4.0)
    sim.lag(2, 4.0)
    began = sim.now
    sim.ask(client, Create("/a"))
    sim.zookeeper.cut(client.port, 0)
    sim.until(lambda: client.state == "connected" and len(client.changes) == 3)
    assert client.port.server in (1, 2)
    assert sim.now - began >= 4.0
    assert sim.ask(client, Exists("/a")).value is not None
    assert client.ids == [client.port.session_id]


@pytest.mark.parametrize("seed", range(30))
def test_what_a_session_sees_never_gets_older_however_its_connections_break(seed: int) -> None:
    sim = Sim(seed, servers=3, peer_latency=Latency(0.0, 2.0))
    writer, reader = sim.open(PATIENT, at=0), sim.open(PATIENT)
    sim.ask(writer, Create("/a"))
    sim.ask(reader, Sync("/a"))
    for moment in range(200):
        sim.schedule.after(moment * 0.1, writer.send, SetData("/a", b"x"))
        sim.schedule.after(moment * 0.1, reader.send, GetData("/a"))
        if moment % 17 == 0:
            sim.schedule.after(moment * 0.1, reader.port.drop_connection)
    sim.run(40.0)
    seen = [reader.replies[entry[1]] for entry in reader.transcript if entry[0] == "reply"]
    versions = [reply.value[1].version for reply in seen if reply.fault is None]
    assert versions == sorted(versions)
    assert len(versions) > 50
    assert reader.ids == [reader.port.session_id]


def test_a_request_that_arrives_after_its_client_went_elsewhere_is_not_done() -> None:
    sim = Sim(servers=2)
    client = sim.open(at=1)
    sim.zookeeper.stall(client.port, 1)
    late = client.send(Create("/late"))
    client.port.drop_connection()
    sim.until(lambda: client.port.server == 0)
    assert client.replies[late].fault is Fault.CONNECTION_LOSS
    sim.zookeeper.heal(client.port, 1)
    sim.run(5.0)
    assert sim.zookeeper.read("/late") is None
    assert client.state == "connected"
    assert sim.ask(client, Create("/fresh")).fault is None


# -- servers that fail ----------------------------------------------------------------------------------------------


def test_a_follower_cut_off_from_its_leader_answers_from_what_it_has_and_then_nobody() -> None:
    sim = Sim(servers=3, sync_limit=5)
    ahead, behind = sim.open(at=0), sim.open(PATIENT, at=1)
    sim.zookeeper.isolate(1)
    sim.ask(ahead, Create("/a"))
    stuck = behind.send(Create("/b"))
    sim.run(4.5)
    assert not behind.replies, "nor is a read answered behind a write that is not"
    second = sim.open(at=0)
    sim.run(0.4)
    assert behind.received() == []
    sim.run(0.2)
    assert (behind.replies[stuck].fault, behind.changes[1].what) == (Fault.CONNECTION_LOSS, "suspended")
    sim.until(lambda: behind.state == "connected")
    assert behind.port.server in (0, 2)
    assert sim.ask(behind, Exists("/a")).value is not None
    assert second.state == "connected"


def test_a_cut_off_follower_answers_reads_meanwhile() -> None:
    sim = Sim(servers=3)
    ahead, behind = sim.open(at=0), sim.open(at=1)
    sim.ask(ahead, Create("/a"))
    sim.ask(behind, Sync("/"))
    sim.zookeeper.isolate(1)
    sim.ask(ahead, Delete("/a"))
    sim.run(3.0)
    assert sim.ask(behind, Exists("/a")).value is not None


def test_a_follower_that_is_back_in_time_carries_on() -> None:
    sim = Sim(servers=3, sync_limit=5)
    ahead, behind = sim.open(at=0), sim.open(at=1)
    sim.zookeeper.isolate(1)
    sim.ask(ahead, Create("/a"))
    number = behind.send(Create("/b"))
    sim.run(3.0)
    sim.zookeeper.rejoin(1)
    sim.until(lambda: number in behind.replies)
    assert behind.replies[number].fault is None
    assert len(behind.changes) == 1
    assert sim.zookeeper.zxid(1) == sim.zookeeper.zxid(0)


def test_sessions_end_at_the_leader_while_their_server_is_cut_off_from_it() -> None:
    sim = Sim(servers=3, sync_limit=20)
    zombie, other = sim.open(STEADY._replace(session_timeout_s=4.0), at=1), sim.open(at=0)
    sim.ask(zombie, Create("/mine", ephemeral=True))
    sim.zookeeper.isolate(1)
    sim.until(lambda: sim.ask(other, Exists("/mine")).value is None, 10.0)
    assert sim.ask(zombie, Exists("/mine")).value is not None, "its own server knows nothing of it yet"
    sim.zookeeper.rejoin(1)
    sim.until(lambda: "expired" in zombie.transcript)


def test_a_frozen_leader_is_replaced_and_comes_back_as_a_follower() -> None:
    sim = Sim(servers=3, sync_limit=3)
    client = sim.open(PATIENT, at=0)
    sim.ask(client, Create("/a"))
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.zookeeper.freeze(0)
    number = client.send(SetData("/a", b"x"))
    sim.run(1.0)
    assert (sim.zookeeper.leader, client.replies.get(number)) == (0, None)
    sim.until(lambda: sim.zookeeper.leader not in (None, 0), 10.0)
    sim.until(lambda: client.port.server not in (None, 0), 30.0)
    assert sim.ask(client, GetData("/a")).value[0] == b""
    sim.ask(client, SetData("/a", b"y"))
    sim.zookeeper.thaw(0)
    sim.run(5.0)
    assert sim.zookeeper.leader != 0
    assert sim.zookeeper.zxid(0) == sim.zookeeper.zxid(sim.zookeeper.leader or 0)
    assert sim.ask(client, Exists("/mine")).value.ephemeral_owner == client.ids[0]
    assert client.ids == [client.port.session_id], "what the frozen leader had written and its sessions are kept"


def test_what_a_leader_wrote_before_it_was_lost_is_kept_even_if_no_follower_had_it() -> None:
    sim = Sim(servers=3)
    client = sim.open(at=0)
    sim.lag(1, 10.0)
    sim.lag(2, 10.0)
    assert sim.ask(client, Create("/a", b"x")).fault is None
    sim.zookeeper.stop(0)
    sim.until(lambda: client.port.server in (1, 2))
    assert sim.ask(client, GetData("/a")).value[0] == b"x"


def test_without_a_majority_nothing_is_written_and_nobody_is_served() -> None:
    sim = Sim(servers=3, sync_limit=3)
    client = sim.open(PATIENT, at=0)
    sim.zookeeper.stop(1)
    assert sim.ask(client, Create("/a")).fault is None
    sim.zookeeper.freeze(2)
    number = client.send(Create("/b"))
    sim.run(2.0)
    assert number not in client.replies
    sim.run(2.0)
    assert (sim.zookeeper.leader, client.state) == (None, "suspended")
    assert client.replies[number].fault is Fault.CONNECTION_LOSS
    with pytest.raises(RuntimeError, match="no leader with a majority"):
        sim.zookeeper.create("/c")
    assert not sim.zookeeper.end_session(client.ids[0])
    sim.zookeeper.thaw(2)
    sim.until(lambda: client.state == "connected")
    assert sim.ask(client, Exists("/b")).value is None
    assert client.ids == [client.port.session_id]


def test_a_short_silence_of_the_leader_delays_writes_and_nothing_else() -> None:
    sim = Sim(servers=3, sync_limit=5)
    client = sim.open(at=1)
    sim.zookeeper.isolate(0)
    number = client.send(Create("/a"))
    sim.run(3.0)
    sim.zookeeper.rejoin(0)
    sim.until(lambda: number in client.replies)
    assert client.replies[number].fault is None
    assert (sim.zookeeper.leader, len(client.changes)) == (0, 1)


@pytest.mark.parametrize("seed", range(40))
def test_after_any_faults_all_servers_agree_and_every_client_is_served(seed: int) -> None:
    sim = Sim(seed, servers=3, sync_limit=3)
    clients = [sim.open(STEADY._replace(session_timeout_s=6.0)) for _ in range(4)]
    sim.ask(clients[0], Create("/a"))
    zookeeper, rng = sim.zookeeper, sim.rng
    undo = {zookeeper.freeze: zookeeper.thaw, zookeeper.isolate: zookeeper.rejoin, zookeeper.stop: zookeeper.start}
    for _ in range(30):
        kind, number = rng.choice(list(undo)), rng.randrange(3)
        kind(number)
        for client in clients:
            client.send(rng.choice([SetData("/a", b"x"), GetData("/a"), Create("/b", ephemeral=True), Delete("/b")]))
        sim.run(rng.choice([0.1, 2.0, 5.0]))
        undo[kind](number)
        sim.run(rng.choice([0.0, 0.0, 1.0, 5.0]))
    sim.run(60.0)
    assert zookeeper.leader is not None
    assert len({zookeeper.zxid(number) for number in range(3)}) == 1
    values = []
    for client in clients:
        assert client.state == "connected"
        values.append((sim.ask(client, Sync("/a")).fault, sim.ask(client, GetData("/a")).value))
    assert len(set(values)) == 1
    for client in clients:
        assert len(client.replies) == client._asked, "every request is answered once"


def test_bad_input_is_named() -> None:
    sim = Sim(servers=1)
    with pytest.raises(ValueError, match="0 servers"):
        SimulatedZooKeeper(sim.schedule, sim.rng, 0)
    with pytest.raises(ValueError, match="server 3"):
        sim.zookeeper.freeze(3)
    with pytest.raises(ValueError, match="alone"):
        sim.zookeeper.isolate(0)
