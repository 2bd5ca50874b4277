"""Simulated sessions: granted, kept alive by pings, ended by silence, by request, and by the loss of all data."""

from __future__ import annotations

import pytest
from simulated_clients import STEADY, Sim

from rebalance.zookeeper.port.requests import Create, Exists, Fault, GetData, SetData
from tests.simulator import Latency, PortSettings


def session(seconds: float) -> PortSettings:
    return STEADY._replace(session_timeout_s=seconds)


@pytest.mark.parametrize(("asked_s", "granted_s"), [(0.5, 2.0), (6.0, 6.0), (60.0, 20.0)])
def test_a_time_out_between_2_and_20_ticks_is_granted(asked_s: float, granted_s: float) -> None:
    assert Sim(tick_s=1.0).open(session(asked_s)).changes[0].timeout_s == granted_s


def test_the_limits_of_the_time_out_can_be_set() -> None:
    sim = Sim(min_session_s=3.0, max_session_s=4.0)
    assert [sim.open(session(asked)).changes[0].timeout_s for asked in (1.0, 9.0)] == [3.0, 4.0]


@pytest.mark.parametrize("servers", [1, 3])
def test_pings_keep_an_idle_session_alive(servers: int) -> None:
    sim = Sim(servers=servers)
    client = sim.open(session(4.0))
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.run(600.0)
    assert len(client.changes) == 1
    assert sim.zookeeper.read("/mine") is not None


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_loses_its_session_with_the_time_out(seed: int, servers: int) -> None:
    sim = Sim(seed, servers, tick_s=1.0)
    client = sim.open(session(6.0))
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.run(100.0 + sim.rng.random())
    client.process.kill()
    killed = sim.now
    sim.until(lambda: sim.zookeeper.read("/mine") is None)
    # Last refreshed up to a third before its death, noted up to half a tick later, ended at the next tick.
    assert 6.0 * 2 / 3 <= sim.now - killed <= 6.0 + 1.5
    assert client.received() == []
    sim.run(60.0)
    assert client.received() == []
    assert sim.zookeeper.sessions == []


def test_a_pause_shorter_than_the_time_out_goes_unnoticed() -> None:
    sim = Sim()
    client, other = sim.open(session(6.0)), sim.open()
    sim.ask(client, Create("/a"))
    sim.ask(client, GetData("/a", client.watch("data")))
    client.received()
    number = client.send(Exists("/a"))
    client.process.pause()
    sim.ask(other, SetData("/a", b"x"))
    sim.run(3.0)
    assert client.received() == []
    client.process.resume()
    sim.run(0.1)
    assert client.received() == [("reply", number, None), ("event", "data", "/a")]
    assert client.replies[number].sent_at < sim.now - 3.0
    sim.run(60.0)
    assert client.received() == []


def test_a_paused_process_neither_pings_nor_notices_the_end_of_its_session() -> None:
    sim = Sim()
    client, other = sim.open(session(6.0)), sim.open()
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.ask(client, Exists("/x", client.watch("x")))
    client.received()
    client.process.pause()
    sim.ask(other, Create("/x"))
    sim.until(lambda: sim.zookeeper.read("/mine") is None, 10.0)
    sim.run(10.0)
    assert client.received() == []
    client.process.resume()
    sim.until(lambda: len(client.ids) == 2)
    assert client.received() == [("event", "x", "/x"), "suspended", "expired", "connected anew"]


def test_after_an_outage_every_session_has_its_whole_time_out_again() -> None:
    sim = Sim(election=Latency(0.5, 0.5))
    client, dead = sim.open(session(6.0)), sim.open(session(6.0))
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.ask(dead, Create("/ghost", ephemeral=True))
    dead.process.kill()
    sim.zookeeper.outage()
    sim.run(120.0)
    assert client.received() == ["suspended"]
    sim.zookeeper.restore()
    sim.run(4.0)
    assert client.received() == ["connected again"]
    assert sim.zookeeper.read("/ghost") is not None
    sim.until(lambda: sim.zookeeper.read("/ghost") is None, 5.0)
    assert sim.ask(client, Exists("/mine")).value is not None


