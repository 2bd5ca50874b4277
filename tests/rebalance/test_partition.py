"""The machine of one partition, read as a specification, and attacked with random events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rebalance import partition as p
from rebalance.partition import PartitionState as S

A, B = "me-0", "me-1"
FOREIGN = p.OwnerRead("other-0", False, 3, 0xF0)
MINE = p.OwnerRead(A, True, 0, 0xA0)
LOOK, WATCH = p.Inspect(watch=False), p.Inspect(watch=True)


def machine(state: S, wanted: str | None = None, held: str | None = None, version: int = 0) -> p.PartitionMachine:
    made = p.PartitionMachine()
    made.state, made.wanted, made.held, made.version = state, wanted, held, version
    return made


# (state, wanted, held), event -> (state, wanted, held), actions
ROWS: list[tuple[tuple[S, Any, Any], p.Event, tuple[S, Any, Any], list[p.Action]]] = [
    # free
    ((S.FREE, None, None), p.Want(A), (S.FREE, A, None), []),
    ((S.FREE, A, None), p.Want(None), (S.FREE, None, None), []),
    ((S.FREE, A, None), p.ClaimsAllowed(), (S.CLAIMING, A, None), [p.Claim(A)]),
    ((S.FREE, None, None), p.ClaimsAllowed(), (S.FREE, None, None), []),
    ((S.FREE, A, None), p.OwnerChanged(), (S.FREE, A, None), []),
    ((S.FREE, A, None), p.Reconnected(), (S.FREE, A, None), []),
    ((S.FREE, A, None), p.SessionOver(), (S.FREE, A, None), []),
    # claiming
    ((S.CLAIMING, A, None), p.Want(B), (S.CLAIMING, B, None), []),
    ((S.CLAIMING, A, None), p.ClaimsAllowed(), (S.CLAIMING, A, None), []),
    ((S.CLAIMING, A, None), p.Claimed(A), (S.OWNED, A, A), [p.Start(A), WATCH]),
    ((S.CLAIMING, None, None), p.Claimed(A), (S.RELEASING, None, A), [p.Release()]),
    ((S.CLAIMING, B, None), p.Claimed(A), (S.UNKNOWN, B, A), [p.MoveToThread(B, 0)]),
    ((S.CLAIMING, A, None), p.ClaimRefused(), (S.BLOCKED, A, None), [p.AwaitEnd()]),
    ((S.CLAIMING, None, None), p.ClaimRefused(), (S.UNKNOWN, None, None), [LOOK]),
    ((S.CLAIMING, A, None), p.ClaimPutOff(), (S.FREE, A, None), []),
    ((S.CLAIMING, None, None), p.ClaimPutOff(), (S.FREE, None, None), []),
    ((S.CLAIMING, A, None), p.Fenced(), (S.FREE, A, None), []),
    ((S.CLAIMING, A, None), p.ResultUnknown(), (S.UNKNOWN, A, None), [LOOK]),
    ((S.CLAIMING, A, None), p.OwnerChanged(), (S.CLAIMING, A, None), []),
    ((S.CLAIMING, A, None), p.Reconnected(), (S.CLAIMING, A, None), []),
    ((S.CLAIMING, A, None), p.SessionOver(), (S.FREE, A, None), []),
    # blocked
    ((S.BLOCKED, A, None), p.Want(B), (S.BLOCKED, B, None), []),
    ((S.BLOCKED, A, None), p.Want(None), (S.FREE, None, None), []),
    ((S.BLOCKED, A, None), p.ClaimsAllowed(), (S.BLOCKED, A, None), []),
    ((S.BLOCKED, A, None), FOREIGN, (S.BLOCKED, A, None), []),
    ((S.BLOCKED, A, None), MINE, (S.OWNED, A, A), [p.Start(A), WATCH]),
    ((S.BLOCKED, A, None), p.OwnerGone(), (S.FREE, A, None), [p.Recheck()]),
    ((S.BLOCKED, A, None), p.OwnerChanged(), (S.FREE, A, None), [p.Recheck()]),
    ((S.BLOCKED, A, None), p.ResultUnknown(), (S.BLOCKED, A, None), []),
    ((S.BLOCKED, A, None), p.Reconnected(), (S.BLOCKED, A, None), [WATCH]),
    ((S.BLOCKED, A, None), p.SessionOver(), (S.FREE, A, None), []),
    # owned
    ((S.OWNED, A, A), p.Want(A), (S.OWNED, A, A), []),
    ((S.OWNED, A, A), p.Want(None), (S.DRAINING, None, A), [p.Drain()]),
    ((S.OWNED, A, A), p.Want(B), (S.DRAINING, B, A), [p.Drain()]),
    ((S.OWNED, A, A), p.ClaimsAllowed(), (S.OWNED, A, A), []),
    ((S.OWNED, A, A), MINE, (S.OWNED, A, A), []),
    ((S.OWNED, A, A), FOREIGN, (S.BLOCKED, A, None), [p.Stop(), WATCH]),
    ((S.OWNED, A, A), p.OwnerGone(), (S.FREE, A, None), [p.Stop(), p.Recheck()]),
    ((S.OWNED, A, A), p.OwnerChanged(), (S.OWNED, A, A), [WATCH]),
    ((S.OWNED, A, A), p.ResultUnknown(), (S.OWNED, A, A), []),
    ((S.OWNED, A, A), p.Reconnected(), (S.OWNED, A, A), [WATCH]),
    ((S.OWNED, A, A), p.SessionOver(), (S.FREE, A, None), [p.Stop()]),
    # draining
    ((S.DRAINING, None, A), p.Want(A), (S.DRAINING, A, A), []),
    ((S.DRAINING, None, A), p.Drained(), (S.RELEASING, None, A), [p.Release()]),
    ((S.DRAINING, B, A), p.Drained(), (S.UNKNOWN, B, A), [p.MoveToThread(B, 0)]),
    ((S.DRAINING, A, A), p.Drained(), (S.OWNED, A, A), [p.Start(A), WATCH]),
    ((S.DRAINING, None, A), p.ClaimsAllowed(), (S.DRAINING, None, A), []),
    ((S.DRAINING, None, A), p.OwnerChanged(), (S.DRAINING, None, A), []),
    ((S.DRAINING, None, A), p.Reconnected(), (S.DRAINING, None, A), []),
    ((S.DRAINING, None, A), p.SessionOver(), (S.FREE, None, None), [p.Stop()]),
    # releasing
    ((S.RELEASING, None, A), p.Want(A), (S.RELEASING, A, A), []),
    ((S.RELEASING, None, A), p.Released(), (S.FREE, None, None), []),
    ((S.RELEASING, A, A), p.Released(), (S.FREE, A, None), [p.Recheck()]),
    ((S.RELEASING, None, A), p.ReleaseRefused(), (S.FREE, None, None), []),
    ((S.RELEASING, None, A), p.ResultUnknown(), (S.UNKNOWN, None, A), [LOOK]),
    ((S.RELEASING, None, A), p.Fenced(), (S.UNKNOWN, None, A), []),
    ((S.RELEASING, None, A), p.ClaimsAllowed(), (S.RELEASING, None, A), []),
    ((S.RELEASING, None, A), p.OwnerChanged(), (S.RELEASING, None, A), []),
    ((S.RELEASING, None, A), p.Reconnected(), (S.RELEASING, None, A), []),
    ((S.RELEASING, A, A), p.SessionOver(), (S.FREE, A, None), []),
    # unknown
    ((S.UNKNOWN, A, None), p.Want(None), (S.UNKNOWN, None, None), []),
    ((S.UNKNOWN, A, None), p.ClaimsAllowed(), (S.UNKNOWN, A, None), []),
    ((S.UNKNOWN, A, None), MINE, (S.OWNED, A, A), [p.Start(A), WATCH]),
    ((S.UNKNOWN, None, A), MINE, (S.RELEASING, None, A), [p.Release()]),
    ((S.UNKNOWN, B, A), MINE, (S.UNKNOWN, B, A), [p.MoveToThread(B, 0)]),
    ((S.UNKNOWN, A, None), FOREIGN, (S.BLOCKED, A, None), [WATCH]),
    ((S.UNKNOWN, None, A), FOREIGN, (S.FREE, None, None), []),
    ((S.UNKNOWN, A, None), p.OwnerGone(), (S.FREE, A, None), [p.Recheck()]),
    ((S.UNKNOWN, None, None), p.OwnerGone(), (S.FREE, None, None), []),
    ((S.UNKNOWN, B, A), p.MovedToThread(B, 1), (S.OWNED, B, B), [p.Start(B), WATCH]),
    ((S.UNKNOWN, None, A), p.MovedToThread(B, 1), (S.RELEASING, None, B), [p.Release()]),
    ((S.UNKNOWN, B, A), p.ReleaseRefused(), (S.UNKNOWN, B, A), [LOOK]),
    ((S.UNKNOWN, B, A), p.Fenced(), (S.UNKNOWN, B, A), []),
    ((S.UNKNOWN, A, None), p.ResultUnknown(), (S.UNKNOWN, A, None), []),
    ((S.UNKNOWN, A, None), p.OwnerChanged(), (S.UNKNOWN, A, None), []),
    ((S.UNKNOWN, A, None), p.Reconnected(), (S.UNKNOWN, A, None), [LOOK]),
    ((S.UNKNOWN, A, None), p.SessionOver(), (S.FREE, A, None), []),
]


def _name(value: object) -> str:
    return value.value if isinstance(value, S) else "" if isinstance(value, tuple | list) else repr(value)


@pytest.mark.parametrize(("before", "event", "after", "actions"), ROWS, ids=lambda value: _name(value)[:60])
def test_each_row(
    before: tuple[S, Any, Any], event: p.Event, after: tuple[S, Any, Any], actions: list[p.Action]
) -> None:
    subject = machine(*before)
    assert subject.handle(event) == actions
    assert (subject.state, subject.wanted, subject.held) == after


def test_the_rows_above_reach_the_whole_table() -> None:
    from rebalance.partition import _TABLE

    assert {(before[0], type(event)) for before, event, _, _ in ROWS} == set(_TABLE)


def test_a_result_nobody_asked_for_is_a_bug_and_raises() -> None:
    with pytest.raises(LookupError, match="no transition for Released in state owned"):
        machine(S.OWNED, A, A).handle(p.Released())


def test_the_holder_of_a_blocked_partition_is_known_until_it_is_free() -> None:
    subject = machine(S.CLAIMING, A)
    subject.handle(p.ClaimRefused())
    subject.handle(FOREIGN)
    assert subject.holder == ("other-0", 0xF0)
    subject.handle(p.OwnerGone())
    assert subject.holder is None


def test_a_foreign_node_in_the_place_of_mine_is_named() -> None:
    subject = machine(S.OWNED, A, A)
    subject.handle(FOREIGN)
    assert subject.holder == ("other-0", 0xF0)


def test_a_machine_is_idle_when_nothing_is_wanted_held_or_under_way() -> None:
    assert machine(S.FREE).is_idle
    assert not machine(S.FREE, A).is_idle
    assert not machine(S.RELEASING, None, A).is_idle


def told(made: p.PartitionMachine, *events: p.Event) -> list[p.Action]:
    """What the machine does about the last of some events."""
    return [made.handle(event) for event in events][-1]


def test_a_machine_that_has_heard_of_nothing_holds_and_wants_nothing() -> None:
    made = p.PartitionMachine()
    assert made.is_idle
    assert (made.wanted, made.held, made.holder) == (None, None, None)
    assert told(made, p.ClaimsAllowed()) == []


@pytest.mark.parametrize("end", [p.OwnerGone(), p.OwnerChanged()], ids=["gone", "changed"])
def test_a_place_whose_owner_was_heard_to_leave_is_claimed_without_a_look_once(end: p.Event) -> None:
    made = p.PartitionMachine()
    assert told(made, p.Want(A), p.ClaimsAllowed()) == [p.Claim(A, is_vacant=False)]
    assert told(made, p.ClaimRefused(), end, p.ClaimsAllowed()) == [p.Claim(A, is_vacant=True)]
    assert told(made, p.ClaimPutOff(), p.ClaimsAllowed()) == [p.Claim(A, is_vacant=False)]


@pytest.mark.parametrize(
    ("state", "event"),
    [(S.UNKNOWN, p.MovedToThread(A, 5)), (S.UNKNOWN, p.OwnerRead(A, True, 5)), (S.BLOCKED, p.OwnerRead(A, True, 5)),
     (S.OWNED, p.OwnerRead(A, True, 5)), (S.CLAIMING, p.Claimed(A, 5))],
)  # fmt: skip
def test_a_thread_is_written_over_the_version_of_the_owner_node_that_was_last_heard_of(
    state: S, event: p.Event
) -> None:
    made = machine(state, A, A if state is S.OWNED else None, version=2)
    assert told(made, event, p.Want(B), p.Drained()) == [p.MoveToThread(B, 5)]


@pytest.mark.parametrize("state", [S.UNKNOWN, S.BLOCKED, S.OWNED])
def test_who_is_found_in_the_place_is_told_as_its_holder(state: S) -> None:
    made = machine(state, A, A if state is S.OWNED else None)
    told(made, FOREIGN)
    assert made.holder == ("other-0", 0xF0)


class World(RuleBasedStateMachine):
    """One owner node, one machine, one stranger; answers come late and get lost, but in the order of the questions.

    As in the shell, only the answer to the last question counts, and only in the state in which it was asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.subject = p.PartitionMachine()
        self.owner: str | None = None  # data of the node; "x" is the stranger's
        self.version = 0
        self.open: list[tuple[int, str, Any]] = []
        self.asked = 0
        self.delivering = False
        self.connected = True
        self.registered = True
        self.changing = False
        self.watched = False

    # -- what the shell does with actions

    def tell(self, event: p.Event) -> None:
        before = self.subject.state
        actions = self.subject.handle(event)
        if self.subject.state is not before:
            self.asked += 1
        for action in actions:
            match action:
                case p.Claim(thread_id):
                    assert not self.delivering, "claims while it delivers"
                    self.ask("claim", thread_id)
                case p.Inspect(watch):
                    self.ask("look", watch)
                case p.AwaitEnd():
                    self.ask("look", True)
                case p.MoveToThread(thread_id, version):
                    assert not self.delivering, "changes the thread while it delivers"
                    self.ask("move_to_thread", (thread_id, version))
                case p.Release():
                    assert not self.delivering, "releases while it delivers"
                    self.ask("release", None)
                case p.Start():
                    assert not self.delivering, "starts twice"
                    self.delivering = True
                case p.Drain() | p.Stop():
                    self.delivering = False

    def ask(self, what: str, argument: Any) -> None:
        self.asked += 1
        self.open.append((self.asked, what, argument))

    def apply(self, what: str, argument: Any) -> p.Event:
        """What ZooKeeper does and answers."""
        mine = self.owner is not None and self.owner != "x"
        if what == "look":
            if self.owner is None:
                return p.OwnerGone()
            self.watched |= bool(argument)
            return p.OwnerRead(self.owner, mine, self.version, 1)
        if what == "claim" and self.changing:
            return p.ClaimPutOff()
        if not self.registered:
            return p.Fenced()
        if what == "claim":
            if self.owner is not None:
                return p.ClaimRefused()
            self.set(argument, 0)
            return p.Claimed(argument)
        if what == "move_to_thread":
            thread_id, version = argument
            if not mine or version != self.version:
                return p.ReleaseRefused()
            self.set(thread_id, version + 1)
            return p.MovedToThread(thread_id, version + 1)
        if self.owner is None:
            return p.Released()
        if not mine:
            return p.ReleaseRefused()
        self.set(None, 0)
        return p.Released()

    def set(self, owner: str | None, version: int) -> None:
        self.owner, self.version = owner, version
        if self.watched:
            self.watched = False
            self.open.append((-1, "event", None))

    @initialize(thread=st.sampled_from([A, B]))
    def wanted_and_allowed(self, thread: str) -> None:
        self.tell(p.Want(thread))
        self.tell(p.ClaimsAllowed())

    @rule(thread=st.sampled_from([None, A, B]))
    def want(self, thread: str | None) -> None:
        self.tell(p.Want(thread))

    @rule()
    def change(self) -> None:
        self.changing = True

    @rule()
    def allow(self) -> None:
        self.changing = False
        self.tell(p.ClaimsAllowed())

    @precondition(lambda self: self.connected and self.open)
    @rule()
    def answer(self) -> None:
        number, what, argument = self.open.pop(0)
        event = p.OwnerChanged() if what == "event" else self.apply(what, argument)
        if number in (-1, self.asked):
            self.tell(event)

    @precondition(lambda self: self.connected)
    @rule(landed=st.booleans())
    def lose_connection(self, landed: bool) -> None:
        """Everything open is answered with "unknown"; the first of it may have been applied."""
        self.connected = False
        lost, self.open = self.open, []
        self.watched = False
        for place, (number, what, argument) in enumerate(lost):
            if what != "event" and landed and place == 0:
                self.apply(what, argument)
            if number == self.asked:
                self.tell(p.ResultUnknown())

    @precondition(lambda self: not self.connected)
    @rule()
    def reconnect(self) -> None:
        self.connected = True
        self.tell(p.Reconnected())

    @precondition(lambda self: self.registered)
    @rule()
    def registration_is_deleted(self) -> None:
        self.registered = False

    @precondition(lambda self: not self.registered and self.connected)
    @rule()
    def register_again(self) -> None:
        self.registered = True
        self.tell(p.Reconnected())

    @rule()
    def session_over(self) -> None:
        self.open = []
        self.watched = False
        self.asked += 1
        if self.owner != "x":
            self.owner = None
        self.tell(p.SessionOver())
        assert not self.delivering
        self.connected = self.registered = True

    @precondition(lambda self: self.owner is None)
    @rule()
    def stranger_claims(self) -> None:
        self.set("x", 0)

    @precondition(lambda self: self.owner == "x")
    @rule()
    def stranger_leaves(self) -> None:
        self.set(None, 0)

    @precondition(lambda self: self.owner is not None)
    @rule()
    def hand_deletes(self) -> None:
        self.set(None, 0)

    @precondition(lambda self: self.subject.state is S.DRAINING)
    @rule()
    def drained(self) -> None:
        self.tell(p.Drained())

    @invariant()
    def delivers_only_what_it_owns(self) -> None:
        assert self.delivering == (self.subject.state is S.OWNED)

    @invariant()
    def nothing_is_under_way_without_an_open_question(self) -> None:
        if self.connected and self.registered and self.subject.state in (S.CLAIMING, S.RELEASING, S.UNKNOWN):
            assert any(number == self.asked for number, _, _ in self.open), self.subject.state

    def teardown(self) -> None:
        """Left in peace and wanted by nobody, nothing stays held: whatever is held is delivered or released."""
        if not self.connected:
            self.reconnect()
        if not self.registered:
            self.register_again()
        self.tell(p.Want(None))
        for _ in range(50):
            if self.subject.state is S.DRAINING:
                self.drained()
            if not self.open:
                break
            self.answer()
        assert not self.open
        assert self.subject.is_idle
        assert self.owner in (None, "x"), "an owner node of mine is left behind"


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_every_state_has_a_row_for_whatever_can_come_from_outside() -> None:
    from rebalance.partition import _TABLE

    outside: Iterable[type] = (p.Want, p.ClaimsAllowed, p.OwnerChanged, p.Reconnected, p.SessionOver)
    assert not [(state, event) for state in S for event in outside if (state, event) not in _TABLE]
