"""Verdicts on a history: what was lost, skipped, repeated, out of order, owned twice, delivered by a zombie. Pure.

Each check returns findings, one for each thing that must not have happened; an empty list is a clean history.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from zkconsumer.testing.history import Event, Ownership, Place, in_order, ownerships

NS = 1_000_000_000


@dataclass(frozen=True)
class Limits:
    """What a history may contain.

    repeat_before_end_s: a message may come again if it was first delivered this long before an ungraceful end; the
        interval of the auto-commit plus a second.
    zombie_slack_s: a delivery this soon after the owner node was gone may have been under way.
    orphan_s: longest time a partition with messages to deliver may stand still; None: not checked.
    begin: partition -> offset at which the group begins to count; what lies before it may be missing.
    """

    repeat_before_end_s: float = 2.0
    zombie_slack_s: float = 0.05
    orphan_s: float | None = None
    begin: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One thing that must not have happened: `check` is its kind, `events` prove it."""

    check: str
    sentence: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        proof = "".join(f"\n    {event}" for event in self.events)
        return f"{self.check}: {self.sentence}{proof}"


Check = Callable[[Sequence[Event], Limits], list[Finding]]


def check_history(events: Iterable[Event], limits: Limits | None = None) -> list[Finding]:
    """The findings of all checks."""
    ordered = in_order(events)
    chosen = limits or Limits()
    return [finding for check in CHECKS for finding in check(ordered, chosen)]


