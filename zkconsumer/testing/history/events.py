"""Events of members, producers and watchers on one clock, and the ownerships that follow from them.

Every process of a host shares CLOCK_MONOTONIC (`time.monotonic_ns()` in Python, `System.nanoTime()` in Java), so the
events of all of them can be put in one order. A history is about one consumer group.

| kind | written by | fields other than time_ns and kind |
|---|---|---|
| acked | producer | topic, partition, offset, id |
| assigned | member | member, topic, partition, offset (its start position, -1 if unknown) |
| deliver | member | member, topic, partition, offset, id |
| done | member | member, topic, partition, offset: it asked for the next one; `id`: time_ns of the delivery, if known |
| commit | member | member, topic, partition, offset (the next one to read) |
| revoked | member | member, topic, partition: given up in order |
| lost | member | member, topic, partition: lease or session gone |
| killed | test | member: its process was killed |
| owner_gone | watcher | member, topic, partition: its owner node was deleted or replaced; `id`: by whom, if known |
| offset_node | watcher | topic, partition, offset: value seen in the offset node; `member`: who wrote it, if known |

In Kafka 0.7 positions count bytes, and messages of an entry share one: see `zkconsumer.testing.history.events`.

Only a simulation (`tests.simulator`) sees these:

| kind | written by | fields other than time_ns and kind |
|---|---|---|
| claimed | watcher | member, topic, partition: its owner node was created |
| registered | watcher | member: its registration was created |
| unregistered | watcher | member: its registration was deleted; `id`: by whom, as with owner_gone |
| touched | watcher | member, topic, partition, offset: it deleted or set another's node, at that version; `id`: whose |
| log_start | broker | topic, partition, offset: retention; messages below it are gone |
| reset | member | member, topic, partition, offset: its position was outside the log, it goes on there |
| connected | watcher | member, offset: how often within a second its session was connected again |
| requests | watcher | member, offset: so many requests to ZooKeeper within a second; `id`: reads or writes |
| blocked_try | member | member, topic, partition: a Java member's claim failed; `id`: who held the node |
| gave_up | member | member: a Java member's tries are exhausted |
| occupied, vacated | watcher | topic, partition: an owner node of no member was created, deleted |
| leaving | test | member: a test had it leave in order; `id`: within how many seconds, if that is to be checked |
| left | member | member: its `shutdown()` has returned |
| said_stored | member | member, topic, partition, offset: a position that its `shutdown()` did not name as not stored |
| due | watcher | member, topic, partition: by rule its own from now on; no member: nobody's; `id`: order, if not 0.8 |

Which messages of a history share one entry of a log, as those of compressed entries do in Kafka 0.7.

In Kafka 0.7 positions count bytes, and all messages of an entry share one. So in a history, `acked`, `deliver` and
`done` carry the position of the entry plus the number of the message in it, from 0 on. No other message has the same
sum as long as an entry takes more bytes than it has messages. Commits and all other events carry positions.

A history shows its entries: messages whose offsets follow each other without a gap are of one entry (`of_history`).
A simulation writes the logs, and adds each entry with its end (`add`).
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Final, NamedTuple

KINDS = frozenset(
    {
        "acked",
        "assigned",
        "deliver",
        "done",
        "commit",
        "revoked",
        "lost",
        "killed",
        "owner_gone",
        "offset_node",
        "claimed",
        "touched",
        "registered",
        "unregistered",
        "log_start",
        "reset",
        "connected",
        "requests",
        "blocked_try",
        "gave_up",
        "due",
        "occupied",
        "vacated",
        "leaving",
        "left",
        "said_stored",
    }
)
_OF_A_MEMBER = frozenset({"deliver", "done", "commit", "revoked", "lost", "owner_gone", "reset"})
_ENDS_OF_SESSIONS = frozenset({"ended", "expired"})
Place = tuple[str, int | str]
_WHOLE_BYTES: Final = 4096
"""A longer value is not its own `id`."""
_START_BYTES: Final = 64
_AS_TEXT: Final = [bytes([byte]).decode("ascii", "backslashreplace") for byte in range(256)]
"""By byte: several times as fast as the error handler, which is called for each byte."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; fields that do not apply keep their defaults."""

    time_ns: int
    kind: str
    member: str = ""
    topic: str = ""
    partition: int | str = -1
    offset: int = -1
    id: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"event kind {self.kind!r}: known are {', '.join(sorted(KINDS))}")

    @property
    def place(self) -> Place:
        """Its partition as `(topic, partition)`."""
        return self.topic, self.partition

    def __str__(self) -> str:
        where = f" {self.topic}/{self.partition}" if self.topic else ""
        at = f" offset {self.offset}" if self.offset >= 0 else ""
        return f"{self.time_ns / 1e9:.6f} {self.kind}{' ' + self.member if self.member else ''}{where}{at}"


