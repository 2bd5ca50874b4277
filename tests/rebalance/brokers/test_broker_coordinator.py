"""The coordinator of a member of a broker group: orders of events that real brokers rarely produce."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from stepped_member import T0, T1, T2, T3, SteppedMember, cooperative, stable

from rebalance.brokers.assignor import RangeAssignor, Subscriptions
from rebalance.brokers.consumer_protocol import Assignment, decode_assignment, decode_subscription, encode_assignment
from rebalance.brokers.events import Fence, NamedMember, Synced, TopicsRead
from rebalance.brokers.leading import AssignmentRefused
from rebalance.errors import GroupRefused
from rebalance.partition import PartitionState

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, NOT_COORDINATOR = 22, 25, 27, 16
ONE = Fence(1, "m")


# -- answers that come too late ----------------------------------------------------------------------------------------


def test_an_answer_to_an_older_join_changes_nothing() -> None:
    member = SteppedMember()
    member.post(member.coordinator.start)
    member.found()
    older = member.asked("join")
    member.refused("join", None)  # the connection was lost
    member.passes(0.2)
    member.found()
    older.done(NamedMember("somebody"))
    member.steps()
    assert member.coordinator.member_id == ""
    member.joined(5)
    member.synced(T0)
    assert (member.running, member.coordinator.last_generation) == ([T0], 5)


def test_an_answer_to_an_older_sync_changes_nothing() -> None:
    member = cooperative()
    member.beat(REBALANCING)
    member.joined(2)
    older = member.asked("sync")
    member.refused("sync", REBALANCING)  # somebody else has joined meanwhile
    assert member.state == "joining"
    member.joined(3)
    older.done(member.clock.now, Synced(encode_assignment(Assignment((T3,)))))
    member.steps()
    assert (member.state, member.running) == ("syncing", [T0, T1])
    member.synced(T0, T1)
    assert member.state == "stable"


def test_a_heartbeat_of_the_generation_before_throws_nobody_out() -> None:
    member = cooperative()
    member.passes(3.0)
    late = member.asked("heartbeat")
    member.post(member.coordinator.rejoin, "a test")
    member.joined(2)
    member.synced(T0, T1)
    late.done(member.clock.now, None)
    member.steps()
    member.coordinator.write_refused(ONE, ILLEGAL_GENERATION)  # a commit that crossed the rebalance
    member.steps()
    assert (member.state, member.running) == ("stable", [T0, T1])
    assert ("lost", [T0, T1]) not in member.told.calls


# -- lost at the wrong moment ------------------------------------------------------------------------------------------


def test_a_member_that_is_lost_while_it_gives_back_joins_again_and_delivers_what_it_then_gets() -> None:
    member = stable()
    member.delivery.in_hand.add(T0)
    member.beat(REBALANCING)
    assert member.state == "giving back"
    assert member.running == []
    member.beat(UNKNOWN_MEMBER)
    assert member.state == "joining"
    assert member.asked("join").member_id == ""
    assert member.lease.until < member.clock.now
    assert member.told.calls[-1] == ("lost", [T0])
    assert member.delivery.draining == {}
    member.joined(7)
    member.synced(T0, T2)
    assert member.running == [T0, T2]


def test_a_member_that_is_lost_while_a_takeover_loads_its_offset_does_not_start_it() -> None:
    member = stable(mine=())
    member.offsets.loads = []
    member.post(member.coordinator.rejoin, "a test")
    member.joined(2)
    member.synced(T0)
    [load] = member.offsets.loads
    member.beat(UNKNOWN_MEMBER)
    load()
    member.steps()
    assert member.running == []
    member.offsets.loads = None
    member.joined(3)
    member.synced(T1)
    assert member.running == [T1]
    load()
    member.steps()
    assert member.running == [T1]


def test_what_is_being_taken_when_the_group_is_assigned_anew_is_given_back_without_a_start() -> None:
    member = stable(mine=())
    member.offsets.loads = []
    member.post(member.coordinator.rejoin, "a test")
    member.joined(2)
    member.synced(T0, T1)
    member.beat(REBALANCING)
    assert member.state == "joining"
    for load in member.offsets.loads:
        load()
    member.steps()
    assert member.running == []
    assert all(state is PartitionState.FREE for state in member.held.values())
    member.offsets.loads = None
    member.joined(3)
    member.synced(T1)
    assert member.running == [T1]


def test_a_member_lost_while_it_joins_with_partitions_of_the_cooperative_protocol_stops_delivery_by_its_lease() -> None:
    member = cooperative()
    member.beat(REBALANCING)
    assert (member.state, member.running) == ("joining", [T0, T1])
    until = member.lease.until
    member.beat(UNKNOWN_MEMBER)  # the answer to JoinGroup may be on its way, and tell what to keep
    assert member.running == [T0, T1]
    assert member.lease.until == until
    member.refused("join", UNKNOWN_MEMBER)
    assert member.running == []
    assert ("lost", [T0, T1]) in member.told.calls


# -- rebalances within rebalances --------------------------------------------------------------------------------------


def test_a_rejoin_that_is_wanted_while_the_member_syncs_follows_the_assignment() -> None:
    member = cooperative()
    member.beat(REBALANCING)
    member.joined(2)
    member.post(member.coordinator.rejoin, "topics have changed")
    assert member.state == "syncing"
    joins = member.count("join")
    member.synced(T0, T1)
    assert member.state == "joining"
    assert member.count("join") == joins + 1
    assert member.running == [T0, T1]


def test_what_moves_away_is_given_up_after_the_assignment_and_only_then_the_member_joins_once_more() -> None:
    member = cooperative()
    member.delivery.in_hand.add(T1)
    member.beat(REBALANCING)
    joins = member.count("join")
    member.joined(2)
    member.synced(T0)
    assert (member.state, member.running) == ("stable", [T0])
    assert member.count("join") == joins
    assert not member.coordinator.settled
    member.delivery.finish(T1, 12)
    member.steps()
    assert member.offsets.stored[T1] == 12
    assert (member.state, member.count("join")) == ("joining", joins + 1)
    owned = decode_subscription(member.asked("join").protocols["cooperative-sticky"]).owned
    assert owned == (T0,)
    assert [call for call in member.told.calls if call[0] == "revoked"] == [("revoked", [T1])]


def test_what_moves_away_is_given_up_once_also_when_the_group_is_assigned_anew_meanwhile() -> None:
    member = cooperative()
    member.delivery.in_hand.add(T1)
    member.beat(REBALANCING)
    member.joined(2)
    member.synced(T0)
    member.beat(REBALANCING)
    assert member.state == "giving back"
    member.delivery.finish(T1, 12)
    member.steps()
    assert member.state == "joining"
    joins = member.count("join")
    member.joined(3)
    member.synced(T0)
    assert (member.state, member.running, member.count("join")) == ("stable", [T0], joins)


def test_a_message_in_hand_is_waited_for_nearly_as_long_as_the_others_wait_and_no_longer() -> None:
    member = stable(rebalance_s=60.0, heartbeat_s=3.0)
    member.delivery.in_hand.add(T0)
    member.beat(REBALANCING)
    joins = member.count("join")
    member.passes(51.0)
    assert (member.state, member.count("join")) == ("giving back", joins)
    member.passes(1.5)
    assert (member.state, member.count("join")) == ("joining", joins + 1)
    assert member.offsets.stored[T0] == 7


def test_where_the_coordinator_knows_the_session_alone_the_lease_and_the_drain_reckon_with_it() -> None:
    member = SteppedMember(session_s=10.0, rebalance_s=60.0)
    member.group.rebalance_is_session = True
    member.post(member.coordinator.start)
    member.found()
    member.joined(1)
    member.synced(T0)
    began = member.clock.now
    member.delivery.in_hand.add(T0)
    member.beat(REBALANCING)
    for _ in range(2):
        member.beat(REBALANCING)
    assert member.lease.until <= began + 10.0
    assert member.state == "joining"  # half of the session was the longest wait for what is in hand


# -- the leader --------------------------------------------------------------------------------------------------------


def leading(*assignors: RangeAssignor) -> SteppedMember:
    member = SteppedMember(*assignors)
    member.post(member.coordinator.start)
    member.found()
    return member


def test_a_leader_whose_topics_cannot_be_read_for_a_while_assigns_when_they_can() -> None:
    member = leading()
    readable, member.topics.found = member.topics.found, "no broker answers"
    member.joined(1, ("m", ["t"]), ("n", ["t"]), leader="m")
    member.passes(2.0)
    assert member.count("sync") == 0
    assert "topics cannot be read: no broker answers" in member.coordinator.warnings
    member.topics.found = readable
    member.passes(6.0)
    made = member.asked("sync").assignments
    assert {name: len(decode_assignment(data).partitions) for name, data in made.items()} == {"m": 2, "n": 2}


def test_topics_that_come_for_a_generation_that_is_over_are_those_of_nobody() -> None:
    member = leading()
    member.topics.held = []
    member.joined(1, ("m", ["t"]), leader="m")
    [late] = member.topics.held
    member.topics.held = None
    member.topics.found = TopicsRead({"t": 4, "u": 2})
    member.beat(UNKNOWN_MEMBER)  # it has waited for too long
    member.joined(2, ("m", ["t"]), ("n", ["t", "u"]), leader="m")
    syncs = member.count("sync")
    late()
    member.steps()
    assert (member.count("sync"), member.asked("sync").generation) == (syncs, 2)
    assert member.coordinator.topics._led == {"t": 4, "u": 2}


class Raises(RangeAssignor):
    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Subscriptions
    ) -> Mapping[str, Sequence[tuple[str, int]]]:
        raise ZeroDivisionError


def test_a_leader_whose_assignor_raises_is_out_leaves_at_once_and_says_so_to_who_waits() -> None:
    member = leading(Raises())
    settled: list[bool] = []
    member.post(member.coordinator.when_settled, lambda: settled.append(True))
    member.joined(1, ("m", ["t"]), leader="m")
    assert isinstance(member.coordinator.error, AssignmentRefused)
    assert member.delivery.failed is member.coordinator.error
    assert settled == [True]
    assert member.asked("leave").member_id == "m"
    assert member.count("sync") == 0
    member.passes(30.0)
    assert member.count("heartbeat") == 0


class Returns(RangeAssignor):
    """An assignor of the application: it returns what it is made with."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self._found = found

    def assign(self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Any]) -> Any:
        return self._found


