"""Verdicts on a group: who should own what, who touched what is another's, who kept whom waiting, who asked much. Pure.

Each check returns findings, as those of `zkconsumer.testing.history_checks` do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rebalance.errors import UnequalSubscriptions, UnreadableNode, UnsupportedFilter
from rebalance.snapshot import GroupSnapshot, Strategy, TopicNode, assign
from rebalance.subscription import Subscription
from rebalance.znodes import parse_registration
from zkconsumer.testing.claim_checks import find_hasty, find_stale, find_unclaimed
from zkconsumer.testing.history import Event, Place, in_order
from zkconsumer.testing.history_limits import HAND, NS, Finding, Limits, name_of
from zkconsumer.testing.history_repeats import was_troubled

__all__ = [
    "check_group", "find_busy", "find_exhausted", "find_touched", "find_unpaired", "find_wrong_owners",
    "rightful_owners",
]  # fmt: skip

_PATIENCE_NS: Final = 20 * NS
"""Longer than a Java member's tries take."""


def rightful_owners(
    registrations: Mapping[str, bytes], topics: Mapping[str, Sequence[int]], strategy: Strategy
) -> dict[Place, str]:
    """(topic, partition) -> thread id, as the assignment rule says for these nodes.

    Registrations that cannot be read count as none.

    Raises:
        UnequalSubscriptions: roundrobin deals nothing in this group.
    """
    members: dict[str, Subscription] = {}
    for name, data in registrations.items():
        try:
            members[name] = Subscription.from_registration(parse_registration(data, f"ids/{name}"))
        except (UnreadableNode, UnsupportedFilter):
            continue
    nodes = {topic: TopicNode(tuple(partitions)) for topic, partitions in topics.items()}
    owners: dict[Place, str] = {}
    for name, subscription in members.items():
        mine = {topic: nodes[topic] for topic in subscription.topics(nodes) if topic in nodes}
        assignment = assign(GroupSnapshot(members, mine, frozenset(nodes)), name, subscription, strategy)
        if assignment.frozen is not None:
            raise UnequalSubscriptions({})
        owners.update({(topic, int(number)): thread for (topic, number), thread in assignment.mine.items()})
    return owners


def find_wrong_owners(owners: Mapping[Place, str], rightful: Mapping[Place, str]) -> list[Finding]:
    """Owner nodes that are missing, too many, or another's than the rule says.

    Args:
        owners: (topic, partition) -> data of the owner node.
        rightful: what the rule says, see `rightful_owners`.
    """
    findings = []
    for place in sorted(rightful.keys() | owners.keys()):
        should, does = rightful.get(place), owners.get(place)
        if should != does:
            sentence = f"{place[0]}/{place[1]} is owned by {does or 'nobody'}, {should or 'nobody'} should own it"
            findings.append(Finding("wrong owner", sentence))
    return findings


def find_touched(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Nodes of one member that another one deleted or wrote.

    Who had the node and does not know yet that a hand deleted it may hit the next one's: versions begin at 0 again.
    """
    findings = []
    robbed: set[tuple[str, Place]] = set()
    for event in events:
        key = (event.member, event.place)
        if event.kind == "owner_gone" and event.id == HAND:
            robbed.add(key)
        elif event.kind == "claimed":
            robbed.discard(key)
        elif event.kind == "touched" and event.member not in limits.unfenced:
            if key in robbed and event.offset >= 0:
                continue
            sentence = f"{event.member} wrote or deleted a node of {event.id or 'somebody'}"
            findings.append(Finding("foreign node touched", sentence, (event,)))
    return findings


def find_exhausted(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Java members that gave up because one of ours kept a partition from them through all their tries.

    A member of ours that something was wrong with may be late; a healthy one lets go within the patience of a Java one.
    """
    findings = []
    holders: dict[Place, tuple[str, int]] = {}
    tries: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "claimed":
            holders[event.place] = (event.member, event.time_ns)
        elif event.kind == "killed":
            holders = {place: held for place, held in holders.items() if held[0] != event.member}
        elif event.kind == "owner_gone" and holders.get(event.place, ("", 0))[0] == event.member:
            del holders[event.place]
        elif event.kind == "blocked_try":
            tries[event.member].append(event)
        elif event.kind == "gave_up":
            own = [each for each in tries.pop(event.member, []) if event.time_ns - each.time_ns < _PATIENCE_NS]
            for place in dict.fromkeys(each.place for each in own):
                first = next(each for each in own if each.place == place)
                holder, since_ns = holders.get(place, ("", event.time_ns))
                concerned = [member for member in (holder, event.member)
                             if was_troubled(member, first.time_ns, event.time_ns, limits)]
                if holder and holder not in limits.unfenced and since_ns < first.time_ns and not concerned:
                    sentence = f"{event.member} gave up, and {holder} kept {name_of(place)} from it all the time"
                    findings.append(Finding("java retries exhausted", sentence, (first, event)))
    return findings


def find_busy(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Members that asked ZooKeeper for more within a second than anything explains."""
    return [
        Finding("too many requests", f"{event.member} sent {event.offset} {event.id} within a second", (event,))
        for event in events
        if event.kind == "requests" and event.offset > limits.requests_a_second
    ]


def find_unpaired(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Partitions that a listener was told to have twice, or to have lost without having had them.

    A topic that was created anew is begun once more without a word.
    """
    findings = []
    told: dict[tuple[str, Place], Event] = {}
    for event in events:
        key = (event.member, event.place)
        if event.kind == "assigned":
            if key in told and event.topic not in limits.reborn:
                sentence = f"{event.member} was assigned {name_of(event.place)} twice"
                findings.append(Finding("unpaired", sentence, (told[key], event)))
            told[key] = event
        elif event.kind in ("revoked", "lost"):
            had = told.pop(key, None)
            if had is None and event.topic not in limits.reborn:
                sentence = f"{event.member} was told that {name_of(event.place)} is {event.kind}, and did not have it"
                findings.append(Finding("unpaired", sentence, (event,)))
    return findings


def check_group(events: Iterable[Event], limits: Limits | None = None) -> list[Finding]:
    """The findings of all checks of a history that a simulation wrote down, beyond `check_history`."""
    ordered = in_order(events)
    chosen = limits or Limits()
    checks = (find_touched, find_exhausted, find_busy, find_unpaired, find_hasty, find_stale,
              find_unclaimed)
    return [finding for check in checks for finding in check(ordered, chosen)]
