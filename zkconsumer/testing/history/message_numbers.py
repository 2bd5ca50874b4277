"""Histories of Kafka 0.7 with messages counted one by one, as offsets count them in later generations. Pure.

In Kafka 0.7 positions count bytes, so the message behind one at position p is not at p + 1, as the checks of histories
take it to be. Here each message gets its number in its partition, and a position gets the number of the message that
starts there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

from zkconsumer.testing.history.events import Event, Place

__all__ = ["by_message_number"]


def by_message_number(events: Iterable[Event]) -> list[Event]:
    """Return the events with message numbers for offsets, where a partition is of Kafka 0.7, named `broker-partition`.

    Numbers count the messages that were acknowledged or delivered, so a history is converted as a whole. A message is
    known by the position of its entry plus its number in the entry, as `load` and the members of the kit record it.
    """
    history = list(events)
    known: dict[Place, set[int]] = {}
    for event in history:
        if isinstance(event.partition, str) and event.kind in ("acked", "deliver"):
            known.setdefault(event.place, set()).add(event.offset)
    starts = {place: sorted(offsets) for place, offsets in known.items()}
    return [
        replace(event, offset=bisect_left(starts.get(event.place, []), event.offset))
        if isinstance(event.partition, str) and event.offset >= 0
        else event
        for event in history
    ]
