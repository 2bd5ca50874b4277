"""Verdicts on a group's nodes: who should own what, who touched what is another's, and how much was asked. Pure.

Each check returns findings, as those of `zkconsumer.testing.history_checks` do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalance.errors import UnequalSubscriptions, UnreadableNode, UnsupportedFilter
from rebalance.snapshot import GroupSnapshot, Strategy, TopicNode, assign
from rebalance.subscription import Subscription
from rebalance.znodes import parse_registration
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history_checks import HAND, Finding, Limits

__all__ = ["find_touched", "find_wrong_owners", "rightful_owners"]


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
