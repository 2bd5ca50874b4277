"""Checks for zombies: members that deliver or commit what they do not own, or no longer own. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from zkconsumer.testing.history.events import Event, Place
from zkconsumer.testing.history.limits import NS, OPERATOR, Finding, Limits, name_of, node_of

__all__ = ["find_zombies"]

_OWN_ACTS = ("released", "closed")
"""A member that deletes its owner node itself has stopped before."""


def find_zombies(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries and commits by a member whose owner node had been gone for longer than the slack, or never was there.

    Whether it never was there is known only where claims are in the history.
    """
    findings = []
    gone: dict[tuple[str, Place], Event] = {}
    claimed: set[tuple[str, Place]] = set()
    are_claims_seen = any(event.kind == "claimed" for event in events)
    for event in events:
        key = (event.member, node_of(event.place))
        if event.kind == "owner_gone":
            gone.setdefault(key, event)
        elif event.kind == "claimed":
            claimed.add(key)
            gone.pop(key, None)
        elif event.kind == "assigned" and key in gone and not gone[key].id:
            gone.pop(key, None)
        elif event.kind in ("deliver", "commit") and event.member not in limits.unfenced:
            what = "delivered" if event.kind == "deliver" else "committed"
            if key in gone:
                late_s = (event.time_ns - gone[key].time_ns) / NS
                if not _may_be_late(event, gone[key], late_s, limits):
                    when = f"{late_s:.3f} s after its owner node was gone"
                    findings.append(Finding("zombie", f"{event.member} {what} {name_of(event.place)} {when}",
                                            (gone[key], event)))
            elif are_claims_seen and key not in claimed:
                sentence = f"{event.member} {what} {name_of(event.place)} and has never claimed it"
                findings.append(Finding("zombie", sentence, (event,)))
    return findings


def _may_be_late(event: Event, gone: Event, late_s: float, limits: Limits) -> bool:
    """Whether a delivery or commit after the end of the owner node is within what is promised."""
    if gone.id in _OWN_ACTS:
        # Without a fence a commit that was on its way may still arrive.
        return event.kind == "commit" and not limits.commits_fenced and late_s <= limits.zombie_slack_s
    is_taken = gone.id == OPERATOR or gone.id in limits.unfenced
    if is_taken and _could_not_know(event, gone, limits):
        return True  # its session lives
    if event.kind == "commit" and limits.commits_fenced:
        # The fence is the registration: in a living session commits succeed until the member learns of the deletion.
        return late_s <= (limits.told_late_s if is_taken else 0.0 if gone.id else limits.zombie_slack_s)
    if late_s <= (limits.told_late_s if is_taken or gone.id == "ended" else limits.zombie_slack_s):
        return True
    is_blind = any(each.begin_ns <= event.time_ns <= each.end_ns for each in limits.blind_spots)
    return is_blind and late_s <= limits.blind_s


def _could_not_know(event: Event, gone: Event, limits: Limits) -> bool:
    """Whether a fault kept the member from learning of its owner node's end until shortly before."""
    told_late_ns = int(limits.told_late_s * NS)
    return any(each.concerns(event.member) and each.begin_ns <= event.time_ns
               and each.end_ns >= max(gone.time_ns, event.time_ns - told_late_ns) for each in limits.troubles)
