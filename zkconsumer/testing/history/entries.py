"""Which messages of a history share one entry of a log, as those of compressed entries do in Kafka 0.7. Pure.

In Kafka 0.7 positions count bytes, and all messages of an entry share one. So in a history, `acked`, `deliver` and
`done` carry the position of the entry plus the number of the message in it, from 0 on. No other message has the same
sum as long as an entry takes more bytes than it has messages. Commits and all other events carry positions.

A history shows its entries: messages whose offsets follow each other without a gap are of one entry (`of_history`).
A simulation writes the logs, and adds each entry with its end (`add`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from zkconsumer.testing.history.events import Event, Place

_LEAST_BYTES: Final = 9
"""Of an entry of Kafka 0.7: a length, a magic byte 0, a CRC, and no payload."""
_NO_END: Final = 2**63 - 1
"""The end of the last entry of a log that a history shows: somewhere behind its messages."""


class Entry(NamedTuple):
    """One entry of a log.

    Attributes:
        first, last: offsets of its first and last message in the history.
        end: the position behind it. A history shows none: there it is the start of the next entry that is known.
    """

    first: int
    last: int
    end: int


class Entries:
    """The entries of all logs. What was not added is one message, and one offset, as in Kafka 0.8."""

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
        behind = self._entries[place][-1].end if place in self._entries else start
        if not 0 < messages <= end - start or start < behind:
            raise ValueError(f"entry of {place} from {start} to {end}, behind {behind}: {messages} messages")
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
        """Where the next message is to be looked for: behind the entry if this is its last message."""
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
        """How many messages lie before a position: in Kafka 0.7 those that are known, else as many as it says."""
        if place not in self._entries:
            return position
        at = self._below(place, position)
        if at < 0:
            return 0
        entry = self._entries[place][at]
        return self._before[place][at] + min(position, entry.last + 1) - entry.first
