"""Groups of Kafka 0.7 in the simulator, scene by scene: brokers come and go, and entries are handed over whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from rebalance.zookeeper import znodes, znodes_07
from simpleconsumer.kafka07.requests import encode_message_set
from tests.simulator import MemberSpec, Plan, Run, Step, World, simulate
from tests.simulator.brokers_07 import Brokers07
from tests.simulator.group_nodes import owner_nodes, registrations
from tests.simulator.member import OurMember
from zkconsumer.testing.history.checks import count_allowed_repeats

T = (("t", 1),)
A, B = MemberSpec("a", topics=T, work_s=0.01), MemberSpec("b", topics=T, work_s=0.01)
JOINS = (Step(0.1, "join", "a"), Step(2.0, "join", "b"))
PLAN = Plan((A, B), (("t", 3),), JOINS, message_every_s=0.2, faults_s=8.0, generation="0.7")
SEEDS = range(6)


def clean(plan: Plan, seed: int) -> Run:
    """The run, whose history is clean."""
    run = simulate(plan, seed)
    assert not run.findings, f"seed {seed}: {run.findings[0]}"
    return run


def at_rest(plan: Plan, seconds: float) -> World:
    """A world in which so much time has passed."""
    world = World(plan, 1)
    world.start()
    world.schedule.run(world.schedule.now + seconds)
    return world


def repeated(run: Run) -> int:
    """How many messages came more than once."""
    delivered = [event.id for event in run.history if event.kind == "deliver"]
    return len(delivered) - len(set(delivered))


# -- the registry ----------------------------------------------------------------------------------------------------


def test_brokers_and_members_register_as_those_of_07() -> None:
    world = at_rest(replace(PLAN, topics=(("t", 4),)), 4.0)
    read = world.zookeeper.read
    brokers = {number: read(znodes.broker_path(number)) for number in (0, 2, 10)}
    assert {number: node and node[0] for number, node in brokers.items()} == {
        number: b"b%d-1300000000001:b%d:9092" % (number, number) for number in (0, 2, 10)
    }
    counts = {name: read(znodes_07.topic_broker_path("t", int(name))) for name in world.zookeeper.children(
        znodes.topic_path("t"))}  # fmt: skip
    assert {name: node and node[0] for name, node in counts.items()} == {"0": b"2", "2": b"1", "10": b"1"}
    assert all(node is not None and node[1].ephemeral_owner for node in (*brokers.values(), *counts.values()))
    assert registrations(world.zookeeper) == {"g_a": b'{ "t": 1 }', "g_b": b'{ "t": 1 }'}


def test_partitions_are_assigned_in_the_order_of_text() -> None:
    world = at_rest(replace(PLAN, topics=(("t", 4),)), 5.0)
    assert owner_nodes(world.zookeeper, world.brokers) == {
        ("t", "0-0"): "g_a-0", ("t", "0-1"): "g_a-0", ("t", "10-0"): "g_b-0", ("t", "2-0"): "g_b-0",
    }  # fmt: skip


# -- brokers ---------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("H6")
@pytest.mark.parametrize("word", ["", "killed"])
def test_partitions_go_and_return_with_their_broker_at_the_same_positions(word: str) -> None:
    steps = (Step(0.1, "join", "a"), Step(3.0, "broker", number=1, for_s=8.0, word=word))
    plan = replace(PLAN, members=(A,), steps=steps, faults_s=14.0)
    for seed in SEEDS:
        run = clean(plan, seed)
        own = [event for event in run.history if event.partition == "2-0" and event.kind in ("assigned", "owner_gone")]
        assert [event.kind for event in own] == ["assigned", "owner_gone", "assigned"]
        stored = [event.offset for event in run.history if event.kind == "offset_node" and event.partition == "2-0"
                  and event.time_ns < own[2].time_ns]  # fmt: skip
        assert own[2].offset == stored[-1] > 0
        assert repeated(run) == 0


def test_a_broker_that_does_not_answer_keeps_its_partitions() -> None:
    steps = (Step(0.1, "join", "a"), Step(3.0, "broker", number=1, for_s=4.0, word="deaf"))
    run = clean(replace(PLAN, members=(A,), steps=steps), 1)
    assert [event.kind for event in run.history if event.kind == "owner_gone"] == []
    assert repeated(run) == 0


def test_a_broker_that_comes_back_with_more_partitions_is_noticed() -> None:
    steps = (Step(0.1, "join", "a"), Step(3.0, "grow", "t", amount=2))
    run = clean(replace(PLAN, members=(A,), steps=steps, faults_s=12.0), 1)
    assert {event.partition for event in run.history if event.kind == "assigned"} == {
        "0-0", "0-1", "0-2", "10-0", "2-0",
    }  # fmt: skip


@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_a_log_whose_last_entry_retention_has_taken_is_no_other_log(reset: Literal["smallest", "largest"]) -> None:
    steps = (Step(0.1, "join", "a"), Step(5.0, "broker", number=1, for_s=2.0, word="deaf"),
             Step(6.0, "retention", "t", amount=100))  # fmt: skip
    plan = replace(PLAN, members=(replace(A, reset=reset),), steps=steps, faults_s=9.0)
    clean(plan, 1)
    world = at_rest(plan, 9.0)
    starts = [event for event in world.history if event.kind == "log_start" and event.partition == "2-0"]
    assert len(starts) == 1
    actor = world.participants["a"].actor
    assert isinstance(actor, OurMember)
    assert actor.delivery._counters.counts("errors") == {}


@pytest.mark.parametrize("for_s", [0.5, 3.0])
def test_a_broker_that_comes_back_with_another_log_is_read_from_its_start(for_s: float) -> None:
    steps = (Step(0.1, "join", "a"), Step(5.0, "broker", number=1, for_s=for_s, word="replaced"))
    for seed in SEEDS:
        run = clean(replace(PLAN, members=(A,), steps=steps, faults_s=12.0), seed)
        of_new = [event for event in run.history if event.place == ("t~1", "2-0")]
        delivered = {event.id for event in of_new if event.kind == "deliver"}
        assert delivered == {event.id for event in of_new if event.kind == "acked"}
        assert [event.offset for event in of_new if event.kind == "reset"] == [0]


# -- entries ---------------------------------------------------------------------------------------------------------


def handed_over(work_ms: int) -> Plan:
    """The only partition moves from a member that is slow to another one that comes and goes."""
    moves = (Step(5.0, "join", "a"), Step(8.0, "leave", "a"), Step(11.0, "join", "a"), Step(14.0, "leave", "a"))
    slow = Step(1.0, "slow", "b", for_s=14.0, amount=work_ms)
    members = (replace(A, drain_s=1.0), replace(B, drain_s=1.0))
    return replace(PLAN, members=members, topics=(("t", 1),), steps=(Step(0.1, "join", "b"), slow, *moves),
                   faults_s=17.0)  # fmt: skip


def test_an_entry_that_was_begun_is_finished_before_its_partition_moves() -> None:
    for seed in SEEDS:
        run = clean(handed_over(100), seed)
        assert [event.member for event in run.history if event.kind == "assigned"][:4] == ["b", "a", "b", "a.2"]
        assert repeated(run) == 0


def test_an_entry_that_a_drain_does_not_finish_is_repeated_from_its_start_and_counted() -> None:
    again = 0
    for seed in SEEDS:
        run = clean(handed_over(700), seed)
        again += repeated(run)
        assert count_allowed_repeats(run.history, run.limits) == repeated(run)
    assert again > 0


@pytest.mark.parametrize("inner", [5, 8, 12, 32])
def test_from_a_position_within_an_entry_reading_goes_on_at_its_start(inner: int) -> None:
    steps = (Step(0.1, "join", "b"), Step(4.0, "crash", "b"),
             Step(5.0, "offset set", "t", amount=inner, word="inside"), Step(8.0, "join", "a"))  # fmt: skip
    came_back = 0
    for seed in SEEDS:
        run = clean(replace(PLAN, topics=(("t", 1),), steps=steps, faults_s=12.0), seed)
        place = ("t", "0-0")
        [start] = [event for event in run.history if event.kind == "assigned" and event.member == "a"]
        [first, *_] = [event for event in run.history if event.kind == "deliver" and event.member == "a"]
        assert first.offset == run.limits.entries.start_of(place, start.offset)
        resets = [event.offset for event in run.history if event.kind == "reset"]
        assert resets == ([first.offset] if first.offset != start.offset else [])
        came_back += first.offset < start.offset
    assert came_back == len(SEEDS) or inner > 16, "the shortest entry takes 17 bytes"


def test_a_position_within_an_entry_is_healed_by_a_member_of_ours_after_java_members_have_failed_at_it() -> None:
    """Java starts there three times, and delivers nothing from there."""
    java = MemberSpec("b", "java", topics=T, work_s=0.01)
    steps = (Step(0.1, "join", "a"), Step(4.0, "crash", "a"), Step(5.0, "offset set", "t", amount=5, word="inside"),
             Step(12.0, "join", "b"), Step(18.0, "crash", "b"), Step(26.0, "join", "a"))  # fmt: skip
    for seed in SEEDS:
        run = clean(replace(PLAN, members=(A, java), topics=(("t", 1),), steps=steps, faults_s=34.0), seed)
        starts = [event for event in run.history if event.kind == "claimed" and event.member.startswith("b")]
        assert starts
        by_java = [event for event in run.history if event.kind == "deliver" and event.member.startswith("b")]
        ours = next(event for event in run.history if event.kind == "deliver" and event.member == "a.2")
        assert not [event for event in by_java if event.time_ns < ours.time_ns]


def test_segments_that_retention_drops_are_passed_over() -> None:
    steps = (Step(0.1, "join", "b"), Step(2.0, "crash", "b"), Step(7.0, "retention", "t", amount=80),
             Step(8.0, "join", "a"))  # fmt: skip
    run = clean(replace(PLAN, topics=(("t", 1),), steps=steps, faults_s=12.0), 1)
    [start] = [event for event in run.history if event.kind == "log_start"]
    [reset] = [event for event in run.history if event.kind == "reset"]
    assert (reset.member, reset.offset) == ("a", start.offset)


def test_another_log_that_is_longer_by_the_time_it_is_read_is_read_from_its_start() -> None:
    """The old position is one of the new log, and an entry starts there: only the entry before it tells."""
    world = at_rest(replace(PLAN, members=(A,), steps=JOINS[:1], message_every_s=0.1, faults_s=60.0), 4.0)
    brokers, port, place = world.brokers, world.participants["a"].port, ("t", "2-0")
    assert isinstance(brokers, Brokers07)
    world._produces = False
    world.schedule.run(world.schedule.now + 1.0)
    end = brokers._logs[place].end
    world.zookeeper.cut(port)
    brokers.stop(1)
    brokers.start(1, anew=True)
    log, of_new = brokers._logs[place], ("t~1", "2-0")
    while log.end < end:
        left = end - log.end
        value = b"%s/%s/%d" % (of_new[0].encode(), of_new[1].encode(), log.end)
        entry = encode_message_set([value])
        padding = left - len(entry) if left < 2 * len(entry) else 0
        start = log.end
        log.append(encode_message_set([b" " * padding + value]), 1)
        brokers.entries.add(of_new, start, 1, log.end)
    assert log.end == end, "an entry starts at the old position"
    log.flush()
    for _ in range(3):
        brokers.produce(*place)
    world.schedule.run(world.schedule.now + 2.0)
    world.zookeeper.heal(port)
    world.schedule.run(world.schedule.now + 3.0)
    delivered = [event.offset for event in world.history if event.place == of_new and event.kind == "deliver"]
    assert delivered[0] == 0
    assert [event.offset for event in world.history if event.place == of_new and event.kind == "reset"] == [0]


def test_a_member_that_has_noticed_another_log_and_committed_nothing_of_it_starts_it_anew_in_its_next_session() -> None:
    """Its last commit is of the log that is gone, and the new one has grown past it."""
    own = replace(A, auto_commit_s=0.0, commit_every=2)
    steps = (JOINS[0], Step(2.0, "pause", "a", for_s=9.0), Step(2.1, "broker", for_s=0.3, word="replaced"),
             Step(9.0, "cut", "a", for_s=3.5))  # fmt: skip
    plan = replace(PLAN, members=(own,), topics=(("t", 1),), steps=steps, message_every_s=0.15, faults_s=16.0)
    for seed in range(6):
        run = clean(plan, seed)
        assert [event.offset for event in run.history if event.kind == "assigned" and event.topic == "t~1"] == [0]
        assert not run.limits.begin.get(("t~1", "0-0"), 0), "nothing is passed over"


def test_a_member_that_has_read_nothing_since_a_reset_may_start_in_another_log_at_its_last_commit() -> None:
    """It was reset behind the entry that it has delivered, so it knows none to compare."""
    slow = replace(A, auto_commit_s=0.0, commit_every=3, work_s=0.05)
    steps = (Step(0.1, "join", "a"), Step(1.1, "slow", "a", for_s=0.5, amount=700),
             Step(2.0, "retention", "t", amount=100), Step(2.6, "pause", "a", for_s=9.0),
             Step(2.7, "broker", for_s=0.3, word="replaced"))  # fmt: skip
    plan = replace(PLAN, members=(slow,), topics=(("t", 1),), steps=steps, message_every_s=0.25, faults_s=14.0)
    passed_over = 0
    for seed in range(40):
        run = clean(plan, seed)
        passed_over += run.limits.begin.get(("t~1", "0-0"), 0) > 0
    assert passed_over


def test_without_an_entry_to_compare_the_position_is_checked_anew_when_its_broker_is_back() -> None:
    """Behind a reset nothing was fetched yet, and the other log has no entry that starts there."""
    world = at_rest(replace(PLAN, members=(A,), steps=JOINS[:1], message_every_s=0.1, faults_s=60.0), 4.0)
    brokers, port, place = world.brokers, world.participants["a"].port, ("t", "2-0")
    assert isinstance(brokers, Brokers07)
    world._produces = False
    world.schedule.run(world.schedule.now + 1.0)
    brokers.stop(1, "deaf")
    log = brokers._logs[place]
    log.append(encode_message_set([b"t/2-0/0"] * 9), 9)  # retention takes it before the member gets it
    brokers.trim(*place, log.end)
    brokers.start(1)
    world.schedule.run(world.schedule.now + 2.0)
    world.zookeeper.cut(port)
    brokers.stop(1)
    brokers.start(1, anew=True)
    while (brokers.ends(*place) or (0, 0))[1] <= log.end + 40:
        brokers.produce(*place)
    assert brokers.entries.is_inside(("t~1", "2-0"), log.end)
    world.schedule.run(world.schedule.now + 2.0)
    world.zookeeper.heal(port)
    world.schedule.run(world.schedule.now + 3.0)
    of_new = [event for event in world.history if event.topic == "t~1" and event.kind == "deliver"]
    assert of_new[0].offset == brokers.entries.start_of(("t~1", "2-0"), log.end)
