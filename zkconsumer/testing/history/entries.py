"""Which messages of a history share one entry of a log, as those of compressed entries do in Kafka 0.7. Pure.

In Kafka 0.7 positions count bytes, and all messages of an entry share one. In a history, `acked`, `deliver` and `done`
carry the position of the entry plus the number of the message in it, which no other message has as long as an entry
takes more bytes than it has messages. Commits and all others carry positions.
"""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.testing.history.events import Place

__all__ = ["Entries", "Entry"]


class Entry(NamedTuple):
    """One entry of a log.

    Attributes:
        first, last: offsets of its first and last message in the history.
        end: the position behind it.
    """

    first: int
    last: int
    end: int


class Entries:
    """The entries of all logs. What was not added is one message, and one offset, as in Kafka 0.8."""

    def __init__(self) -> None:
        self._by_offset: dict[tuple[Place, int], Entry] = {}
        self._boundaries: dict[Place, set[int]] = {}

    def add(self, place: Place, start: int, messages: int, end: int) -> None:
        """Add an entry.

        Raises:
            ValueError: it takes fewer bytes than it has messages, so offsets would be those of the next one, too.
        """
        if not 0 < messages <= end - start:
            raise ValueError(f"entry of {place} from {start} to {end}: {messages} messages")
        entry = Entry(start, start + messages - 1, end)
        for number in range(messages):
            self._by_offset[place, start + number] = entry
        self._boundaries.setdefault(place, set()).update((start, end))

    def of(self, place: Place, offset: int) -> Entry:
        """The entry of a message."""
        return self._by_offset.get((place, offset)) or Entry(offset, offset, offset + 1)

    def behind(self, place: Place, offset: int) -> int:
        """Where the next message is to be looked for: behind the entry if this is its last message."""
        entry = self.of(place, offset)
        return entry.end if offset == entry.last else offset + 1

    def start_of(self, place: Place, position: int) -> int:
        """Where reading starts that is to start at a position: with the entry around it."""
        if not self.is_inside(place, position):
            return position
        return max(each for each in self._boundaries[place] if each < position)

    def is_inside(self, place: Place, position: int) -> bool:
        """Whether a position is within an entry, where nobody can start to read."""
        boundaries = self._boundaries.get(place)
        return boundaries is not None and position not in boundaries and min(boundaries) < position < max(boundaries)
