"""Builds histories step by step, as the events that members and watchers would have recorded."""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.testing.history.checks import check_history
from zkconsumer.testing.history.events import KINDS, Event, Place
from zkconsumer.testing.history.groups import check_group
from zkconsumer.testing.history.limits import Limits

__all__ = ["MS", "SECOND", "GroupStory", "group_findings", "history_findings"]

MS = 1_000_000
SECOND = 1_000_000_000


class GroupStory:
    """A history as a simulation writes it: each step is a millisecond later than the one before."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.events: list[Event] = []

    def add(self, kind: str, member: str = "", offset: int = -1, by: str = "", place: Place = ("t", 0)) -> GroupStory:
        """One event, now; `by` is its id."""
        self.now_ms += 1
        topic, partition = ("", -1) if kind in ("killed", "gave_up", "requests") else place
        self.events.append(Event(self.now_ms * MS, kind, member, topic, partition, offset, by))
        return self

    def wait(self, seconds: float) -> GroupStory:
        """Nothing happens for so long."""
        self.now_ms += int(seconds * 1000)
        return self

    def own(self, member: str, offset: int, place: Place = ("t", 0)) -> GroupStory:
        """A member claims, and reports its start offset."""
        return self.add("claimed", member, place=place).add("assigned", member, offset, place=place)

    def deliver(self, member: str, *offsets: int, place: Place = ("t", 0)) -> GroupStory:
        """Messages come to a member, which is done with each."""
        for offset in offsets:
            self.add("deliver", member, offset, place=place).add("done", member, offset, place=place)
        return self

    def store(self, member: str, offset: int, place: Place = ("t", 0)) -> GroupStory:
        """A member commits."""
        return self.add("offset_node", member, offset, place=place).add("commit", member, offset, place=place)

    def set_by_operator(self, offset: int, place: Place = ("t", 0)) -> GroupStory:
        """An operator sets the stored offset; -1 deletes it or makes it unreadable."""
        return self.add("offset_node", "", offset, "hand", place)

    def hand_over(self, member: str, offset: int, place: Place = ("t", 0)) -> GroupStory:
        """A member commits and lets go in order."""
        self.add("revoked", member, place=place)
        return self.store(member, offset, place).add("owner_gone", member, by="released", place=place)

    def acked(self, *offsets: int, place: Place = ("t", 0)) -> GroupStory:
        """A producer's messages are stored."""
        for offset in offsets:
            self.add("acked", "", offset, f"m{offset}", place)
        return self


def history_findings(story: GroupStory, limits: Limits | None = None) -> list[str]:
    """The kinds of what `check_history` finds, each once."""
    return _kinds(check_history, story, limits)


def group_findings(story: GroupStory, limits: Limits | None = None) -> list[str]:
    """The kinds of what `check_group` finds, each once."""
    return _kinds(check_group, story, limits)


def _kinds(check: Callable[..., list[object]], story: GroupStory, limits: Limits | None) -> list[str]:
    assert {event.kind for event in story.events} <= KINDS
    return list(dict.fromkeys(finding.check for finding in check(story.events, limits)))  # type: ignore[attr-defined]
