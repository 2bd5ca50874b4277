"""Claims that are too early, too late or unchecked are found; justified waits and what a member could not know pass."""

from __future__ import annotations

import dataclasses

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.claims import find_hasty, find_stale, find_unclaimed
from zkconsumer.testing.history.limits import NS, Limits, Trouble

LIMITS = Limits(settle_s=0.05, settle_max_s=1.0)


def at(seconds: float, kind: str, member: str = "", place: str = "t/0", by: str = "") -> Event:
    topic, _, number = place.partition("/")
    return Event(round(seconds * NS), kind, member, topic, int(number), id=by)


def hasty(*events: Event, limits: Limits = LIMITS) -> list[str]:
    return [finding.check for finding in find_hasty(events, limits)]


def stale(*events: Event, limits: Limits = LIMITS) -> list[str]:
    return [finding.check for finding in find_stale(events, limits)]


# -- claims while a change is pending ----------------------------------------------------------------------------------


def test_a_claim_after_the_quiet_time_is_in_order() -> None:
    assert hasty(at(1.0, "due", "a"), at(1.06, "claimed", "a")) == []


def test_a_claim_right_after_a_change_is_hasty() -> None:
    assert hasty(at(1.0, "due", "a"), at(1.02, "claimed", "a")) == ["hasty claim"]


def test_in_a_burst_of_joins_who_claims_and_gives_back_is_hasty() -> None:
    first, second, third = at(1.0, "due", "a"), at(1.02, "due", "b"), at(1.04, "due", "c")
    given_back = [at(1.03, "owner_gone", "a", by="released"), at(1.05, "owner_gone", "b", by="released")]
    claims = [at(1.01, "claimed", "a"), at(1.035, "claimed", "b"), at(1.11, "claimed", "c")]
    story = sorted([first, second, third, *claims, *given_back], key=lambda event: event.time_ns)
    assert hasty(*story) == ["hasty claim", "hasty claim"]


def test_another_partition_that_is_long_due_may_be_claimed_at_any_moment() -> None:
    story = [at(0.5, "due", "a", "t/1"), at(1.0, "due", "a"), at(1.01, "claimed", "a", "t/1")]
    assert hasty(*story) == []


def test_who_had_it_a_moment_ago_may_not_have_seen_the_change() -> None:
    story = [at(1.0, "due", "a"), at(5.0, "due", "b"), at(5.1, "due", "a"), at(5.11, "claimed", "a")]
    assert hasty(*story) == []


def test_who_had_it_long_ago_has_seen_the_change() -> None:
    story = [at(1.0, "due", "a"), at(5.0, "due", "b"), at(15.0, "due", "a"), at(15.01, "claimed", "a")]
    assert hasty(*story) == ["hasty claim"]


def test_a_member_in_trouble_may_have_missed_what_was_in_between() -> None:
    story = [at(1.0, "due", "a"), at(5.0, "due", "b"), at(15.0, "due", "a"), at(15.01, "claimed", "a")]
    for concerned, findings in (("a", []), ("", []), ("b", ["hasty claim"])):
        limits = dataclasses.replace(LIMITS, troubles=[Trouble(6 * NS, 7 * NS, concerned)])
        assert hasty(*story, limits=limits) == findings


def test_a_burst_puts_claims_off_no_longer_than_the_most() -> None:
    burst = [at(1.0 + number / 10, "due", "ab"[number % 2], f"t/{number}") for number in range(11)]
    assert hasty(*burst, at(2.01, "claimed", "a", "t/10")) == []
    assert hasty(*burst[6:], at(2.01, "claimed", "a", "t/10")) == ["hasty claim"]


def test_who_is_back_after_a_lost_session_has_waited_for_long() -> None:
    back = at(1.0, "due", "a", "t/1")
    story = [at(1.96, "due", "a"), at(2.0, "claimed", "a", "t/1"), at(2.0, "claimed", "a")]
    assert hasty(back, *story) == []
    assert hasty(*story) == ["hasty claim"]


def test_an_old_claim_does_not_count_as_waiting() -> None:
    story = [at(1.0, "due", "a", "t/1"), at(1.1, "claimed", "a", "t/1"), at(1.96, "due", "a"), at(2.0, "claimed", "a")]
    assert hasty(*story) == ["hasty claim"]


def test_a_topic_that_was_created_again_has_changed_nothing_for_its_owner() -> None:
    limits = dataclasses.replace(LIMITS, reborn=frozenset({"t"}))
    assert hasty(at(1.0, "due", "a"), at(1.02, "claimed", "a"), limits=limits) == []


def test_java_members_claim_as_they_like() -> None:
    limits = dataclasses.replace(LIMITS, unfenced=frozenset({"a"}))
    assert hasty(at(1.0, "due", "a"), at(1.02, "claimed", "a"), limits=limits) == []


