"""Finds stored byte positions of Kafka 0.7 at which no entry starts, for reports.

Rules, and which failure each prevents:
- The first entry at each position is read, as a member reads it: its size, its magic and its CRC show whether it is
  one. So a position that is right costs one entry, and not the log from the start of its segment on.
- Only for a position where no entry seems to start is the entry around it searched, and only where the caller wants
  it: that may read a whole segment.
- Brokers are asked within a deadline and a number of bytes. Positions that were not examined by then are not called
  wrong.

Threads: One at a time.

Moves byte positions of Kafka 0.7 to the starts of entries before they are stored as offsets.

A broker of Kafka 0.7 serves any position, and from the middle of an entry it sends bytes and no messages. So a
position that an operator names is looked up in the log (`time_search`).

Rules, and which failure each prevents:
- A position within an entry becomes the start of that entry, and a note names both: its messages are delivered again,
  and none is lost.
- What cannot be looked up is refused, and nothing is stored.

Threads: One at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect_types import FetchResult, Outcome, PositionIs
from simpleconsumer.errors import BrokenFraming, SimpleConsumerError
from simpleconsumer.types import Broker, FetchedPartition, FetchRequest, TopicPartition
from zkconsumer.admin.groups.group_state import EntryFault, FaultIs
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.log_ends import in_requests
from zkconsumer.cluster.time_search import MOST_BYTES, SearchLimits, connect, find_entry

_DEADLINE_S: Final = 60.0


def moved_note(name: TopicPartition, position: int, start: int) -> str:
    """Return what is said of a position that was moved, a sentence."""
    return f"{name.topic}-{name.partition}: position {position} is inside an entry; set to the entry's start, {start}"


def of_brokers(leaders: Mapping[TopicPartition, Broker]) -> dict[Broker, list[TopicPartition]]:
    """Return the partitions of each broker."""
    found: dict[Broker, list[TopicPartition]] = {}
    for name, broker in leaders.items():
        found.setdefault(broker, []).append(name)
    return found


def entry_starts(
    cluster: Cluster, positions: Mapping[TopicPartition, int], deadline_s: float = _DEADLINE_S
) -> dict[TopicPartition, int | str]:
    """Return the starts of the entries that positions are in; of partitions of Kafka 0.8 the offsets as given.

    Args:
        cluster: Whose brokers are asked.
        positions: Partition -> position within the bounds of its log.
        deadline_s: Longest wait for all of them together, in seconds.

    Returns:
        Partition -> where its entry starts, or why that is not known, a clause.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    found: dict[TopicPartition, int | str] = dict(positions)
    of_07 = [name for name in positions if isinstance(name.partition, str)]
    if not of_07:
        return found
    deadline = time.monotonic() + deadline_s
    leaders = cluster.leaders(of_07)
    found.update(cluster.why_unled([name for name in of_07 if name not in leaders]))
    for broker, names in of_brokers(leaders).items():
        with connect(broker) as consumer:
            for name in names:
                entry = find_entry(consumer, name, positions[name], SearchLimits(deadline))
                found[name] = entry if isinstance(entry, str) else entry.start
    return found


_LOOK_BYTES: Final = 4096
"""How much of each partition the first request asks for: the size of its entry, and most entries whole."""
_MOST_TRIES: Final = 8
_OUT_OF_RANGE: Final = 1


class Thoroughness(NamedTuple):
    """How much is read to find out what is at a position.

    Attributes:
        deadline_s: Longest time for all positions together, in seconds.
        most_bytes: How many bytes of logs are read at most, for all positions together.
        largest_entry_bytes: Larger entries are not read whole.
        searches: Whether the entry around a position is searched where none seems to start.
    """

    deadline_s: float
    most_bytes: int
    largest_entry_bytes: int
    searches: bool


GLANCE: Final = Thoroughness(5.0, 64 * 1024**2, 1024**2, searches=False)
"""For reports that show a group: nothing is searched."""
THOROUGH: Final = Thoroughness(60.0, MOST_BYTES, 64 * 1024**2, searches=True)
"""For a verification."""


