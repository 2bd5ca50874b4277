"""A member that deletes its owner node has waited for its last commit: no trouble explains that messages come again."""

from __future__ import annotations

import dataclasses

from zkconsumer.testing.history import Event
from zkconsumer.testing.history_limits import NS, Limits, Trouble
from zkconsumer.testing.history_repeats import find_repeated

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
