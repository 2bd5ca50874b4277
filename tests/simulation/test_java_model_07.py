"""Known behaviour of the Java member of Kafka 0.7.2, checked on its model."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.subscription import Subscription, assign_range
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import SetData
from tests.simulator import MemberSpec, Plan, World
from tests.simulator.brokers_07 import Brokers07
from tests.simulator.group_nodes import owner_nodes, registrations
from tests.simulator.java_layout import in_java_order, java_range
from tests.simulator.java_layout_07 import Kafka072
from tests.simulator.java_member import JavaMember
from tests.simulator.java_threads import JavaFailure

LAYOUT = Kafka072()


def world_of(*members: MemberSpec, partitions: int = 3, message_every_s: float = 0.2) -> World:
    """A world of Java members that have not joined."""
    plan = Plan(members, (("t", partitions),), (), message_every_s=message_every_s, faults_s=1e3, generation="0.7")
    world = World(plan, 1)
    world.start()
    return world


def java(name: str = "a", **settings: Any) -> MemberSpec:
    """A Java member; its auto-commit comes late."""
    return MemberSpec(name, "java", **{"topics": (("t", 1),), "auto_commit_s": 100.0, "work_s": 0.0, **settings})


def run(world: World, seconds: float) -> None:
    world.schedule.run(world.schedule.now + seconds)


def stored(world: World, partition: str) -> int | None:
    node = world.zookeeper.read(znodes.offset_path("g", "t", partition))
    return None if node is None else int(node[0])


def member(world: World, name: str) -> JavaMember:
    found = world.living(name)
    assert found is not None
    return member_of(world, found.name)


def member_of(world: World, label: str) -> JavaMember:
    """The member of a process, also of one that is gone."""
    actor = world.participants[label].actor
    assert isinstance(actor, JavaMember)
    return actor


# -- what it writes and reads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscription", "text"),
    [
        (Subscription.static({"t": 2, "views": 1}), b'{ "t": 2,"views": 1 }'),
        (Subscription.white_list("t.*", 3), b"*3*t.*"),
        (Subscription.black_list("test.*", 1), b"!1!test.*"),
    ],
)
def test_a_registration_has_no_time_and_is_read_as_it_was_written(subscription: Subscription, text: bytes) -> None:
    assert LAYOUT.format_registration(subscription, 1) == text
    assert LAYOUT.format_registration(subscription, 2) == text
    assert LAYOUT.parse_registration("path", text) == subscription


@pytest.mark.parametrize(
    "text", [b"", b"null", b"topic1", b"\xff\xfe{", b"*x*t", b'{"version":1,"subscription":{"t":1},"pattern":"static"}']
)
def test_a_registration_that_it_cannot_read_is_an_exception(text: bytes) -> None:
    with pytest.raises(JavaFailure):
        LAYOUT.parse_registration("path", text)


_COUNTS = st.dictionaries(st.sampled_from((0, 1, 2, 9, 10, 11, 100)), st.integers(1, 12), min_size=1)


@given(counts=_COUNTS, members=st.integers(1, 3), streams=st.integers(1, 12))
def test_members_and_product_assign_names_alike(counts: dict[int, int], members: int, streams: int) -> None:
    names: list[int | str] = [f"{broker}-{number}" for broker, count in counts.items() for number in range(count)]
    threads = {f"g_{at}": [f"g_{at}-{number}" for number in range(streams)] for at in range(members)}
    everybody = {"t": in_java_order(each for mine in threads.values() for each in mine)}
    ordered: list[int | str] = [*in_java_order(str(name) for name in names)]
    decided: dict[tuple[str, int | str], str] = {}
    for consumer_id, mine in threads.items():
        decided |= java_range(consumer_id, {"t": mine}, {"t": ordered}, everybody)
    assert decided == assign_range({"t": names}, everybody)


# -- offsets ---------------------------------------------------------------------------------------------------------


def test_a_start_that_was_asked_for_is_not_stored_before_a_commit() -> None:
    world = world_of(java(auto_commit_s=5.0))
    world.join("a")
    run(world, 4.0)
    assert set(owner_nodes(world.zookeeper, world.brokers).values()) == {"g_a-0"}
    assert any(event.kind == "deliver" for event in world.history)
    assert [stored(world, name) for name in ("0-0", "2-0", "10-0")] == [None, None, None]
    run(world, 2.5)
    assert None not in [stored(world, name) for name in ("0-0", "2-0", "10-0")]


def test_it_commits_in_a_rebalance_whatever_auto_commit_says_and_all_offsets_each_time() -> None:
    world = world_of(java(auto_commit_s=0.0, commit_every=0), java("b"), message_every_s=1e9)
    for name in ("0-0", "10-0", "2-0"):
        world.brokers.produce("t", name)
    world.join("a")
    run(world, 4.0)
    assert stored(world, "2-0") is None
    written: list[str] = []
    actor = world.living("a")
    assert actor is not None
    right = actor.watched.send

    def send(request: Any, done: Any) -> None:
        if isinstance(request, SetData):
            written.append(request.path.rpartition("/")[2])
        right(request, done)

    actor.watched.send = send  # type: ignore[method-assign]
    world.join("b")
    run(world, 4.0)
    ends = {name: (world.brokers.ends("t", name) or (0, 0))[1] for name in ("0-0", "10-0", "2-0")}
    assert {name: stored(world, name) for name in ends} == ends
    written.clear()
    world.kill(world.participants["b"])
    run(world, 12.0)
    assert set(written) >= {"0-0", "10-0"}, "unchanged offsets are written again"


def test_an_offset_out_of_range_is_stored_at_once() -> None:
    world = world_of(java())
    assert world.zookeeper.create(znodes.offset_path("g", "t", "0-0"), b"100000", parents=True) is None
    world.join("a")
    run(world, 4.0)
    assert stored(world, "0-0") == 0
    assert [event.partition for event in world.history if event.kind == "reset"] == ["0-0"]


def test_messages_of_an_entry_commit_its_start_and_the_last_one_its_end() -> None:
    world = world_of(java(auto_commit_s=0.25, work_s=0.0), partitions=1, message_every_s=0.3)
    world.join("a")
    run(world, 3.0)
    world.participants["a"].actor.slow_down(1.0, world.schedule.now + 30.0)
    run(world, 30.0)
    entries = world.brokers.entries
    delivered = [event for event in world.history if event.kind == "deliver"]
    inner = 0
    for event, after in pairwise(delivered):
        entry = entries.of(event.place, event.offset)
        expected = entry.end if event.offset == entry.last else entry.first
        values = {each.offset for each in world.history if each.kind == "commit"
                  and event.time_ns + 300_000_000 < each.time_ns < after.time_ns}  # fmt: skip
        assert values <= {expected}
        inner += bool(values) and event.offset != entry.last
    assert inner > 0


def test_from_a_position_within_an_entry_its_stream_throws_and_its_process_ends() -> None:
    world = world_of(java(auto_commit_s=0.25), java("b"), message_every_s=1e9)
    for name in ("0-0", "0-0", "2-0"):
        world.brokers.produce("t", name)
    assert world.zookeeper.create(znodes.offset_path("g", "t", "0-0"), b"5", parents=True) is None
    run(world, 1.0)
    world.join("a")
    run(world, 1.5)
    assert world.participants["a"].process.is_gone
    assert member_of(world, "a").thread_failures == ["next: JavaFailure('InvalidMessageSizeException')"]
    assert not [event for event in world.history if event.kind == "deliver" and event.partition == "0-0"]
    run(world, 20.0)
    assert len(world.participants) > 2, "it is started again, and ends again"
    assert stored(world, "0-0") == 5
    assert world.zookeeper.set_data(znodes.offset_path("g", "t", "0-0"), b"0") is None
    run(world, 30.0)
    again = {event.member for event in world.history if event.kind == "deliver" and event.partition == "0-0"}
    assert len(again) == 1
    assert stored(world, "0-0") == (world.brokers.ends("t", "0-0") or (0, 0))[1]


def test_a_stream_that_has_failed_throws_at_each_call() -> None:
    world = world_of(java(), message_every_s=1e9)
    world.brokers.produce("t", "0-0")
    assert world.zookeeper.create(znodes.offset_path("g", "t", "0-0"), b"5", parents=True) is None
    run(world, 1.0)
    world.join("a")
    actor = member(world, "a")
    actor.when_failed = lambda: None  # an application that catches it
    run(world, 4.0)
    [stream] = actor._connector.streams
    with pytest.raises(JavaFailure, match="failed state"):
        next(stream.next())
    world.brokers.produce("t", "0-0")
    run(world, 4.0)
    assert [event for event in world.history if event.kind == "deliver" and event.partition == "0-0"] == []
    assert set(owner_nodes(world.zookeeper, world.brokers).values()) == {"g_a-0"}, "it goes on to own them"


def test_less_than_a_size_is_waited_for() -> None:
    world = world_of(java(), message_every_s=1e9)
    world.brokers.produce("t", "0-0")
    end = (world.brokers.ends("t", "0-0") or (0, 0))[1]
    run(world, 1.0)
    assert world.zookeeper.create(znodes.offset_path("g", "t", "0-0"), b"%d" % (end - 3), parents=True) is None
    world.join("a")
    run(world, 5.0)
    actor = member(world, "a")
    assert actor.thread_failures == []
    world.brokers.produce("t", "0-0")
    run(world, 3.0)
    assert world.participants["a"].process.is_gone


# -- rebalances ------------------------------------------------------------------------------------------------------


def test_of_the_streams_of_a_wildcard_the_last_one_gets_all_messages() -> None:
    world = world_of(java(topics=(), whitelist="t.*", streams=2))
    world.join("a")
    run(world, 5.0)
    assert set(owner_nodes(world.zookeeper, world.brokers).values()) == {"g_a-0", "g_a-1"}
    queues = {info.thread_id: info.queue for info in member(world, "a")._connector.registry["t"].values()}
    assert queues["g_a-0"] is queues["g_a-1"] is member(world, "a")._connector.streams[-1].queue
    assert {event.partition for event in world.history if event.kind == "deliver"} == {"0-0", "2-0", "10-0"}


def test_a_topic_that_comes_later_is_noticed_by_a_session_of_its_own() -> None:
    world = world_of(java(topics=(), whitelist="t.*"))
    before = len(world.zookeeper.sessions)
    world.join("a")
    run(world, 4.0)
    assert len(world.zookeeper.sessions) == before + 2
    world.end_session(world.participants["a"])
    world.brokers.create_topic("t1", 2)
    run(world, 5.0)
    assert {place for place in owner_nodes(world.zookeeper, world.brokers) if place[0] == "t1"} == {
        ("t1", "0-0"), ("t1", "2-0"),
    }  # fmt: skip
    world.participants["a"].actor.leave()
    run(world, 2.0)
    assert len(world.zookeeper.sessions) == before, "both sessions are closed"


def test_after_four_attempts_two_seconds_apart_it_gives_up() -> None:
    world = world_of(java())
    assert world.zookeeper.create(znodes.owner_path("g", "t", "10-0"), b"somebody-0", parents=True) is None
    world.join("a")
    run(world, 8.6)  # less than a second later it is started again
    actor = world.participants["a"].actor
    assert isinstance(actor, JavaMember)
    assert (actor.rebalance_attempts, actor.conflicts, actor.gave_up) == (4, 4, 1)
    assert "can't rebalance after 4 retries" in actor.start_failure
    tries = [event.time_ns / 1e9 for event in world.history if event.kind == "blocked_try"]
    assert all(2.0 < after - before < 2.3 for before, after in pairwise(tries))


def test_partitions_go_and_come_with_their_broker() -> None:
    world = world_of(java())
    world.join("a")
    run(world, 4.0)
    brokers = world.brokers
    assert isinstance(brokers, Brokers07)
    assert brokers.stop(1)
    run(world, 3.0)
    assert {partition for _, partition in owner_nodes(world.zookeeper, brokers)} == {"0-0", "10-0"}
    brokers.start(1)
    run(world, 3.0)
    assert {partition for _, partition in owner_nodes(world.zookeeper, brokers)} == {"0-0", "2-0", "10-0"}


def test_a_process_that_starts_again_has_another_consumer_id() -> None:
    world = world_of(java())
    world.join("a")
    run(world, 2.0)
    world.kill(world.participants["a"])
    world.join("a")
    run(world, 2.0)
    assert set(registrations(world.zookeeper)) == {"g_a", "g_a.2"}, "the old session is not over"
