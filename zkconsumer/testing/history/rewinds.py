"""Finds stored offsets that fell, except for what operators, Java members and the lack of a fence explain.

How manual offset changes, retention and resets move a group's start offsets: what may be skipped or repeated.

An offset that an operator has set has no effect by itself. It counts from the moment at which a member starts there:
members of ours report their start offset, and a Java member has read just before it claims.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from zkconsumer.testing.history.events import Event, Place
from zkconsumer.testing.history.limits import NS, OPERATOR, Finding, Limits, name_of, node_of

_JAVA_READ_NS: Final = NS
"""A Java member may read an offset that long before it claims."""
_NONE: Final = -1
"""The value of an offset node that is missing or unreadable."""


class _Value(NamedTuple):
    """The value that an offset node held from a moment on, and who wrote it: `OPERATOR`, or a member."""

    since_ns: int
    offset: int
    writer: str


class _Stored:
    """All values that the offset nodes have had."""

    def __init__(self) -> None:
        self._values: dict[Place, list[_Value]] = defaultdict(list)

    def see(self, event: Event) -> _Value | None:
        """Process a value; return the one before it."""
        values = self._values[event.place]
        before = values[-1] if values else None
        values.append(_Value(event.time_ns, event.offset, event.id or event.member))
        return before

    def present(self, place: Place) -> _Value | None:
        """The present value."""
        values = self._values.get(place)
        return values[-1] if values else None

    def by_operator(self, place: Place) -> set[int]:
        """All values that an operator has set."""
        return {value.offset for value in self._values.get(place, ()) if value.writer == OPERATOR}

    def read_by_java(self, claim: Event) -> list[_Value]:
        """The values that a Java member may have read before it claimed."""
        found: list[_Value] = []
        for value in reversed(self._values.get(claim.place, ())):
            found.append(value)
            if value.since_ns <= claim.time_ns - _JAVA_READ_NS:
                break
        return found


class _JavaStarts:
    """When Java members start: at a claim, or without one, at a node that an earlier session of theirs has left."""

    def __init__(self, limits: Limits) -> None:
        self._unfenced = limits.unfenced
        self._entries = limits.entries
        self._next: dict[tuple[str, Place], int | None] = {}

    def starts(self, event: Event) -> bool:
        """Whether a Java member has read its offset just before this event."""
        key = (event.member, event.place)
        if event.member not in self._unfenced or event.kind not in ("claimed", "deliver"):
            return False
        if event.kind == "claimed":
            self._next[key] = None
            return True
        expected = self._next.get(key, _NONE)
        self._next[key] = self._entries.behind(event.place, event.offset)
        return expected is not None and expected != event.offset


class Floors:
    """The offset of each partition below which messages may be skipped by now.

    That is: before the group's start; gone from the log; skipped by a member that started where an operator had raised
    the stored offset to, or that was reset to the log's end.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._floors: dict[Place, int] = dict(limits.begin)
        self._stored = _Stored()
        self._java = _JavaStarts(limits)
        self._raised: dict[Place, set[int]] = defaultdict(set)
        self._log_ends: dict[Place, int] = {}

    def see(self, event: Event) -> None:
        """Process an event."""
        place = event.place
        if event.kind == "acked":
            end = self._limits.entries.of(place, event.offset).end
            self._log_ends[place] = max(self._log_ends.get(place, 0), end)
        elif event.kind == "log_start":
            self._raise(place, event.offset)
        elif event.kind == "offset_node":
            self._stored.see(event)
        elif event.kind == "assigned" and event.offset in self._stored.by_operator(place):
            self._raised[place].add(self._limits.entries.start_of(place, event.offset))
        elif self._java.starts(event):
            self._raised[place].update(
                self._limits.entries.start_of(place, value.offset)
                for value in self._stored.read_by_java(event)
                if value.writer == OPERATOR
            )
        elif event.kind == "reset":
            # A member that started after the log's end has skipped nothing.
            end = self._log_ends.get(place, 0)
            self._raised[place] = {offset for offset in self._raised[place] if offset <= end}
            if self._limits.reset_to_end:
                self._raise(place, event.offset)

    def _raise(self, place: Place, offset: int) -> None:
        self._floors[place] = max(self._floors.get(place, 0), offset)

    def log_end(self, place: Place) -> int:
        """The offset after the last message that was acknowledged; 0 without one."""
        return self._log_ends.get(place, 0)

    def of(self, place: Place) -> int:
        """The floor of a partition."""
        return max(self._floors.get(place, 0), max(self._raised.get(place, ()), default=0))


