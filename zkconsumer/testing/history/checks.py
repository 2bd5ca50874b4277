"""Checks of a history and its figures: lost, skipped, repeated and out of order messages, and deliveries.

Checks of a history: messages lost, skipped, repeated, out of order, owned twice, delivered by a zombie.

Each check returns findings, one for each violation; an empty list means a clean history.

The figures of a history: delivered, lost, repeated, the longest time without progress.

`check_history` finds violations; these figures compare groups that may violate the promises, such as
Java's, with groups that may not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from zkconsumer.testing.history.events import Entries, Event, Ownership, Place, in_order, ownerships
from zkconsumer.testing.history.limits import NS, OPERATOR, Finding, Limits, Trouble, name_of
from zkconsumer.testing.history.repeats import count_allowed_repeats, find_repeated, find_zombies
from zkconsumer.testing.history.rewinds import Floors, find_rewinds

__all__ = [
    "CHECKS", "NS", "OPERATOR", "Check", "Figures", "Finding", "Limits", "Trouble", "check_history",
    "count_allowed_repeats", "figures_of", "find_backwards", "find_early_commits", "find_inside", "find_lost",
    "find_orphans", "find_repeated", "find_rewinds", "find_skipped", "find_two_owners", "find_zombies",
]  # fmt: skip

Check = Callable[[Sequence[Event], Limits], list[Finding]]


def check_history(events: Iterable[Event], limits: Limits | None = None) -> list[Finding]:
    """The findings of all checks."""
    ordered = in_order(events)
    chosen = (limits or Limits()).for_history(ordered)
    return [finding for check in CHECKS for finding in check(ordered, chosen)]


def find_lost(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Messages that were acknowledged to a producer and that no member ever got."""
    delivered = {(event.place, event.offset) for event in events if event.kind == "deliver"}
    floors = Floors(limits)
    for event in events:
        floors.see(event)
    return [
        Finding("lost", f"message {event.id or '?'} was acknowledged and never delivered", (event,))
        for event in events
        if event.kind == "acked"
        and floors.of(event.place) <= event.offset < limits.end.get(event.place, event.offset + 1)
        and (event.place, event.offset) not in delivered
    ]


