"""How many changes of a group a member counts, seen by it or told by the age of registrations."""

from __future__ import annotations

import pytest

from rebalance.zookeeper.waits import MembershipChanges

OLD = {"a": 0, "b": 1_000}


def changes() -> MembershipChanges:
    return MembershipChanges(window_s=4.0, burst_s=0.1)


def test_a_group_that_nobody_joins_or_leaves_does_not_change() -> None:
    made = changes()
    made.update(OLD, 100.0)
    assert made.bursts(100.0) == 2, "the youngest of what is seen first came now, another one a second before"
    for now in (101.0, 102.0, 103.0):
        made.update(OLD, now)
    assert made.bursts(103.5) == 1
    assert made.bursts(104.1) == 0


def test_who_has_just_joined_knows_from_the_age_of_registrations() -> None:
    made = changes()
    made.update({"old": 0, "c": 97_000, "b": 98_500, "a": 98_550, "me": 100_000}, 7.0)
    assert made.bursts(7.0) == 3, "me, a and b together, c"
    assert made.bursts(8.5) == 2


@pytest.mark.parametrize(
    "created_ms",
    [{"a": 0}, {"a": 0, "b": 1_000, "c": 9_000}, {"a": 0, "b": 9_000}],
    ids=["a leave", "a join", "a new registration of the same name"],
)
def test_each_change_counts(created_ms: dict[str, int]) -> None:
    made = changes()
    made.update(OLD, 100.0)
    made.update(created_ms, 110.0)
    assert made.bursts(110.0) == 1


def test_changes_that_come_together_are_one() -> None:
    made = changes()
    made.update({"a": 0}, 100.0)
    for number in range(10):
        made.update({"a": 0, **{f"m{each}": 50_000 + 50 * each for each in range(number)}}, 110.0 + 0.05 * number)
    assert made.bursts(110.5) == 1
    made.update({"a": 0}, 111.0)
    assert made.bursts(111.0) == 2


def test_a_change_counts_until_it_is_as_old_as_the_window() -> None:
    made = changes()
    made.update({"a": 0, "me": 4_000}, 100.0)
    assert made.bursts(100.0) == 1
    younger = changes()
    younger.update({"a": 0, "me": 3_999}, 100.0)
    assert younger.bursts(100.0) == 2


def test_changes_as_far_apart_as_a_burst_may_be_are_one() -> None:
    made = MembershipChanges(window_s=4.0, burst_s=0.125)
    made.update({"a": 0, "b": 125, "me": 375}, 100.0)
    assert made.bursts(100.0) == 2