def id_of(value: bytes | None) -> str:
    """The `id` of a message in a history: its value, escaped where it is not ASCII; nothing for a tombstone.

    Of a value of more than 4096 bytes it is the start, the size and a digest: a history is kept in memory and written
    to a file, and each byte that is not ASCII would be four characters there.
    """
    if value is None:
        return ""
    if len(value) > _WHOLE_BYTES:
        return f"{_escaped(value[:_START_BYTES])}... {len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"
    return _escaped(value)


def _escaped(value: bytes) -> str:
    return value.decode("ascii") if value.isascii() else "".join([_AS_TEXT[byte] for byte in value])


def partition_of(name: str) -> int | str:
    """The partition of a name: a number, or in Kafka 0.7 `broker-partition`."""
    return int(name) if name.isdigit() else name


_DEFAULTS = {each.name: each.default for each in fields(Event)}
_TYPES: dict[str, tuple[type, ...]] = {name: (type(default),) for name, default in _DEFAULTS.items()} | {
    "kind": (str,),
    "time_ns": (int,),
    "partition": (int, str),
}


def format_event(event: Event) -> str:
    """The event as one line of JSON, without the fields that have their default."""
    values = {name: value for name, value in asdict(event).items() if value != _DEFAULTS[name]}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=True)


def parse_event(line: str) -> Event:
    """The event in a line that `format_event` wrote.

    Raises:
        ValueError: no JSON object, an unknown field or kind, or a field of the wrong type.
    """
    values = json.loads(line)
    if not isinstance(values, dict) or not set(values) <= set(_DEFAULTS):
        raise ValueError(f"not an event: {line[:200]!r}")
    for name, value in values.items():
        wanted = _TYPES[name]
        if type(value) not in wanted:
            names = " or ".join(each.__name__ for each in wanted)
            raise ValueError(f"field {name} of an event is {value!r}, {names} is wanted")
    if not {"time_ns", "kind"} <= set(values):
        raise ValueError(f"an event needs time_ns and kind: {line[:200]!r}")
    return Event(**values)


def in_order(events: Iterable[Event]) -> list[Event]:
    """The events by time; those of the same nanosecond keep the order in which they were given."""
    return sorted(events, key=lambda event: event.time_ns)


@dataclass(slots=True)
class Ownership:
    """One member's time with one partition.

    `end` is the event that ended it (None: still going on); `explicit` is False when it was never announced, as with
    Java members, which write nothing but their deliveries.
    """

    member: str
    place: Place
    start_ns: int
    start_offset: int = -1
    explicit: bool = True
    end: Event | None = None
    deliveries: list[Event] = field(default_factory=list)
    commits: list[Event] = field(default_factory=list)
    done: list[Event] = field(default_factory=list)
    resets: list[Event] = field(default_factory=list)
    gone_ns: int | None = None
    gone_by: str = ""

    @property
    def graceful(self) -> bool:
        """True if the member gave the partition up in order, and deleted its owner node itself."""
        return self.end is not None and self.end.kind == "revoked" and self.gone_by in ("", "released", "closed")

    @property
    def is_stillborn(self) -> bool:
        """True if its owner node was gone when it was announced.

        The lease of a session that was ended from outside goes on for a while, and with it what the member does; what
        it delivers until then is left to `find_zombies`.
        """
        return self.gone_ns is not None and self.gone_ns <= self.start_ns

    @property
    def end_ns(self) -> int | None:
        """When it is over for other members: at its end, or when its owner node was gone before that."""
        ends = [at for at in (self.end.time_ns if self.end else None, self.gone_ns) if at is not None]
        return min(ends) if ends else None