@pytest.mark.parametrize(("found", "words"), [
    (None, "returns None; it must map member ids to lists of partitions"),
    ([("t", 0)], r"returns \[\('t', 0\)\]; it must map"),
    ({"m": "t"}, "returns 't' for 'm'; it must map"),
    ({"m": ["t"]}, r"returns \['t'\] for 'm'; it must map"),
    ({"m": [("t", "0")]}, r"returns \[\('t', '0'\)\] for 'm'; it must map"),
    ({"m": [("t", None)]}, r"returns \[\(.t., None\)\] for 'm'; it must map"),
    ({"m": None}, "returns None for 'm'; it must map"),
    ({"n": [("t", 0)]}, "assigns to 'n', which is not a member of the group"),
])  # fmt: skip
def test_a_leader_whose_assignor_returns_something_else_is_out_and_the_error_names_the_assignor(
    found: object, words: str
) -> None:
    member = leading(Returns(found))
    member.joined(1, ("m", ["t"]), leader="m")
    assert isinstance(member.coordinator.error, AssignmentRefused)
    assert re.search(f"assignor 'range' {words}", str(member.coordinator.error))
    assert member.asked("leave").member_id == "m"


def test_an_assignor_may_return_partitions_in_any_order_and_collection() -> None:
    member = leading(Returns({"m": ([topic, number] for topic, number in (("t", 1), ("t", 0), ("t", 1)))}))
    member.joined(1, ("m", ["t"]), leader="m")
    assert decode_assignment(member.asked("sync").assignments["m"]).partitions == (("t", 0), ("t", 1))


