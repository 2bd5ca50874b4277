"""Finds the offsets at which partitions were read on after a change of owner. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from zkconsumer.testing.history.events import Entries, Event, Place, in_order


@dataclass(frozen=True)
class Handover:
    """A partition that one member read to `last`, and the next one from `first` on."""

    place: Place
    giver: str
    taker: str
    last: Event
    first: Event

    @property
    def is_exact(self) -> bool:
        """Whether it went on at the very next message."""
        return self.first.offset == self.last.offset + 1

    def __str__(self) -> str:
        return f"{self.giver} to {self.taker}: {self.last} -> {self.first}"


def in_numbers(events: Sequence[Event]) -> list[Event]:
    """The events with the numbers of messages for the positions of Kafka 0.7: the next message has the next number."""
    entries = Entries.of_history(events)
    return [
        replace(event, offset=entries.number_of(event.place, event.offset)) if event.offset >= 0 else event
        for event in events
    ]


def handovers(events: Sequence[Event], before_ns: int) -> list[Handover]:
    """All changes of owner before a moment, in order of time."""
    found = []
    last: dict[Place, Event] = {}
    for event in in_order(events):
        if event.kind != "deliver" or event.time_ns >= before_ns:
            continue
        given = last.get(event.place)
        if given is not None and given.member != event.member:
            found.append(Handover(event.place, given.member, event.member, given, event))
        last[event.place] = event
    return found


def between(found: Sequence[Handover], givers: Collection[str], takers: Collection[str]) -> list[Handover]:
    """Those from some members to others."""
    return [each for each in found if each.giver in givers and each.taker in takers]


def wrong_handovers(
    found: Sequence[Handover], events: Sequence[Event], java: Collection[str], most_again: int = 1
) -> list[Handover]:
    """The handovers in order that our members have to answer for.

    One of ours leaves the very next message in the offset node. A Java member may have read the node before that, for
    it reads before it claims; so its repeats are not our fault if the right value was stored before it started. And
    it may count the message that it is about to deliver as not consumed: the next owner gets that one again.

    Args:
        java: members whose violations are not ours.
        most_again: how many messages those may deliver and not count as consumed.
    """
    stored = {(event.place, event.offset) for event in events if event.kind == "offset_node"}
    wrong = []
    for each in found:
        if each.giver in java and each.taker in java:
            continue
        in_hand = each.giver in java and 0 <= each.last.offset + 1 - each.first.offset <= most_again
        read_early = (
            each.taker in java
            and each.first.offset <= each.last.offset
            and (each.place, each.last.offset + 1) in stored
        )
        if not (each.is_exact or in_hand or read_early):
            wrong.append(each)
    return wrong