def ownerships(events: Iterable[Event]) -> list[Ownership]:
    """All ownerships of a history, in the order of their starts.

    An unannounced one starts with a delivery and ends when that of a member with an owner node starts, or when its own
    deliveries step back.
    """
    found: list[Ownership] = []
    current: dict[tuple[str, Place], Ownership] = {}
    revoked: dict[tuple[str, Place], Ownership] = {}
    gone: dict[tuple[str, Place], Event] = {}
    for event in in_order(events):
        if event.kind == "owner_gone":
            gone[event.member, event.place] = event
            owned = revoked.pop((event.member, event.place), None)
            if owned is not None and (event.member, event.place) not in current:
                owned.gone_ns, owned.gone_by = event.time_ns, event.id
        elif event.kind == "claimed":
            gone.pop((event.member, event.place), None)
        elif event.kind == "revoked" and (event.member, event.place) in current:
            owned = current[event.member, event.place]
            if owned.gone_ns is None:  # else a later node of this member is not this ownership's
                revoked[event.member, event.place] = owned
        if event.kind == "killed":
            for owned in [each for each in current.values() if each.member == event.member]:
                _finish(current, owned, event)
        elif event.kind == "assigned":
            key = (event.member, event.place)
            revoked.pop(key, None)
            if key in current:
                _finish(current, current[key], event)
            _end_unannounced(current, event)
            current[key] = Ownership(event.member, event.place, event.time_ns, event.offset)
            found.append(current[key])
            _end_if_gone(current[key], gone)
        elif event.kind == "unregistered" and event.id in _ENDS_OF_SESSIONS:
            # A Java member goes on with an owner node that an earlier process of its name has left.
            for owned in current.values():
                if owned.member == event.member and not owned.explicit and owned.gone_ns is None:
                    owned.gone_ns, owned.gone_by = event.time_ns, event.id
        elif event.kind in _OF_A_MEMBER:
            for owned in _member_event(current, event, gone):
                _end_if_gone(owned, gone)
                found.append(owned)
    return found


def _end_if_gone(owned: Ownership, gone: dict[tuple[str, Place], Event]) -> None:
    """An owner node can be gone, and not be claimed again, before its ownership is announced.

    Only if claims are in the history, too: then it is known who deleted the node.
    """
    before = gone.get((owned.member, owned.place))
    if before is not None and before.id:
        owned.gone_ns, owned.gone_by = before.time_ns, before.id


def _member_event(
    current: dict[tuple[str, Place], Ownership], event: Event, gone: dict[tuple[str, Place], Event]
) -> Iterator[Ownership]:
    """Put an event into its ownership; yields the unannounced ownership that a delivery starts."""
    owned = current.get((event.member, event.place))
    if event.kind == "deliver":
        stepped_back = owned and not owned.explicit and owned.deliveries[-1].offset >= event.offset
        if owned is None or stepped_back:
            if owned:
                _finish(current, owned, event)
            before = gone.get((event.member, event.place))
            if before is None or not before.id:  # else a zombie, which takes nothing from the owner
                _end_unannounced(current, event)
            owned = Ownership(event.member, event.place, event.time_ns, explicit=False)
            current[event.member, event.place] = owned
            yield owned
        owned.deliveries.append(event)
    elif owned is None:
        return
    elif event.kind in ("revoked", "lost"):
        _finish(current, owned, event)
    elif event.kind == "commit":
        owned.commits.append(event)
    elif event.kind == "done":
        # It may be about a message that was delivered in an earlier ownership, perhaps to another thread.
        of_delivery = ("", *(str(each.time_ns) for each in owned.deliveries if each.offset == event.offset))
        if len(of_delivery) > 1 and event.id in of_delivery:
            owned.done.append(event)
    elif event.kind == "reset":
        owned.resets.append(event)
    elif event.kind == "owner_gone" and owned.gone_ns is None:
        owned.gone_ns, owned.gone_by = event.time_ns, event.id


def _finish(current: dict[tuple[str, Place], Ownership], owned: Ownership, event: Event) -> None:
    owned.end = event
    del current[owned.member, owned.place]