class Keeps(RangeAssignor):
    """An assignor with user data, and a bug where it takes an assignment over."""

    def __init__(self, user_data: Any) -> None:
        super().__init__()
        self._user_data = user_data

    def subscription_user_data(self, topics: Iterable[str]) -> Any:
        if isinstance(self._user_data, Exception):
            raise self._user_data
        return self._user_data

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize(("user_data", "words"), [
    ("text", "returns 'text' from subscription_user_data, which is neither bytes nor None"),
    (ZeroDivisionError(), "has failed in subscription_user_data: ZeroDivisionError"),
])  # fmt: skip
def test_a_member_whose_assignor_has_no_user_data_to_send_does_not_join(user_data: object, words: str) -> None:
    member = leading(Keeps(user_data))
    assert isinstance(member.coordinator.error, AssignmentRefused)
    assert f"assignor 'range' {words}" in str(member.coordinator.error)
    assert member.count("join") == 0


def test_a_member_whose_assignor_fails_to_take_an_assignment_over_is_out_and_holds_nothing() -> None:
    member = leading(Keeps(None))
    member.joined(1, ("m", ["t"]), leader="m")
    member.synced(("t", 0))
    assert "assignor 'range' has failed in on_assignment: ZeroDivisionError" in str(member.coordinator.error)
    assert (member.delivery.running, member.asked("leave").member_id) == ({}, "m")