class PutBacks:
    """Which messages may be repeated, because a member started before them at an operator's or Java member's offset."""

    def __init__(self, limits: Limits) -> None:
        self._unfenced = limits.unfenced
        self._stored = _Stored()
        self._java = _JavaStarts(limits)
        self._lowered: dict[Place, set[int]] = defaultdict(set)
        self._highest: dict[Place, int] = {}
        self._begun: dict[Place, list[tuple[int, int]]] = defaultdict(list)

    def see(self, event: Event) -> None:
        """Process an event."""
        place = event.place
        if event.kind == "offset_node":
            self._written(event)
        elif event.kind == "reset":
            self._start(event, event.offset)
        elif self._java.starts(event):
            self._start(event, min((value.offset for value in self._stored.read_by_java(event)), default=0))
        elif event.kind == "assigned" and (self._is_unreadable(place) or event.offset in self._lowered[place]):
            self._start(event, event.offset)

    def _written(self, event: Event) -> None:
        was_unreadable = self._is_unreadable(event.place)
        self._stored.see(event)
        # A member that has lowered it goes on from there, write by write.
        is_java = event.member in self._unfenced and event.offset < self._highest.get(event.place, _NONE)
        if event.id == OPERATOR or event.offset > self._highest.get(event.place, _NONE):
            self._highest[event.place] = event.offset
        # A first position is stored before it is reported.
        if event.id == OPERATOR or is_java or was_unreadable:
            self._lowered[event.place].add(event.offset)
        if is_java:
            self._start(event, event.offset)

    def _is_unreadable(self, place: Place) -> bool:
        value = self._stored.present(place)
        return value is not None and value.offset == _NONE

    def _start(self, event: Event, offset: int) -> None:
        self._begun[event.place].append((event.time_ns, offset))

    def explain(self, before: Event, again: Event) -> bool:
        """Whether a member has started at or before a message since it was delivered."""
        return any(at_ns >= before.time_ns and offset <= again.offset for at_ns, offset in self._begun[again.place])


_KNOWN_ENDS: Final = ("released", "closed", "expired")
"""How an ownership ends of which its member knows: it has released, or its lease has ended before."""