def find_entry_faults(
    cluster: Cluster, positions: Mapping[TopicPartition, int], how: Thoroughness
) -> dict[TopicPartition, EntryFault]:
    """Return what is wrong at the positions at which no sound entry starts; partitions of Kafka 0.8 have none.

    Args:
        cluster: Whose brokers are asked.
        positions: Partition -> position before the end of its log.
        how: How much is read.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    of_07 = [name for name in positions if isinstance(name.partition, str)]
    if not of_07:
        return {}
    limits = SearchLimits(time.monotonic() + how.deadline_s, how.most_bytes)
    found: dict[TopicPartition, EntryFault] = {}
    for broker, names in of_brokers(cluster.leaders(of_07)).items():
        with connect(broker) as consumer:
            found.update(_Look(consumer, positions, how, limits).at(names))
    return found


class _Look:
    """Looks at positions in the logs of one broker."""

    def __init__(
        self,
        consumer: SimpleConsumer,
        positions: Mapping[TopicPartition, int],
        how: Thoroughness,
        limits: SearchLimits,
    ) -> None:
        self._consumer = consumer
        self._positions = positions
        self._how = how
        self._limits = limits

    def at(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, EntryFault]:
        """Return what is wrong at the positions of these partitions, all of the broker of the connection."""
        found: dict[TopicPartition, EntryFault] = {}
        for some in in_requests(names):
            try:
                if self._limits.are_reached:
                    found.update(dict.fromkeys(some, _not_looked_at(_NO_TIME)))
                    continue
                answers = self._fetch(some, _LOOK_BYTES)
            except SimpleConsumerError as error:
                found.update(dict.fromkeys(some, _not_looked_at(str(error))))
                continue
            for name, answer in zip(some, answers, strict=True):
                fault = self._fault(name, answer)
                if fault is not None:
                    found[name] = fault
        return found

    def _fetch(self, names: Sequence[TopicPartition], size_bytes: int) -> Sequence[FetchedPartition]:
        wanted = [FetchRequest(*name, self._positions[name], size_bytes) for name in names]
        answers = self._consumer.multifetch(wanted, max_wait_ms=0)
        self._limits.add(sum(len(answer.message_set) for answer in answers))
        return answers

    def _fault(self, name: TopicPartition, answer: FetchedPartition) -> EntryFault | None:
        """Return what is wrong at the position of a partition, None if a sound entry, or nothing yet, is there."""
        size_bytes = _LOOK_BYTES
        try:
            for _ in range(_MOST_TRIES):
                result = self._classify(name, answer, size_bytes)
                if result.outcome is not Outcome.GROW:
                    return self._of_result(name, answer, result)
                if self._limits.are_reached:
                    return _not_looked_at(_NO_TIME)
                size_bytes = result.size_bytes
                [answer] = self._fetch([name], size_bytes)
        except SimpleConsumerError as error:
            return _not_looked_at(str(error))
        return _not_looked_at(f"the broker did not send the whole entry there in {_MOST_TRIES} attempts")

    def _classify(self, name: TopicPartition, answer: FetchedPartition, asked_bytes: int) -> FetchResult:
        largest = max(asked_bytes, self._how.largest_entry_bytes)
        return self._consumer.dialect.classify(answer, self._positions[name], asked_bytes, largest)

    def _of_result(self, name: TopicPartition, answer: FetchedPartition, result: FetchResult) -> EntryFault | None:
        if answer.error_code == _OUT_OF_RANGE:
            return EntryFault(FaultIs.OUT_OF_LOG, "its log no longer has that position")
        if answer.error_code or result.outcome is Outcome.TOO_LARGE:
            # Of an entry that is too large to be read only the place can be checked.
            is_searched = self._how.searches and not answer.error_code
            return self._search(name, answer, None) if is_searched else _not_looked_at(result.reason)
        reason: str | None = None
        if result.outcome is Outcome.CHUNK:
            reason = self._consumer.dialect.first_entry_fault(answer.message_set)
        elif result.outcome is Outcome.BROKEN:
            reason = result.reason
        if reason is None:
            return None
        return self._search(name, answer, reason) if self._how.searches else EntryFault(FaultIs.NO_ENTRY, reason)

    def _search(self, name: TopicPartition, answer: FetchedPartition, reason: str | None) -> EntryFault | None:
        """Return what the entry around a position says about it.

        Args:
            reason: Why none seems to start there; None if one seems to.
        """
        position = self._positions[name]
        entry = find_entry(self._consumer, name, position, self._limits)
        if isinstance(entry, str):
            return _not_looked_at(entry) if reason is None else EntryFault(FaultIs.NO_ENTRY, f"{reason}; {entry}")
        if entry.position_is is PositionIs.INSIDE:
            return EntryFault(FaultIs.WITHIN, reason or "its bytes look like a large entry", entry.start, entry.end)
        if reason is None:
            return None
        try:
            end = self._consumer.dialect.find_boundary(answer.message_set, position, position + 1).end
        except BrokenFraming:
            end = -1
        return EntryFault(FaultIs.DAMAGED, reason, end=end)


_NO_TIME: Final = "there was no time left to check"


def _not_looked_at(reason: str) -> EntryFault:
    return EntryFault(FaultIs.NOT_LOOKED_AT, reason)