# -- topics that are created again -------------------------------------------------------------------------------------


def test_a_topic_that_is_created_again_is_started_anew_and_the_group_stays_as_it_is() -> None:
    member = stable(metadata_age_s=30.0)
    member.topics.found = TopicsRead({"t": 4}, incarnations={"t": 1})
    member.passes(30.0)
    member.offsets.stored = {T0: 7, T1: 8}
    assert member.offsets.forgotten == []  # brokers that were upgraded say now what they did not say before
    joins = member.count("join")
    member.topics.found = TopicsRead({"t": 4}, incarnations={"t": 2})
    member.post(member.coordinator.topics.look_now)
    assert member.offsets.forgotten == [("t", 2)]
    assert member.told.calls[-2:] == [("lost", [T0, T1]), ("assigned", [T0, T1])]
    assert (member.delivery.running, member.count("join"), member.state) == ({T0: 0, T1: 0}, joins, "stable")


def test_a_broker_that_is_behind_with_the_news_does_not_bring_the_former_topic_back() -> None:
    member = stable(metadata_age_s=30.0)
    for incarnation in (1, 2, 1, 2):
        member.topics.found = TopicsRead({"t": 4}, incarnations={"t": incarnation})
        member.post(member.coordinator.topics.look_now)
    assert member.offsets.forgotten == [("t", 2)]


def test_a_topic_that_is_away_for_a_while_and_comes_back_under_another_id_is_another_one() -> None:
    member = stable(metadata_age_s=30.0)
    member.topics.found = TopicsRead({"t": 4}, incarnations={"t": 1})
    member.post(member.coordinator.topics.look_now)
    member.topics.found = TopicsRead({})
    member.post(member.coordinator.topics.look_now)
    member.topics.found = TopicsRead({"t": 4}, incarnations={"t": 2})
    member.passes(10.0)  # a topic that does not exist is looked for more often
    assert member.offsets.forgotten == [("t", 2)]
    assert member.told.calls[-2:] == [("lost", [T0, T1]), ("assigned", [T0, T1])]


# -- commits that are refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_a_refused_commit_of_the_generation_that_counts_means_that_the_member_was_thrown_out(code: int) -> None:
    member = stable()
    member.coordinator.write_refused(ONE, code)
    member.steps()
    assert (member.state, member.running) == ("joining", [])
    assert member.asked("join").member_id == ("m" if code == ILLEGAL_GENERATION else "")
    assert ("lost", [T0, T1]) in member.told.calls


