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
HAND = "hand"
"""Who deletes owner nodes and sets offsets when nobody of the group does."""


@dataclass(frozen=True)
class Trouble:
    """A time in which something was wrong on purpose: with one member, or with all (no name)."""

    begin_ns: int
    end_ns: int
    member: str = ""

    def concerns(self, member: str) -> bool:
        """Whether that member could have been hit."""
        return self.member in ("", member)


@dataclass(frozen=True)
class Limits:
    """What a history may contain.

    repeat_before_end_s: a message may come again if it was first delivered this long before an ungraceful end; the
        interval of the auto-commit plus a second.
    zombie_slack_s: a delivery this soon after the owner node was gone may have been under way.
    orphan_s: longest time a partition with messages to deliver may stand still; None: not checked.
    begin: partition -> offset at which the group begins to count; what lies before it may be missing.
    end: partition -> offset at which the group stopped reading; what lies behind may be missing.
    drain_s: a message that was in hand for so long when its partition was given up may come again; None: never.
    told_late_s: how long a member may not know of an owner node deleted, or a session ended, from outside.
    troubles: when commits of a member, or of all, may have been impossible.
    blind_spots: when servers may have answered what was no longer true: deliveries without an owner node are no news.
    reborn: topics that were created anew, or all when ZooKeeper lost its data: who notices it late begins once more at
        their start.
    by_hand: members whose application commits: what they had not committed may come again.
    unfenced: members (Java's) whose late deliveries and commits nobody can prevent.
    calm_ns: orphans are looked for from this moment on.
    """

    repeat_before_end_s: float = 2.0
    zombie_slack_s: float = 0.05
    orphan_s: float | None = None
    begin: Mapping[Place, int] = field(default_factory=dict)
    end: Mapping[Place, int] = field(default_factory=dict)
    drain_s: float | None = None
    told_late_s: float = 0.05
    troubles: Sequence[Trouble] = ()
    blind_spots: Sequence[Trouble] = ()
    reborn: frozenset[str] = frozenset()
    by_hand: frozenset[str] = frozenset()
    unfenced: frozenset[str] = frozenset()
    calm_ns: int = 0


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
    floors = _Floors(limits)
    for event in events:
        floors.see(event)
    return [
        Finding("lost", f"message {event.id or '?'} was acknowledged and never delivered", (event,))
        for event in events
        if event.kind == "acked"
        and floors.of(event.place) <= event.offset < limits.end.get(event.place, event.offset + 1)
        and (event.place, event.offset) not in delivered
    ]


class _Floors:
    """Below which offset messages may be left out by now: before the group's begin, or gone from the log, or passed
    over by a hand that raised the stored offset, or by a reset of a position outside the log."""

    def __init__(self, limits: Limits) -> None:
        self._floors: dict[Place, int] = dict(limits.begin)

    def see(self, event: Event) -> None:
        """Take note of an event."""
        if event.kind in ("log_start", "reset") or (event.kind == "offset_node" and event.id == HAND):
            self._floors[event.place] = max(self.of(event.place), event.offset)

    def of(self, place: Place) -> int:
        """The floor of a partition."""
        return self._floors.get(place, 0)


