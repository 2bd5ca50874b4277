"""Moves byte positions of Kafka 0.7 to the starts of entries before they are stored as offsets.

A broker of Kafka 0.7 serves any position, and what comes from the middle of an entry are bytes and no messages. So a
position that an operator names is looked up in the log (`entry_search`).

Rules, and which failure each prevents:
- A position within an entry becomes the start of that entry, and a note names both: its messages are delivered again,
  and none is lost.
- What cannot be looked up is refused, and nothing is stored.

Threads: One at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.entry_search import SearchLimits, connect, find_entry

__all__ = ["entry_starts", "moved_note", "of_brokers"]

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
