"""The machine of the group, read as a specification, and attacked with random events."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.errors import RefusedNode
from rebalance.subscription import Subscription
from rebalance.zookeeper import events as e
from rebalance.zookeeper import machine as m
from rebalance.zookeeper.machine import GroupState as S
from rebalance.zookeeper.port.requests import Fault
from rebalance.zookeeper.snapshot import GroupSnapshot, Strategy, TopicNode
from rebalance.zookeeper.waits import RebalanceTimes

MINE = Subscription.static({"t": 1})
TIMES = RebalanceTimes()
ALONE = GroupSnapshot({"me": MINE}, {"t": TopicNode((0, 1, 2, 3))})
TWO = GroupSnapshot({"me": MINE, "you": MINE}, {"t": TopicNode((0, 1, 2, 3))})
WITHOUT_ME = GroupSnapshot({"you": MINE}, {"t": TopicNode((0, 1, 2, 3))})
CLOSED = RefusedNode("/ids/you", Fault.NO_AUTH)
HIDDEN = GroupSnapshot({"me": MINE}, {"t": TopicNode((0, 1, 2, 3))}, refused_members={"you": CLOSED})
NO_LIST = GroupSnapshot({}, {"t": TopicNode((0, 1, 2, 3))}, refused_members_list=CLOSED)
MY_OWN = GroupSnapshot({}, {"t": TopicNode((0, 1, 2, 3))}, refused_members={"me": CLOSED})
NO_TOPIC = GroupSnapshot({"me": MINE}, {}, refused_topics={"t": CLOSED})
FROZEN = GroupSnapshot({"me": MINE}, {"t": TopicNode((0, 1, 2, 3))}, untranslatable={"you": "look-behind"})


class Subject:
    """A machine with a clock, and what it last asked for."""

    def __init__(self, times: RebalanceTimes = TIMES) -> None:
        self.now = 100.0
        self.machine = m.RebalanceMachine("me", MINE, Strategy(), times, random.Random(7), self.now)

    def tell(self, event: e.Event) -> list[type]:
        self.actions = self.machine.handle(event, self.now)
        return [type(action) for action in self.actions]

    def wait_for_timer(self) -> list[type]:
        due = self.machine.next_timer()
        assert due is not None, f"no timer in {self.machine.state}"
        self.now = max(self.now, due)
        return self.tell(e.TimerFired())

    def read(self, snapshot: GroupSnapshot) -> list[type]:
        return self.tell(e.SnapshotRead(self.machine.attempt, snapshot))

    @property
    def state(self) -> S:
        return self.machine.state

    def at(self, state: S) -> Subject:
        """Bring a fresh machine into a state."""
        if state is S.DISCONNECTED:
            return self
        self.tell(e.SessionOpened(1))
        if state is S.FAILED:
            self.tell(e.RegistrationRefused(ValueError("no")))
        if state in (S.REGISTERING, S.FAILED):
            return self
        self.tell(e.Registered(1))
        if state is S.READING:
            return self
        self.read(ALONE)
        away = (S.LEAVING, S.UNREGISTERING, S.OUT)
        if state in (S.STABLE, *away):
            self.wait_for_timer()
            self.now += 10
        if state in away:
            for event in (e.Leave("stuck"), e.AllReleased(), e.Unregistered())[: away.index(state) + 1]:
                self.tell(event)
        assert self.state is state
        return self


EVENTS: dict[type, e.Event] = {
    type(event): event
    for event in (
        e.SessionOpened(1), e.SessionSuspended(), e.SessionExpired(), e.Registered(1), e.RegistrationUnknown(),
        e.RegistrationGone(), e.RegistrationRefused(ValueError("no")), e.Changed("ids"), e.SnapshotRead(-1, ALONE),
        e.SnapshotFailed(-1, "no answer"), e.TimerFired(), e.Leave("stuck"), e.AllReleased(), e.Unregistered(),
        e.Rejoin(),
    )
}  # fmt: skip

# state -> event -> (next state, actions); what is not here cannot happen, and raises
ROWS: dict[S, dict[type, tuple[S, list[type]]]] = {
    S.DISCONNECTED: {
        e.SessionOpened: (S.REGISTERING, [e.Register]),
        e.SessionSuspended: (S.DISCONNECTED, []),
        e.SessionExpired: (S.DISCONNECTED, [e.DropClaims]),
        e.Registered: (S.DISCONNECTED, []),
        e.RegistrationUnknown: (S.DISCONNECTED, []),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.DISCONNECTED, []),
        e.Leave: (S.DISCONNECTED, []),
    },
    S.REGISTERING: {
        e.SessionSuspended: (S.DISCONNECTED, []),
        e.Registered: (S.READING, [e.ReadGroup]),
        e.RegistrationUnknown: (S.REGISTERING, []),
        e.RegistrationGone: (S.REGISTERING, []),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.REGISTERING, []),
        e.TimerFired: (S.REGISTERING, []),
        e.Leave: (S.REGISTERING, []),
    },
    S.READING: {
        e.SessionSuspended: (S.DISCONNECTED, []),
        e.RegistrationGone: (S.REGISTERING, [e.Register]),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.READING, []),
        e.SnapshotRead: (S.READING, []),  # of an older attempt
        e.SnapshotFailed: (S.READING, []),
        e.TimerFired: (S.READING, []),  # not due
        e.Leave: (S.LEAVING, [e.ReleaseAll]),
    },
    S.SETTLING: {
        e.SessionSuspended: (S.DISCONNECTED, []),
        e.RegistrationGone: (S.REGISTERING, [e.Register]),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.READING, []),  # so soon after a read that it waits
        e.TimerFired: (S.SETTLING, []),
        e.Leave: (S.LEAVING, [e.ReleaseAll]),
    },
    S.STABLE: {
        e.SessionSuspended: (S.DISCONNECTED, []),
        e.RegistrationGone: (S.REGISTERING, [e.Register]),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.READING, [e.ReadGroup]),
        e.TimerFired: (S.STABLE, []),  # no owner nodes to look at
        e.Leave: (S.LEAVING, [e.ReleaseAll]),
    },
    S.LEAVING: {
        e.SessionOpened: (S.LEAVING, []),
        e.SessionSuspended: (S.LEAVING, []),
        e.SessionExpired: (S.OUT, [e.DropClaims]),
        e.RegistrationGone: (S.REGISTERING, [e.Register]),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.LEAVING, []),
        e.AllReleased: (S.UNREGISTERING, [e.Unregister]),
        e.Rejoin: (S.READING, [e.ReadGroup]),
    },
    S.UNREGISTERING: {
        e.SessionOpened: (S.UNREGISTERING, []),
        e.SessionSuspended: (S.UNREGISTERING, []),
        e.SessionExpired: (S.OUT, [e.DropClaims]),
        e.RegistrationGone: (S.UNREGISTERING, []),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.UNREGISTERING, []),
        e.Unregistered: (S.OUT, []),
    },
    S.OUT: {
        e.SessionOpened: (S.OUT, []),
        e.SessionSuspended: (S.OUT, []),
        e.SessionExpired: (S.OUT, []),
        e.RegistrationRefused: (S.FAILED, [e.Fail]),
        e.Changed: (S.OUT, []),
        e.Rejoin: (S.REGISTERING, [e.Register]),
    },
    S.FAILED: {},
}


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("state", S, ids=lambda state: state.value)
def test_each_row(state: S, kind: type) -> None:
    subject = Subject().at(state)
    if kind not in ROWS[state]:
        with pytest.raises(LookupError, match=f"no transition for {kind.__name__} in state {state.value}"):
            subject.tell(EVENTS[kind])
        return
    actions = subject.tell(EVENTS[kind])
    assert (subject.state, actions) == ROWS[state][kind]


def test_a_member_that_begins_knows_nothing_and_waits_for_a_session() -> None:
    machine = Subject().machine
    assert (machine.state, machine.since) == (S.DISCONNECTED, 100.0)
    assert (machine.assignment, machine.snapshot, machine.next_timer()) == (None, None, None)


def test_a_read_that_changes_my_share_lets_go_at_once_and_claims_after_the_quiet_time() -> None:
    subject = Subject().at(S.READING)
    assert subject.read(TWO) == [e.SetAssignment]
    assert subject.state is S.SETTLING
    due = subject.machine.next_timer()
    assert due is not None
    assert TIMES.quiet_s / 2 <= due - subject.now <= TIMES.quiet_s
    assert subject.wait_for_timer() == [e.AllowClaims]
    assert subject.state is S.STABLE


def test_a_member_that_waits_for_the_order_of_java_members_reads_the_owner_nodes_again_and_again() -> None:
    subject = Subject()
    topics = Subscription.static({"first": 1, "topic-2": 1})
    subject.machine = m.RebalanceMachine(
        "me", topics, Strategy("roundrobin", "auto"), TIMES, random.Random(7), subject.now
    )
    nodes = {"first": TopicNode(tuple(range(5))), "topic-2": TopicNode(tuple(range(12)))}
    beside_java = GroupSnapshot({"me": topics, "you": topics}, nodes, java_members=frozenset({"you"}), owners={})
    subject.tell(e.SessionOpened(1))
    subject.tell(e.Registered(1))
    assert subject.machine.order.needs_owners(beside_java)
    subject.read(beside_java)
    assert subject.wait_for_timer() == [e.AllowClaims]
    assert subject.state is S.STABLE
    looked_at = subject.now
    assert subject.wait_for_timer() == [e.ReadGroup]
    assert 0 < subject.now - looked_at < 0.5
    assert subject.tell(e.Changed("ids")) == []
    subject.read(beside_java)
    assert subject.state is S.READING, "owner nodes of a group that has changed are no evidence"


def test_a_timer_that_comes_early_allows_nothing() -> None:
    subject = Subject().at(S.SETTLING)
    assert subject.tell(e.TimerFired()) == []
    assert subject.state is S.SETTLING


def test_a_change_that_leaves_my_share_as_it_is_waits_for_nothing() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.Changed("ids"))
    assert subject.read(ALONE) == [e.SetAssignment, e.AllowClaims]
    assert subject.state is S.STABLE


def test_reading_the_same_again_does_not_cut_the_quiet_time_short() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.Changed("ids"))
    subject.read(TWO)
    quiet_until = subject.machine.next_timer()
    subject.tell(e.Changed("owner of t-0"))
    assert subject.wait_for_timer() == [e.ReadGroup]
    assert subject.read(TWO) == [e.SetAssignment]
    assert subject.state is S.SETTLING
    assert subject.machine.next_timer() == quiet_until
    assert subject.wait_for_timer() == [e.AllowClaims]


def test_reading_the_same_again_at_the_end_of_the_quiet_time_is_settled() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.Changed("ids"))
    subject.read(TWO)
    quiet_until = subject.machine.next_timer()
    assert quiet_until is not None
    subject.tell(e.Changed("owner of t-0"))
    subject.wait_for_timer()
    subject.now = quiet_until
    assert subject.read(TWO) == [e.SetAssignment, e.AllowClaims]


def test_a_change_is_read_at_once_when_the_last_read_is_a_gap_ago() -> None:
    for later_s, actions in ((TIMES.gap_s, [e.ReadGroup]), (TIMES.gap_s / 2, [])):
        subject = Subject().at(S.SETTLING)
        subject.now += later_s
        assert subject.tell(e.Changed("ids")) == actions


def test_the_cap_counts_from_a_change_that_must_wait_for_its_read() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.Changed("ids"))
    assert subject.read(ALONE) == [e.SetAssignment, e.AllowClaims]
    subject.now += TIMES.gap_s / 2
    changed_at = subject.now
    subject.tell(e.Changed("ids"))
    assert subject.wait_for_timer() == [e.ReadGroup]
    subject.tell(e.Changed("ids"))
    subject.now = changed_at + TIMES.quiet_max_s + TIMES.gap_s / 4
    assert subject.read(TWO) == [e.SetAssignment, e.ReadGroup], "overdue"


def test_changes_that_never_end_put_the_claims_off_to_the_cap_and_no_further() -> None:
    subject = Subject().at(S.STABLE)
    began = subject.now
    subject.tell(e.Changed("ids"))
    allowed = False
    snapshots = [TWO, ALONE]
    while not allowed:
        assert subject.now - began <= TIMES.quiet_max_s + TIMES.quiet_s + TIMES.gap_s
        snapshots.reverse()
        actions = subject.read(snapshots[0])
        while e.ReadGroup not in actions and not allowed:
            subject.now += 0.03
            if subject.machine.next_timer() is not None and subject.now >= (subject.machine.next_timer() or 0):
                actions = subject.tell(e.TimerFired())
            else:
                actions = subject.tell(e.Changed("ids"))
            allowed = e.AllowClaims in actions


def test_a_change_while_reading_is_read_before_anything_is_let_go_of() -> None:
    subject = Subject().at(S.READING)
    subject.tell(e.Changed("ids"))
    assert subject.read(TWO) == []
    assert subject.wait_for_timer() == [e.ReadGroup]
    assert subject.read(ALONE) == [e.SetAssignment]


def test_past_the_cap_a_change_while_reading_no_longer_holds_up_the_releases() -> None:
    subject = Subject().at(S.READING)
    subject.tell(e.Changed("ids"))
    subject.now += TIMES.quiet_max_s + 0.1
    assert subject.read(TWO) == [e.SetAssignment, e.ReadGroup]


def test_a_stale_read_says_nothing() -> None:
    subject = Subject().at(S.READING)
    old = subject.machine.attempt
    subject.tell(e.SessionSuspended())
    subject.tell(e.SessionOpened(1))
    assert subject.tell(e.SnapshotRead(old, TWO)) == []
    assert subject.tell(e.SnapshotFailed(old, "connection lost")) == []
    assert subject.state is S.READING


def test_a_read_that_failed_is_tried_again_ever_later_up_to_a_limit() -> None:
    subject = Subject().at(S.READING)
    waits = []
    for _ in range(12):
        subject.tell(e.SnapshotFailed(subject.machine.attempt, "no node"))
        due = subject.machine.next_timer()
        assert due is not None
        waits.append(due - subject.now)
        assert subject.wait_for_timer() == [e.ReadGroup]
    assert waits[0] <= TIMES.retry_s
    assert TIMES.retry_max_s / 2 <= waits[-1] <= TIMES.retry_max_s


def test_after_a_read_that_went_well_the_next_failure_is_the_first() -> None:
    subject = Subject().at(S.READING)
    for _ in range(5):
        subject.tell(e.SnapshotFailed(subject.machine.attempt, "no node"))
        subject.wait_for_timer()
    subject.read(ALONE)
    subject.now += 1
    subject.tell(e.Changed("ids"))
    subject.tell(e.SnapshotFailed(subject.machine.attempt, "no node"))
    due = subject.machine.next_timer()
    assert due is not None
    assert due - subject.now <= TIMES.retry_s


@pytest.mark.parametrize(
    "absence",
    [
        (e.SessionSuspended(), None, e.SessionOpened(1)),
        (e.Leave("stuck"), e.AllReleased(), e.Unregistered(), None, e.Rejoin(), e.Registered(1)),
    ],
    ids=["disconnection", "step out"],
)
def test_the_cap_counts_anew_after_an_absence(absence: tuple[e.Event | None, ...]) -> None:
    subject = Subject().at(S.READING)
    for event in absence:
        if event is None:
            subject.now += TIMES.quiet_max_s + 0.1
        else:
            subject.tell(event)
    assert subject.state is S.READING
    subject.tell(e.Changed("ids"))
    assert subject.read(TWO) == [], "not overdue"


def test_a_short_disconnection_reads_again_and_touches_nothing_that_is_the_same() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.SessionSuspended())
    assert subject.tell(e.SessionOpened(1)) == [e.ReadGroup]
    assert subject.read(ALONE) == [e.SetAssignment, e.AllowClaims]


def test_another_session_drops_all_claims_even_when_nobody_said_that_the_old_one_expired() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.SessionSuspended())
    assert subject.tell(e.SessionOpened(2)) == [e.DropClaims, e.Register]
    assert subject.tell(e.Registered(1)) == [], "the answer for the old session"
    assert subject.tell(e.Registered(2)) == [e.ReadGroup]


def test_what_an_expired_session_had_is_dropped_when_it_expires_and_not_once_more() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.SessionSuspended())
    assert subject.tell(e.SessionExpired()) == [e.DropClaims]
    assert subject.tell(e.SessionOpened(2)) == [e.Register]


def test_a_registration_that_stood_before_the_connection_went_away_is_not_made_again() -> None:
    subject = Subject().at(S.REGISTERING)
    subject.tell(e.SessionSuspended())
    subject.tell(e.Registered(1))
    assert subject.tell(e.SessionOpened(1)) == [e.ReadGroup]


def test_registering_is_tried_again_when_its_result_is_unknown() -> None:
    subject = Subject().at(S.REGISTERING)
    subject.tell(e.RegistrationUnknown())
    assert subject.tell(e.TimerFired()) == []
    assert subject.wait_for_timer() == [e.Register]


def test_a_group_without_me_makes_me_register_again_and_let_go_of_nothing() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.Changed("ids"))
    assert subject.read(WITHOUT_ME) == [e.Register]
    assert subject.state is S.REGISTERING


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_after_a_long_absence_the_others_are_waited_for_even_when_nothing_seems_to_differ(is_told: bool) -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.SessionSuspended())
    subject.now += TIMES.quiet_max_s + 0.1
    if is_told:
        subject.tell(e.SessionExpired())
    subject.tell(e.SessionOpened(2))
    assert subject.tell(e.Registered(2)) == [e.ReadGroup]
    registered_at = subject.now
    assert subject.read(ALONE) == [e.SetAssignment]
    assert subject.state is S.SETTLING
    assert subject.wait_for_timer() == [e.AllowClaims]
    assert TIMES.quiet_max_s * 0.6 <= subject.now - registered_at <= TIMES.quiet_max_s


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_a_session_that_somebody_ended_is_followed_by_the_next_without_a_wait_for_others(is_told: bool) -> None:
    """ZooKeeper was there all the time, so the sessions of the others are, too."""
    subject = Subject().at(S.STABLE)
    subject.tell(e.SessionSuspended())
    subject.now += 0.1
    if is_told:
        subject.tell(e.SessionExpired())
    subject.tell(e.SessionOpened(2))
    subject.tell(e.Registered(2))
    assert subject.read(ALONE) == [e.SetAssignment, e.AllowClaims]


def test_of_two_lost_sessions_the_longer_absence_counts() -> None:
    subject = Subject().at(S.STABLE)
    for absence_s in (TIMES.quiet_max_s + 0.1, 0.1):
        subject.tell(e.SessionSuspended())
        subject.now += absence_s
        subject.tell(e.SessionExpired())
        subject.tell(e.SessionOpened(int(10 * absence_s) + 2))
    subject.tell(e.Registered(3))
    assert subject.read(ALONE) == [e.SetAssignment]


def test_claims_are_put_off_ever_longer_while_members_come_one_after_the_other() -> None:
    subject = Subject().at(S.STABLE)
    alone = replace(ALONE, topics={"t": TopicNode(tuple(range(100)))}, created_ms={"me": 0})
    waits = []
    for number in range(1, 9):
        subject.now += 0.4
        subject.tell(e.Changed("ids"))
        others = {f"you{each}": MINE for each in range(number)}
        subject.read(replace(alone, members={"me": MINE, **others}, created_ms=dict.fromkeys(["me", *others], 0)))
        due = subject.machine.next_timer()
        assert due is not None
        waits.append(due - subject.now)
        subject.wait_for_timer()
    assert all(wait <= TIMES.quiet_s for wait in waits[:2]), "one or two changes cost nobody more than ever"
    assert 4 * TIMES.quiet_s < max(waits) <= TIMES.quiet_max_s
    subject.now += 5 * TIMES.quiet_max_s
    subject.tell(e.Changed("ids"))
    subject.read(alone)
    due = subject.machine.next_timer()
    assert due is not None
    assert due - subject.now <= TIMES.quiet_s, "after a calm it begins anew"


@pytest.mark.parametrize(("age", "is_doubled"), [(3.9, True), (4.1, False)])
def test_changes_put_claims_off_for_four_times_the_cap(age: float, is_doubled: bool) -> None:
    times = replace(TIMES, quiet_max_s=2.0)
    subject = Subject(times).at(S.STABLE)
    began = subject.now
    for number, later_s in enumerate((0.0, times.quiet_max_s, age * times.quiet_max_s), 1):
        subject.now = began + later_s
        subject.tell(e.Changed("ids"))
        created_ms = dict.fromkeys(["me", *(f"you{each}" for each in range(number))], 0)
        members = dict.fromkeys(created_ms, MINE)
        subject.read(GroupSnapshot(members, {"t": TopicNode(tuple(range(12)))}, created_ms=created_ms))
        due = subject.machine.next_timer()
        assert due is not None
        wait_s = due - subject.now
        subject.wait_for_timer()
    assert (wait_s > times.quiet_s) == is_doubled


def test_a_member_that_is_out_registers_anew_when_the_application_goes_on_and_takes_its_share_again() -> None:
    subject = Subject().at(S.OUT)
    assert subject.tell(e.Rejoin()) == [e.Register]
    assert subject.tell(e.Registered(1)) == [e.ReadGroup]
    assert subject.read(ALONE) == [e.SetAssignment]
    assert subject.wait_for_timer() == [e.AllowClaims]
    assert subject.state is S.STABLE


def test_a_member_whose_session_ends_while_it_is_out_waits_for_the_next_one_and_for_the_application() -> None:
    subject = Subject().at(S.OUT)
    assert subject.tell(e.SessionExpired()) == []
    assert subject.tell(e.Rejoin()) == []
    assert subject.state is S.DISCONNECTED
    assert subject.tell(e.SessionOpened(2)) == [e.Register]


def test_a_session_that_ends_while_everything_is_given_back_leaves_nothing_to_unregister() -> None:
    subject = Subject().at(S.LEAVING)
    subject.tell(e.SessionSuspended())
    assert subject.tell(e.SessionOpened(2)) == [e.DropClaims]
    assert subject.state is S.OUT


def test_an_application_that_goes_on_during_a_disconnection_waits_for_the_connection() -> None:
    subject = Subject().at(S.LEAVING)
    subject.tell(e.SessionSuspended())
    assert subject.tell(e.Rejoin()) == []
    assert subject.state is S.DISCONNECTED
    assert subject.tell(e.SessionOpened(1)) == [e.ReadGroup]


def test_who_has_left_during_a_disconnection_registers_when_there_is_a_connection() -> None:
    subject = Subject().at(S.UNREGISTERING)
    subject.tell(e.SessionSuspended())
    subject.tell(e.Unregistered())
    assert subject.tell(e.Rejoin()) == []
    assert subject.state is S.DISCONNECTED
    assert subject.tell(e.SessionOpened(1)) == [e.Register]


def test_a_registration_that_goes_away_before_everything_is_released_is_made_again_for_the_releases() -> None:
    subject = Subject().at(S.LEAVING)
    assert subject.tell(e.RegistrationGone()) == [e.Register]
    assert subject.tell(e.Registered(1)) == [e.ReadGroup]
    assert subject.tell(e.Leave("stuck")) == [e.ReleaseAll]


@pytest.mark.parametrize("snapshot", [HIDDEN, NO_LIST, MY_OWN, NO_TOPIC], ids=["other", "list", "mine", "topic"])
def test_what_may_not_be_read_freezes_without_registering_anew_and_clears_up_by_itself(snapshot: GroupSnapshot) -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.Changed("ids"))
    assert subject.read(snapshot) == [e.SetAssignment]
    [set_assignment] = subject.actions
    assert isinstance(set_assignment, e.SetAssignment)
    assert set_assignment.assignment.mine == {}
    assert set_assignment.assignment.frozen is not None or set_assignment.assignment.frozen_topics == {"t"}
    assert subject.wait_for_timer() == [e.AllowClaims]
    subject.now += 10
    subject.tell(e.Changed("ids"))
    assert subject.read(ALONE) == [e.SetAssignment]
    assert len(retarget_of(subject).assignment.mine) == 4
    assert subject.wait_for_timer() == [e.AllowClaims]


def retarget_of(subject: Subject) -> e.SetAssignment:
    [action] = subject.actions
    assert isinstance(action, e.SetAssignment)
    return action


def test_what_cannot_be_computed_freezes_and_clears_up_by_itself() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.Changed("ids"))
    subject.read(FROZEN)
    set_assignment = subject.actions[0]
    assert isinstance(set_assignment, e.SetAssignment)
    assert "look-behind" in (set_assignment.assignment.frozen or "")
    subject.wait_for_timer()
    subject.now += 1
    subject.tell(e.Changed("ids"))
    assert subject.read(ALONE) == [e.SetAssignment]


def test_what_is_asked_for_says_of_which_attempt_of_which_snapshot_and_why() -> None:
    subject = Subject().at(S.READING)
    assert subject.tell(e.RegistrationGone()) == [e.Register]
    subject.tell(e.Registered(1))
    assert subject.actions == [e.ReadGroup(subject.machine.attempt)]
    subject.read(TWO)
    assert retarget_of(subject).snapshot is TWO
    error = ValueError("no")
    subject.tell(e.RegistrationRefused(error))
    assert subject.actions == [e.Fail(error)]


def test_no_attempt_has_the_number_of_an_earlier_one() -> None:
    subject = Subject().at(S.SETTLING)
    attempts = [subject.machine.attempt]
    for event in (e.Changed("ids"), e.TimerFired(), None, e.TimerFired(), None):
        due = subject.machine.next_timer()
        subject.now = due if isinstance(event, e.TimerFired) and due is not None else subject.now
        subject.tell(event if event is not None else e.SnapshotFailed(subject.machine.attempt, "no node"))
        attempts.append(subject.machine.attempt)
    assert all(before < after for before, after in itertools.pairwise(attempts))


def test_a_state_is_as_old_as_its_beginning() -> None:
    subject = Subject().at(S.STABLE)
    assert subject.machine.since == subject.now - 10
    subject.tell(e.SessionSuspended())
    began = subject.now
    assert subject.machine.since == began
    subject.now += 5
    subject.tell(e.SessionSuspended())
    assert subject.machine.since == began


@pytest.mark.parametrize(
    "gone", [[e.RegistrationGone()], [e.SessionSuspended(), e.SessionOpened(2)]], ids=["registration", "session"]
)
def test_a_registration_that_is_gone_does_not_stand_after_a_disconnection(gone: list[e.Event]) -> None:
    subject = Subject().at(S.STABLE)
    for event in gone:
        subject.tell(event)
    session_id = 2 if len(gone) > 1 else 1
    subject.tell(e.SessionSuspended())
    assert subject.tell(e.SessionOpened(session_id)) == [e.Register]


def test_an_absence_is_as_long_as_it_is_however_often_it_is_told() -> None:
    subject = Subject().at(S.STABLE)
    for wait_s in (0.9 * TIMES.quiet_max_s, 0.2 * TIMES.quiet_max_s):
        subject.tell(e.SessionSuspended())
        subject.now += wait_s
    subject.tell(e.SessionExpired())
    subject.tell(e.SessionOpened(2))
    subject.tell(e.Registered(2))
    assert subject.read(ALONE) == [e.SetAssignment]


def test_after_a_long_absence_who_is_registered_while_away_waits_for_the_others_too() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(e.SessionSuspended())
    subject.now += TIMES.quiet_max_s + 0.1
    for event in (e.SessionExpired(), e.SessionOpened(2), e.SessionSuspended(), e.Registered(2)):
        subject.tell(event)
    assert subject.tell(e.SessionOpened(2)) == [e.ReadGroup]
    assert subject.read(ALONE) == [e.SetAssignment]


@pytest.mark.parametrize("state", [S.LEAVING, S.OUT])
def test_an_application_that_goes_on_after_a_disconnection_goes_on_at_once(state: S) -> None:
    subject = Subject().at(state)
    subject.tell(e.SessionSuspended())
    subject.tell(e.SessionOpened(1))
    assert subject.tell(e.Rejoin()) == [e.ReadGroup if state is S.LEAVING else e.Register]


@pytest.mark.parametrize("state", [S.LEAVING, S.OUT])
def test_who_was_out_during_the_end_of_a_session_registers_under_the_next_one(state: S) -> None:
    subject = Subject().at(state)
    subject.tell(e.SessionSuspended())
    subject.tell(e.SessionOpened(2))
    assert subject.tell(e.Rejoin()) == [e.Register]
    assert subject.tell(e.Registered(2)) == [e.ReadGroup]


class Walk:
    """Tells a machine what can happen to it, whatever is drawn: what cannot happen now is left out."""

    def __init__(self) -> None:
        self.subject = Subject()
        self.session = 0
        self.is_connected = False

    def tell(self, move: str) -> list[type] | None:
        """What the machine asks for; None if `move` cannot be now."""
        event = self._session_change(move) if move in ("open", "reopen", "suspended", "expired") else self._event(move)
        return None if event is None or not self._is_possible(event) else self.subject.tell(event)

    def _session_change(self, move: str) -> e.Event | None:
        if move == "suspended":
            self.is_connected = False
            return e.SessionSuspended()
        if self.is_connected:
            return None
        if move == "expired":
            return e.SessionExpired()
        self.is_connected = True
        self.session += move == "open" or self.session == 0
        return e.SessionOpened(self.session)

    def _event(self, move: str) -> e.Event | None:
        attempt = self.subject.machine.attempt
        if move == "timer":
            due = self.subject.machine.next_timer()
            self.subject.now = max(self.subject.now, due or 0.0)
            return None if due is None else e.TimerFired()
        return {
            "registered": e.Registered(self.session), "unknown": e.RegistrationUnknown(),
            "gone": e.RegistrationGone(), "changed": e.Changed("ids"), "alone": e.SnapshotRead(attempt, ALONE),
            "two": e.SnapshotRead(attempt, TWO), "frozen": e.SnapshotRead(attempt, FROZEN),
            "without me": e.SnapshotRead(attempt, WITHOUT_ME), "late": e.SnapshotRead(attempt - 1, TWO),
            "failed": e.SnapshotFailed(attempt, "no answer"), "step out": e.Leave("stuck"), "step in": e.Rejoin(),
            "all released": e.AllReleased(), "unregistered": e.Unregistered(),
        }.get(move)  # fmt: skip

    def _is_possible(self, event: e.Event) -> bool:
        return type(event) in ROWS[self.subject.state]


moves = st.sampled_from(
    [
        "open",
        "reopen",
        "suspended",
        "expired",
        "registered",
        "unknown",
        "gone",
        "changed",
        "alone",
        "two",
        "frozen",
        "without me",
        "failed",
        "late",
        "timer",
        "tick",
        "step out",
        "step in",
        "all released",
        "unregistered",
    ]
)


@given(st.lists(moves, max_size=60))
def test_whatever_comes_nothing_raises_and_nothing_is_claimed_while_a_change_is_pending(moves: list[str]) -> None:
    walk = Walk()
    subject = walk.subject
    for move in moves:
        if move == "tick":
            subject.now += 0.05
            continue
        actions = walk.tell(move)
        if actions is None:
            continue
        if move == "late":
            assert actions == []
        if e.AllowClaims in actions:
            assert subject.state is S.STABLE
            assert actions[-1] is e.AllowClaims
        if e.ReadGroup in actions or e.Register in actions:
            assert subject.state in (S.READING, S.REGISTERING)
            assert e.AllowClaims not in actions
        if subject.state in (S.REGISTERING, S.READING, S.SETTLING, S.STABLE):
            assert walk.is_connected


@given(st.lists(moves, max_size=40))
def test_after_any_walk_a_member_that_is_left_in_peace_comes_to_rest(moves: list[str]) -> None:
    walk = Walk()
    subject = walk.subject
    for move in moves:
        walk.tell(move)
        subject.now += 0.01
    walk.tell("suspended")
    actions = walk.tell("open") or []
    for _ in range(12):
        if subject.state is S.STABLE:
            return
        if e.Register in actions:
            actions = walk.tell("registered") or []
        elif e.ReadGroup in actions:
            actions = subject.read(ALONE)
        elif subject.state in (S.LEAVING, S.UNREGISTERING, S.OUT):
            events = {S.LEAVING: "all released", S.UNREGISTERING: "unregistered", S.OUT: "step in"}
            actions = walk.tell(events[subject.state]) or []
        else:
            actions = subject.wait_for_timer()
    raise AssertionError(f"still {subject.state.value}")
