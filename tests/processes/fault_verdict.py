"""Decides which violations in the history of a mixed group our members have caused.

Java members announce nothing, do not fence, read offsets before they claim, and count what they deliver as done. They
cause what follows from that; our members cause every other violation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from zkconsumer.testing.history.checks import Finding, Limits, check_history, find_lost, find_skipped, find_zombies
from zkconsumer.testing.history.events import Event, Place, in_order, ownerships
from zkconsumer.testing.history.limits import NS

_SEEN_NS = 2 * NS
"""A watcher sees the value of an offset node at most so late."""
_LATE_NS = NS // 2
"""And the end of an owner node."""


@dataclass(frozen=True)
class Write:
    """A request to set or make an offset node, as it passed a member's link."""

    time_ns: int
    member: str
    place: Place


def with_writers(events: Sequence[Event], writes: Sequence[Write], java: Collection[str]) -> list[Event]:
    """The events, each value of an offset node with who may have written it: a Java member rather than ours."""
    by_place: dict[Place, list[Write]] = defaultdict(list)
    for write in sorted(writes, key=lambda each: each.time_ns):
        by_place[write.place].append(write)

    def writer(event: Event) -> str:
        known = by_place[event.place]
        times = [write.time_ns for write in known]
        close = known[bisect_left(times, event.time_ns - _SEEN_NS) : bisect_right(times, event.time_ns)]
        members = [write.member for write in close]
        return next((member for member in reversed(members) if member in java), members[-1] if members else "")

    return [
        replace(event, member=writer(event)) if event.kind == "offset_node" and not event.id + event.member else event
        for event in events
    ]


def with_watch_in_time(events: Sequence[Event]) -> list[Event]:
    """The events, each end of an owner node where it must have been if the watcher was slower than the members.

    Another one has claimed the partition by then, or the member itself has lost it and has it again.
    """
    told: dict[Place, list[Event]] = defaultdict(list)
    moved = []
    for event in events:
        if event.kind in ("lost", "revoked", "assigned"):
            told[event.place].append(event)
        elif event.kind == "owner_gone" and not event.id:
            event = replace(event, time_ns=_when_gone(event, told[event.place]))
        moved.append(event)
    return in_order(moved)


def _when_gone(gone: Event, told: Sequence[Event]) -> int:
    recent = [each for each in told if gone.time_ns - each.time_ns < _LATE_NS]
    taken = [each for each in recent if each.kind == "assigned" and each.member != gone.member]
    own = [each for each in recent if each.member == gone.member]
    if taken:
        return taken[0].time_ns - 1
    if len(own) > 1 and own[-1].kind == "assigned" and own[-2].kind != "assigned":
        return own[-2].time_ns - 1
    return gone.time_ns


def java_zombies(events: Sequence[Event], java: Collection[str]) -> set[int]:
    """Which events (by `id()`) are deliveries of Java members while one of ours owned the partition."""
    held: dict[Place, list[tuple[int, int | None]]] = defaultdict(list)
    for owned in ownerships(events):
        if owned.member not in java:
            held[owned.place].append((owned.start_ns, owned.end_ns))
    return {
        id(event)
        for event in events
        if event.kind == "deliver" and event.member in java
        and any(start <= event.time_ns and (end is None or event.time_ns < end) for start, end in held[event.place])
    }  # fmt: skip


def under_way(events: Sequence[Event], limits: Limits) -> set[int]:
    """Which events (by `id()`) are deliveries of a member that had just lost its session, and did not know it yet.

    They came within the slack after its owner node was gone; the next owner may have been quicker than the news.
    """
    found = set()
    for owned in ownerships(events):
        if owned.end is not None and owned.end.kind == "lost" and owned.gone_ns is not None:
            until_ns = owned.gone_ns + int(limits.zombie_slack_s * NS)
            found |= {id(event) for event in owned.deliveries if owned.gone_ns <= event.time_ns <= until_ns}
    return found


def blame(
    events: Sequence[Event], writes: Sequence[Write], java: Collection[str], limits: Limits, in_hand: int = 0
) -> list[Finding]:
    """The findings that our members have to answer for.

    Args:
        in_hand: so many messages of ours may be handled after their owner nodes were gone: one for each stream that
            was stopped with a message in hand, which cannot be taken back.
    """
    ordered = with_writers(with_watch_in_time(in_order(events)), writes, java)
    chosen = replace(limits, unfenced=frozenset(java)).for_history(ordered)
    zombies = [finding.events[1] for finding in find_zombies(ordered, chosen)]
    tolerated = zombies if len(zombies) <= in_hand else []
    left_out = java_zombies(ordered, java) | under_way(ordered, chosen) | {id(event) for event in tolerated}
    rightful = [event for event in ordered if id(event) not in left_out]
    findings = [each for each in check_history(rightful, chosen) if each.check not in ("lost", "skipped")]
    findings += find_lost(ordered, chosen) + find_skipped(ordered, chosen)
    return [each for each in findings if not _is_of_java(each, java)]


def _is_of_java(finding: Finding, java: Collection[str]) -> bool:
    members = [event.member for event in finding.events]
    if finding.check == "repeated":  # in hand when it released, or read before it claimed
        return any(member in java for member in members)
    return finding.check == "skipped" and members[-1] in java
