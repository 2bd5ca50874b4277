"""Moves byte positions of Kafka 0.7 to the starts of entries before they are stored as offsets.

A broker of Kafka 0.7 serves any position, and what comes from the middle of an entry are bytes and no messages. So a
position that an operator names is looked up in the log: from the start of its segment on, from entry to entry.

Rules, and which failure each prevents:
- A position within an entry becomes the start of that entry, and a note names both: its messages are delivered again,
  and none is lost.
- What cannot be looked up is refused, and nothing is stored. The walk has a deadline and reads a limited number of
  bytes.

Threads: One at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.dialect_types import PositionIs
from simpleconsumer.errors import BrokenFraming, BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, FetchRequest, TopicPartition
from zkconsumer.cluster.cluster import Cluster

__all__ = ["entry_starts", "moved_note"]

_DEADLINE_S: Final = 60.0
_ANSWER_S: Final = 10.0
_FETCH_BYTES: Final = 4 * 1024 * 1024
_MOST_SEGMENTS: Final = 100_000
_MOST_WALKED_BYTES: Final = 2 * 1024**3
"""Two segments of the default size."""
_SIZE_BYTES: Final = 4
_MOST_TRIES: Final = 3
_CLIENT_ID: Final = "zkconsumer-admin"


def moved_note(name: TopicPartition, position: int, start: int) -> str:
    """Return what is said of a position that was moved, a sentence."""
    return f"{name.topic}-{name.partition}: position {position} is within an entry; set to the entry's start, {start}"


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
    by_broker: dict[Broker, list[TopicPartition]] = {}
    for name, broker in leaders.items():
        by_broker.setdefault(broker, []).append(name)
    for broker, names in by_broker.items():
        consumer = SimpleConsumer(broker.host, broker.port, _ANSWER_S, _CLIENT_ID, dialect=dialect_of(broker))
        with consumer:
            for name in names:
                found[name] = _entry_start(consumer, name, positions[name], deadline)
    return found


def _entry_start(consumer: SimpleConsumer, name: TopicPartition, position: int, deadline: float) -> int | str:
    """Return the start of the entry that a position is in, or why it is not known, a clause."""
    if time.monotonic() > deadline:
        return "there was no time left to look for the start of its entry"
    try:
        [(code, starts)] = consumer.multi_offsets_before([name], LATEST, _MOST_SEGMENTS)
        below = [start for start in starts if start <= position]
        if code or not below:
            return f"the log has no position {position}"
        return _walk(consumer, name, max(below), position, deadline)
    except SimpleConsumerError as error:
        return f"the start of its entry is not known ({error})"


def _walk(
    consumer: SimpleConsumer, name: TopicPartition, start: int, position: int, deadline: float
) -> int | str:
    at, tries = start, 0
    while at < position:
        if time.monotonic() > deadline or at - start > _MOST_WALKED_BYTES:
            return f"the start of its entry was not found from {start}, where its segment starts, to {at}"
        wanted = FetchRequest(name.topic, name.partition, at, min(_FETCH_BYTES, position - at + _SIZE_BYTES))
        [answer] = consumer.multifetch([wanted], max_wait_ms=0)
        if answer.error_code:
            raise BrokerError(answer.error_code, name.topic, name.partition, at)
        try:
            found = consumer.dialect.find_boundary(answer.message_set, at, position)
        except BrokenFraming as error:
            return f"the start of its entry is not known (in the log from position {at} on: {error})"
        if found.position_is is not PositionIs.UNKNOWN:
            return found.start
        tries = 0 if found.start > at else tries + 1
        if tries == _MOST_TRIES:
            return f"the log ends at {at}, before position {position}"
        at = found.start
    return position
