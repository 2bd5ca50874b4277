"""Checks of claims: members wait until the group has settled, claim only what is theirs, and then claim quickly. Pure.

A member that claims in the middle of a burst of changes has to release again a moment later, and makes others wait,
Java members among them, which have only four tries. The rightful owners at each moment are in the history as events of
the kind `due`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkconsumer.testing.history.events import Event, Place
from zkconsumer.testing.history.limits import NS, Finding, Limits, name_of, was_troubled

_NEVER: Final = 2**63
_UNNOTICED_NS: Final = 2 * NS
"""A member that reads seldom may never see that a partition was another's for so short a time."""
_NEXT_OF_A_BURST_NS: Final = NS // 4
_TRIED_NS: Final = 3 * NS // 2
"""A member that should have had a partition for so long has tried to claim it, also in a long burst of changes."""


@dataclass(slots=True)
class _Term:
    """A time in which a partition was due to one member."""

    member: str
    begin_ns: int
    end_ns: int = _NEVER


class _Terms:
    """The member that each partition was due to, from the first event to the present one."""

    def __init__(self) -> None:
        self._terms: dict[Place, list[_Term]] = defaultdict(list)

    def see(self, event: Event) -> None:
        """Process an event of the kind `due`."""
        terms = self._terms[event.place]
        if terms:
            terms[-1].end_ns = event.time_ns
        terms.append(_Term(event.member, event.time_ns))

    def of(self, member: str, place: Place) -> list[_Term]:
        """The member's terms, the newest first."""
        return [term for term in reversed(self._terms[place]) if term.member == member]

    def unassigned_since_ns(self, place: Place) -> int | None:
        """Since when no member should own it; None if one should, or no event named it."""
        terms = self._terms[place]
        return terms[-1].begin_ns if terms and not terms[-1].member else None

    def present(self, place: Place) -> str:
        """The member that should own it now."""
        return self._terms[place][-1].member if self._terms[place] else ""


