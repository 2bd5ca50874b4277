"""How long a group is checked until the result counts, by a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from zkconsumer.admin.values import AdminError, NotFound
from zkconsumer.admin.verify.findings import Finding, Verification
from zkconsumer.admin.verify.group_verifier import check_until_settled

FINE = Verification("g", 1, 1, "range", ())
PASSING = Verification("g", 1, 1, "range", (Finding("unowned", "/p", "s", "r", passing=True),), ("g_ann",))
LASTING = Verification("g", 1, 1, "range", (Finding("persistent-owner", "/p", "s", "r"),))
NOTE = Verification("g", 1, 1, "range", (Finding("stale-offset", "/p", "s", "r", fault=False),))
MISSING = NotFound("there is no such group")


class World:
    """A group whose result changes with time; a check takes `check_s`."""

    def __init__(self, *turns: tuple[float, Verification | AdminError], check_s: float = 0.01) -> None:
        self.now = 100.0
        self.turns = [(100.0 + at, what) for at, what in turns]
        self.check_s = check_s
        self.checks: list[tuple[float, bool]] = []
        self.triggered: list[float] = []
        self.after_trigger: Verification | None = None

    def check(self, is_last: bool) -> Verification:
        self.checks.append((self.now - 100, is_last))
        what = [what for at, what in self.turns if at <= self.now][-1]
        self.now += self.check_s
        if self.triggered and self.after_trigger is not None:
            return self.after_trigger
        if isinstance(what, AdminError):
            raise what
        return what

    def trigger(self, found: Verification) -> None:
        assert found.wakeable
        self.triggered.append(self.now - 100)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def settle(self, patience_s: float = 20.0, wait_s: float = 0.0, trigger: bool = False) -> Verification:
        call: Callable[[Verification], None] | None = self.trigger if trigger else None
        return check_until_settled(self.check, patience_s, wait_s, call, lambda: self.now, self.sleep)

    @property
    def ended_at(self) -> float:
        return self.checks[-1][0]


@pytest.mark.parametrize("found", [FINE, NOTE, LASTING])
def test_a_result_that_no_rebalance_changes_is_returned_at_once(found: Verification) -> None:
    world = World((0, found))
    assert world.settle() is found
    assert len(world.checks) == 1


def test_a_rebalance_that_ends_is_no_fault() -> None:
    world = World((0, PASSING), (7, FINE))
    assert world.settle() is FINE
    assert 7 <= world.ended_at <= 8


def test_a_rebalance_that_does_not_end_is_a_fault_and_the_last_check_knows_that_it_is_the_last() -> None:
    world = World((0, PASSING))
    assert world.settle() is PASSING
    assert 20 <= world.ended_at <= 21
    assert [is_last for _, is_last in world.checks].count(True) == 1
    assert world.checks[-1][1]


def test_without_patience_the_first_check_decides() -> None:
    world = World((0, PASSING))
    assert world.settle(patience_s=0) is PASSING
    assert len(world.checks) == 1


def test_checks_of_a_large_group_take_half_of_the_time_at_most() -> None:
    world = World((0, PASSING), check_s=3.0)
    world.settle()
    assert len(world.checks) <= 5


def test_waiting_covers_lasting_faults_too() -> None:
    world = World((0, LASTING), (50, FINE))
    assert world.settle(wait_s=60) is FINE
    assert 50 <= world.ended_at <= 51
    world = World((0, LASTING))
    assert world.settle(wait_s=60) is LASTING
    assert 60 <= world.ended_at <= 61


def test_a_missing_group_is_an_error_unless_it_is_waited_for() -> None:
    with pytest.raises(AdminError):
        World((0, MISSING)).settle()
    world = World((0, MISSING), (5, PASSING), (9, FINE))
    assert world.settle(wait_s=30) is FINE
    with pytest.raises(AdminError):
        World((0, MISSING)).settle(wait_s=30)


def test_a_group_that_cannot_be_read_in_between_is_read_again_only_when_waiting() -> None:
    turns: Sequence[tuple[float, Verification | AdminError]] = [(0, PASSING), (3, MISSING), (6, FINE)]
    with pytest.raises(AdminError):
        World(*turns).settle()
    assert World(*turns).settle(wait_s=10) is FINE


def test_a_rebalance_is_triggered_once_when_patience_is_over_and_patience_starts_again() -> None:
    world = World((0, PASSING))
    assert world.settle(trigger=True) is PASSING
    [at] = world.triggered
    assert 20 <= at <= 21
    assert 40 <= world.ended_at <= 42


def test_a_triggered_rebalance_that_helps_ends_the_checks() -> None:
    world = World((0, PASSING))
    world.after_trigger = FINE
    assert world.settle(trigger=True) is FINE
    assert world.ended_at <= 22


def test_no_rebalance_is_triggered_during_one_nor_where_it_would_not_help() -> None:
    world = World((0, PASSING), (5, FINE))
    world.settle(trigger=True)
    assert world.triggered == []
    world = World((0, LASTING))
    assert world.settle(trigger=True) is LASTING
    assert (world.triggered, len(world.checks)) == ([], 1)