def _end_unannounced(current: dict[tuple[str, Place], Ownership], event: Event) -> None:
    for owned in [each for each in current.values() if each.place == event.place and not each.explicit]:
        if owned.member != event.member:
            _finish(current, owned, event)


_LEAST_BYTES: Final = 9
"""Of an entry of Kafka 0.7: a length, a magic byte 0, a CRC, and no payload."""
_NO_END: Final = 2**63 - 1
"""The end of the last entry of a log that a history shows: somewhere after its messages."""


class Entry(NamedTuple):
    """One entry of a log.

    Attributes:
        first, last: offsets of its first and last message in the history.
        end: the position after it. A history shows none: there it is the start of the next entry that is known.
    """

    first: int
    last: int
    end: int


class Entries:
    """The entries of all logs. An entry that was not added is one message, and one offset, as in Kafka 0.8."""

    def __init__(self) -> None:
        self._entries: dict[Place, list[Entry]] = {}
        self._starts: dict[Place, list[int]] = {}
        self._before: dict[Place, list[int]] = {}
        self._has_ends = True

    @classmethod
    def of_history(cls, events: Iterable[Event]) -> Entries:
        """Return the entries of the messages that were acknowledged or delivered, of partitions `broker-number`."""
        offsets: dict[Place, set[int]] = {}
        for event in events:
            if isinstance(event.partition, str) and event.kind in ("acked", "deliver"):
                offsets.setdefault(event.place, set()).add(event.offset)
        found = cls()
        found._has_ends = False
        for place, known in offsets.items():
            firsts = sorted(offset for offset in known if offset - 1 not in known)
            for first, end in pairwise((*firsts, _NO_END)):
                last = first
                while last + 1 in known:
                    last += 1
                found._append(place, Entry(first, last, end))
        return found

    def add(self, place: Place, start: int, messages: int, end: int) -> None:
        """Add the next entry of a log.

        Raises:
            ValueError: it takes fewer bytes than it has messages, so offsets would be those of the next one, too; or it
                starts before the end of the entry that was added last.
        """
        previous_end = self._entries[place][-1].end if place in self._entries else start
        if not 0 < messages <= end - start or start < previous_end:
            raise ValueError(f"entry of {place} from {start} to {end}, after {previous_end}: {messages} messages")
        self._append(place, Entry(start, start + messages - 1, end))

    def _append(self, place: Place, entry: Entry) -> None:
        entries = self._entries.setdefault(place, [])
        before = self._before.setdefault(place, [])
        before.append(before[-1] + entries[-1].last - entries[-1].first + 1 if entries else 0)
        entries.append(entry)
        self._starts.setdefault(place, []).append(entry.first)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._entries

    def _below(self, place: Place, position: int) -> int:
        """The number of the last entry that starts at a position or before it; -1 without one."""
        return bisect_right(self._starts.get(place, ()), position) - 1

    def of(self, place: Place, offset: int) -> Entry:
        """The entry of a message."""
        at = self._below(place, offset)
        if at >= 0 and offset <= self._entries[place][at].last:
            return self._entries[place][at]
        return Entry(offset, offset, offset + 1)

    def behind(self, place: Place, offset: int) -> int:
        """Where the next message is to be looked for: after the entry if this is its last message."""
        entry = self.of(place, offset)
        return entry.end if offset == entry.last else offset + 1

    def start_of(self, place: Place, position: int) -> int:
        """Where reading starts that is to start at a position: with the entry around it."""
        return self._entries[place][self._below(place, position)].first if self.is_inside(place, position) else position

    def is_inside(self, place: Place, position: int) -> bool:
        """Whether a position is within an entry, where nobody can start to read.

        Without the ends of entries: whether that is sure.
        """
        at = self._below(place, position)
        if at < 0:
            return False
        entry = self._entries[place][at]
        end = entry.end if self._has_ends else min(entry.end, max(entry.last + 1, entry.first + _LEAST_BYTES))
        return entry.first < position < end

    def number_of(self, place: Place, position: int) -> int:
        """How many messages lie before a position: in Kafka 0.7 the known ones, else as many as it says."""
        if place not in self._entries:
            return position
        at = self._below(place, position)
        if at < 0:
            return 0
        entry = self._entries[place][at]
        return self._before[place][at] + min(position, entry.last + 1) - entry.first