def test_histories_of_real_members_do_not_know_what_is_due() -> None:
    assert hasty(at(1.0, "due", "a"), at(1.02, "claimed", "a"), limits=Limits()) == []
    assert hasty(at(1.02, "claimed", "a")) == []


# -- claims without a look at the members ------------------------------------------------------------------------------

BLOCKED = [at(0.5, "due", "x"), at(0.6, "claimed", "x"), at(2.0, "due", "a")]
"""The partition should be a's, and x still has it."""


def test_who_waited_may_have_what_is_still_his() -> None:
    assert stale(*BLOCKED, at(8.0, "owner_gone", "x", by="expired"), at(8.02, "claimed", "a")) == []


def test_who_claims_what_became_somebody_elses_with_the_end_of_the_owner_did_not_look() -> None:
    story = [*BLOCKED, at(8.0, "owner_gone", "x", by="expired"), at(8.0, "due", "b"), at(8.02, "claimed", "a")]
    assert stale(*story) == ["stale claim"]


def test_who_claims_what_a_java_member_lets_go_of_for_a_moment_did_not_look() -> None:
    story = [*BLOCKED, at(8.0, "due", "x"), at(8.01, "owner_gone", "x", by="released"), at(8.02, "claimed", "a")]
    assert stale(*story) == ["stale claim"]


def test_a_change_after_the_owner_was_gone_may_come_too_late_to_be_seen() -> None:
    story = [*BLOCKED, at(8.0, "owner_gone", "x", by="expired"), at(8.01, "due", "b"), at(8.02, "claimed", "a")]
    assert stale(*story) == []


def test_who_had_no_time_to_be_told_no_has_not_waited_for_it() -> None:
    story = [at(0.6, "claimed", "x"), at(7.5, "due", "a"), at(8.0, "due", "b"),
             at(8.0, "owner_gone", "x", by="expired"), at(8.02, "claimed", "a")]  # fmt: skip
    assert stale(*story) == []


def test_who_was_in_trouble_may_not_have_waited() -> None:
    story = [*BLOCKED, at(8.0, "owner_gone", "x", by="expired"), at(8.0, "due", "b"), at(8.02, "claimed", "a")]
    limits = dataclasses.replace(LIMITS, troubles=[Trouble(3 * NS, 4 * NS, "a")])
    assert stale(*story, limits=limits) == []


# -- claims that no member makes ---------------------------------------------------------------------------------------

QUICK = dataclasses.replace(LIMITS, unclaimed_s=3.0)


def unclaimed(*events: Event, limits: Limits = QUICK) -> list[str]:
    return [finding.check for finding in find_unclaimed(events, limits)]


def test_what_is_claimed_soon_is_in_order() -> None:
    assert unclaimed(*BLOCKED, at(8.0, "owner_gone", "x", by="expired"), at(10.9, "claimed", "a")) == []


def test_what_is_claimed_late_lay_there_for_too_long() -> None:
    assert unclaimed(*BLOCKED, at(8.0, "owner_gone", "x", by="expired"), at(11.1, "claimed", "a")) == ["unclaimed"]


def test_what_is_never_claimed_lies_there_to_the_end() -> None:
    assert unclaimed(at(1.0, "due", "a"), at(9.0, "acked")) == ["unclaimed"]


def test_each_change_of_who_should_have_it_begins_the_time_anew() -> None:
    assert unclaimed(at(1.0, "due", "a"), at(3.0, "due", "b"), at(5.0, "due", "a"), at(7.0, "claimed", "a")) == []


def test_what_somebody_holds_does_not_lie_there() -> None:
    assert unclaimed(*BLOCKED, at(99.0, "acked")) == []


def test_what_a_hand_has_put_there_does_not_lie_there() -> None:
    story = [at(1.0, "due", "a"), at(1.5, "occupied"), at(20.0, "vacated"), at(22.0, "claimed", "a")]
    assert unclaimed(*story) == []
    assert unclaimed(*story[:3], at(24.0, "claimed", "a")) == ["unclaimed"]


def test_who_is_dead_or_leaves_claims_nothing() -> None:
    for kind in ("killed", "leaving"):
        assert unclaimed(at(1.0, "due", "a"), at(1.1, kind, "a"), at(9.0, "due", "b"), at(9.1, "acked")) == []


def test_the_time_of_a_trouble_and_before_it_does_not_count() -> None:
    limits = dataclasses.replace(QUICK, troubles=[Trouble(2 * NS, 6 * NS, "a")])
    assert unclaimed(at(1.0, "due", "a"), at(8.9, "claimed", "a"), limits=limits) == []
    assert unclaimed(at(1.0, "due", "a"), at(9.1, "claimed", "a"), limits=limits) == ["unclaimed"]


def test_how_long_java_members_take_is_theirs() -> None:
    limits = dataclasses.replace(QUICK, unfenced=frozenset({"a"}))
    assert unclaimed(at(1.0, "due", "a"), at(9.0, "acked"), limits=limits) == []
