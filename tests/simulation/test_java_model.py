"""Known behaviour of the Java member, checked on its model; the recordings have the figures of real ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from java_scenes import SCENES
from simulated_java_stage import SimulatedStage

from rebalance.errors import UnequalSubscriptions
from rebalance.subscription import assign_range, assign_roundrobin
from rebalance.zookeeper import znodes
from tests.simulator.java_hashing import in_map_order, partition_hash, topic_hash
from tests.simulator.java_layout import Kafka082, java_range, java_roundrobin
from tests.simulator.java_threads import JavaFailure
from zkconsumer.testing.history import Event

A, B = "g_a", "g_b"


def two_members(seed: int, auto_commit_s: float = 1.0) -> SimulatedStage:
    """A group of two at rest, and messages that go on coming, a hundred a second for each partition."""
    stage = SimulatedStage(seed)
    stage.part("two members")
    stage.start("a", auto_commit_s=auto_commit_s)
    stage.rest()
    stage.start("b", auto_commit_s=auto_commit_s)
    stage.rest()
    assert stage.owners() == {0: "g_a-0", 1: "g_b-0"}

    def produce() -> None:
        for partition in (0, 1):
            stage.brokers.produce("t", partition)
        stage.schedule.after(0.01, produce)

    produce()
    return stage


def events(stage: SimulatedStage, kind: str, member: str) -> list[Event]:
    return [event for event in stage.history if event.kind == kind and event.member == member]


# -- a pause longer than the session


@pytest.mark.parametrize("seed", range(5))
def test_a_zombie_delivers_what_the_other_has_had_and_puts_offsets_back(seed: int) -> None:
    stage = two_members(seed)
    stage.run(3.0)
    stage.processes["b"].pause()
    stage.run(12.0)
    assert stage.owners() == {0: "g_a-0", 1: "g_a-0"}
    stored = stage.offset(1)
    resumed_ns = int(stage.schedule.now * 1e9)
    stage.processes["b"].resume()
    lowest = stored
    while stage.owners().get(1) != "g_b-0":
        stage.run(0.01)
        lowest = min(lowest, stage.offset(1))
    assert lowest < stored, "the commit that was due goes out under the new session"
    had = {event.offset for event in events(stage, "deliver", "a") if event.partition == 1}
    again = [
        event.offset for event in events(stage, "deliver", "b") if event.time_ns > resumed_ns and event.offset in had
    ]
    assert len(again) > 10


def test_after_a_session_that_was_ended_it_registers_and_shares_again() -> None:
    stage = two_members(1)
    stage.end_session("b")
    stage.until(lambda: stage.owners() == {0: "g_a-0"})
    stage.run(10.0)
    assert stage.owners() == {0: "g_a-0", 1: "g_b-0"}
    assert stage.members["b"].is_at_rest


def test_a_second_session_that_ends_before_the_first_was_dealt_with_makes_it_wait_for_ever() -> None:
    """KAFKA-1387."""
    stage = two_members(3)
    first = stage.ports["b"].session_id
    stage.end_session("b")
    stage.until(lambda: stage.ports["b"].session_id not in (0, first))
    stage.end_session("b")
    stage.run(60.0)
    assert stage.members["b"].waits_for_own_registration
    assert "waits for its own registration" in stage.members["b"].describe()
    assert stage.zookeeper.read(znodes.registration_path("g", B)) is not None


# -- owners that prevent a claim


def test_one_foreign_owner_node_makes_it_own_nothing_until_something_else_happens() -> None:
    stage = SimulatedStage(1)
    SCENES["blocked_for_good"](stage)
    member = stage.members["a"]
    assert (member.rebalance_attempts, member.rebalance_failures, member.gave_up) == (9, 8, 2)
    assert member.conflicts == 8
    assert [given_up.conflicts for given_up in member.given_up] == [{"/consumers/g/owners/t/1": "somebody-0"}] * 2
    assert "can't rebalance after 4 retries" in member.start_failure
    assert member.has_ended
    assert not member.has_left
    assert stage.owners() == {0: "g_a-0", 1: "g_a-0"}, "the next trigger found the way free"
    tries = events(stage, "blocked_try", "a")
    assert [(event.partition, event.id) for event in tries] == [(1, "somebody-0")] * 8
    pauses = [(after.time_ns - before.time_ns) / 1e9 for before, after in pairwise(tries)]
    assert all(2.0 < pause < 2.3 for pause in pauses[:3] + pauses[4:])
    assert len(events(stage, "gave_up", "a")) == 2
    assert not events(stage, "deliver", "a"), "its application never got its streams"


def test_it_deletes_by_path_the_node_that_took_the_place_of_its_own() -> None:
    stage = SimulatedStage(1)
    SCENES["owner_replaced"](stage)
    assert stage.owners() == {0: "g_a-0", 1: "g_a-0"}
    assert stage.members["a"].conflicts == 0


# -- offsets


def test_the_message_in_the_hands_of_the_application_counts_as_consumed() -> None:
    stage = SimulatedStage(1)
    stage.part("slow")
    stage.start("a", auto_commit_s=1.0)
    stage.members["a"].slow_down(1000.0, 1000.0)
    stage.run(5.0)
    delivered = events(stage, "deliver", "a")
    assert [event.offset for event in delivered] == [0]
    assert not events(stage, "done", "a")
    assert stage.offset(delivered[0].partition) == 1


def test_leaving_commits_and_frees_the_partitions() -> None:
    stage = two_members(4)
    stage.run(2.5)
    stage.leave("b")
    member = stage.members["b"]
    assert member.has_left
    assert stage.owners() == {0: "g_a-0"}
    assert stage.offset(1) == max(event.offset for event in events(stage, "deliver", "b")) + 1


@pytest.mark.parametrize("garbage", [b"", b"12a", b"1.5", b"99999999999999999999", b" 1"])
def test_an_offset_that_is_no_number_fails_every_attempt(garbage: bytes) -> None:
    stage = SimulatedStage(1)
    stage.zookeeper.create(znodes.offset_path("g", "t", 0), garbage, parents=True)
    stage.part("garbage")
    stage.start("a")
    stage.rest()
    assert stage.members["a"].gave_up == 1
    assert "NumberFormatException" in stage.members["a"].given_up[0].error


# -- registrations of others

HARMLESS = [
    b'{"version": 1, "subscription": {"u": 1}, "pattern": "static", "timestamp": "1"}',
    b'{"version":1,"subscription":{"u":1},"pattern":"static"}',
    b'{"version":1,"subscription":{"u":1},"pattern":"static","timestamp":17}',
    b'{"version":1,"subscription":{},"pattern":"static","timestamp":"1"}',
    b'{"subscription":{"u":1},"pattern":"of another kind","extra":[null,true]}',
    b'{"version":1,"subscription":{"u\\.*":1},"pattern":"white_list","timestamp":"1"}',
]
POISON = [
    b"",
    b"null",
    b"{}",
    b"u",
    b'{"version":1,"subscription":{"u":1},"pattern":"static","timestamp":1400000000000}',
    b'{"version":1,"subscription":{"u":1},"timestamp":"1"}',
    b'{"version":1,"pattern":"static","timestamp":"1"}',
    b'{"version":1,"subscription":{"u":"1"},"pattern":"static","timestamp":"1"}',
    b'{"version":1,"subscription":{"u":0},"pattern":"static","timestamp":"1"}',
    b'{"version":1,"subscription":{"u":1.0},"pattern":"static","timestamp":"1"}',
    b'{"version":99999999999,"subscription":{"u":1},"pattern":"static","timestamp":"1"}',
    b'{"version":1,"subscription":{"(":1},"pattern":"white_list","timestamp":"1"}',
]


@pytest.mark.parametrize("data", HARMLESS)
def test_odd_registrations_that_real_members_bear(data: bytes) -> None:
    Kafka082().parse_registration("/consumers/g/ids/other", data)


@pytest.mark.parametrize("data", POISON)
def test_registrations_that_stop_every_real_member(data: bytes) -> None:
    with pytest.raises(JavaFailure, match="error constructing TopicCount"):
        Kafka082().parse_registration("/consumers/g/ids/other", data)


def test_a_poison_registration_stops_it_until_that_is_gone() -> None:
    stage = SimulatedStage(1)
    SCENES["first_joins"](stage)
    stage.zookeeper.create(znodes.registration_path("g", "other"), b"{}")
    stage.rest()
    member = stage.members["a"]
    assert member.gave_up == 1
    assert stage.owners() == member.owned() == {}
    stage.zookeeper.delete(znodes.registration_path("g", "other"))
    stage.rest()
    assert stage.owners() == {0: "g_a-0", 1: "g_a-0"}


# -- who gets what, and in which order

names = st.text(st.sampled_from("abZ_-.019"), min_size=1, max_size=6)
members = st.dictionaries(names, st.dictionaries(st.sampled_from("tuv"), st.integers(1, 3), min_size=1), min_size=1)
partitions = st.fixed_dictionaries({topic: st.integers(0, 7).map(range) for topic in "tuv"})


def threads_of(group: dict[str, dict[str, int]]) -> dict[str, list[str]]:
    threads: dict[str, list[str]] = {}
    for consumer_id, topics in group.items():
        for topic, count in topics.items():
            threads.setdefault(topic, []).extend(f"{consumer_id}-{number}" for number in range(count))
    return {topic: sorted(ids) for topic, ids in threads.items()}


@pytest.mark.catalogue("B6")
@given(members, partitions)
def test_members_and_product_deal_by_range_alike(group: dict[str, dict[str, int]], counts: dict[str, range]) -> None:
    everybody = threads_of(group)
    dealt = {}
    for consumer_id, topics in group.items():
        dealt |= java_range(consumer_id, threads_of({consumer_id: topics}), counts, everybody)
    assert dealt == assign_range({topic: counts[topic] for topic in everybody}, everybody)


@pytest.mark.catalogue("B6")
@given(members, partitions)
def test_members_and_product_deal_round_robin_alike(group: dict[str, dict[str, int]], counts: dict[str, range]) -> None:
    everybody = threads_of(group)
    try:
        expected = assign_roundrobin({topic: counts[topic] for topic in everybody}, everybody)
    except UnequalSubscriptions:
        with pytest.raises(JavaFailure, match="only if all consumers subscribe to the same topics"):
            java_roundrobin("anybody", {}, counts, everybody)
        return
    dealt = {}
    for consumer_id, topics in group.items():
        mine = threads_of({consumer_id: topics})
        dealt |= java_roundrobin(consumer_id, mine, {topic: counts[topic] for topic in mine}, everybody)
    assert dealt == expected


def test_a_member_that_is_not_in_the_list_it_read_fails_the_attempt() -> None:
    with pytest.raises(JavaFailure, match="nobody consumes t"):
        java_range("a", {"t": ["a-0"]}, {"t": [0]}, {})
    with pytest.raises(JavaFailure, match="a-0 is not among the consumers of t"):
        java_range("a", {"t": ["a-0"]}, {"t": [0]}, {"t": ["b-0"]})
    with pytest.raises(JavaFailure, match="consumes no topic"):
        java_roundrobin("a", {}, {}, {})


def test_partitions_come_out_of_a_map_as_they_came_out_of_a_real_one() -> None:
    """Read off the offset requests of a real member of 0.8.2.2 that owned 45 partitions."""
    put_in = [(topic, number) for topic, count in (("clicks", 13), ("t", 2), ("lines", 30)) for number in range(count)]
    real = (
        "l16 l21 l13 l8 l11 c8 c0 l25 c11 l26 c10 c3 l6 l19 c4 l5 l12 l14 l2 c9 t0 t1 c5 c1 l18 l15 l4 l17 l1 l0 l23 "
        "c12 l10 c7 l22 l27 l24 c6 l7 l20 c2 l9 l29 l3 l28"
    )
    assert " ".join(f"{topic[0]}{number}" for topic, number in in_map_order(put_in, partition_hash)) == real
    assert in_map_order(["t", "clicks", "lines"], topic_hash) == ["clicks", "t", "lines"]
    assert partition_hash(("t", 0)) == -1995633424 & 0xFFFFFFFF


@given(st.lists(names, unique=True, max_size=100))
def test_a_map_gives_out_what_was_put_in(keys: list[str]) -> None:
    assert sorted(in_map_order(keys, topic_hash)) == sorted(keys)