def find_rewinds(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Stored offsets that were seen to fall, except for what an operator or a Java member wrote.

    A value that a member found to be outside the log may be lowered to where it was reset to, and one before the start
    of the log to any other: it was useless. In a topic that was created again a member that notices starts once more
    at its start, whatever others had stored by then. Commits from before a reset may be written after it, see
    `_LateCommits`. Commits that are not fenced cross each other, see `_Writers`.
    """
    last: dict[Place, Event] = {}
    writers = _Writers(limits)
    assigned: dict[tuple[str, Place], Event] = {}
    log_starts: dict[Place, int] = {}
    late_commits = _LateCommits(limits)
    floors = Floors(limits)
    findings = []
    for event in events:
        floors.see(event)
        before = last.get(event.place)
        is_crossed = before is not None and writers.have_crossed(before, event)
        is_late = before is not None and late_commits.hold(before, event)
        writers.see(event)
        late_commits.see(event, floors.log_end(event.place))
        if event.kind == "assigned":
            assigned[event.member, event.place] = event
        elif event.kind == "log_start":
            log_starts[event.place] = event.offset
        elif event.kind == "reset" and before is not None and event.offset < before.offset:
            last[event.place] = event
        if event.kind != "offset_node":
            continue
        last.pop(event.place, None)
        if event.offset >= 0:
            last[event.place] = event
        is_ours = event.id != OPERATOR and event.member not in limits.unfenced
        if before is None or event.offset >= before.offset or not is_ours or is_crossed or is_late:
            continue
        if before.offset <= log_starts.get(event.place, -1):
            continue
        begun = assigned.get((event.member, event.place))
        is_new = event.offset <= floors.of(event.place) or (begun is not None and begun.time_ns > before.time_ns)
        if event.topic not in limits.reborn or not is_new:
            sentence = f"offset of {name_of(event.place)} fell from {before.offset} to {event.offset}"
            findings.append(Finding("offset went back", sentence, (before, event)))
    return findings


class _LateCommits:
    """Commits from before a reset that were written after it: their own member may lower them.

    They are known by their offset: it is after all messages of the log by then; or, in a log that has replaced
    another one and may be longer, after all messages that the member has got of it.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reached: dict[tuple[str, Place], int] = {}
        self._late: dict[Place, Event] = {}

    def see(self, event: Event, log_end: int) -> None:
        """Process an event; `log_end` is the offset after the last message of its partition."""
        key = (event.member, event.place)
        if event.kind == "reset":
            self._reached[key] = event.offset
        elif event.kind == "deliver" and key in self._reached:
            self._reached[key] = max(self._reached[key], self._limits.entries.behind(event.place, event.offset))
        elif event.kind == "offset_node":
            self._late.pop(event.place, None)
            reached = self._reached.get(key, event.offset)
            if event.offset > (reached if event.topic in self._limits.reborn else max(reached, log_end)):
                self._late[event.place] = event

    def hold(self, before: Event, event: Event) -> bool:
        """Return whether the value `before` is such a commit, and `event` is of the same member."""
        return self._late.get(event.place) is before and event.member == before.member


class _Writers:
    """Who has the owner nodes, and how far each member has come: where it started, and the offsets that it has stored.

    Without a fence, two members store offsets of one partition if one of them does not know that it has lost it: a Java
    member, or one of ours whose session or owner node somebody ended while it was cut off (`find_zombies` limits for
    how long). None of them sees what the other one stores, and each stores its own position, which never falls. Nor
    does an owner see what an operator stores after it has claimed the partition.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._claimed: dict[tuple[str, Place], Event] = {}
        self._gone: dict[tuple[str, Place], Event] = {}
        self._positions: dict[tuple[str, Place], int] = {}

    def see(self, event: Event) -> None:
        """Process an event."""
        key = (event.member, event.place)
        if event.kind == "claimed":
            self._claimed[event.member, node_of(event.place)] = event
            self._gone.pop(key, None)
            self._positions.pop(key, None)
        elif event.kind == "owner_gone":
            self._claimed.pop((event.member, node_of(event.place)), None)
            self._gone.setdefault(key, event)
        elif event.kind == "assigned":
            self._positions[key] = event.offset
        elif event.kind == "reset":
            # A commit that was decided before it is written after it.
            self._positions[key] = min(event.offset, self._positions.get(key, event.offset))
        elif event.kind == "offset_node":
            self._positions[key] = max(event.offset, self._positions.get(key, 0))

    def have_crossed(self, before: Event, event: Event) -> bool:
        """Whether a stored offset fell because one of the two members did not know that it had lost the partition.

        Args:
            event: the one that is about to be seen.
        """
        is_lower = event.offset < self._positions.get((event.member, event.place), 0)
        if self._limits.commits_fenced or event.kind != "offset_node" or is_lower:
            return False
        claim = self._claimed.get((event.member, node_of(event.place)))
        if claim is None:
            gone = self._gone.get((event.member, event.place))
            was_owner = before.id == OPERATOR and gone is not None and gone.time_ns >= before.time_ns
            return was_owner or self._is_unaware(event)
        return claim.time_ns <= before.time_ns and self._is_unaware(before)

    def _is_unaware(self, written: Event) -> bool:
        if written.id == OPERATOR or written.member in self._limits.unfenced:
            return True
        gone = self._gone.get((written.member, written.place))
        return gone is not None and gone.time_ns <= written.time_ns and gone.id not in _KNOWN_ENDS