def test_a_commit_refused_because_the_group_rebalances_makes_a_stable_member_join_again() -> None:
    member = stable()
    member.coordinator.write_refused(ONE, REBALANCING)
    member.steps()
    assert member.state == "joining"
    assert ("revoked", [T0, T1]) in member.told.calls


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING])
def test_a_refused_commit_of_a_member_that_joins_waits_for_the_answer_to_its_join(code: int) -> None:
    member = cooperative()
    member.beat(REBALANCING)
    joins = member.count("join")
    member.coordinator.write_refused(ONE, code)
    member.steps()
    assert (member.state, member.running, member.count("join")) == ("joining", [T0, T1], joins)
    member.joined(2)
    member.coordinator.write_refused(ONE, code)  # the same, of the generation that is over
    member.steps()
    member.synced(T0, T1)
    assert (member.state, member.running) == ("stable", [T0, T1])


def test_a_member_commits_under_its_generation_until_the_next_one_has_begun() -> None:
    member = cooperative()
    member.beat(REBALANCING)
    assert (member.state, member.coordinator.generation) == ("joining", ONE)
    member.joined(2)
    assert (member.state, member.coordinator.generation) == ("syncing", None)
    member.synced(T0, T1)
    assert member.coordinator.generation == Fence(2, "m")
    member.beat(UNKNOWN_MEMBER)
    assert (member.state, member.coordinator.generation) == ("joining", None)


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_a_last_commit_that_is_refused_ends_giving_back(code: int) -> None:
    member = stable()
    member.offsets.commits = []
    member.beat(REBALANCING)
    [(positions, done)] = member.offsets.commits
    assert set(positions) == {T0, T1}
    member.coordinator.write_refused(ONE, code)
    member.steps()
    assert member.state == "joining"
    done(dict.fromkeys(positions, "refused"))
    member.steps()
    assert member.state == "joining"
    assert member.count("join") == 2


def test_a_commit_that_is_refused_while_the_member_leaves_ends_its_membership() -> None:
    member = stable(max_processing_s=4.0)
    member.delivery.stuck = ["g_m-0"]
    member.delivery.in_hand.add(T0)
    member.passes(1.0)
    assert member.state == "leaving"
    member.coordinator.write_refused(ONE, UNKNOWN_MEMBER)
    member.steps()
    assert (member.state, member.running) == ("out", [])


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_stuck_application_is_not_waited_for_as_long_as_one_that_goes_on() -> None:
    member = stable(max_processing_s=4.0, drain_timeout_s=3.0, rebalance_s=60.0)
    member.delivery.stuck = ["g_m-0"]
    member.delivery.in_hand.add(T0)
    member.passes(1.0)
    assert member.state == "leaving"
    member.passes(3.0)
    assert member.state == "unregistering"
    member.asked("leave").done()
    member.steps()
    assert member.state == "out"
    assert member.offsets.fence is None
    member.delivery.stuck = []
    member.passes(1.0)
    assert member.state == "joining"
    member.joined(4)
    member.synced(T3)
    assert member.running == [T3]
    assert member.offsets.fence is not None
    member.delivery.in_hand.add(T3)
    member.beat(REBALANCING)
    member.passes(40.0)
    assert member.state == "giving back", "an application that goes on has its time again"


def test_a_leave_group_without_an_answer_is_given_up_after_its_time() -> None:
    member = stable(max_processing_s=4.0)
    member.delivery.stuck = ["g_m-0"]
    member.passes(1.0)
    assert member.state == "unregistering"
    member.passes(6.0)
    assert member.state == "out"
    member.delivery.stuck = []
    member.passes(1.0)
    assert (member.state, member.asked("join").member_id) == ("joining", "")


def test_a_coordinator_that_moves_while_all_is_well_costs_no_partition() -> None:
    member = stable()
    member.beat(NOT_COORDINATOR)
    member.passes(0.2)
    member.found()
    member.beat()
    assert (member.state, member.running) == ("stable", [T0, T1])
    assert [kind for kind, _ in member.told.calls] == ["assigned"]


def test_a_final_refusal_ends_the_member_and_its_partitions() -> None:
    member = stable()
    member.beat(30)
    assert isinstance(member.coordinator.error, GroupRefused)
    assert member.running == []
    assert member.lease.until < member.clock.now
    assert member.coordinator.fence is None
