"""The simulated port reports the same as the port on kazoo when connections break and sessions end, in the same order.

Each scene runs in both worlds. The whole transcript of each session is compared: session changes, replies with
their faults, and watch events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from zookeeper_worlds import RealWorld, Session, SimulatedWorld, World, ask, settle

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
from zkconsumer.testing.zookeeper import ZooKeeperServer

Scene = Callable[[World, str], dict[str, list[Any]]]


@pytest.fixture(scope="module")
def own_zookeeper() -> Iterator[ZooKeeperServer]:
    """A server that these scenes may kill and wipe."""
    with ZooKeeperServer() as server:
        yield server


def transcripts(world: World) -> dict[str, list[Any]]:
    return {name: session.transcript for name, session in world.sessions.items()}


def a_lost_connection_answers_what_was_under_way(world: World, root: str) -> dict[str, list[Any]]:
    """Applied or not, it is unknown; the session goes on."""
    one, other = world.open("one"), world.open("other")
    ask(world, "one", Create(root))
    world.stall_answers("one")
    one.send(Multi((Create(f"{root}/landed"), Check(root, 0))))
    one.send(SetData(root, b"x"))
    one.send(GetData(root, one.watch("never armed")))
    world.reached(lambda: ask(world, "other", GetData(root))[0].value[0] == b"x")
    assert ask(world, "other", Exists(f"{root}/landed"))[0].value is not None
    world.cut("one")
    world.heal("one")
    world.reached(lambda: one.state == "connected" and len(one.changes) == 3)
    ask(world, "one", SetData(root, b"y"))
    other.transcript.clear()
    return transcripts(world)


def watches_do_not_survive_a_lost_connection(world: World, root: str) -> dict[str, list[Any]]:
    """Neither does the change that happened meanwhile show as an event, nor one that comes later."""
    one = world.open("one")
    world.open("other")
    ask(world, "one", Create(root), Create(f"{root}/child"))
    ask(
        world,
        "one",
        GetData(root, one.watch("data")),
        GetChildren(root, one.watch("children")),
        Exists(f"{root}/none", one.watch("missing")),
    )
    world.cut("one")
    world.reached(lambda: one.state == "suspended")
    ask(world, "other", SetData(root, b"x"))
    world.heal("one")
    world.reached(lambda: one.state == "connected")
    ask(world, "other", SetData(root, b"y"), Create(f"{root}/none"), Delete(f"{root}/child"))
    settle(world)
    ask(world, "one", GetData(root, one.watch("armed anew")))
    ask(world, "other", SetData(root, b"z"))
    settle(world)
    return transcripts(world)


def what_is_asked_while_away_waits_for_the_next_connection(world: World, root: str) -> dict[str, list[Any]]:
    """Under the same session it is done as if it had been asked there."""
    one = world.open("one")
    ask(world, "one", Create(root))
    world.cut("one")
    world.reached(lambda: one.state == "suspended")
    numbers = [
        one.send(request)
        for request in (
            SetData(root, b"x", 0),
            Multi((Check(root, 1),)),
            GetData(root, one.watch("data")),
            SetData(root, b"y", 1),
        )
    ]
    world.heal("one")
    world.reached(lambda: all(number in one.replies for number in numbers))
    settle(world)
    return transcripts(world)


def what_waits_when_the_session_is_over_is_refused(world: World, root: str) -> dict[str, list[Any]]:
    """And the next session starts with none of its watches and none of its nodes."""
    one = world.open("one")
    world.open("other")
    ask(world, "one", Create(root), Create(f"{root}/mine", ephemeral=True))
    ask(world, "one", GetData(root, one.watch("data")))
    world.cut("one")
    world.reached(lambda: one.state == "suspended")
    one.send(Multi((Check(f"{root}/mine", 0), Create(f"{root}/zombie"))))
    one.send(GetData(root))
    world.end_session(one.ids[0])
    world.heal("one")
    world.reached(lambda: one.state == "connected")
    ask(world, "other", SetData(root, b"x"))
    settle(world)
    names = ask(world, "one", GetChildren(root))[0].value[0]
    assert names == []
    return transcripts(world)


def a_session_ended_from_outside(world: World, root: str) -> dict[str, list[Any]]:
    """Its client first sees a lost connection; others see its nodes go."""
    one, other = world.open("one"), world.open("other")
    ask(world, "one", Create(root))
    ask(world, "one", Create(f"{root}/mine", ephemeral=True))
    ask(world, "other", GetChildren(root, other.watch("children")), GetData(f"{root}/mine", other.watch("node")))
    world.end_session(one.ids[0])
    world.reached(lambda: len(one.ids) == 2)
    settle(world)
    return transcripts(world)


def leaving_takes_ephemeral_nodes_at_once_and_tells_nothing(world: World, root: str) -> dict[str, list[Any]]:
    """Of its session; what others see is the deletion."""
    one, other = world.open("one"), world.open("other")
    ask(world, "one", Create(root))
    ask(world, "one", Create(f"{root}/mine", ephemeral=True))
    ask(world, "other", Exists(f"{root}/mine", other.watch("node")))
    world.close("one")
    assert ask(world, "other", Exists(f"{root}/mine"))[0].value is None
    return {**transcripts(world), "one": one.transcript}


def begin_to_leave_while_cut_off(world: World, root: str, one: Session, other: Session) -> None:
    """Close a session without a connection, so that the server does not know; the other session watches its node."""
    ask(world, "one", Create(root))
    ask(world, "one", Create(f"{root}/mine", ephemeral=True))
    ask(world, "other", Exists(f"{root}/mine", other.watch("node")))
    world.cut("one")
    world.reached(lambda: one.state == "suspended")
    world.begin_close("one")
    assert ask(world, "other", Exists(f"{root}/mine"))[0].value is not None


def leaving_while_cut_off_takes_the_nodes_with_the_time_out(world: World, root: str) -> dict[str, list[Any]]:
    """Its session ends by the time-out."""
    one, other = world.open("one", session_s=2.5), world.open("other")
    begin_to_leave_while_cut_off(world, root, one, other)
    world.reached(lambda: ("event", "node", f"{root}/mine") in other.transcript)
    return transcripts(world)


def leaving_while_cut_off_takes_the_nodes_as_soon_as_the_link_is_back(world: World, root: str) -> dict[str, list[Any]]:
    """The session would last a minute."""
    one, other = world.open("one", session_s=60.0), world.open("other")
    begin_to_leave_while_cut_off(world, root, one, other)
    world.heal("one")
    world.reached(lambda: ("event", "node", f"{root}/mine") in other.transcript)
    return transcripts(world)


def a_time_out_in_silence_is_reported_when_the_link_is_back(world: World, root: str) -> dict[str, list[Any]]:
    """Not before, however long ago it was: only a server can decide it."""
    one, other = world.open("one", session_s=2.5), world.open("other")
    ask(world, "one", Create(root))
    ask(world, "one", Create(f"{root}/mine", ephemeral=True))
    ask(world, "other", Exists(f"{root}/mine", other.watch("node")))
    world.cut("one")
    world.reached(lambda: one.state == "suspended")
    world.reached(lambda: ("event", "node", f"{root}/mine") in other.transcript)
    assert one.state == "suspended"
    world.heal("one")
    world.reached(lambda: len(one.ids) == 2)
    return transcripts(world)


def a_restarted_server_knows_sessions_and_nodes(world: World, root: str) -> dict[str, list[Any]]:
    """And no watches."""
    one = world.open("one")
    ask(world, "one", Create(root))
    ask(world, "one", Create(f"{root}/mine", ephemeral=True))
    ask(world, "one", GetData(root, one.watch("data")))
    # A server that has just started to listen may hang up on its first clients: keep this one away meanwhile.
    world.cut("one")
    world.restart()
    world.heal("one")
    world.reached(lambda: len(one.changes) == 3)
    ask(world, "one", SetData(root, b"x"), Sync(root))
    assert ask(world, "one", Exists(f"{root}/mine"))[0].value.ephemeral_owner == one.ids[0]
    return transcripts(world)


def a_server_that_lost_its_data_ends_the_session_at_last(world: World, root: str) -> dict[str, list[Any]]:
    """It refuses a client that has seen more than it, until the client forgets what it has seen."""
    one = world.open("one", session_s=2.0)
    for number in range(20):
        ask(world, "one", Create(f"{root}{number}"))
    world.cut("one")
    world.wipe()
    world.heal("one")
    world.reached(lambda: len(one.ids) == 2)
    assert ask(world, "one", Exists(f"{root}0"))[0].value is None
    return transcripts(world)


def a_dropped_connection_comes_back_with_the_same_session(world: World, root: str) -> dict[str, list[Any]]:
    """What was sent before it went out before it."""
    one = world.open("one")
    ask(world, "one", Create(root))
    world.stall_answers("one")
    number = one.send(SetData(root, b"x"))
    one.port.drop_connection()
    world.reached(lambda: number in one.replies)
    assert one.replies[number].fault is Fault.CONNECTION_LOSS
    world.heal("one")
    world.reached(lambda: one.state == "connected" and len(one.changes) == 3)
    return transcripts(world)


SCENES: list[Scene] = [
    a_lost_connection_answers_what_was_under_way,
    watches_do_not_survive_a_lost_connection,
    what_is_asked_while_away_waits_for_the_next_connection,
    what_waits_when_the_session_is_over_is_refused,
    a_session_ended_from_outside,
    leaving_takes_ephemeral_nodes_at_once_and_tells_nothing,
    leaving_while_cut_off_takes_the_nodes_with_the_time_out,
    leaving_while_cut_off_takes_the_nodes_as_soon_as_the_link_is_back,
    a_time_out_in_silence_is_reported_when_the_link_is_back,
    a_restarted_server_knows_sessions_and_nodes,
    a_server_that_lost_its_data_ends_the_session_at_last,
    a_dropped_connection_comes_back_with_the_same_session,
]


@pytest.mark.catalogue("I10")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_same_scene_gives_the_same_transcript(
    own_zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str], scene: Scene
) -> None:
    root = f"/{fresh_topic()}"
    with RealWorld(own_zookeeper) as real:
        wanted = scene(real, root)
    got = scene(SimulatedWorld(), root)
    assert got == wanted
    assert any(wanted.values())
