"""The limits that a history is checked against, and the findings of the checks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkconsumer.testing.history.events import Entries, Event, Place

NS = 1_000_000_000
OPERATOR = "hand"
"""The `id` of events that no member caused: an operator deleted an owner node or set an offset."""


@dataclass(frozen=True)
class Trouble:
    """A time in which a fault was in force: for one member, or for all (no name)."""

    begin_ns: int
    end_ns: int
    member: str = ""

    def concerns(self, member: str) -> bool:
        """Whether that member could have been affected."""
        return self.member in ("", member)


@dataclass(frozen=True)
class Limits:
    """The bounds of a history.

    repeat_before_end_s: a message may be delivered again if it was first delivered this long before an ungraceful end;
        the interval of the auto-commit plus a second.
    zombie_slack_s: a delivery this soon after the owner node was gone may have been under way.
    orphan_s: longest time a partition with messages to deliver may deliver none; None: not checked.
    begin: partition -> offset at which the checks start; earlier messages may be missing.
    end: partition -> offset at which the group stopped reading; later messages may be missing.
    drain_s: a message that was in hand for so long when its partition was given up may be delivered again; None: never.
    reset_to_end: a position outside the log goes on at the log's end; False: at its start, which passes over nothing.
    told_late_s: how long a member may not know of an owner node deleted, or a session ended, from outside.
    troubles: when commits of a member, or of all, may have been impossible.
    unstorable: when the offset manager may not have stored commits: a release gives up its commit then.
    commits_fenced: whether ZooKeeper refuses a commit without a registration. Offsets in Kafka are not fenced: a member
        commits, as it delivers, until it knows that its session is over.
    blind_spots: when servers may have answered what was no longer true: members may not learn that a session ended.
    blind_s: how long after the end of its session a member may go on in such a time.
    reborn: topics that were created again, or all when ZooKeeper lost its data: a member that notices late starts again
        at their start.
    by_hand: members whose application commits: what they had not committed may be delivered again.
    unfenced: members (Java's) whose late deliveries and commits cannot be prevented.
    disputed: partitions whose rightful owner depends on which order of roundrobin the members know: claims of them are
        not compared with events of the kind `due`.
    requests_a_second: reads, or parts of writes, that a member may ask ZooKeeper for within a second.
    requests_in_ten_s: the same within ten seconds.
    requests_a_connection: so many more for each connection after the first one within a second: all is read again.
    calm_ns: orphans are looked for from this moment on.
    settle_s: how long after a change of its share a member claims nothing new; 0: not checked.
    unclaimed_s: how long a partition may lie without an owner that a member should have; None: not checked.
    settle_max_s: how long claims are put off at most while changes keep coming.
    entries: which messages share an entry: done messages of an entry that was cut off may be delivered again. Empty: as
        the history shows it.
    """

    repeat_before_end_s: float = 2.0
    zombie_slack_s: float = 0.05
    orphan_s: float | None = None
    begin: Mapping[Place, int] = field(default_factory=dict)
    end: Mapping[Place, int] = field(default_factory=dict)
    drain_s: float | None = None
    reset_to_end: bool = True
    told_late_s: float = 0.05
    troubles: Sequence[Trouble] = ()
    unstorable: Sequence[Trouble] = ()
    commits_fenced: bool = True
    blind_spots: Sequence[Trouble] = ()
    blind_s: float = math.inf
    reborn: frozenset[str] = frozenset()
    by_hand: frozenset[str] = frozenset()
    unfenced: frozenset[str] = frozenset()
    disputed: frozenset[Place] = frozenset()
    requests_a_second: int = 1_000_000
    requests_in_ten_s: int = 10_000_000
    requests_a_connection: int = 0
    calm_ns: int = 0
    settle_s: float = 0.0
    unclaimed_s: float | None = None
    settle_max_s: float = 1.0
    entries: Entries = field(default_factory=Entries)

    def for_history(self, events: Iterable[Event]) -> Limits:
        """Return them with the entries of a history, unless they have some."""
        return replace(self, entries=Entries.of_history(events)) if self.entries.is_empty else self


@dataclass(frozen=True)
class Finding:
    """One violation: `check` is its kind, `events` prove it."""

    check: str
    sentence: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        proof = "".join(f"\n    {event}" for event in self.events)
        return f"{self.check}: {self.sentence}{proof}"


def was_troubled(member: str, begin_ns: int, end_ns: int, limits: Limits) -> bool:
    """Whether one of the troubles of a member reaches into a time."""
    return any(
        each.concerns(member) and each.begin_ns <= end_ns and each.end_ns >= begin_ns for each in limits.troubles
    )


def node_of(place: Place) -> Place:
    """The partition as its nodes name it: a topic that was created again keeps those of its earlier incarnation."""
    return place[0].partition("~")[0], place[1]


def name_of(place: Place) -> str:
    """A partition in a sentence."""
    return f"{place[0]}/{place[1]}"