def find_lost(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Messages that a producer was told are stored and that nobody ever got."""
    delivered = {(event.place, event.offset) for event in events if event.kind == "deliver"}
    return [
        Finding("lost", f"message {event.id or '?'} was acknowledged and never delivered", (event,))
        for event in events
        if event.kind == "acked"
        and event.offset >= limits.begin.get(event.place, 0)
        and (event.place, event.offset) not in delivered
    ]


def find_skipped(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries that leave out a message: inside an ownership, or between it and everything delivered before.

    Offsets that no producer was told of may be missing (compaction leaves such holes).
    """
    existing = _acked_offsets(events)
    delivered: dict[Place, set[int]] = defaultdict(set)
    previous: dict[int, Event] = {}
    owned_by = {id(event): number for number, each in enumerate(ownerships(events)) for event in each.deliveries}
    findings = []
    for event in events:
        if event.kind != "deliver":
            continue
        number = owned_by[id(event)]
        before = previous.get(number)
        after = before.offset + 1 if before else limits.begin.get(event.place, 0)
        left_out = [
            offset
            for offset in _between(existing[event.place], after, event.offset)
            if before is not None or offset not in delivered[event.place]
        ]
        if left_out:
            proof = (before, event) if before else (event,)
            findings.append(Finding("skipped", f"{_spans(left_out)} of {_name(event.place)} left out", proof))
        delivered[event.place].add(event.offset)
        previous[number] = event
    return findings


def find_repeated(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Messages delivered more than once, except those an ungraceful end explains."""
    return [finding for finding, allowed in _repeats(events, limits) if not allowed]


def count_allowed_repeats(events: Iterable[Event], limits: Limits | None = None) -> int:
    """How many repeated deliveries an ungraceful end explains."""
    return sum(allowed for _, allowed in _repeats(in_order(events), limits or Limits()))


def _repeats(events: Sequence[Event], limits: Limits) -> list[tuple[Finding, bool]]:
    owned_by = {id(event): each for each in ownerships(events) for event in each.deliveries}
    last: dict[tuple[Place, int], Event] = {}
    found = []
    for event in events:
        if event.kind != "deliver":
            continue
        before = last.get((event.place, event.offset))
        if before is not None:
            owned = owned_by[id(before)]
            allowed = owned_by[id(event)] is not owned and _explained(owned, before, limits)
            gap_s = (event.time_ns - before.time_ns) / NS
            sentence = f"offset {event.offset} of {_name(event.place)} came again after {gap_s:.3f} s"
            found.append((Finding("repeated", sentence, (before, event)), allowed))
        last[event.place, event.offset] = event
    return found


def _explained(owned: Ownership, before: Event, limits: Limits) -> bool:
    """True if the ownership of the first delivery ended without order shortly after it."""
    ended_ns = owned.end_ns
    if ended_ns is None or owned.graceful:
        return False
    broken_off = owned.gone_ns is not None or (owned.end is not None and owned.end.kind in ("lost", "killed"))
    return broken_off and before.time_ns >= ended_ns - limits.repeat_before_end_s * NS


def find_backwards(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries inside one announced ownership whose offset is not above the one before."""
    findings = []
    for owned in ownerships(events):
        for before, event in pairwise(owned.deliveries):
            if owned.explicit and event.offset <= before.offset:
                sentence = f"{event.member} got offset {event.offset} of {_name(event.place)} after {before.offset}"
                findings.append(Finding("out of order", sentence, (before, event)))
    return findings


def find_two_owners(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Two members that held one partition at the same time, or delivered it in turns without being assigned anew."""
    findings = []
    by_place: dict[Place, list[Ownership]] = defaultdict(list)
    for owned in ownerships(events):
        by_place[owned.place].append(owned)
    for place, all_of_place in by_place.items():
        for first, second in _pairs(all_of_place):
            if first.explicit and second.explicit and (first.end_ns is None or second.start_ns < first.end_ns):
                sentence = f"{second.member} was assigned {_name(place)} while {first.member} held it"
                findings.append(Finding("two owners", sentence, tuple(first.deliveries[-1:] + second.deliveries[:1])))
        findings += _taken_turns(all_of_place)
    return findings


def _pairs(all_of_place: Sequence[Ownership]) -> Iterable[tuple[Ownership, Ownership]]:
    for at, first in enumerate(all_of_place):
        for second in all_of_place[at + 1 :]:
            if first.member != second.member:
                yield first, second


def _taken_turns(all_of_place: Sequence[Ownership]) -> list[Finding]:
    """A delivers, B delivers, A delivers again within the ownership it had before."""
    deliveries = sorted(
        ((event.time_ns, number, event) for number, each in enumerate(all_of_place) for event in each.deliveries),
        key=lambda entry: entry[:2],
    )
    findings = []
    passed: dict[int, Event] = {}
    for (_, before, first), (_, after, second) in pairwise(deliveries):
        if all_of_place[before].member == all_of_place[after].member:
            continue
        passed[before] = second
        if after in passed and all_of_place[after].explicit:
            sentence = f"{second.member} delivered {_name(second.place)} again after {first.member} had begun"
            findings.append(Finding("two owners", sentence, (passed[after], second)))
    return findings


def find_zombies(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries and commits by a member whose owner node had been gone for longer than the slack."""
    findings = []
    gone: dict[tuple[str, Place], Event] = {}
    for event in events:
        key = (event.member, event.place)
        if event.kind == "owner_gone":
            gone.setdefault(key, event)
        elif event.kind == "assigned":
            gone.pop(key, None)
        elif event.kind in ("deliver", "commit") and key in gone:
            late_s = (event.time_ns - gone[key].time_ns) / NS
            if late_s > limits.zombie_slack_s:
                what = "delivered" if event.kind == "deliver" else "committed"
                sentence = f"{event.member} {what} {_name(event.place)} {late_s:.3f} s after its owner node was gone"
                findings.append(Finding("zombie", sentence, (gone[key], event)))
    return findings


def find_rewinds(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Offset nodes whose value was seen to fall."""
    last: dict[Place, Event] = {}
    findings = []
    for event in events:
        if event.kind == "offset_node":
            before = last.get(event.place)
            if before is not None and event.offset < before.offset:
                sentence = f"offset of {_name(event.place)} fell from {before.offset} to {event.offset}"
                findings.append(Finding("offset went back", sentence, (before, event)))
            last[event.place] = event
    return findings


def find_early_commits(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Commits beyond what the application was done with: a crash would lose those messages.

    Looked at only in ownerships that were announced with their start position.
    """
    findings = []
    for owned in ownerships(events):
        if not owned.explicit or owned.start_offset < 0:
            continue
        in_hand: dict[int, Event] = {}
        end = owned.start_offset
        for event in in_order([*owned.deliveries, *owned.done, *owned.commits]):
            if event.kind == "deliver":
                in_hand[event.offset] = event
                end = max(end, event.offset + 1)
            elif event.kind == "done":
                in_hand.pop(event.offset, None)
            else:
                early = [each for offset, each in in_hand.items() if offset < event.offset]
                if early or event.offset > end:
                    sentence = f"{event.member} committed {event.offset} of {_name(event.place)} before it was done"
                    findings.append(Finding("early commit", sentence, (*early[:3], event)))
    return findings


def find_orphans(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Partitions with messages to deliver that stood still for longer than the limit."""
    if limits.orphan_s is None:
        return []
    waiting: dict[Place, set[int]] = defaultdict(set)
    delivered: dict[Place, set[int]] = defaultdict(set)
    since: dict[Place, Event] = {}
    findings = []
    end = events[-1] if events else None
    for event in events:
        place = event.place
        if event.kind == "acked" and event.offset not in delivered[place]:
            if not waiting[place]:
                since[place] = event
            waiting[place].add(event.offset)
        elif event.kind == "deliver":
            delivered[place].add(event.offset)  # it can come before its acknowledgement
            if waiting[place]:
                findings += _stood_still(since[place], event, limits.orphan_s)
                since[place] = event
                waiting[place].discard(event.offset)
    if end is not None:
        for place, offsets in waiting.items():
            if offsets:
                findings += _stood_still(since[place], end, limits.orphan_s)
    return findings


def _stood_still(start: Event, end: Event, limit_s: float) -> list[Finding]:
    still_s = (end.time_ns - start.time_ns) / NS
    if still_s <= limit_s:
        return []
    sentence = f"{_name(start.place)} had messages and stood still for {still_s:.3f} s, {limit_s:g} s are allowed"
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


def _name(place: Place) -> str:
    return f"{place[0]}/{place[1]}"


CHECKS: tuple[Check, ...] = (
    find_lost,
    find_skipped,
    find_repeated,
    find_backwards,
    find_two_owners,
    find_zombies,
    find_rewinds,
    find_early_commits,
    find_orphans,
)
