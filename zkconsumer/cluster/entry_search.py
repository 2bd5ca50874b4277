"""Finds the entry of a log of Kafka 0.7 that a byte position is in, from the start of its segment on.

No byte of a log shows where an entry starts. So the segment's start is asked for, and the sizes of the entries are
walked through from there.

Rule: a search has a deadline and reads a limited number of bytes. What it says where it ends names how far it came.

Threads: One at a time.
"""

from __future__ import annotations

import time
from typing import Final

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.dialect_types import Boundary, PositionIs
from simpleconsumer.errors import BrokenFraming, BrokerError, SimpleConsumerError
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, FetchRequest, TopicPartition

__all__ = ["MOST_BYTES", "SearchLimits", "connect", "find_entry"]

MOST_BYTES: Final = 2 * 1024**3
"""How many bytes of logs a search reads at most: two segments of the default size."""
_ANSWER_S: Final = 10.0
_FETCH_BYTES: Final = 4 * 1024 * 1024
_MOST_SEGMENTS: Final = 100_000
_SIZE_BYTES: Final = 4
_MOST_TRIES: Final = 3


class SearchLimits:
    """What one or more searches may take together.

    Args:
        deadline: On the clock `time.monotonic`.
        most_bytes: How many bytes of logs they may read.
    """

    def __init__(self, deadline: float, most_bytes: int = MOST_BYTES) -> None:
        self._deadline = deadline
        self._left_bytes = most_bytes

    @property
    def are_reached(self) -> bool:
        """True if nothing more may be read."""
        return self._left_bytes <= 0 or time.monotonic() > self._deadline

    def add(self, count: int) -> None:
        """Count bytes that were read."""
        self._left_bytes -= count


def connect(
    broker: Broker, client_id: str = "zkconsumer-admin", *, security: Security | None = None
) -> SimpleConsumer:
    """Return a connection to a broker for searches in its logs."""
    dialect = dialect_of(broker)
    return SimpleConsumer(broker.host, broker.port, _ANSWER_S, client_id, dialect=dialect, security=security)


def find_entry(
    consumer: SimpleConsumer, name: TopicPartition, position: int, limits: SearchLimits
) -> Boundary | str:
    """Return whether a position is within an entry, and where that one starts; or why that is not known, a clause.

    Args:
        consumer: Connected to the broker of the partition.
        name: The partition.
        position: A position within the bounds of its log.
    """
    if limits.are_reached:
        return "there was no time left to search for the start of its entry"
    try:
        [(code, starts)] = consumer.multi_offsets_before([name], LATEST, _MOST_SEGMENTS)
        below = [start for start in starts if start <= position]
        if code or not below:
            return f"the log has no position {position}"
        return _walk(consumer, name, max(below), position, limits)
    except SimpleConsumerError as error:
        return f"the start of its entry is not known ({error})"


def _walk(
    consumer: SimpleConsumer, name: TopicPartition, start: int, position: int, limits: SearchLimits
) -> Boundary | str:
    at, tries = start, 0
    while at < position:
        if limits.are_reached:
            return f"the start of its entry was not found from {start}, where its segment starts, to {at}"
        wanted = FetchRequest(name.topic, name.partition, at, min(_FETCH_BYTES, position - at + _SIZE_BYTES))
        [answer] = consumer.multifetch([wanted], max_wait_ms=0)
        if answer.error_code:
            raise BrokerError(answer.error_code, name.topic, name.partition, at)
        limits.add(len(answer.message_set))
        try:
            found = consumer.dialect.find_boundary(answer.message_set, at, position)
        except BrokenFraming as error:
            return f"the start of its entry is not known (in the log from position {at} on: {error})"
        if found.position_is is not PositionIs.UNKNOWN:
            return found
        tries = 0 if found.start > at else tries + 1
        if tries == _MOST_TRIES:
            return f"the log ends at {at}, before position {position}"
        at = found.start
    return Boundary(PositionIs.BOUNDARY, position, position)
