"""Where a simulated group began with partitions: what lies before was never promised to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.limits import NS, OPERATOR, node_of

__all__ = ["find_start_positions"]


def find_start_positions(history: Iterable[Event], created_s: Mapping[Place, float]) -> dict[Place, int]:
    """Where the group began with partitions that somebody took who was not there when they came.

    Without a stored offset, or with one that a hand has spoilt, he begins where `auto.offset.reset` says. Of a topic's
    earlier life he cannot know, and goes on from its stored offset, also where a commit of that life came late. His
    first position may be stored when a hand has taken the partition from him already: whoever comes then begins there.
    So he does himself, where the application commits: then it is not stored before it is read from.

    Args:
        history: in order.
        created_s: when partitions came.
    """
    begins: dict[Place, int] = {}
    stored: set[Place] = set()
    spoilt: set[Place] = set()
    found_none: set[tuple[str, Place]] = set()
    taken_away: set[tuple[str, Place]] = set()
    there_since: dict[str, int] = {}
    reached: dict[tuple[str, Place], int] = {}
    assigned: dict[tuple[str, Place], Event] = {}
    for event in history:
        key = (event.member, event.place)
        claim = (event.member, node_of(event.place))  # which stays when the topic is created anew under it
        if event.kind in ("deliver", "assigned", "reset"):
            reached[key] = event.offset + (event.kind == "deliver")
        elif event.kind == "commit" and "~" in event.place[0] and event.offset > reached.get(key, event.offset):
            continue  # of an earlier life of the topic, and under way when that ended
        if event.kind == "offset_node" and event.id == OPERATOR and event.offset < 0:
            stored.discard(event.place)
            spoilt.add(event.place)
        elif event.kind == "claimed" and event.place not in stored:
            found_none.add(claim)
        elif event.kind == "deliver":
            found_none.discard(claim)
            taken_away.discard(key)
            told = assigned.get(claim)
            is_first = told is not None and told.place != event.place and told.offset == event.offset
            if is_first and there_since[event.member] > created_s.get(event.place, float("inf")) * NS:
                # He came behind the deletion, and was told where to begin just before there was a log.
                begins[event.place] = max(begins.get(event.place, 0), event.offset)
        elif event.kind == "owner_gone":
            if claim in found_none and event.id == OPERATOR:
                taken_away.add(key)
            found_none.discard(claim)
        elif event.kind in ("assigned", "commit"):
            # Without a stored offset the first position is committed before it is told.
            since_ns = there_since.get(event.member, event.time_ns)
            was_here = since_ns <= created_s.get(event.place, float("inf")) * NS
            is_late = key in taken_away and event.place not in stored
            if (claim in found_none or is_late) and (event.place in spoilt or not was_here):
                begins[event.place] = max(begins.get(event.place, 0), event.offset)
            if event.kind == "assigned":
                assigned[claim] = event
                there_since[event.member] = since_ns
                if event.place not in stored or claim not in found_none:
                    continue
            taken_away.discard(key)
            stored.add(event.place)
    return begins
