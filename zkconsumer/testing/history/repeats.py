"""Checks of repeated messages: which ones an ungraceful end of an ownership explains, and which nothing does.

Checks for zombies: members that deliver or commit what they do not own, or no longer own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zkconsumer.testing.history.events import Event, Ownership, Place, in_order, ownerships
from zkconsumer.testing.history.limits import NS, OPERATOR, Finding, Limits, name_of, node_of, was_troubled
from zkconsumer.testing.history.rewinds import PutBacks

_CALLED_NS: Final = NS // 20
"""How soon a listener is called after a drain that ended without the message in hand."""
_MOST_STARTS: Final = 2
"""How often a member may start at the start of a topic that was created again: it notices late, and ZooKeeper can
lose its data as well."""


def find_repeated(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Messages delivered more than once, except those an ungraceful end explains."""
    return [finding for finding, allowed in _repeats(events, limits) if not allowed]


def count_allowed_repeats(events: Iterable[Event], limits: Limits | None = None) -> int:
    """How many repeated deliveries an ungraceful end explains."""
    ordered = in_order(events)
    return sum(allowed for _, allowed in _repeats(ordered, (limits or Limits()).for_history(ordered)))


def _repeats(events: Sequence[Event], limits: Limits) -> list[tuple[Finding, bool]]:
    owned_by = {id(event): each for each in ownerships(events) for event in each.deliveries}
    last: dict[tuple[Place, int], Event] = {}
    claimed_ns: dict[tuple[str, Place], int] = {}
    put_backs = PutBacks(limits)
    starts = _numbered_starts(owned_by.values(), _log_starts(events), limits)
    leaves: dict[str, Event] = {}
    found = []
    for event in events:
        put_backs.see(event)
        if event.kind == "leaving" and event.id:
            leaves.setdefault(event.member, event)
        if event.kind == "claimed":
            claimed_ns[event.member, event.place] = event.time_ns
        if event.kind != "deliver":
            continue
        before = last.get((event.place, event.offset))
        if before is not None:
            owned, now = owned_by[id(before)], owned_by[id(event)]
            next_ns = claimed_ns.get((now.member, now.place), now.start_ns)
            allowed = now is not owned and _explained(owned, before, next_ns, limits)
            allowed |= now is not owned and _was_in_hand(owned, before, leaves.get(owned.member), limits)
            allowed &= now.member != owned.member or not _is_kept(owned, before, limits)
            # A delivery without owner node is checked by `find_zombies`; it is expected to repeat something.
            allowed |= bool(now.gone_by) and now.gone_ns is not None and event.time_ns > now.gone_ns
            allowed |= event.topic in limits.reborn and now is not owned and starts.get(id(now), 99) <= _MOST_STARTS
            allowed |= put_backs.explain(before, event)
            gap_s = (event.time_ns - before.time_ns) / NS
            sentence = f"offset {event.offset} of {name_of(event.place)} came again after {gap_s:.3f} s"
            found.append((Finding("repeated", sentence, (before, event)), allowed))
        last[event.place, event.offset] = event
    return found


def _log_starts(events: Iterable[Event]) -> dict[Place, set[int]]:
    """Return where the logs have started that did not always start at offset 0."""
    found: dict[Place, set[int]] = defaultdict(set)
    for event in events:
        if event.kind == "log_start":
            found[event.place].add(event.offset)
    return found


def _numbered_starts(
    all_owned: Iterable[Ownership], log_starts: Mapping[Place, set[int]], limits: Limits
) -> dict[int, int]:
    """Number the ownerships that started at the start of their log, or where such a one had stopped: by the id of each.

    One whose session ended before it had committed anything makes the next one start there as well.
    """
    counts: dict[tuple[str, Place], int] = defaultdict(int)
    numbers: dict[int, int] = {}
    came_to: dict[Place, tuple[int, int]] = {}
    for owned in sorted({id(each): each for each in all_owned}.values(), key=lambda each: each.start_ns):
        reached, number = came_to.pop(owned.place, (-1, 0))
        if owned.start_offset == 0 or owned.start_offset in log_starts.get(owned.place, ()):
            number = counts[owned.member, owned.place] + 1
            if owned.gone_by not in ("ended", "expired") or any(commit.offset > 0 for commit in owned.commits):
                counts[owned.member, owned.place] = number
        elif owned.start_offset < 0 or owned.start_offset != reached:
            continue
        numbers[id(owned)] = number
        reached_end = limits.entries.behind(owned.place, owned.done[-1].offset) if owned.done else owned.start_offset
        came_to[owned.place] = reached_end, number
    return numbers


def _explained(owned: Ownership, before: Event, next_ns: int, limits: Limits) -> bool:
    """True if the ownership of the first delivery ended ungracefully shortly after it, or in the middle of it.

    next_ns: when the next owner claimed; it reads the offset then, and may not see commits that come later.
    """
    ended_ns = owned.end_ns
    if ended_ns is None:
        return False
    # A member that never writes "done", as a Java member, counts as done with what it delivered.
    in_hand_ns = ended_ns + 1 if owned.explicit or owned.done else before.time_ns
    # An entry is done with its last message, and is in hand since its first one.
    entry = limits.entries.of(before.place, before.offset)
    done_ns = next((done.time_ns for done in owned.done if done.offset == entry.last), in_hand_ns)
    begun_ns = min(
        (each.time_ns for each in owned.deliveries if entry.first <= each.offset <= entry.last), default=before.time_ns
    )
    was_done = done_ns <= ended_ns
    broken_off = owned.gone_ns is not None or (owned.end is not None and owned.end.kind in ("lost", "killed"))
    if owned.graceful:
        held_s = (min(done_ns, ended_ns) - begun_ns) / NS
        if limits.drain_s is not None and held_s >= limits.drain_s and done_ns > ended_ns - _CALLED_NS:
            return True
        if not was_done:
            return False
        # In order, but the last commit may have been impossible. A member that releases has waited for it.
        gone_ns = owned.gone_ns or ended_ns
        could_store = not any(each.begin_ns <= gone_ns and each.end_ns >= ended_ns for each in limits.unstorable)
        was_waited_for = owned.gone_by == "released" and owned.member not in limits.by_hand and could_store
        broken_off = not was_waited_for and was_troubled(owned.member, ended_ns, owned.gone_ns or ended_ns, limits)
    if owned.member in limits.by_hand:
        known = [commit.offset for commit in owned.commits if commit.time_ns <= next_ns]
        return broken_off and all(before.offset >= offset for offset in known)
    return broken_off and (not was_done or done_ns >= _last_sure_commit_ns(owned.member, ended_ns, limits))


