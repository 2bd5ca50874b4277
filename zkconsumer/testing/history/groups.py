"""Checks of a group: rightful owners, changes to other members' nodes, Java members kept waiting, request rates.

Each check returns findings, as those of `zkconsumer.testing.history.checks` do.

Checks of leaves: each ended within its time-out, and reported correctly which positions were stored.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from rebalance.errors import UnequalSubscriptions, UnreadableNode, UnsupportedFilter
from rebalance.subscription import Subscription
from rebalance.zookeeper.snapshot import GroupSnapshot, Strategy, TopicNode, assign
from rebalance.zookeeper.znodes_07 import GENERATION_08, Generation
from zkconsumer.testing.history.claims import find_forbidden, find_hasty, find_stale, find_unclaimed
from zkconsumer.testing.history.events import Event, Place, in_order
from zkconsumer.testing.history.limits import NS, OPERATOR, Finding, Limits, name_of, node_of, was_troubled

_PATIENCE_NS: Final = 20 * NS
"""Longer than a Java member's tries take."""
_ATTEMPT_NS: Final = NS
"""Longer than the claims of one try take."""
_LET_GO_NS: Final = 4_500_000_000
"""A healthy member of ours learns of a change, waits for the message in hand, commits and releases within this time."""
_TEN_S: Final = 10


def rightful_owners(
    registrations: Mapping[str, bytes],
    topics: Mapping[str, Sequence[int | str]],
    strategy: Strategy,
    generation: Generation = GENERATION_08,
) -> dict[Place, str]:
    """(topic, partition) -> thread id, as the assignment rule says for these nodes.

    Registrations that cannot be read count as none.

    Raises:
        UnequalSubscriptions: roundrobin assigns nothing in this group.
    """
    members: dict[str, Subscription] = {}
    for name, data in registrations.items():
        try:
            members[name] = Subscription.from_registration(generation.parse_registration(data, f"ids/{name}"))
        except (UnreadableNode, UnsupportedFilter):
            continue
    nodes = {topic: TopicNode(tuple(partitions)) for topic, partitions in topics.items()}
    owners: dict[Place, str] = {}
    for name, subscription in members.items():
        mine = {topic: nodes[topic] for topic in subscription.topics(nodes) if topic in nodes}
        assignment = assign(GroupSnapshot(members, mine, frozenset(nodes)), name, subscription, strategy)
        if assignment.frozen is not None:
            raise UnequalSubscriptions({})
        owners.update(assignment.mine)
    return owners


def find_wrong_owners(owners: Mapping[Place, str], rightful: Mapping[Place, str]) -> list[Finding]:
    """Owner nodes that are missing, too many, or another's than the rule says.

    Args:
        owners: (topic, partition) -> data of the owner node.
        rightful: what the rule says, see `rightful_owners`.
    """
    findings = []
    for place in sorted(rightful.keys() | owners.keys(), key=str):
        should, does = rightful.get(place), owners.get(place)
        if should != does:
            sentence = f"{place[0]}/{place[1]} is owned by {does or 'no member'}, {should or 'no member'} should own it"
            findings.append(Finding("wrong owner", sentence))
    return findings


