"""The group as read at one moment, and the assignment that follows from it for one member.

Pure: it takes subscriptions, partitions and member names and returns an assignment. Data that cannot be read or
translated appears in a warning, and does no harm: a member whose registration is unreadable subscribes to nothing. A
filter that cannot be translated, and a registration that may not be read, could concern every topic: held partitions
stay, and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rebalance.errors import RefusedNode, UnequalSubscriptions
from rebalance.subscription import (
    Assignment,
    Partition,
    Subscription,
    assign_range,
    assign_roundrobin,
    hash_collisions,
    thread_ids,
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a group assigns its partitions; every member must use the same.

    Attributes:
        name: "range" or "roundrobin".
        roundrobin_order: "0.8" (Java 0.8.2 to 0.11), "1.0" (Java 1.0 and 1.1), or "auto", see
            `rebalance.zookeeper.roundrobin_order`.
        exclude_internal_topics: whether filters leave `__consumer_offsets` out.
    """

    name: str = "range"
    roundrobin_order: str = "0.8"
    exclude_internal_topics: bool = True


@dataclass(frozen=True, slots=True)
class TopicNode:
    """`/brokers/topics/<topic>`: its partitions, and the zxid of its creation, which identifies its incarnation.

    In Kafka 0.7, whose topics have no incarnation, that is 0.
    """

    partitions: tuple[int | str, ...]
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class OwnerNode:
    """An owner node: the thread that owns the partition, and the zxid at which it was created."""

    thread_id: str
    czxid: int


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """Members, topics and brokers' partitions as read at one moment.

    Attributes:
        members: consumer id -> subscription.
        topics: topic -> node, of the topics this member may get partitions of; a missing topic is not in it.
        known_topics: all topic names, `None` when no filter needs them.
        unreadable: consumer id -> why its registration cannot be read.
        untranslatable: consumer id -> why its filter cannot be applied by this member.
        group_version: zxid of the last join or leave, the same for every member that sees the same list.
        refused_members: consumer id -> why its registration may not be read; it may subscribe to anything.
        refused_topics: topic -> why its node may not be read, of the topics this member may get partitions of.
        refused_members_list, refused_topics_list: why a list may not be read; its content is then an older one.
        created_ms: consumer id -> when it registered, by ZooKeeper's clock.
        java_members: members whose registration was written once, at version 0, as Java does and this client does not.
        owners: partition -> owner node, of the topics of this member; `None` when they were not read, or one of them
            may not be read.
    """

    members: Mapping[str, Subscription]
    topics: Mapping[str, TopicNode]
    known_topics: frozenset[str] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    untranslatable: Mapping[str, str] = field(default_factory=dict)
    group_version: int = 0
    refused_members: Mapping[str, RefusedNode] = field(default_factory=dict)
    refused_topics: Mapping[str, RefusedNode] = field(default_factory=dict)
    refused_members_list: RefusedNode | None = None
    refused_topics_list: RefusedNode | None = None
    created_ms: Mapping[str, int] = field(default_factory=dict)
    java_members: frozenset[str] = frozenset()
    owners: Mapping[Partition, OwnerNode] | None = None

    def lacks(self, consumer_id: str) -> bool:
        """Whether the member has no registration, or one that somebody has overwritten with something unreadable.

        One that may not be read may be correct, and so may one with a filter that cannot be translated.
        """
        known = (self.members, self.untranslatable, self.refused_members)
        return self.refused_members_list is None and not any(consumer_id in each for each in known)

    @property
    def refused(self) -> list[RefusedNode]:
        """The nodes that may not be read and could concern every topic."""
        lists = [each for each in (self.refused_members_list, self.refused_topics_list) if each is not None]
        return lists + [self.refused_members[name] for name in sorted(self.refused_members)]


def assign(snapshot: GroupSnapshot, consumer_id: str, subscription: Subscription, strategy: Strategy) -> Assignment:
    """The partitions that `consumer_id` should hold according to `snapshot`.

    Every member computes this from the same nodes and must come to the same table, Java members included.

    Source: kafka.consumer.PartitionAssignor, 0.8.2.2; docs/COMPATIBILITY.md.
    """
    warnings = [
        f"registration of {member} cannot be read and counts as an empty subscription: {reason}"
        for member, reason in snapshot.unreadable.items()
    ]
    warnings += [str(error) for error in snapshot.refused]
    warnings += [
        f"{snapshot.refused_topics[topic]}; this member keeps its partitions of topic {topic} and claims no "
        "others until that node can be read or is deleted"
        for topic in sorted(snapshot.refused_topics)
    ]
    unknown = snapshot.refused
    if strategy.name == "roundrobin":
        # It assigns all topics together.
        unknown = unknown + [snapshot.refused_topics[topic] for topic in sorted(snapshot.refused_topics)]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        return Assignment(
            {},
            {},
            "this member keeps its partitions and claims no others until "
            f"{unknown[0].path}{more} can be read or is deleted",
            tuple(warnings),
        )
    if snapshot.untranslatable:
        member, reason = next(iter(snapshot.untranslatable.items()))
        return Assignment(
            {},
            {},
            f"the filter of member {member} cannot be evaluated in Python ({reason}): this "
            "member claims nothing while that member is in the group",
            tuple(warnings),
        )
    topics = subscription.topics(snapshot.topics, strategy.exclude_internal_topics)
    partitions = {topic: snapshot.topics[topic].partitions for topic in topics if topic in snapshot.topics}
    if strategy.name == "roundrobin":
        return _roundrobin(snapshot, consumer_id, partitions, strategy, warnings)
    threads = {topic: _threads(snapshot, topic, strategy) for topic in partitions}
    assigned = _pick(assign_range(partitions, threads), consumer_id, warnings)
    return replace(assigned, frozen_topics=frozenset(snapshot.refused_topics))


def _threads(snapshot: GroupSnapshot, topic: str, strategy: Strategy) -> list[str]:
    threads: list[str] = []
    for member, subscription in snapshot.members.items():
        if subscription.matches(topic, strategy.exclude_internal_topics):
            threads.extend(thread_ids(member, subscription.streams_of(topic)))
    return threads


def _roundrobin(
    snapshot: GroupSnapshot,
    consumer_id: str,
    partitions: Mapping[str, tuple[int | str, ...]],
    strategy: Strategy,
    warnings: list[str],
) -> Assignment:
    # The precondition is over every topic that any member subscribes to, not over mine alone.
    known = snapshot.known_topics if snapshot.known_topics is not None else frozenset(snapshot.topics)
    all_topics: set[str] = set()
    for subscription in snapshot.members.values():
        all_topics.update(subscription.topics(known, strategy.exclude_internal_topics))
    threads = {topic: _threads(snapshot, topic, strategy) for topic in sorted(all_topics)}
    for first, second in hash_collisions(partitions, strategy.roundrobin_order):
        warnings.append(f"partitions {first} and {second} have the same hash: members may order them differently")
    try:
        assigned = assign_roundrobin(partitions, threads, strategy.roundrobin_order)
    except UnequalSubscriptions as error:
        return Assignment({}, {}, f"roundrobin is impossible in this group: {error}", tuple(warnings))
    return _pick(assigned, consumer_id, warnings)


def _pick(assigned: Mapping[Partition, str], consumer_id: str, warnings: list[str]) -> Assignment:
    prefix = consumer_id + "-"
    owners: dict[Partition, str] = dict(assigned.items())
    mine = {
        partition: thread
        for partition, thread in owners.items()
        if thread.startswith(prefix) and thread[len(prefix) :].isdigit()
    }
    return Assignment(mine, owners, None, tuple(warnings))