def find_skipped(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries that leave out a message: inside an ownership, or between it and everything delivered before.

    Offsets that no producer was told of may be missing (compaction leaves such holes).
    """
    existing = _acked_offsets(events)
    delivered: dict[Place, set[int]] = defaultdict(set)
    previous: dict[int, Event] = {}
    all_owned = ownerships(events)
    owned_by = {id(event): number for number, each in enumerate(all_owned) for event in each.deliveries}
    floors = _Floors(limits)
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
    put_back: dict[Place, int] = {}
    stored: dict[Place, int] = {}
    found = []
    for event in events:
        if event.kind == "reset" or (event.kind == "offset_node" and _is_put_back(event, stored, limits)):
            put_back[event.place] = min(put_back.get(event.place, event.offset), event.offset)
        if event.kind == "offset_node":
            stored[event.place] = event.offset
        if event.kind != "deliver":
            continue
        before = last.get((event.place, event.offset))
        if before is not None:
            owned, now = owned_by[id(before)], owned_by[id(event)]
            allowed = now is not owned and _explained(owned, before, limits)
            allowed &= now.member != owned.member or not _is_kept(owned, before, limits)
            # A delivery without owner node is `find_zombies`' to judge; that it repeats something is no surprise.
            allowed |= bool(now.gone_by) and now.gone_ns is not None and event.time_ns > now.gone_ns
            allowed |= event.topic in limits.reborn and now is not owned and now.start_offset == 0
            allowed |= event.offset >= put_back.get(event.place, event.offset + 1)
            gap_s = (event.time_ns - before.time_ns) / NS
            sentence = f"offset {event.offset} of {_name(event.place)} came again after {gap_s:.3f} s"
            found.append((Finding("repeated", sentence, (before, event)), allowed))
        last[event.place, event.offset] = event
    return found


def _is_put_back(event: Event, stored: Mapping[Place, int], limits: Limits) -> bool:
    """Whether a hand set an offset, or a member that nobody can fence set it back."""
    return event.id == HAND or (event.member in limits.unfenced and event.offset < stored.get(event.place, 0))


def _explained(owned: Ownership, before: Event, limits: Limits) -> bool:
    """True if the ownership of the first delivery ended without order shortly after it, or in the middle of it."""
    ended_ns = owned.end_ns
    if ended_ns is None:
        return False
    # Who never says "done", as a Java member, is taken to be done with what it delivered.
    in_hand_ns = ended_ns + 1 if owned.explicit or owned.done else before.time_ns
    done_ns = next((done.time_ns for done in owned.done if done.offset == before.offset), in_hand_ns)
    was_done = done_ns <= ended_ns
    broken_off = owned.gone_ns is not None or (owned.end is not None and owned.end.kind in ("lost", "killed"))
    if owned.graceful:
        if not was_done:
            return limits.drain_s is not None and (ended_ns - before.time_ns) / NS >= limits.drain_s
        # In order, but the last commit may have been impossible.
        broken_off = _was_troubled(owned.member, ended_ns, ended_ns, limits)
    if owned.member in limits.by_hand:
        return broken_off and all(before.offset >= commit.offset for commit in owned.commits)
    return broken_off and (not was_done or done_ns >= _last_sure_commit_ns(owned.member, ended_ns, limits))


def _is_kept(owned: Ownership, before: Event, limits: Limits) -> bool:
    """True if the member was done with a message and remembers it, committed or not."""
    return owned.member not in limits.by_hand | limits.unfenced and any(
        done.offset == before.offset and (owned.end_ns is None or done.time_ns <= owned.end_ns) for done in owned.done
    )


def _last_sure_commit_ns(member: str, ended_ns: int, limits: Limits) -> int:
    """What was done before that moment was committed when the ownership ended."""
    margin_ns = int(limits.repeat_before_end_s * NS)
    sure_ns = ended_ns - margin_ns
    for trouble in sorted(limits.troubles, key=lambda each: each.begin_ns, reverse=True):
        if trouble.concerns(member) and trouble.begin_ns <= ended_ns and trouble.end_ns >= sure_ns:
            sure_ns = min(sure_ns, trouble.begin_ns - margin_ns)
    return sure_ns


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
        later = all_of_place[after]
        if later.gone_by and later.gone_ns is not None and second.time_ns > later.gone_ns:
            continue  # for `find_zombies` to judge, who knows why the node went
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
        elif event.kind == "claimed" or (event.kind == "assigned" and key in gone and not gone[key].id):
            gone.pop(key, None)
        elif event.kind in ("deliver", "commit") and key in gone and event.member not in limits.unfenced:
            late_s = (event.time_ns - gone[key].time_ns) / NS
            if not _may_be_late(event, gone[key], late_s, limits):
                what = "delivered" if event.kind == "deliver" else "committed"
                sentence = f"{event.member} {what} {_name(event.place)} {late_s:.3f} s after its owner node was gone"
                findings.append(Finding("zombie", sentence, (gone[key], event)))
    return findings


def _may_be_late(event: Event, gone: Event, late_s: float, limits: Limits) -> bool:
    """Whether a delivery or commit after the end of the owner node is within what is promised."""
    if gone.id == HAND and _was_troubled(event.member, gone.time_ns, event.time_ns, limits):
        return True  # its session lives, and it could not hear of it
    if event.kind == "commit":
        # The fence is the registration: with a living session commits land until the member hears of the deletion.
        return late_s <= (limits.told_late_s if gone.id == HAND else 0.0 if gone.id else limits.zombie_slack_s)
    if late_s <= (limits.told_late_s if gone.id in (HAND, "ended") else limits.zombie_slack_s):
        return True
    return any(each.begin_ns <= event.time_ns <= each.end_ns for each in limits.blind_spots)


def _was_troubled(member: str, begin_ns: int, end_ns: int, limits: Limits) -> bool:
    """Whether one of the troubles of a member reaches into a time."""
    return any(each.concerns(member) and each.begin_ns <= end_ns and each.end_ns >= begin_ns
               for each in limits.troubles)


def find_rewinds(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Offset nodes whose value was seen to fall, but for what a hand or a Java member did.

    A value that a member found to be outside the log may be lowered: it was of no use.
    """
    last: dict[Place, Event] = {}
    findings = []
    for event in events:
        if event.kind == "reset":
            last.pop(event.place, None)
        if event.kind != "offset_node":
            continue
        before = last.pop(event.place, None)
        if event.offset >= 0:
            last[event.place] = event
        is_ours = event.id != HAND and event.member not in limits.unfenced
        if before is None or event.offset >= before.offset or not is_ours:
            continue
        if event.topic not in limits.reborn:
            sentence = f"offset of {_name(event.place)} fell from {before.offset} to {event.offset}"
            findings.append(Finding("offset went back", sentence, (before, event)))
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
        for event in in_order([*owned.deliveries, *owned.done, *owned.resets, *owned.commits]):
            if event.kind == "reset":
                end = event.offset
            elif event.kind == "deliver":
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
    limit_s = limits.orphan_s
    waiting: dict[Place, set[int]] = defaultdict(set)
    delivered: dict[Place, set[int]] = defaultdict(set)
    since: dict[Place, Event] = {}
    findings = []
    gone = _Floors(Limits())
    end = events[-1] if events else None
    for event in events:
        place = event.place
        gone.see(event)
        if event.kind == "acked" and event.offset not in delivered[place]:
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