def find_touched(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Nodes of one member that another one deleted or wrote.

    A member that cannot know yet that an operator deleted its node may hit the next owner's: versions start at 0 again.
    """
    findings = []
    taken: dict[tuple[str, Place], Event] = {}
    for event in events:
        key = (event.member, event.place)
        if event.kind in ("owner_gone", "unregistered") and event.id == OPERATOR:
            taken[key] = event
        elif event.kind in ("claimed", "registered"):
            taken.pop(key, None)
        elif event.kind == "touched" and event.member not in limits.unfenced:
            if key in taken and event.offset >= 0 and _is_news(taken[key], event, limits):
                continue
            sentence = f"{event.member} wrote or deleted a node of {event.id or 'another'}"
            findings.append(Finding("foreign node touched", sentence, (event,)))
    return findings


def _is_news(taken: Event, event: Event, limits: Limits) -> bool:
    """Whether a member may not have learned by now that its owner node was deleted or replaced."""
    since_ns = event.time_ns - int(limits.told_late_s * NS)
    return taken.time_ns >= since_ns or was_troubled(event.member, since_ns, event.time_ns, limits)


def find_exhausted(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Java members that gave up because some of ours kept a partition from them at each of their tries.

    A member of ours that had a fault may be late; a healthy one releases within the tries of a Java one. It has as long
    again where the partition was its own once more in between: then it may have another message in hand.
    """
    findings = []
    holders: dict[Place, str] = {}
    due: dict[tuple[Place, str], str] = {}
    due_away_ns: dict[Place, int] = {}
    tries: dict[str, list[_Try]] = defaultdict(list)
    for event in events:
        if event.kind == "due":
            before = due.get((event.place, event.id), "")
            due[event.place, event.id] = event.member
            if before and before == holders.get(event.place):
                due_away_ns[event.place] = event.time_ns
        elif event.kind == "claimed":
            holders[event.place] = event.member
        elif event.kind == "killed":
            holders = {place: held for place, held in holders.items() if held != event.member}
        elif event.kind == "owner_gone" and holders.get(event.place) == event.member:
            del holders[event.place]
        elif event.kind == "blocked_try":
            tries[event.member].append(_Try(event, holders.get(event.place, ""), due_away_ns.get(event.place, 0)))
        elif event.kind == "gave_up":
            own = [each for each in tries.pop(event.member, []) if event.time_ns - each.event.time_ns < _PATIENCE_NS]
            findings += _kept_away(event, own, limits)
    return findings


class _Try(NamedTuple):
    """A claim of a Java member that failed.

    Attributes:
        holder: the member that held the partition then; "": none.
        due_away_ns: when the partition last ceased to be its holder's by the assignment rule; 0: never.
    """

    event: Event
    holder: str
    due_away_ns: int


def _kept_away(gave_up: Event, tries: Sequence[_Try], limits: Limits) -> list[Finding]:
    """Return findings if members of ours made a Java member give up.

    Args:
        tries: claims of it that failed.
    """
    if gave_up.id or not tries:
        return []  # an exception ended its last try
    last_ns = tries[-1].event.time_ns
    findings = []
    for place in dict.fromkeys(each.event.place for each in tries if last_ns - each.event.time_ns < _ATTEMPT_NS):
        ours = _kept_by_ours([each for each in tries if each.event.place == place], limits)
        if not ours or last_ns - ours[-1].event.time_ns < _LET_GO_NS:
            continue
        concerned = {gave_up.member, *(each.holder for each in ours)}
        if any(was_troubled(member, last_ns - _LET_GO_NS, last_ns, limits) for member in concerned):
            continue
        sentence = f"{gave_up.member} gave up, and {ours[0].holder} kept {name_of(place)} from it all the time"
        findings.append(Finding("java retries exhausted", sentence, (ours[-1].event, gave_up)))
    return findings


def _kept_by_ours(tries: Sequence[_Try], limits: Limits) -> list[_Try]:
    """The tries at one partition, the newest first, back to the first that members of ours have to answer for."""
    since_ns = tries[-1].due_away_ns
    return list(
        takewhile(
            lambda each: each.holder and each.holder not in limits.unfenced and each.event.time_ns >= since_ns,
            reversed(tries),
        )
    )


def find_busy(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Members that asked ZooKeeper for more, within a second or within ten, than anything explains."""
    findings = []
    counts: dict[tuple[str, str], deque[Event]] = defaultdict(deque)
    connections = {(each.member, each.time_ns): each.offset for each in events if each.kind == "connected"}
    told: set[tuple[str, str]] = set()

    def again(event: Event) -> int:
        return limits.requests_a_connection * max(0, connections.get((event.member, event.time_ns), 0) - 1)

    for event in events:
        if event.kind != "requests":
            continue
        if event.offset > limits.requests_a_second + again(event):
            sentence = f"{event.member} sent {event.offset} {event.id} within a second"
            findings.append(Finding("too many requests", sentence, (event,)))
        key = (event.member, event.id)
        window = counts[key]
        window.append(event)
        while event.time_ns - window[0].time_ns >= _TEN_S * NS:
            window.popleft()
        total = sum(each.offset for each in window)
        if total > limits.requests_in_ten_s + sum(map(again, window)) and key not in told:
            told.add(key)
            sentence = f"{event.member} sent {total} {event.id} within {_TEN_S} seconds"
            findings.append(Finding("too many requests", sentence, (window[0], event)))
    return findings


def find_unpaired(events: Sequence[Event], limits: Limits) -> list[Finding]:
    """Partitions that were assigned twice in a row, revoked or lost without an assignment, or taken without a callback.

    A topic that was created again has another name in the history, and the same one for the listener.
    """
    findings = []
    told: dict[tuple[str, Place], Event] = {}
    untold: dict[tuple[str, Place], Event] = {}
    for event in events:
        key = (event.member, node_of(event.place))
        if event.kind == "assigned":
            if key in told:
                sentence = f"{event.member} was assigned {name_of(event.place)} twice"
                findings.append(Finding("unpaired", sentence, (told[key], event)))
            told[key] = event
        elif event.kind in ("revoked", "lost"):
            untold.pop(key, None)
            if told.pop(key, None) is None:
                sentence = f"{event.member} was called for {name_of(event.place)} as {event.kind}, and did not have it"
                findings.append(Finding("unpaired", sentence, (event,)))
        elif event.kind == "owner_gone" and event.id in ("released", "closed") and key in told:
            untold[key] = event
        elif event.kind == "killed":
            # It had no time to call the listener for what it had just released, or was in the middle of the call.
            just_ns = event.time_ns - int(limits.told_late_s * NS)
            for each in [each for each in told if each[0] == event.member]:
                gone = untold.get(each, event)
                if gone.time_ns >= just_ns or was_troubled(event.member, gone.time_ns, event.time_ns, limits):
                    untold.pop(each, None)
                    told.pop(each)
    for (member, place), gone in untold.items():
        sentence = f"{member} gave {name_of(place)} back without a callback"
        findings.append(Finding("unpaired", sentence, (told[member, place], gone)))
    return findings


def check_group(events: Iterable[Event], limits: Limits | None = None) -> list[Finding]:
    """The findings of all checks of a simulation's history, beyond `check_history`."""
    ordered = in_order(events)
    chosen = limits or Limits()
    found = [
        finding
        for check in (find_touched, find_exhausted, find_busy, find_unpaired)
        for finding in check(ordered, chosen)
    ]
    certain = [each for each in ordered if each.kind != "due" or not (each.id or each.place in chosen.disputed)]
    claims = (find_hasty, find_stale, find_unclaimed, find_forbidden)
    return found + [finding for check in claims for finding in check(certain, chosen)]


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
            sentence = (
                f"{event.member} left as if {event.offset} of {name_of(event.place)} was stored, and the most "
                f"that ever was is {highest[event.place]}"
            )
            findings.append(Finding("false store", sentence, (event,)))
    return findings
