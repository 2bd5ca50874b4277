"""Finds the offsets at which a simulated group started with partitions; it may skip what lies before them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.limits import NS, OPERATOR, node_of

__all__ = ["find_start_positions"]


def find_start_positions(history: Iterable[Event], created_s: Mapping[Place, float]) -> dict[Place, int]:
    """Where the group started with partitions whose first owner joined after they were created.

    Without a stored offset, or with one that an operator has made unreadable, that owner starts where
    `auto.offset.reset` says. It cannot know an earlier incarnation of the topic, and goes on from the offset that was
    stored for that one, also where a commit of that incarnation came late. Its first position may be stored after an
    operator has deleted its owner node: the next owner then starts there. Where the application commits, so does the
    same member, because the position is not stored before it is read from.

    Args:
        history: in order.
        created_s: when partitions were created.
    """
    starts: dict[Place, int] = {}
    stored: set[Place] = set()
    unreadable: set[Place] = set()
    found_none: set[tuple[str, Place]] = set()
    taken_away: set[tuple[str, Place]] = set()
    there_since: dict[str, int] = {}
    reached: dict[tuple[str, Place], int] = {}
    assigned: dict[tuple[str, Place], Event] = {}
    for event in history:
        key = (event.member, event.place)
        claim = (event.member, node_of(event.place))  # stays when the topic is created again meanwhile
        if event.kind in ("deliver", "assigned", "reset"):
            reached[key] = event.offset + (event.kind == "deliver")
        elif event.kind == "commit" and "~" in event.place[0] and event.offset > reached.get(key, event.offset):
            continue  # of an earlier incarnation of the topic, and under way when that one ended
        if event.kind == "offset_node" and event.id == OPERATOR and event.offset < 0:
            stored.discard(event.place)
            unreadable.add(event.place)
        elif event.kind == "claimed" and event.place not in stored:
            found_none.add(claim)
        elif event.kind == "deliver":
            found_none.discard(claim)
            taken_away.discard(key)
            reported = assigned.get(claim)
            is_first = reported is not None and reported.place != event.place and reported.offset == event.offset
            if is_first and there_since[event.member] > created_s.get(event.place, float("inf")) * NS:
                # It came after the deletion, and got its start offset just before there was a log.
                starts[event.place] = max(starts.get(event.place, 0), event.offset)
        elif event.kind == "owner_gone":
            if claim in found_none and event.id == OPERATOR:
                taken_away.add(key)
            found_none.discard(claim)
        elif event.kind in ("assigned", "commit"):
            # Without a stored offset the first position is committed before it is reported as assigned.
            since_ns = there_since.get(event.member, event.time_ns)
            was_here = since_ns <= created_s.get(event.place, float("inf")) * NS
            is_late = key in taken_away and event.place not in stored
            if (claim in found_none or is_late) and (event.place in unreadable or not was_here):
                starts[event.place] = max(starts.get(event.place, 0), event.offset)
            if event.kind == "assigned":
                assigned[claim] = event
                there_since[event.member] = since_ns
                if event.place not in stored or claim not in found_none:
                    continue
            taken_away.discard(key)
            stored.add(event.place)
    return starts
