"""The lease: until when a member may deliver."""

from __future__ import annotations

import math

from rebalance.lease import CONFIRM_FRACTION, LEASE_FRACTION, Lease, lease_clock


def opened(session_id: int = 1, timeout_s: float = 6.0) -> Lease:
    lease = Lease()
    lease.start(session_id, timeout_s)
    return lease


def test_without_an_answer_nothing_may_be_delivered() -> None:
    for lease in (Lease(), opened()):
        assert lease.until <= -1e9
        assert lease.age_s(10.0) is None
        assert lease.confirmed_at is None


def test_an_answer_counts_from_the_moment_its_question_left() -> None:
    lease = opened()
    assert lease.renew(1, sent_at=100.0)
    assert lease.until == 100.0 + 6.0 * LEASE_FRACTION
    assert lease.until > 103.999
    assert lease.until <= 104.0
    assert lease.age_s(101.5) == 1.5


def test_an_answer_that_was_long_on_its_way_does_not_shorten_the_lease() -> None:
    lease = opened()
    lease.renew(1, 100.0)
    assert lease.renew(1, 50.0)
    assert lease.until == 104.0


def test_an_answer_of_another_session_proves_nothing() -> None:
    lease = opened(2)
    assert not lease.renew(1, 100.0)
    assert lease.until == -math.inf


def test_another_session_starts_without_proof_and_the_same_one_keeps_its_own() -> None:
    lease = opened(1)
    lease.renew(1, 100.0)
    lease.start(1, 6.0)
    assert lease.until > 103.0
    lease.start(2, 6.0)
    assert lease.until <= 103.0


def test_an_answer_asked_without_a_lease_counts_only_when_a_later_one_confirms_it() -> None:
    lease = opened()
    lease.renew(1, 100.0)
    assert lease.renew(1, 105.9)
    assert lease.until <= 105.9, "the leader may end the session before its follower reports the question"
    assert lease.confirmed_at == 105.9 + 6.0 * CONFIRM_FRACTION
    lease.renew(1, 107.8)
    assert lease.until <= 107.8, "too soon after the other"
    lease.renew(1, 107.9)
    assert lease.until == 107.9 + 6.0 * LEASE_FRACTION
    assert lease.confirmed_at is None


def test_an_answer_asked_within_the_lease_needs_no_other() -> None:
    lease = opened()
    lease.renew(1, 100.0)
    lease.renew(1, 103.999)
    assert lease.until == 103.999 + 6.0 * LEASE_FRACTION


def test_an_answer_asked_at_the_very_end_of_the_lease_was_asked_without_one() -> None:
    lease = opened()
    lease.renew(1, 100.0)
    lease.renew(1, 104.0)
    assert lease.confirmed_at == 104.0 + 6.0 * CONFIRM_FRACTION
    assert lease.until <= 104.0


def test_what_is_to_confirm_must_itself_be_asked_in_time() -> None:
    lease = opened()
    lease.renew(1, 100.0)
    lease.renew(1, 105.0)
    lease.renew(1, 110.0)
    assert lease.until <= 110.0
    lease.renew(1, 112.0)
    assert lease.until > 115.9


def test_the_first_answer_of_another_session_needs_no_other() -> None:
    lease = opened()
    lease.renew(1, 100.0)
    lease.renew(1, 105.0)
    lease.start(2, 6.0)
    assert lease.confirmed_at is None
    lease.renew(2, 200.0)
    assert lease.until > 203.9


def test_a_granted_time_out_that_is_shorter_counts_from_the_next_proof() -> None:
    lease = opened(1, 6.0)
    lease.start(1, 3.0)
    lease.renew(1, 100.0)
    assert lease.until == 102.0


def test_an_ended_lease_cannot_be_renewed_by_a_late_answer() -> None:
    lease = opened()
    lease.renew(1, 100.0)
    lease.end()
    assert lease.until <= 100.0
    assert not lease.renew(1, 101.0)
    assert lease.until <= 101.0


def test_the_clock_never_goes_back() -> None:
    first = lease_clock()
    assert lease_clock() >= first