def find_skipped(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries that skip a message: inside an ownership, or between it and everything delivered before.

    Offsets that were acknowledged to no producer may be missing (compaction leaves such holes).
    """
    existing = _acked_offsets(events)
    delivered: dict[Place, set[int]] = defaultdict(set)
    previous: dict[int, Event] = {}
    all_owned = ownerships(events)
    owned_by = {id(event): number for number, each in enumerate(all_owned) for event in each.deliveries}
    floors = Floors(limits)
    findings = []
    for event in events:
        floors.see(event)
        if event.kind != "deliver":
            continue
        number = owned_by[id(event)]
        before = previous.get(number)
        after = max(before.offset + 1 if before else 0, floors.of(event.place))
        left_out = [
            offset
            for offset in _between(existing[event.place], after, event.offset)
            if (before is not None and all_owned[number].explicit) or offset not in delivered[event.place]
        ]
        if left_out and (all_owned[number].explicit or event.topic not in limits.reborn):
            proof = (before, event) if before else (event,)
            findings.append(Finding("skipped", f"{_spans(left_out)} of {name_of(event.place)} left out", proof))
        delivered[event.place].add(event.offset)
        previous[number] = event
    return findings


def find_backwards(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries inside one announced ownership whose offset is not above the one before."""
    findings = []
    for owned in ownerships(events):
        for before, event in pairwise(owned.deliveries):
            if owned.explicit and event.offset <= before.offset:
                sentence = f"{event.member} got offset {event.offset} of {name_of(event.place)} after {before.offset}"
                findings.append(Finding("out of order", sentence, (before, event)))
    return findings


def find_two_owners(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Two members that held one partition at the same time, or delivered it in turns without a new assignment."""
    findings = []
    by_place: dict[Place, list[Ownership]] = defaultdict(list)
    for owned in ownerships(events):
        by_place[owned.place].append(owned)
    for place, all_of_place in by_place.items():
        for first, second in _pairs(all_of_place):
            if not first.explicit or not second.explicit or second.is_stillborn:
                continue
            if first.end_ns is None or second.start_ns < first.end_ns:
                sentence = f"{second.member} was assigned {name_of(place)} while {first.member} held it"
                findings.append(Finding("two owners", sentence, tuple(first.deliveries[-1:] + second.deliveries[:1])))
        findings += _taken_turns(all_of_place)
    return findings


def _pairs(all_of_place: Sequence[Ownership]) -> Iterable[tuple[Ownership, Ownership]]:
    for at, first in enumerate(all_of_place):
        for second in all_of_place[at + 1 :]:
            if first.member != second.member:
                yield first, second


def _taken_turns(all_of_place: Sequence[Ownership]) -> list[Finding]:
    """A delivers, B delivers, A delivers again within its earlier ownership."""
    deliveries = sorted(
        ((event.time_ns, number, event) for number, each in enumerate(all_of_place) for event in each.deliveries),
        key=lambda entry: entry[:2],
    )
    findings = []
    passed: dict[int, Event] = {}
    for (_, before, first), (_, after, second) in pairwise(deliveries):
        later = all_of_place[after]
        if later.gone_by and later.gone_ns is not None and second.time_ns > later.gone_ns:
            continue  # `find_zombies` checks it, which knows why the node was deleted
        if all_of_place[before].member == all_of_place[after].member:
            continue
        passed[before] = second
        if after in passed and all_of_place[after].explicit:
            sentence = f"{second.member} delivered {name_of(second.place)} again after {first.member} had started"
            findings.append(Finding("two owners", sentence, (passed[after], second)))
    return findings


def find_early_commits(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Commits beyond what the application was done with: a crash would lose those messages.

    Only ownerships that were announced with their start position are checked. A commit that was decided before a reset
    may be written after it, until the next one.
    """
    findings = []
    done_before: dict[tuple[str, Place], int] = defaultdict(int)
    for owned in ownerships(events):
        if not owned.explicit or owned.start_offset < 0:
            continue
        in_hand: dict[int, Event] = {}
        # A commit of an earlier ownership may land in this one.
        done_to = done_before[owned.member, owned.place]
        end = max(owned.start_offset, done_to)
        before_reset: set[int] = set()
        for event in in_order([*owned.deliveries, *owned.done, *owned.resets, *owned.commits]):
            if event.kind == "reset":
                before_reset.add(max(owned.start_offset, done_to))
                end = event.offset
            elif event.kind == "deliver":
                in_hand[event.offset] = event
                end = max(end, limits.entries.behind(event.place, event.offset))
            elif event.kind == "done":
                in_hand.pop(event.offset, None)
                done_to = max(done_to, limits.entries.behind(event.place, event.offset))
            elif event.offset not in before_reset:
                before_reset.clear()
                early = [each for offset, each in in_hand.items() if done_to <= offset < event.offset]
                if early or event.offset > end:
                    sentence = f"{event.member} committed {event.offset} of {name_of(event.place)} before it was done"
                    findings.append(Finding("early commit", sentence, (*early[:3], event)))
        done_before[owned.member, owned.place] = done_to
    return findings


def find_inside(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Commits of positions within an entry, from which nobody can read on, unless an operator has set them before."""
    findings = []
    set_by_operator: set[tuple[Place, int]] = set()
    for event in events:
        if event.kind == "offset_node" and event.id == OPERATOR:
            set_by_operator.add((event.place, event.offset))
        elif event.kind == "commit" and limits.entries.is_inside(event.place, event.offset):
            # The log of a topic that was created again may end before a position of its earlier incarnation.
            if event.topic in limits.reborn or (event.place, event.offset) in set_by_operator:
                continue
            sentence = f"{event.member} committed {event.offset} of {name_of(event.place)}, which is within an entry"
            findings.append(Finding("commit within an entry", sentence, (event,)))
    return findings


def find_orphans(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Partitions with messages to deliver that stood still for longer than the limit."""
    if limits.orphan_s is None:
        return []
    limit_s = limits.orphan_s
    waiting: dict[Place, set[int]] = defaultdict(set)
    delivered: dict[Place, set[int]] = defaultdict(set)
    since: dict[Place, Event] = {}
    findings = []
    gone = Floors(limits)
    end = events[-1] if events else None
    for event in events:
        place = event.place
        gone.see(event)
        if event.kind == "acked" and event.offset not in delivered[place]:
            if event.offset >= limits.end.get(place, event.offset + 1):
                continue
            if not waiting[place]:
                since[place] = event
            waiting[place].add(event.offset)
        elif event.kind == "deliver":
            delivered[place].add(event.offset)  # it can come before its acknowledgement
            if waiting[place]:
                findings += _stood_still(since[place], event, limit_s, limits.calm_ns)
                since[place] = event
                waiting[place].discard(event.offset)
        if waiting[place] and gone.of(place):
            waiting[place] = {offset for offset in waiting[place] if offset >= gone.of(place)}
    if end is not None:
        for place, offsets in waiting.items():
            if offsets:
                findings += _stood_still(since[place], end, limit_s, limits.calm_ns)
    return findings


def _stood_still(start: Event, end: Event, limit_s: float, calm_ns: int) -> list[Finding]:
    still_s = (end.time_ns - max(start.time_ns, calm_ns)) / NS
    if still_s <= limit_s:
        return []
    sentence = f"{name_of(start.place)} had messages and stood still for {still_s:.3f} s, {limit_s:g} s are allowed"
    return [Finding("orphan", sentence, (start, end))]


def _acked_offsets(events: Iterable[Event]) -> dict[Place, list[int]]:
    found: dict[Place, set[int]] = defaultdict(set)
    for event in events:
        if event.kind == "acked":
            found[event.place].add(event.offset)
    ordered: dict[Place, list[int]] = defaultdict(list)
    ordered.update({place: sorted(offsets) for place, offsets in found.items()})
    return ordered


def _between(ordered: Sequence[int], first: int, end: int) -> Sequence[int]:
    """The offsets from `first` up to, not including, `end`."""
    return ordered[bisect_left(ordered, first) : max(bisect_left(ordered, first), bisect_right(ordered, end - 1))]


def _spans(offsets: Sequence[int]) -> str:
    return f"offset {offsets[0]}" if len(offsets) == 1 else f"{len(offsets)} offsets from {offsets[0]} to {offsets[-1]}"


CHECKS: tuple[Check, ...] = (
    find_lost,
    find_skipped,
    find_repeated,
    find_backwards,
    find_two_owners,
    find_zombies,
    find_rewinds,
    find_early_commits,
    find_inside,
    find_orphans,
)


@dataclass(frozen=True)
class Figures:
    """A history in numbers.

    acked: messages that were acknowledged to their producer.
    lost: those of them that no member got.
    repeated: deliveries beyond the first of each message.
    repeated_by_same: those of them to the member that had got the message before.
    put_back: how far offset nodes fell, in messages, over all falls.
    longest_gap_s: longest time that some partition had messages to deliver and delivered none.
    gap_place: that partition.
    """

    acked: int
    lost: int
    repeated: int
    repeated_by_same: int
    put_back: int
    longest_gap_s: float
    gap_place: Place | None


def figures_of(events: Iterable[Event], since_ns: int = 0) -> Figures:
    """The figures of a history.

    Args:
        since_ns: gaps before that moment do not count.
    """
    ordered = in_order(events)
    acked = {(event.place, event.offset) for event in ordered if event.kind == "acked"}
    deliveries = [event for event in ordered if event.kind == "deliver"]
    times = Counter((event.place, event.offset) for event in deliveries)
    gap_s, place = _longest_gap(ordered, since_ns)
    return Figures(
        acked=len(acked),
        lost=len(acked - times.keys()),
        repeated=times.total() - len(times),
        repeated_by_same=_repeated_by_same(deliveries),
        put_back=_put_back(ordered),
        longest_gap_s=gap_s,
        gap_place=place,
    )


def _repeated_by_same(deliveries: Iterable[Event]) -> int:
    last: dict[tuple[Place, int], str] = {}
    count = 0
    for event in deliveries:
        key = (event.place, event.offset)
        count += last.get(key) == event.member
        last[key] = event.member
    return count


def _put_back(events: Sequence[Event]) -> int:
    entries = Entries.of_history(events)
    last: dict[Place, int] = {}
    total = 0
    for event in events:
        if event.kind == "offset_node" and event.offset >= 0:
            number = entries.number_of(event.place, event.offset)
            total += max(0, last.get(event.place, 0) - number)
            last[event.place] = number
    return total


def _longest_gap(events: list[Event], since_ns: int) -> tuple[float, Place | None]:
    longest: tuple[float, Place | None] = (0.0, None)
    for finding in find_orphans(events, Limits(orphan_s=0.0, calm_ns=since_ns)):
        start, end = finding.events
        still_s = (end.time_ns - max(start.time_ns, since_ns)) / NS
        if still_s > longest[0]:
            longest = (still_s, start.place)
    return longest
