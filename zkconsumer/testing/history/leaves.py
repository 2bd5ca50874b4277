"""Checks of leaves: each ended within its time-out, and reported correctly which positions were stored. Pure.

Each check returns findings, as those of `zkconsumer.testing.history.checks` do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from zkconsumer.testing.history.events import Event, Place
from zkconsumer.testing.history.limits import NS, Finding, name_of, node_of

PAUSED: Final = "paused"
"""The `id` of a leave whose process was stopped meanwhile: it cannot keep its time."""
_SPARE_NS: Final = NS // 2
_DRIFT: Final = 1.001
"""By how much the clock of the process may be slow."""


def check_leaves(events: Sequence[Event]) -> list[Finding]:
    """The findings of both checks."""
    return [*find_late_leaves(events), *find_false_stores(events)]


def find_late_leaves(events: Sequence[Event]) -> list[Finding]:
    """Leaves that took longer than their time-out and half a second, or did not come to an end.

    The id of a `leaving` event is the time-out in seconds.
    """
    began: dict[str, Event] = {}
    findings = []
    for event in events:
        if event.kind == "leaving" and event.id:
            began.setdefault(event.member, event)
        elif event.kind in ("left", "killed") and event.member in began:
            start = began.pop(event.member)
            took_ns = event.time_ns - start.time_ns
            if event.kind == "left" and event.id != PAUSED and took_ns > _limit_ns(start):
                sentence = f"{event.member} had {start.id} s to leave, and took {took_ns / NS:.3f} s"
                findings.append(Finding("left late", sentence, (start, event)))
    return findings


def _limit_ns(start: Event) -> float:
    return float(start.id) * NS * _DRIFT + _SPARE_NS


def find_false_stores(events: Sequence[Event]) -> list[Finding]:
    """Positions that a leave did not report as not stored, and that were never seen in ZooKeeper.

    A higher offset counts as well, but not one of an earlier incarnation of the topic: starting there skips messages.
    """
    highest: dict[Place, int] = defaultdict(lambda: -1)
    values: dict[Place, set[int]] = defaultdict(set)
    findings = []
    for event in events:
        if event.kind == "offset_node":
            highest[event.place] = max(highest[event.place], event.offset)
            values[node_of(event.place)].add(event.offset)
        elif event.kind == "said_stored" and highest[event.place] < event.offset:
            if event.offset in values[node_of(event.place)]:
                continue
            sentence = (f"{event.member} left as if {event.offset} of {name_of(event.place)} was stored, and the most "
                        f"that ever was is {highest[event.place]}")
            findings.append(Finding("false store", sentence, (event,)))
    return findings