def test_a_frozen_server_ends_no_session_while_it_is_frozen() -> None:
    """When it goes on, its clock says that all are over; a client that sends in that moment may be faster."""
    kept = 0
    for seed in range(40):
        sim = Sim(seed)
        clients = [sim.open(session(6.0)) for _ in range(3)]
        for number, client in enumerate(clients):
            sim.ask(client, Create(f"/mine{number}", ephemeral=True))
        sim.zookeeper.freeze(0)
        sim.run(60.0)
        assert len(sim.zookeeper.sessions) == 3
        sim.zookeeper.thaw(0)
        sim.run(20.0)
        assert all(client.state == "connected" for client in clients)
        for number, client in enumerate(clients):
            survived = client.port.session_id == client.ids[0]
            assert survived == (sim.ask(client, Exists(f"/mine{number}")).value is not None)
            kept += survived
    assert 0 < kept < 120


def test_a_server_frozen_for_less_than_the_time_out_keeps_sessions() -> None:
    sim = Sim()
    client = sim.open(session(10.0))
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.zookeeper.freeze(0)
    number = client.send(Exists("/mine"))
    sim.run(2.0)
    sim.zookeeper.thaw(0)
    sim.until(lambda: number in client.replies)
    assert client.replies[number].value is not None
    assert len(client.changes) == 1


@pytest.mark.parametrize("servers", [1, 3])
def test_wiped_servers_refuse_who_has_seen_more_until_it_forgets(servers: int) -> None:
    sim = Sim(servers=servers)
    client = sim.open(session(6.0))
    for number in range(20):
        sim.ask(client, Create(f"/{number}"))
    client.received()
    sim.zookeeper.wipe()
    wiped = sim.now
    sim.until(lambda: len(client.ids) == 2)
    assert client.received() == ["suspended", "expired", "connected anew"]
    if servers == 1:
        assert 12.0 < sim.now - wiped < 18.0, "twice the time-out, and some"
    assert sim.ask(client, Exists("/0")).value is None
    assert client.ids[0] != client.ids[1]


def test_an_ended_session_cannot_be_ended_again() -> None:
    sim = Sim(servers=3)
    client, other = sim.open(), sim.open()
    assert sim.zookeeper.sessions == [*client.ids, *other.ids]
    assert sim.zookeeper.end_session(client.ids[0])
    assert not sim.zookeeper.end_session(client.ids[0])
    sim.until(lambda: len(client.ids) == 2)
    assert client.received() == ["suspended", "expired", "connected anew"]
    assert other.received() == []


def test_a_write_of_a_session_that_is_over_is_refused_wherever_it_comes_from() -> None:
    """The server it is at learns of the end later than the leader."""
    sim = Sim(servers=3)
    client = sim.open(session(20.0), at=1)
    sim.ask(client, Create("/mine", ephemeral=True))
    sim.zookeeper.isolate(1)
    single = client.send(Create("/single"))
    sim.zookeeper.end_session(client.ids[0])
    sim.run(1.0)
    sim.zookeeper.rejoin(1)
    sim.until(lambda: len(client.ids) == 2)
    assert client.replies[single].fault is Fault.CONNECTION_LOSS
    assert sim.zookeeper.read("/single") is None
    assert sim.zookeeper.read("/mine") is None


def test_nodes_can_be_made_in_the_name_of_a_living_session() -> None:
    sim = Sim()
    client = sim.open()
    assert sim.zookeeper.create("/a/b/c", b"x", owner=client.ids[0], parents=True) is None
    assert sim.zookeeper.create("/a/b") is Fault.NODE_EXISTS
    assert sim.zookeeper.read("/a/b/c")[1].ephemeral_owner == client.ids[0]  # type: ignore[index]
    with pytest.raises(ValueError, match="session 0x63"):
        sim.zookeeper.create("/d", owner=99)
    client.port.close(1.0)
    sim.run(0.1)
    assert sim.zookeeper.children("/a/b") == []
    assert sim.zookeeper.set_data("/a", b"y", 0) is None
    assert sim.zookeeper.set_data("/a", b"z", 0) is Fault.BAD_VERSION
    assert sim.zookeeper.delete("/a") is Fault.NOT_EMPTY
    assert sim.zookeeper.delete("/a", recursive=True) is None
    assert (sim.zookeeper.read("/a"), sim.zookeeper.children("/a")) == (None, [])