def _was_in_hand(owned: Ownership, before: Event, leave: Event | None, limits: Limits) -> bool:
    """True if its member was in the middle of a message when the time that it had to leave was over."""
    if leave is None:
        return False
    until_ns = leave.time_ns + int(float(leave.id) * NS)
    last = limits.entries.of(before.place, before.offset).last
    done_ns = next((done.time_ns for done in owned.done if done.offset == last), None)
    return before.time_ns <= until_ns + _CALLED_NS and (done_ns is None or done_ns > until_ns - _CALLED_NS)


def _is_kept(owned: Ownership, before: Event, limits: Limits) -> bool:
    """True if the member was done with a message and remembers it, committed or not."""
    called_ns = _CALLED_NS if owned.graceful else 0  # the drain ended a little before
    last = limits.entries.of(before.place, before.offset).last
    return owned.member not in limits.by_hand | limits.unfenced and any(
        done.offset == last and (owned.end_ns is None or done.time_ns <= owned.end_ns - called_ns)
        for done in owned.done
    )


def _last_sure_commit_ns(member: str, ended_ns: int, limits: Limits) -> int:
    """Return the moment before which all done messages were committed when the ownership ended."""
    margin_ns = int(limits.repeat_before_end_s * NS)
    sure_ns = ended_ns - margin_ns
    for trouble in sorted(limits.troubles, key=lambda each: each.begin_ns, reverse=True):
        if trouble.concerns(member) and trouble.begin_ns <= ended_ns and trouble.end_ns >= sure_ns:
            sure_ns = min(sure_ns, trouble.begin_ns - margin_ns)
    return sure_ns


_OWN_ACTS = ("released", "closed")
"""A member that deletes its owner node itself has stopped before."""


def find_zombies(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries and commits by a member whose owner node had been gone for longer than the slack, or never was there.

    Whether it never was there is known only where claims are in the history.
    """
    findings = []
    gone: dict[tuple[str, Place], Event] = {}
    claimed: set[tuple[str, Place]] = set()
    are_claims_seen = any(event.kind == "claimed" for event in events)
    for event in events:
        key = (event.member, node_of(event.place))
        if event.kind == "owner_gone":
            gone.setdefault(key, event)
        elif event.kind == "claimed":
            claimed.add(key)
            gone.pop(key, None)
        elif event.kind == "assigned" and key in gone and not gone[key].id:
            gone.pop(key, None)
        elif event.kind in ("deliver", "commit") and event.member not in limits.unfenced:
            what = "delivered" if event.kind == "deliver" else "committed"
            if key in gone:
                late_s = (event.time_ns - gone[key].time_ns) / NS
                if not _may_be_late(event, gone[key], late_s, limits):
                    when = f"{late_s:.3f} s after its owner node was gone"
                    findings.append(
                        Finding("zombie", f"{event.member} {what} {name_of(event.place)} {when}", (gone[key], event))
                    )
            elif are_claims_seen and key not in claimed:
                sentence = f"{event.member} {what} {name_of(event.place)} and has never claimed it"
                findings.append(Finding("zombie", sentence, (event,)))
    return findings


def _may_be_late(event: Event, gone: Event, late_s: float, limits: Limits) -> bool:
    """Whether a delivery or commit after the end of the owner node is within what is promised."""
    if gone.id in _OWN_ACTS:
        # Without a fence a commit that was on its way may still arrive.
        return event.kind == "commit" and not limits.commits_fenced and late_s <= limits.zombie_slack_s
    is_taken = gone.id == OPERATOR or gone.id in limits.unfenced
    if is_taken and _could_not_know(event, gone, limits):
        return True  # its session lives
    if event.kind == "commit" and limits.commits_fenced:
        # The fence is the registration: in a living session commits succeed until the member learns of the deletion.
        return late_s <= (limits.told_late_s if is_taken else 0.0 if gone.id else limits.zombie_slack_s)
    if late_s <= (limits.told_late_s if is_taken or gone.id == "ended" else limits.zombie_slack_s):
        return True
    is_blind = any(each.begin_ns <= event.time_ns <= each.end_ns for each in limits.blind_spots)
    return is_blind and late_s <= limits.blind_s


def _could_not_know(event: Event, gone: Event, limits: Limits) -> bool:
    """Whether a fault kept the member from learning of its owner node's end until shortly before."""
    told_late_ns = int(limits.told_late_s * NS)
    return any(
        each.concerns(event.member)
        and each.begin_ns <= event.time_ns
        and each.end_ns >= max(gone.time_ns, event.time_ns - told_late_ns)
        for each in limits.troubles
    )
