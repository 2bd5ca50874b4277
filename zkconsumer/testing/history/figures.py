"""The figures of a history: delivered, lost, repeated, the longest time without progress. Pure.

`check_history` finds violations; these figures compare groups that may violate the promises, such as
Java's, with groups that may not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zkconsumer.testing.history.checks import find_orphans
from zkconsumer.testing.history.entries import Entries
from zkconsumer.testing.history.events import Event, Place, in_order
from zkconsumer.testing.history.limits import NS, Limits

__all__ = ["Figures", "figures_of"]


@dataclass(frozen=True)
class Figures:
    """A history in numbers.

    acked: messages that were acknowledged to their producer.
    lost: those of them that no member got.
    repeated: deliveries beyond the first of each message.
    repeated_by_same: those of them to the member that had got the message before.
    put_back: how far offset nodes fell, in messages, over all falls.
    longest_gap_s: longest time that some partition had messages to deliver and delivered none.
    gap_place: that partition.
    """

    acked: int
    lost: int
    repeated: int
    repeated_by_same: int
    put_back: int
    longest_gap_s: float
    gap_place: Place | None


def figures_of(events: Iterable[Event], since_ns: int = 0) -> Figures:
    """The figures of a history.

    Args:
        since_ns: gaps before that moment do not count.
    """
    ordered = in_order(events)
    acked = {(event.place, event.offset) for event in ordered if event.kind == "acked"}
    deliveries = [event for event in ordered if event.kind == "deliver"]
    times = Counter((event.place, event.offset) for event in deliveries)
    gap_s, place = _longest_gap(ordered, since_ns)
    return Figures(
        acked=len(acked),
        lost=len(acked - times.keys()),
        repeated=times.total() - len(times),
        repeated_by_same=_repeated_by_same(deliveries),
        put_back=_put_back(ordered),
        longest_gap_s=gap_s,
        gap_place=place,
    )


def _repeated_by_same(deliveries: Iterable[Event]) -> int:
    last: dict[tuple[Place, int], str] = {}
    count = 0
    for event in deliveries:
        key = (event.place, event.offset)
        count += last.get(key) == event.member
        last[key] = event.member
    return count


def _put_back(events: Sequence[Event]) -> int:
    entries = Entries.of_history(events)
    last: dict[Place, int] = {}
    total = 0
    for event in events:
        if event.kind == "offset_node" and event.offset >= 0:
            number = entries.number_of(event.place, event.offset)
            total += max(0, last.get(event.place, 0) - number)
            last[event.place] = number
    return total


def _longest_gap(events: list[Event], since_ns: int) -> tuple[float, Place | None]:
    longest: tuple[float, Place | None] = (0.0, None)
    for finding in find_orphans(events, Limits(orphan_s=0.0, calm_ns=since_ns)):
        start, end = finding.events
        still_s = (end.time_ns - max(start.time_ns, since_ns)) / NS
        if still_s > longest[0]:
            longest = (still_s, start.place)
    return longest
