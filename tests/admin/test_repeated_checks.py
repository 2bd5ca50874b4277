"""When `zkconsumer verify` makes up its mind: by a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from zkconsumer.admin.findings import Finding, Verdict
from zkconsumer.admin.repeated_checks import look_until_settled
from zkconsumer.cli.failures import CliError

FINE = Verdict("g", 1, 1, "range", ())
PASSING = Verdict("g", 1, 1, "range", (Finding("unowned", "/p", "s", "r", passing=True),), ("g_ann",))
LASTING = Verdict("g", 1, 1, "range", (Finding("persistent-owner", "/p", "s", "r"),))
NOTE = Verdict("g", 1, 1, "range", (Finding("stale-offset", "/p", "s", "r", fault=False),))
MISSING = CliError("there is no such group")


class World:
    """A group whose verdict changes with time; a look takes `look_s`."""

    def __init__(self, *turns: tuple[float, Verdict | CliError], look_s: float = 0.01) -> None:
        self.now = 100.0
        self.turns = [(100.0 + at, what) for at, what in turns]
        self.look_s = look_s
        self.looks: list[tuple[float, bool]] = []
        self.nudges: list[float] = []
        self.after_nudge: Verdict | None = None

    def look(self, is_last: bool) -> Verdict:
        self.looks.append((self.now - 100, is_last))
        what = [what for at, what in self.turns if at <= self.now][-1]
        self.now += self.look_s
        if self.nudges and self.after_nudge is not None:
            return self.after_nudge
        if isinstance(what, CliError):
            raise what
        return what

    def nudge(self, verdict: Verdict) -> None:
        assert verdict.wakeable
        self.nudges.append(self.now - 100)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def settle(self, patience_s: float = 20.0, wait_s: float = 0.0, nudge: bool = False) -> Verdict:
        call: Callable[[Verdict], None] | None = self.nudge if nudge else None
        return look_until_settled(self.look, patience_s, wait_s, call, lambda: self.now, self.sleep)

    @property
    def ended_at(self) -> float:
        return self.looks[-1][0]


@pytest.mark.parametrize("verdict", [FINE, NOTE, LASTING])
def test_what_no_rebalance_changes_is_said_at_once(verdict: Verdict) -> None:
    world = World((0, verdict))
    assert world.settle() is verdict
    assert len(world.looks) == 1


def test_a_rebalance_that_ends_is_no_fault() -> None:
    world = World((0, PASSING), (7, FINE))
    assert world.settle() is FINE
    assert 7 <= world.ended_at <= 8


def test_one_that_does_not_end_is_and_the_last_look_is_told_that_it_is_the_last() -> None:
    world = World((0, PASSING))
    assert world.settle() is PASSING
    assert 20 <= world.ended_at <= 21
    assert [is_last for _, is_last in world.looks].count(True) == 1
    assert world.looks[-1][1]


def test_without_patience_the_first_look_decides() -> None:
    world = World((0, PASSING))
    assert world.settle(patience_s=0) is PASSING
    assert len(world.looks) == 1


def test_a_large_group_is_looked_at_half_of_the_time_at_most() -> None:
    world = World((0, PASSING), look_s=3.0)
    world.settle()
    assert len(world.looks) <= 5


def test_who_waits_waits_for_lasting_faults_too() -> None:
    world = World((0, LASTING), (50, FINE))
    assert world.settle(wait_s=60) is FINE
    assert 50 <= world.ended_at <= 51
    world = World((0, LASTING))
    assert world.settle(wait_s=60) is LASTING
    assert 60 <= world.ended_at <= 61


def test_a_group_that_is_not_there_is_an_error_unless_it_is_waited_for() -> None:
    with pytest.raises(CliError):
        World((0, MISSING)).settle()
    world = World((0, MISSING), (5, PASSING), (9, FINE))
    assert world.settle(wait_s=30) is FINE
    with pytest.raises(CliError):
        World((0, MISSING)).settle(wait_s=30)


def test_a_group_that_cannot_be_read_in_the_middle_is_read_again_only_by_who_waits() -> None:
    turns: Sequence[tuple[float, Verdict | CliError]] = [(0, PASSING), (3, MISSING), (6, FINE)]
    with pytest.raises(CliError):
        World(*turns).settle()
    assert World(*turns).settle(wait_s=10) is FINE


def test_a_nudge_is_given_once_when_patience_is_over_and_patience_begins_again() -> None:
    world = World((0, PASSING))
    assert world.settle(nudge=True) is PASSING
    [nudged] = world.nudges
    assert 20 <= nudged <= 21
    assert 40 <= world.ended_at <= 42


def test_a_nudge_that_helps_is_the_end_of_it() -> None:
    world = World((0, PASSING))
    world.after_nudge = FINE
    assert world.settle(nudge=True) is FINE
    assert world.ended_at <= 22


def test_a_rebalance_under_way_and_what_no_nudge_mends_are_not_nudged() -> None:
    world = World((0, PASSING), (5, FINE))
    world.settle(nudge=True)
    assert world.nudges == []
    world = World((0, LASTING))
    assert world.settle(nudge=True) is LASTING
    assert (world.nudges, len(world.looks)) == ([], 1)
