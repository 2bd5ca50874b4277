"""Repeats after a handover: a member that releases has committed; one whose node others delete may not have."""

from __future__ import annotations

import dataclasses

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.limits import NS, OPERATOR, Limits, Trouble
from zkconsumer.testing.history.repeats import find_repeated

TROUBLED = Limits(troubles=[Trouble(0, 60 * NS, "a")])


def handed_over(by: str) -> list[Event]:
    """Both were done before a gave the partition up, and come again."""

    def event(seconds: float, kind: str, member: str, offset: int = -1, by: str = "") -> Event:
        return Event(round(seconds * NS), kind, member, "t", 0, offset, by)

    return [
        event(1.0, "claimed", "a"), event(1.1, "assigned", "a", 0),
        event(2.0, "deliver", "a", 0), event(2.1, "done", "a", 0), event(5.0, "revoked", "a"),
        event(5.1, "owner_gone", "a", by=by),
        event(5.2, "claimed", "b"), event(5.3, "assigned", "b", 0), event(5.4, "deliver", "b", 0),
    ]  # fmt: skip


def found(events: list[Event], limits: Limits) -> list[str]:
    return [finding.check for finding in find_repeated(events, limits)]


def test_a_release_waits_for_the_commit_whatever_goes_wrong() -> None:
    assert found(handed_over("released"), TROUBLED) == ["repeated"]


def test_a_member_that_leaves_in_trouble_may_not_come_to_commit() -> None:
    assert found(handed_over("closed"), TROUBLED) == []


def test_who_commits_by_hand_may_have_had_no_answer() -> None:
    assert found(handed_over("released"), dataclasses.replace(TROUBLED, by_hand=frozenset({"a"}))) == []


def taken_away(committed_s: float) -> list[Event]:
    """An operator deletes the owner node while a, with auto-commit, works on offset 1; b starts with it."""

    def event(seconds: float, kind: str, member: str, offset: int = -1, by: str = "") -> Event:
        return Event(round(seconds * NS), kind, member, "t", 0, offset, by)

    events = [
        event(1.0, "claimed", "a"), event(1.1, "assigned", "a", 0),
        event(2.0, "deliver", "a", 0), event(2.1, "done", "a", 0), event(2.2, "commit", "a", 1),
        event(3.0, "deliver", "a", 1), event(3.1, "owner_gone", "a", by=OPERATOR),
        event(committed_s - 0.05, "done", "a", 1), event(committed_s, "commit", "a", 2), event(5.0, "revoked", "a"),
        event(3.5, "claimed", "b"), event(3.6, "assigned", "b", 1), event(3.7, "deliver", "b", 1),
    ]  # fmt: skip
    return sorted(events, key=lambda each: each.time_ns)


def test_a_commit_after_the_next_owner_has_claimed_comes_too_late_for_it() -> None:
    assert found(taken_away(committed_s=4.0), Limits(by_hand=frozenset({"a"}))) == []


def test_a_commit_before_the_next_owner_has_claimed_is_known_to_it() -> None:
    assert found(taken_away(committed_s=3.4), Limits(by_hand=frozenset({"a"}))) == ["repeated"]
