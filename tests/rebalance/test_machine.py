"""The machine of the group, read as a specification, and attacked with random events."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance import machine as m
from rebalance.machine import GroupState as S
from rebalance.snapshot import GroupSnapshot, Strategy, TopicNode
from rebalance.subscription import Subscription

MINE = Subscription.static({"t": 1})
TIMES = m.RebalanceTimes()
ALONE = GroupSnapshot({"me": MINE}, {"t": TopicNode((0, 1, 2, 3))})
TWO = GroupSnapshot({"me": MINE, "you": MINE}, {"t": TopicNode((0, 1, 2, 3))})
WITHOUT_ME = GroupSnapshot({"you": MINE}, {"t": TopicNode((0, 1, 2, 3))})
FROZEN = GroupSnapshot({"me": MINE}, {"t": TopicNode((0, 1, 2, 3))}, untranslatable={"you": "look-behind"})


class Subject:
    """A machine with a clock, and what it last asked for."""

    def __init__(self) -> None:
        self.machine = m.RebalanceMachine("me", MINE, Strategy(), TIMES, random.Random(7))
        self.now = 100.0

    def tell(self, event: m.Event) -> list[type]:
        self.actions = self.machine.handle(event, self.now)
        return [type(action) for action in self.actions]

    def wait_for_timer(self) -> list[type]:
        due = self.machine.next_timer()
        assert due is not None, f"no timer in {self.machine.state}"
        self.now = max(self.now, due)
        return self.tell(m.TimerFired())

    def read(self, snapshot: GroupSnapshot) -> list[type]:
        return self.tell(m.SnapshotRead(self.machine.attempt, snapshot))

    @property
    def state(self) -> S:
        return self.machine.state

    def at(self, state: S) -> Subject:
        """Bring a fresh machine into a state."""
        if state is S.DISCONNECTED:
            return self
        self.tell(m.SessionOpened(1))
        if state is S.FAILED:
            self.tell(m.RegistrationRefused(ValueError("no")))
        if state in (S.REGISTERING, S.FAILED):
            return self
        self.tell(m.Registered(1))
        if state is S.READING:
            return self
        self.read(ALONE)
        away = (S.LEAVING, S.UNREGISTERING, S.OUT)
        if state in (S.STABLE, *away):
            self.wait_for_timer()
            self.now += 10
        if state in away:
            for event in (m.StepOut("stuck"), m.AllReleased(), m.Unregistered())[: away.index(state) + 1]:
                self.tell(event)
        assert self.state is state
        return self


EVENTS: dict[type, m.Event] = {
    type(event): event
    for event in (
        m.SessionOpened(1), m.SessionSuspended(), m.SessionExpired(), m.Registered(1), m.RegistrationUnknown(),
        m.RegistrationGone(), m.RegistrationRefused(ValueError("no")), m.Changed("ids"), m.SnapshotRead(-1, ALONE),
        m.SnapshotFailed(-1, "no answer"), m.TimerFired(), m.StepOut("stuck"), m.AllReleased(), m.Unregistered(),
        m.StepIn(),
    )
}  # fmt: skip

# state -> event -> (next state, actions), for whatever is not "stays, does nothing"
ROWS: dict[S, dict[type, tuple[S, list[type]]]] = {
    S.DISCONNECTED: {
        m.SessionOpened: (S.REGISTERING, [m.Register]),
        m.SessionExpired: (S.DISCONNECTED, [m.DropClaims]),
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
    },
    S.REGISTERING: {
        m.SessionOpened: (S.REGISTERING, [m.Register]),
        m.SessionSuspended: (S.DISCONNECTED, []),
        m.SessionExpired: (S.DISCONNECTED, [m.DropClaims]),
        m.Registered: (S.READING, [m.ReadGroup]),
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
    },
    S.READING: {
        m.SessionOpened: (S.READING, [m.ReadGroup]),
        m.SessionSuspended: (S.DISCONNECTED, []),
        m.SessionExpired: (S.DISCONNECTED, [m.DropClaims]),
        m.RegistrationGone: (S.REGISTERING, [m.Register]),
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
        m.StepOut: (S.LEAVING, [m.ReleaseAll]),
    },
    S.SETTLING: {
        m.SessionOpened: (S.READING, [m.ReadGroup]),
        m.SessionSuspended: (S.DISCONNECTED, []),
        m.SessionExpired: (S.DISCONNECTED, [m.DropClaims]),
        m.RegistrationGone: (S.REGISTERING, [m.Register]),
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
        m.StepOut: (S.LEAVING, [m.ReleaseAll]),
        m.Changed: (S.READING, []),  # so soon after a read that it waits
    },
    S.STABLE: {
        m.SessionOpened: (S.READING, [m.ReadGroup]),
        m.SessionSuspended: (S.DISCONNECTED, []),
        m.SessionExpired: (S.DISCONNECTED, [m.DropClaims]),
        m.RegistrationGone: (S.REGISTERING, [m.Register]),
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
        m.StepOut: (S.LEAVING, [m.ReleaseAll]),
        m.Changed: (S.READING, [m.ReadGroup]),
    },
    S.LEAVING: {
        m.SessionExpired: (S.OUT, [m.DropClaims]),
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
        m.AllReleased: (S.UNREGISTERING, [m.Unregister]),
        m.StepIn: (S.READING, [m.ReadGroup]),
    },
    S.UNREGISTERING: {
        m.SessionExpired: (S.OUT, [m.DropClaims]),
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
        m.Unregistered: (S.OUT, []),
    },
    S.OUT: {
        m.RegistrationRefused: (S.FAILED, [m.Fail]),
        m.StepIn: (S.REGISTERING, [m.Register]),
    },
    S.FAILED: {},
}


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("state", S, ids=lambda state: state.value)
def test_each_row(state: S, kind: type) -> None:
    subject = Subject().at(state)
    actions = subject.tell(EVENTS[kind])
    assert (subject.state, actions) == ROWS[state].get(kind, (state, []))


def test_a_read_that_changes_my_share_lets_go_at_once_and_claims_after_the_quiet_time() -> None:
    subject = Subject().at(S.READING)
    assert subject.read(TWO) == [m.Retarget]
    assert subject.state is S.SETTLING
    due = subject.machine.next_timer()
    assert due is not None
    assert TIMES.quiet_s / 2 <= due - subject.now <= TIMES.quiet_s
    assert subject.wait_for_timer() == [m.AllowClaims]
    assert subject.machine.claims_allowed


def test_a_timer_that_comes_early_allows_nothing() -> None:
    subject = Subject().at(S.SETTLING)
    assert subject.tell(m.TimerFired()) == []
    assert subject.state is S.SETTLING


def test_a_change_that_leaves_my_share_as_it_is_waits_for_nothing() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(m.Changed("ids"))
    assert subject.read(ALONE) == [m.Retarget, m.AllowClaims]
    assert subject.state is S.STABLE


def test_reading_the_same_again_does_not_cut_the_quiet_time_short() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(m.Changed("ids"))
    subject.read(TWO)
    quiet_until = subject.machine.next_timer()
    subject.tell(m.Changed("owner of t-0"))
    assert subject.wait_for_timer() == [m.ReadGroup]
    assert subject.read(TWO) == [m.Retarget]
    assert subject.state is S.SETTLING
    assert subject.machine.next_timer() == quiet_until
    assert subject.wait_for_timer() == [m.AllowClaims]


def test_changes_that_never_end_put_the_claims_off_to_the_cap_and_no_further() -> None:
    subject = Subject().at(S.STABLE)
    began = subject.now
    subject.tell(m.Changed("ids"))
    allowed = False
    snapshots = [TWO, ALONE]
    while not allowed:
        assert subject.now - began <= TIMES.quiet_max_s + TIMES.quiet_s + TIMES.gap_s
        snapshots.reverse()
        actions = subject.read(snapshots[0])
        while m.ReadGroup not in actions and not allowed:
            subject.now += 0.03
            if subject.machine.next_timer() is not None and subject.now >= (subject.machine.next_timer() or 0):
                actions = subject.tell(m.TimerFired())
            else:
                actions = subject.tell(m.Changed("ids"))
            allowed = m.AllowClaims in actions


def test_a_change_while_reading_is_read_before_anything_is_let_go_of() -> None:
    subject = Subject().at(S.READING)
    subject.tell(m.Changed("ids"))
    assert subject.read(TWO) == []
    assert subject.wait_for_timer() == [m.ReadGroup]
    assert subject.read(ALONE) == [m.Retarget]


def test_past_the_cap_a_change_while_reading_no_longer_holds_up_the_releases() -> None:
    subject = Subject().at(S.READING)
    subject.tell(m.Changed("ids"))
    subject.now += TIMES.quiet_max_s + 0.1
    assert subject.read(TWO) == [m.Retarget, m.ReadGroup]


def test_a_stale_read_says_nothing() -> None:
    subject = Subject().at(S.READING)
    old = subject.machine.attempt
    subject.tell(m.SessionSuspended())
    subject.tell(m.SessionOpened(1))
    assert subject.tell(m.SnapshotRead(old, TWO)) == []
    assert subject.tell(m.SnapshotFailed(old, "connection lost")) == []
    assert subject.state is S.READING


def test_a_read_that_failed_is_tried_again_ever_later_up_to_a_limit() -> None:
    subject = Subject().at(S.READING)
    waits = []
    for _ in range(12):
        subject.tell(m.SnapshotFailed(subject.machine.attempt, "no node"))
        due = subject.machine.next_timer()
        assert due is not None
        waits.append(due - subject.now)
        assert subject.wait_for_timer() == [m.ReadGroup]
    assert waits[0] <= TIMES.retry_s
    assert TIMES.retry_max_s / 2 <= waits[-1] <= TIMES.retry_max_s


def test_a_short_disconnection_reads_again_and_touches_nothing_that_is_the_same() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(m.SessionSuspended())
    assert subject.tell(m.SessionOpened(1)) == [m.ReadGroup]
    assert subject.read(ALONE) == [m.Retarget, m.AllowClaims]


def test_another_session_drops_all_claims_even_when_nobody_said_that_the_old_one_expired() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(m.SessionSuspended())
    assert subject.tell(m.SessionOpened(2)) == [m.DropClaims, m.Register]
    assert subject.tell(m.Registered(1)) == [], "the answer for the old session"
    assert subject.tell(m.Registered(2)) == [m.ReadGroup]


def test_a_registration_that_stood_before_the_connection_went_away_is_not_made_again() -> None:
    subject = Subject().at(S.REGISTERING)
    subject.tell(m.SessionSuspended())
    subject.tell(m.Registered(1))
    assert subject.tell(m.SessionOpened(1)) == [m.ReadGroup]


def test_registering_is_tried_again_when_its_result_is_unknown() -> None:
    subject = Subject().at(S.REGISTERING)
    subject.tell(m.RegistrationUnknown())
    assert subject.tell(m.TimerFired()) == []
    assert subject.wait_for_timer() == [m.Register]


def test_a_group_without_me_makes_me_register_again_and_let_go_of_nothing() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(m.Changed("ids"))
    assert subject.read(WITHOUT_ME) == [m.Register]
    assert subject.state is S.REGISTERING


def test_under_a_session_that_follows_a_lost_one_the_others_are_waited_for_even_when_nothing_seems_to_differ() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(m.SessionExpired())
    subject.tell(m.SessionOpened(2))
    assert subject.tell(m.Registered(2)) == [m.ReadGroup]
    registered_at = subject.now
    assert subject.read(ALONE) == [m.Retarget]
    assert subject.state is S.SETTLING
    assert subject.wait_for_timer() == [m.AllowClaims]
    assert TIMES.quiet_max_s * 0.6 <= subject.now - registered_at <= TIMES.quiet_max_s


def test_a_member_that_is_out_registers_anew_when_the_application_goes_on_and_takes_its_share_again() -> None:
    subject = Subject().at(S.OUT)
    assert subject.tell(m.StepIn()) == [m.Register]
    assert subject.tell(m.Registered(1)) == [m.ReadGroup]
    assert subject.read(ALONE) == [m.Retarget]
    assert subject.wait_for_timer() == [m.AllowClaims]
    assert subject.state is S.STABLE


def test_a_member_whose_session_ends_while_it_is_out_waits_for_the_next_one_and_for_the_application() -> None:
    subject = Subject().at(S.OUT)
    assert subject.tell(m.SessionExpired()) == []
    assert subject.tell(m.StepIn()) == []
    assert subject.state is S.DISCONNECTED
    assert subject.tell(m.SessionOpened(2)) == [m.Register]


def test_a_session_that_ends_while_everything_is_given_back_leaves_nothing_to_unregister() -> None:
    subject = Subject().at(S.LEAVING)
    assert subject.tell(m.SessionOpened(2)) == [m.DropClaims]
    assert subject.state is S.OUT
    assert subject.tell(m.AllReleased()) == []


def test_what_cannot_be_computed_freezes_and_clears_up_by_itself() -> None:
    subject = Subject().at(S.STABLE)
    subject.tell(m.Changed("ids"))
    subject.read(FROZEN)
    retarget = subject.actions[0]
    assert isinstance(retarget, m.Retarget)
    assert "look-behind" in (retarget.assignment.frozen or "")
    subject.wait_for_timer()
    subject.now += 1
    subject.tell(m.Changed("ids"))
    assert subject.read(ALONE) == [m.Retarget]


moves = st.sampled_from(
    ["open 1", "open 2", "suspended", "expired", "registered", "unknown", "gone", "changed", "alone", "two", "frozen",
     "without me", "failed", "late", "timer", "tick"]
)


@given(st.lists(moves, max_size=60))
def test_whatever_comes_nothing_raises_and_nothing_is_claimed_while_a_change_is_pending(walk: list[str]) -> None:
    subject = Subject()
    session = 0
    for move in walk:
        match move.split():
            case ["open", number]:
                session = int(number)
                actions = subject.tell(m.SessionOpened(session))
            case ["suspended"]:
                actions = subject.tell(m.SessionSuspended())
            case ["expired"]:
                actions = subject.tell(m.SessionExpired())
            case ["registered"]:
                actions = subject.tell(m.Registered(session))
            case ["unknown"]:
                actions = subject.tell(m.RegistrationUnknown())
            case ["gone"]:
                actions = subject.tell(m.RegistrationGone())
            case ["changed"]:
                actions = subject.tell(m.Changed("ids"))
            case ["alone" | "two" | "frozen" | "without", *_]:
                snapshot = {"a": ALONE, "t": TWO, "f": FROZEN, "w": WITHOUT_ME}[move[0]]
                actions = subject.read(snapshot)
            case ["failed"]:
                actions = subject.tell(m.SnapshotFailed(subject.machine.attempt, "no answer"))
            case ["late"]:
                actions = subject.tell(m.SnapshotRead(subject.machine.attempt - 1, TWO))
                assert actions == []
            case ["timer"]:
                if subject.machine.next_timer() is None:
                    continue
                actions = subject.wait_for_timer()
            case _:
                subject.now += 0.05
                continue
        if m.AllowClaims in actions:
            assert subject.state is S.STABLE
            assert actions[-1] is m.AllowClaims
        if m.ReadGroup in actions or m.Register in actions:
            assert subject.state in (S.READING, S.REGISTERING)
            assert m.AllowClaims not in actions
        assert subject.machine.claims_allowed == (subject.state is S.STABLE)


@given(st.lists(moves, max_size=40))
def test_after_any_walk_a_member_that_is_left_in_peace_comes_to_rest(walk: list[str]) -> None:
    test_subject = Subject()
    for move in walk:
        event: m.Event | None = {
            "open 1": m.SessionOpened(1), "open 2": m.SessionOpened(2), "suspended": m.SessionSuspended(),
            "expired": m.SessionExpired(), "registered": m.Registered(1), "unknown": m.RegistrationUnknown(),
            "gone": m.RegistrationGone(), "changed": m.Changed("x"), "timer": m.TimerFired(),
        }.get(move)  # fmt: skip
        if event is not None:
            test_subject.tell(event)
        test_subject.now += 0.01
    actions = test_subject.tell(m.SessionOpened(3))
    for _ in range(10):
        if test_subject.state is S.STABLE:
            return
        if m.Register in actions:
            actions = test_subject.tell(m.Registered(3))
        elif m.ReadGroup in actions:
            actions = test_subject.read(ALONE)
        else:
            actions = test_subject.wait_for_timer()
    pytest.fail(f"still {test_subject.state}")
