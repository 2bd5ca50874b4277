"""The machine of a member in a group of brokers: each row that matters, and what never happens whatever comes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from rebalance.brokers import events as e
from rebalance.brokers.events import Action, Fence
from rebalance.brokers.machine import _TABLE, MemberMachine, MemberState, MemberTimes
from rebalance.brokers.reactions import REACTIONS, Asked, Reaction, reaction_to

A = TypeVar("A")
TIMES = MemberTimes(rebalance_s=60.0, heartbeat_s=3.0, retry_s=0.1, leave_s=5.0)
ONE = Fence(1, "c-1")
TWO = Fence(2, "c-1")


class Driver:
    """A machine, the time, and all that it has asked for."""

    def __init__(self, *, is_static: bool = False) -> None:
        self.now = 100.0
        self.machine = MemberMachine(TIMES, is_static=is_static, now=self.now)
        self.done: list[Action] = []

    def __call__(self, event: e.Event) -> list[Action]:
        actions = self.machine.handle(event, self.now)
        self.done += actions
        return actions

    def last(self, kind: type[A]) -> A:
        return next(action for action in reversed(self.done) if isinstance(action, kind))

    def request(self, kind: type[Any]) -> int:
        return int(self.last(kind).request)

    def at_timer(self) -> list[Action]:
        due = self.machine.next_timer()
        assert due is not None
        self.now = max(self.now, due)
        return self(e.TimerFired())

    # -- answers -------------------------------------------------------------------------------------------------------

    def found(self) -> list[Action]:
        return self(e.CoordinatorFound(self.request(e.FindCoordinator)))

    def joined(self, fence: Fence = ONE, *, leads: bool = False) -> list[Action]:
        members = (e.JoinedMember(fence.member_id, b"m"),) if leads else ()
        leader = fence.member_id if leads else "other"
        return self(e.JoinAnswered(self.request(e.JoinGroup), fence, "range", leader, members))

    def synced(self) -> list[Action]:
        return self(e.SyncAnswered(self.request(e.SyncGroup), self.now, b"mine"))

    def refused(self, kind: type[Any], asked: Asked, code: int | None) -> list[Action]:
        return self(e.RequestFailed(self.request(kind), asked, code, "why"))

    def beat_refused(self, code: int) -> list[Action]:
        return self(e.HeartbeatRefused(self.request(e.SendHeartbeat), self.now, code))


def stable(fence: Fence = ONE, *, is_static: bool = False) -> Driver:
    driver = Driver(is_static=is_static)
    driver(e.Start())
    driver.found()
    driver.joined(fence)
    driver.synced()
    driver.at_timer()
    assert driver.machine.state is MemberState.STABLE
    return driver


def kinds(actions: Sequence[Action]) -> list[type]:
    return [type(action) for action in actions]


# -- the ordinary way --------------------------------------------------------------------------------------------------


def test_a_member_finds_its_coordinator_joins_and_gets_its_partitions() -> None:
    driver = Driver()
    assert driver(e.Start()) == [e.FindCoordinator(1)]
    assert driver.found() == [e.JoinGroup(2, "")]
    assert driver.joined() == [e.SyncGroup(3, ONE, {})]
    assert driver.synced() == [e.RenewLease(ONE, 100.0), e.SetAssignment(ONE, "range", b"mine", False)]
    assert driver.machine.next_timer() == 100.1
    assert driver.at_timer() == [e.SendHeartbeat(4, ONE)]


def test_heartbeats_come_soon_after_an_assignment_and_then_at_their_interval() -> None:
    """A second rebalance, of the cooperative protocol or of members that start together, is noticed soon."""
    driver = Driver()
    driver(e.Start())
    driver.found()
    driver.joined()
    driver.synced()
    at = []
    for _ in range(7):
        before = driver.now
        driver.at_timer()
        at.append(round(driver.now - before, 6))
        driver(e.HeartbeatAnswered(driver.request(e.SendHeartbeat), driver.now))
    assert at == [0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0]


def test_a_member_that_is_given_its_id_first_joins_again_at_once_under_it() -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    assert driver(e.MemberIdGiven(driver.request(e.JoinGroup), "c-1")) == [e.JoinGroup(3, "c-1")]


def test_the_leader_hands_over_the_assignments_that_it_has_made() -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    assert driver.joined(leads=True) == [e.Assign(ONE, "range", (e.JoinedMember("c-1", b"m"),))]
    assert driver(e.AssignmentsMade(ONE, {"c-1": b"x"})) == [e.SyncGroup(3, ONE, {"c-1": b"x"})]
    driver.synced()
    assert driver.last(e.SetAssignment).is_leader


def test_assignments_for_another_generation_are_dropped() -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    driver.joined(leads=True)
    assert driver(e.AssignmentsMade(TWO, {"c-1": b"x"})) == []


def test_a_heartbeat_that_hears_of_a_rebalance_gives_back_before_it_joins() -> None:
    driver = stable()
    assert kinds(driver.beat_refused(27)) == [e.RenewLease, e.GiveBack]
    assert not driver.last(e.GiveBack).everything
    driver.at_timer()  # what is given back takes long: heartbeats go on
    assert driver.last(e.SendHeartbeat).fence == ONE
    assert driver(e.GivenBack()) == [e.JoinGroup(driver.request(e.JoinGroup), "c-1")]
    driver.joined(TWO)
    assert driver.last(e.SyncGroup).fence == TWO


def test_a_subscription_that_changes_while_the_group_is_joined_is_announced_behind_it() -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    assert driver(e.Rejoin("topics")) == []
    driver.joined()
    assert kinds(driver.synced()) == [e.RenewLease, e.SetAssignment, e.GiveBack]


def test_a_subscription_that_changes_before_the_group_is_asked_is_in_the_request() -> None:
    driver = Driver()
    driver(e.Start())
    driver(e.Rejoin("topics"))
    driver.found()
    driver.joined()
    assert kinds(driver.synced()) == [e.RenewLease, e.SetAssignment]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [15, 16, None])
def test_a_coordinator_that_is_gone_is_looked_up_and_the_membership_stays(code: int | None) -> None:
    driver = stable()
    if code is None:
        actions = driver.refused(e.SendHeartbeat, Asked.HEARTBEAT, None)
    else:
        actions = driver.beat_refused(code)
    assert actions == []
    assert driver.machine.fence == ONE
    assert kinds(driver.at_timer()) == [e.FindCoordinator]
    assert kinds(driver.refused(e.FindCoordinator, Asked.FIND_COORDINATOR, 15)) == []
    assert kinds(driver.at_timer()) == [e.FindCoordinator]
    assert driver.found() == [e.SendHeartbeat(driver.request(e.SendHeartbeat), ONE)]


def test_a_join_that_has_no_answer_is_asked_of_the_coordinator_of_then_under_the_same_id() -> None:
    driver = stable()
    driver.beat_refused(27)
    driver(e.GivenBack())
    driver.refused(e.JoinGroup, Asked.JOIN_GROUP, None)
    driver.at_timer()
    assert driver.found()[0] == e.JoinGroup(driver.request(e.JoinGroup), "c-1")


def test_a_sync_that_has_no_answer_is_repeated_with_the_same_assignments() -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    driver.joined(leads=True)
    driver(e.AssignmentsMade(ONE, {"c-1": b"x"}))
    driver.refused(e.SyncGroup, Asked.SYNC_GROUP, 16)
    driver.at_timer()
    driver.found()
    assert driver.last(e.SyncGroup).assignments == {"c-1": b"x"}


@pytest.mark.parametrize(("code", "member_id"), [(22, "c-1"), (25, "")])
def test_a_member_that_was_thrown_out_loses_what_it_holds_and_joins_again(code: int, member_id: str) -> None:
    driver = stable()
    actions = driver.beat_refused(code)
    assert kinds(actions) == [e.EndLease, e.Lose, e.JoinGroup]
    assert driver.machine.fence is None
    assert driver.last(e.JoinGroup).member_id == member_id


@pytest.mark.parametrize("code", [22, 25])
def test_a_heartbeat_of_the_generation_before_loses_nothing_while_the_next_one_is_joined(code: int) -> None:
    driver = stable()
    driver.beat_refused(27)
    driver.at_timer()
    driver(e.GivenBack())
    assert driver.beat_refused(code) == []
    assert driver.machine.state is MemberState.JOINING


def test_a_late_answer_to_a_heartbeat_of_the_generation_before_changes_nothing() -> None:
    driver = stable()
    driver.beat_refused(27)
    driver.at_timer()
    late = driver.request(e.SendHeartbeat)
    driver(e.GivenBack())
    driver.joined(TWO)
    driver.synced()
    assert driver(e.HeartbeatRefused(late, driver.now, 22)) == []
    assert driver(e.HeartbeatAnswered(late, driver.now)) == []
    assert driver.machine.fence == TWO


@pytest.mark.parametrize("code", [0, 27])
def test_no_heartbeat_renews_the_lease_while_the_group_completes(code: int) -> None:
    """Up to Kafka 2.5 they renew no session; later the member is removed all the same if its SyncGroup is lost."""
    driver = stable()
    driver.beat_refused(27)
    driver(e.GivenBack())
    driver.joined(TWO)
    driver.at_timer()
    assert driver.last(e.SendHeartbeat).fence == TWO
    number = driver.request(e.SendHeartbeat)
    answer = e.HeartbeatRefused(number, driver.now, code) if code else e.HeartbeatAnswered(number, driver.now)
    assert driver(answer) == []
    assert driver.machine.state is MemberState.SYNCING


def test_the_lease_ends_when_the_group_has_waited_long_enough_for_a_member_that_does_not_join() -> None:
    """Its heartbeats are answered with 27 until then: a JoinGroup that was lost does not show."""
    driver = stable()
    stable_at = driver.now
    driver(e.HeartbeatAnswered(driver.request(e.SendHeartbeat), stable_at))
    driver.at_timer()
    [renewed, _] = driver.beat_refused(27)
    assert renewed == e.RenewLease(ONE, driver.now, stable_at + TIMES.rebalance_s)
    driver(e.GivenBack())
    for _ in range(3):
        driver.at_timer()
        [renewed] = driver.beat_refused(27)
        assert renewed == e.RenewLease(ONE, driver.now, stable_at + TIMES.rebalance_s)


def test_a_sync_that_another_rebalance_overtook_joins_again() -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    driver.joined()
    assert kinds(driver.refused(e.SyncGroup, Asked.SYNC_GROUP, 27)) == [e.GiveBack]


def test_a_new_member_that_nobody_knows_waits_before_it_joins_again() -> None:
    """Up to Kafka 2.2 a coordinator that is about to go answers so; at once it would say the same again, and again."""
    driver = Driver()
    driver(e.Start())
    driver.found()
    assert driver.refused(e.JoinGroup, Asked.JOIN_GROUP, 25) == []
    assert kinds(driver.at_timer()) == [e.JoinGroup]


@pytest.mark.parametrize("code", [23, 24, 26, 30, 35, 81, 82, -1])
def test_what_another_try_does_not_mend_ends_the_membership_for_good(code: int) -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    actions = driver.refused(e.JoinGroup, Asked.JOIN_GROUP, code)
    assert actions == [e.EndLease(), e.Fail(Asked.JOIN_GROUP, code, "why")]
    assert driver.machine.state is MemberState.FAILED
    assert driver.machine.next_timer() is None


@pytest.mark.parametrize(("code", "wanted"), [
    (27, [e.GiveBack]), (22, [e.EndLease, e.Lose, e.JoinGroup]), (25, [e.EndLease, e.Lose, e.JoinGroup]),
    (82, [e.EndLease, e.Fail]), (14, []), (12, []),
])  # fmt: skip
def test_a_refused_commit_says_the_same_as_a_refused_heartbeat(code: int, wanted: list[type]) -> None:
    assert kinds(stable()(e.WriteRefused(ONE, code))) == wanted


def test_a_refused_commit_of_a_generation_that_is_over_changes_nothing() -> None:
    assert stable(TWO)(e.WriteRefused(ONE, 22)) == []


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_gives_everything_back_first() -> None:
    driver = stable()
    assert kinds(driver(e.Leave("end"))) == [e.GiveBack]
    assert driver.last(e.GiveBack).everything
    assert driver(e.GivenBack()) == [e.LeaveGroup(driver.request(e.LeaveGroup), "c-1")]
    assert driver(e.LeaveAnswered(driver.request(e.LeaveGroup))) == [e.EndLease()]
    assert driver.machine.state is MemberState.OUT
    assert driver.machine.next_timer() is None


def test_a_static_member_does_not_leave_and_keeps_its_id() -> None:
    driver = stable(is_static=True)
    driver(e.Leave("end"))
    assert driver(e.GivenBack()) == [e.EndLease()]
    assert driver.machine.state is MemberState.OUT


def test_a_leave_without_a_coordinator_ends_in_time() -> None:
    driver = stable()
    driver.refused(e.SendHeartbeat, Asked.HEARTBEAT, None)
    driver(e.Leave("end"))
    driver(e.GivenBack())
    asked_until = driver.now + TIMES.leave_s
    while driver.machine.state is not MemberState.OUT:
        actions = driver.at_timer()
        if e.FindCoordinator in kinds(actions):
            driver.refused(e.FindCoordinator, Asked.FIND_COORDINATOR, None)
    assert driver.now == pytest.approx(asked_until)


def test_a_leave_while_the_group_is_joined_does_not_wait_for_it() -> None:
    driver = Driver()
    driver(e.Start())
    driver.found()
    driver(e.MemberIdGiven(driver.request(e.JoinGroup), "c-1"))
    late = driver.request(e.JoinGroup)
    driver(e.Leave("end"))
    assert kinds(driver(e.GivenBack())) == [e.LeaveGroup]
    assert driver(e.JoinAnswered(late, ONE, "range", "other")) == []


def test_a_member_that_was_out_joins_again_as_a_new_one() -> None:
    driver = stable()
    driver(e.Leave("stuck"))
    driver(e.GivenBack())
    driver(e.LeaveAnswered(driver.request(e.LeaveGroup)))
    driver(e.Start())
    assert driver.last(e.JoinGroup).member_id == ""


# -- whatever comes ----------------------------------------------------------------------------------------------------


def test_each_code_of_the_table_has_one_reaction_and_unknown_ones_fail() -> None:
    assert reaction_to(Asked.JOIN_GROUP, 79) is Reaction.JOIN_AT_ONCE
    assert reaction_to(Asked.LEAVE_GROUP, 25) is Reaction.IGNORE
    assert all(reaction_to(asked, 9999) is Reaction.FAIL for asked in Asked if asked is not Asked.LEAVE_GROUP)
    assert all(0 not in codes for codes in REACTIONS.values())


def test_each_state_takes_each_event_that_can_come() -> None:
    """An event without a row raises: that must be none that a late answer can be."""
    late = {
        e.CoordinatorFound, e.RequestFailed, e.JoinAnswered, e.MemberIdGiven, e.AssignmentsMade, e.SyncAnswered,
        e.HeartbeatAnswered, e.HeartbeatRefused, e.WriteRefused, e.LeaveAnswered, e.TimerFired, e.Rejoin, e.Leave,
    }  # fmt: skip
    for state in MemberState:
        if state is not MemberState.FAILED:
            assert late <= {event for of, event in _TABLE if of is state}, state


@pytest.mark.parametrize("seed", range(300))
def test_whatever_comes_no_partition_is_held_without_a_fence_and_no_request_is_sent_twice(seed: int) -> None:
    """A random coordinator: answers in any order, late, refused or not at all; the member leaves at some point."""
    rng = random.Random(seed)
    driver = Driver(is_static=rng.random() < 0.2)
    holds = owes = False
    open_requests: list[Any] = []
    generation = 0
    queue: list[e.Event] = [e.Start()]
    for _ in range(300):
        if not queue:
            pick = rng.random()
            if open_requests and pick < 0.6:
                asked = open_requests.pop(rng.randrange(len(open_requests)))
                event, generation = _answer(asked, generation, driver, rng)
                queue.append(event)
            elif owes and pick < 0.8:
                owes = False
                queue.append(e.GivenBack())
            elif pick < 0.85:
                queue.append(e.Rejoin("topics"))
            elif driver.machine.next_timer() is not None:
                driver.now = max(driver.now, driver.machine.next_timer() or 0.0)
                queue.append(e.TimerFired())
            else:
                queue.append(e.Leave("end") if driver.machine.state is not MemberState.OUT else e.Start())
        for action in driver(queue.pop(0)):
            match action:
                case e.GiveBack(everything):
                    owes = True
                    holds = holds and not everything
                case e.Lose():
                    holds = owes = False
                case e.SetAssignment(fence):
                    holds = True
                    assert fence == driver.machine.fence
                case e.RenewLease(fence):
                    assert fence == driver.machine.fence
                case e.FindCoordinator() | e.JoinGroup() | e.SyncGroup() | e.SendHeartbeat() | e.LeaveGroup():
                    assert action.request not in [each.request for each in open_requests]
                    open_requests.append(action)
                case e.Assign(fence):
                    queue.append(e.AssignmentsMade(fence, {fence.member_id: b"all"}))
                case e.Fail():
                    return
        if holds:
            assert driver.machine.fence is not None
        waits = driver.machine.next_timer() is not None or open_requests or owes or queue
        assert waits or driver.machine.state is MemberState.OUT, driver.machine.state


def _answer(request: Any, generation: int, driver: Driver, rng: random.Random) -> tuple[e.Event, int]:
    asked = {
        e.FindCoordinator: Asked.FIND_COORDINATOR, e.JoinGroup: Asked.JOIN_GROUP, e.SyncGroup: Asked.SYNC_GROUP,
        e.SendHeartbeat: Asked.HEARTBEAT, e.LeaveGroup: Asked.LEAVE_GROUP,
    }[type(request)]  # fmt: skip
    if rng.random() < 0.4:
        code = rng.choice([*REACTIONS[asked], None]) if REACTIONS[asked] else None
        if code == 79:
            return e.MemberIdGiven(request.request, f"c-{generation}"), generation
        if code is not None and asked is Asked.HEARTBEAT:
            return e.HeartbeatRefused(request.request, driver.now, code), generation
        return e.RequestFailed(request.request, asked, code, "why"), generation
    match request:
        case e.FindCoordinator(number):
            return e.CoordinatorFound(number), generation
        case e.JoinGroup(number, member_id):
            fence = Fence(generation + 1, member_id or f"c-{generation}")
            leader = fence.member_id if rng.random() < 0.5 else "other"
            return e.JoinAnswered(number, fence, "range", leader), generation + 1
        case e.SyncGroup(number):
            return e.SyncAnswered(number, driver.now, b"mine"), generation
        case e.SendHeartbeat(number):
            return e.HeartbeatAnswered(number, driver.now), generation
    return e.LeaveAnswered(request.request), generation
