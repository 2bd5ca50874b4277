"""Verdicts on zombies: members that deliver or commit what they do not own, or no longer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from zkconsumer.testing.history.events import Event, Place
from zkconsumer.testing.history.limits import NS, OPERATOR, Finding, Limits, name_of, node_of

__all__ = ["find_zombies"]

_OWN_ACTS = ("released", "closed")
"""Who gives an owner node back himself has stopped before."""


def find_zombies(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Deliveries and commits by a member whose owner node had been gone for longer than the slack, or never was there.

    Whether it never was there is known only where somebody sees claims.
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
        return False
    is_robbed = gone.id == OPERATOR or gone.id in limits.unfenced
    if is_robbed and _could_not_hear(event, gone, limits):
        return True  # its session lives
    if event.kind == "commit":
        # The fence is the registration: with a living session commits land until the member hears of the deletion.
        return late_s <= (limits.told_late_s if is_robbed else 0.0 if gone.id else limits.zombie_slack_s)
    if late_s <= (limits.told_late_s if is_robbed or gone.id == "ended" else limits.zombie_slack_s):
        return True
    is_blind = any(each.begin_ns <= event.time_ns <= each.end_ns for each in limits.blind_spots)
    return is_blind and late_s <= limits.blind_s


def _could_not_hear(event: Event, gone: Event, limits: Limits) -> bool:
    """Whether a trouble kept the news of the end of its owner node from the member until shortly before."""
    told_late_ns = int(limits.told_late_s * NS)
    return any(each.concerns(event.member) and each.begin_ns <= event.time_ns
               and each.end_ns >= max(gone.time_ns, event.time_ns - told_late_ns) for each in limits.troubles)