def find_hasty(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Claims of partitions that were assigned to the member only a moment before: the next change may take them away.

    Except where a member saw no change, since the partition, or that of its topic's earlier incarnation, had been its
    own shortly before; and except at the end of a burst or a read that took longer than claims are put off.
    """
    if not limits.settle_s:
        return []
    settle_ns = int(limits.settle_s * NS)
    terms = _Terms()
    pending = _Pending(int(limits.settle_max_s * NS))
    findings = []
    for event in events:
        if event.kind == "due":
            terms.see(event)
        elif event.kind == "claimed" and event.member not in limits.unfenced:
            own = terms.of(event.member, event.place)
            waited_ns = event.time_ns - own[0].begin_ns if own else settle_ns
            is_back = event.topic in limits.reborn or (len(own) > 1 and _is_unnoticed(own, limits))
            if waited_ns < settle_ns and not is_back and not _is_put_off_enough(pending.since_ns(event), event, limits):
                sentence = (
                    f"{event.member} claimed {name_of(event.place)} {waited_ns / NS:.3f} s after it had become "
                    f"its own, {limits.settle_s:g} s without a change are to pass"
                )
                findings.append(Finding("hasty claim", sentence, (event,)))
        pending.see(event)
    return findings


class _Pending:
    """Since when claims have been put off: because changes kept coming, or by a member that is back after a loss."""

    def __init__(self, longest_ns: int) -> None:
        self._longest_ns = longest_ns
        self._burst = (0, 0)
        self._members: dict[str, int] = {}
        self._have_claimed: set[str] = set()

    def see(self, event: Event) -> None:
        """Process an event."""
        if event.kind not in ("due", "claimed", "owner_gone"):
            return
        begin_ns, end_ns = self._burst
        self._burst = (begin_ns if event.time_ns - end_ns <= _NEXT_OF_A_BURST_NS else event.time_ns, event.time_ns)
        if event.kind == "claimed":
            self._have_claimed.add(event.member)
        elif event.kind == "due":
            since_ns = self._members.setdefault(event.member, event.time_ns)
            if event.member in self._have_claimed or event.time_ns - since_ns > 2 * self._longest_ns:
                self._members[event.member] = event.time_ns
            self._have_claimed.discard(event.member)

    def since_ns(self, claim: Event) -> int:
        """Since when, as for the member that claims now."""
        begin_ns, end_ns = self._burst
        in_burst_ns = begin_ns if claim.time_ns - end_ns <= _NEXT_OF_A_BURST_NS else claim.time_ns
        return min(in_burst_ns, self._members.get(claim.member, claim.time_ns))


def _is_unnoticed(own: Sequence[_Term], limits: Limits) -> bool:
    """Whether the member may not have seen that its newest term is not its first."""
    begin_ns, before_ns = own[0].begin_ns, own[1].end_ns
    return begin_ns - before_ns <= _UNNOTICED_NS or was_troubled(own[0].member, before_ns, begin_ns, limits)


def _is_put_off_enough(since_ns: int, claim: Event, limits: Limits) -> bool:
    """Whether changes had been coming, or a read had been under way, for as long as claims are put off at most."""
    longest_ns = int((limits.settle_max_s - limits.settle_s) * NS)
    is_long = longest_ns <= claim.time_ns - since_ns
    return is_long or was_troubled(claim.member, claim.time_ns - longest_ns, claim.time_ns, limits)


def find_stale(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Claims of another member's partitions, by a member that had waited for the partition and saw that it is free.

    An owner node is deleted with a change, or because of one: a member that does not read the members again before it
    claims takes what Java members released for a moment only, or what has become another member's meanwhile.
    """
    terms = _Terms()
    gone: dict[Place, Event] = {}
    findings = []
    for event in events:
        if event.kind == "due":
            terms.see(event)
        elif event.kind == "owner_gone":
            gone[event.place] = event
        elif event.kind == "claimed" and event.member not in limits.unfenced and event.place in gone:
            freed = gone.pop(event.place)
            own = terms.of(event.member, event.place)
            if not own or own[0].end_ns > freed.time_ns or own[0].end_ns - own[0].begin_ns < _TRIED_NS:
                continue
            if was_troubled(event.member, own[0].begin_ns, event.time_ns, limits):
                continue
            whose = terms.present(event.place) or "nobody"
            late_s = (event.time_ns - own[0].end_ns) / NS
            sentence = f"{event.member} claimed {name_of(event.place)} {late_s:.3f} s after it had become {whose}'s"
            findings.append(Finding("stale claim", sentence, (freed, event)))
    return findings


def find_unclaimed(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Partitions that had no owner node for too long, although a healthy member should have claimed them."""
    if limits.unclaimed_s is None:
        return []
    findings = []
    free = _Free()
    for event in events:
        findings += _unclaimed(free.ended_by(event), event, limits)
        free.see(event)
    if events:
        findings += [each for place in free.places() for each in _unclaimed(place, events[-1], limits)]
    return findings


def find_forbidden(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Claims of partitions that the rule assigns to no member, because a registration may not be read, say."""
    terms = _Terms()
    findings = []
    for event in events:
        if event.kind == "due":
            terms.see(event)
        elif event.kind == "claimed" and event.member not in limits.unfenced:
            since_ns = terms.unassigned_since_ns(event.place)
            if (
                since_ns is None
                or event.time_ns - since_ns <= _UNNOTICED_NS
                or was_troubled(event.member, since_ns, event.time_ns, limits)
            ):
                continue
            sentence = (
                f"{event.member} claimed {name_of(event.place)}, which no member was to claim for "
                f"{(event.time_ns - since_ns) / NS:.3f} s"
            )
            findings.append(Finding("forbidden claim", sentence, (event,)))
    return findings


class _Spell(NamedTuple):
    """A partition without an owner, and the member that should have had it since then."""

    member: str
    place: Place
    begin_ns: int


class _Free:
    """The partitions without an owner, and the members that should own them."""

    def __init__(self) -> None:
        self._due: dict[Place, Event] = {}
        self._held: set[Place] = set()
        self._free_ns: dict[Place, int] = {}
        self._absent: set[str] = set()

    def ended_by(self, event: Event) -> _Spell | None:
        """The spell of its partition that may end with an event."""
        if event.kind not in ("due", "claimed", "occupied"):
            return None
        return self._spell(event.place)

    def _spell(self, place: Place) -> _Spell | None:
        due = self._due.get(place)
        if due is None or not due.member or due.member in self._absent or place in self._held:
            return None
        return _Spell(due.member, place, max(due.time_ns, self._free_ns.get(place, 0)))

    def places(self) -> list[_Spell]:
        """The spells that have not ended."""
        return [spell for place in self._due if (spell := self._spell(place)) is not None]

    def see(self, event: Event) -> None:
        """Process an event."""
        if event.kind == "due":
            self._due[event.place] = event
        elif event.kind in ("claimed", "occupied"):
            self._held.add(event.place)
        elif event.kind in ("owner_gone", "vacated"):
            self._held.discard(event.place)
            self._free_ns[event.place] = event.time_ns
        elif event.kind in ("killed", "leaving"):
            self._absent.add(event.member)


def _unclaimed(spell: _Spell | None, end: Event, limits: Limits) -> list[Finding]:
    if spell is None or spell.member in limits.unfenced or limits.unclaimed_s is None:
        return []
    begin_ns = spell.begin_ns
    for trouble in sorted(limits.troubles, key=lambda each: each.begin_ns):
        if trouble.concerns(spell.member) and trouble.begin_ns <= end.time_ns and trouble.end_ns >= begin_ns:
            begin_ns = trouble.end_ns
    lay_s = (end.time_ns - begin_ns) / NS
    if lay_s <= limits.unclaimed_s or spell.place[0] in limits.reborn:
        return []
    sentence = f"{name_of(spell.place)} had no owner for {lay_s:.3f} s, and {spell.member} did not claim it"
    return [Finding("unclaimed", sentence, (end,))]
