"""How long a member waits, at both ends of the jitter."""

from __future__ import annotations

import random

import pytest

from rebalance.zookeeper.waits import RebalanceTimes, Waits

TIMES = RebalanceTimes(quiet_s=0.125, quiet_max_s=2.0, retry_s=0.25, retry_max_s=1.5, gap_s=0.5)
PATIENT = RebalanceTimes(quiet_s=1.0, quiet_max_s=1e6, retry_s=1.0, retry_max_s=1e6)
NEVER = float("-inf")


class Edge(random.Random):
    """Jitter that always falls on one end."""

    def __init__(self, is_high: bool) -> None:
        super().__init__(0)
        self._is_high = is_high

    def uniform(self, a: float, b: float) -> float:
        return b if self._is_high else a


def waits(times: RebalanceTimes = TIMES, is_high: bool = True) -> Waits:
    return Waits(times, Edge(is_high))


# -- after another session ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_high", "share"), [(False, 0.6), (True, 1.0)])
def test_after_a_long_absence_the_next_registration_waits_for_the_others_once(is_high: bool, share: float) -> None:
    made = waits(is_high=is_high)
    made.disconnected(100.0)
    made.session_lost(102.5)
    made.registered(110.0)
    assert made.quiet_until == 110.0 + 2.0 * share
    made.registered(120.0)
    assert made.quiet_until == 110.0 + 2.0 * share


def test_each_long_absence_has_a_wait_of_its_own() -> None:
    made = waits()
    for now in (100.0, 200.0):
        made.disconnected(now)
        made.session_lost(now + 2.5)
        made.registered(now + 3.0)
        assert made.quiet_until == now + 5.0


def test_an_absence_no_longer_than_the_cap_is_short() -> None:
    made = waits()
    made.disconnected(100.0)
    made.session_lost(102.0)
    made.registered(110.0)
    assert made.quiet_until == NEVER


def test_a_session_that_ends_without_a_disconnection_is_followed_without_a_wait() -> None:
    made = waits()
    made.session_lost(1e9)
    made.registered(1e9)
    assert made.quiet_until == NEVER


# -- before claims -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_high", [False, True])
@pytest.mark.parametrize(("changes", "factor"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 4), (5, 8), (6, 16)])
def test_from_the_third_change_on_each_doubles_the_quiet_time(is_high: bool, changes: int, factor: int) -> None:
    made = waits(is_high=is_high)
    made.be_quiet(100.0, changes)
    assert made.quiet_until == 100.0 + 0.125 * factor * (1.0 if is_high else 0.5)


def test_one_change_is_what_counts_unless_more_are_told() -> None:
    made = waits()
    made.be_quiet(100.0)
    assert made.quiet_until == 100.125


def test_the_quiet_time_doubles_ten_times_at_most() -> None:
    for changes in (12, 13, 10_000):
        made = waits(PATIENT)
        made.be_quiet(0.0, changes)
        assert made.quiet_until == 2.0**10


def test_the_cap_counts_from_the_first_change_and_without_one_from_now() -> None:
    made = waits()
    made.be_quiet(100.0, 20)
    assert made.quiet_until == 102.0
    made = waits()
    made.changed(99.0)
    made.changed(100.0)
    made.be_quiet(100.0, 20)
    assert made.quiet_until == 101.0
    made.calm()
    made.changed(200.0)
    made.be_quiet(200.0, 20)
    assert made.quiet_until == 202.0


def test_past_the_cap_there_is_no_quiet_time_and_a_longer_one_is_never_cut_short() -> None:
    made = waits()
    made.changed(90.0)
    made.be_quiet(100.0)
    assert made.quiet_until == 100.0
    made = waits()
    made.be_quiet(100.0, 6)
    assert made.quiet_until == 102.0
    made.be_quiet(101.0)
    assert made.quiet_until == 102.0


def test_changes_are_overdue_when_the_first_is_older_than_the_cap() -> None:
    made = waits()
    assert not made.is_overdue(1e9)
    made.changed(100.0)
    made.changed(101.0)
    assert not made.is_overdue(102.0)
    assert made.is_overdue(102.1)
    made.calm()
    assert not made.is_overdue(1e9)


# -- between reads -----------------------------------------------------------------------------------------------------


def test_the_first_read_may_begin_at_once_and_the_next_after_the_gap() -> None:
    made = waits()
    assert made.next_read() == NEVER
    made.reading(100.0)
    assert made.next_read() == 100.5


@pytest.mark.parametrize("is_high", [False, True])
def test_reads_that_fail_are_tried_again_ever_later_until_one_goes_well(is_high: bool) -> None:
    made = waits(is_high=is_high)
    share = 1.0 if is_high else 0.5
    assert [made.read_failed(100.0) for _ in range(5)] == [100.0 + share * s for s in (0.25, 0.5, 1.0, 1.5, 1.5)]
    made.read_done()
    assert made.read_failed(100.0) == 100.0 + share * 0.25


def test_the_wait_after_a_failed_read_doubles_ten_times_at_most() -> None:
    made = waits(PATIENT)
    assert [made.read_failed(0.0) for _ in range(13)] == [*(2.0**each for each in range(11)), 2.0**10, 2.0**10]


@pytest.mark.parametrize(("is_high", "wait_s"), [(False, 0.25), (True, 0.5)])
def test_a_registration_without_word_is_tried_again_after_one_to_two_waits(is_high: bool, wait_s: float) -> None:
    assert waits(is_high=is_high).register_again(100.0) == 100.0 + wait_s
