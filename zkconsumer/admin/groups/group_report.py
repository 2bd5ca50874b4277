"""Reports a group from its nodes in ZooKeeper: members, owners, offsets, lag, and problems. Rules, as Kafka's own
check tool breaks them (KAFKA-3952):
- A partition is orphaned when some member subscribes to its topic and nobody owns it.
- An owner is good when it is one of the thread ids that the registered members have on that topic.
- A node that cannot be read is reported, and its content counts as unknown rather than wrong.

Pure.

Source: kafka.tools.VerifyConsumerRebalance, ConsumerOffsetChecker (0.8.2.2).

Computes how each strategy would assign a group's partitions, and which of the strategies the owners follow. No node in
ZooKeeper says which `partition.assignment.strategy` a member uses, so it is concluded from what the members own. As
long as all members use one strategy, each of them computes the same assignment.

Source: kafka.consumer.PartitionAssignor (0.8.2.2, 1.1.1).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rebalance.errors import UnequalSubscriptions, UnreadableNode, UnsupportedFilter
from rebalance.subscription import (
    INTERNAL_TOPICS,
    Subscription,
    assign_range,
    assign_roundrobin,
    consumer_id_of,
    hash_collisions,
    thread_ids,
)
from rebalance.zookeeper import znodes
from zkconsumer.admin.groups.group_state import EntryFault, FaultIs, GroupNodes, Name
from zkconsumer.admin.values import JsonValue, partition_number

OWNER_HIDDEN = "its owner is not known: ZooKeeper does not let this client read it"
"""The problem of a partition whose owner node, if there is one, may not be read."""
OFFSET_HIDDEN = "its offset in ZooKeeper is not known: ZooKeeper does not let this client read it"
"""The problem of a partition whose offset node, if there is one, may not be read."""


@dataclass(frozen=True)
class MemberRow:
    """A registered consumer.

    Attributes:
        pattern: `static`, `white_list` or `black_list`; None when the registration cannot be read.
        subscription: Topic, or filter, -> number of streams.
        problem: Why it cannot be understood, a clause.
    """

    consumer_id: str
    pattern: str | None
    subscription: dict[str, int]
    problem: str | None = None


@dataclass(frozen=True)
class PartitionRow:
    """A partition that the group owns, has offsets of, or subscribes to; None stands for nothing or unknown.

    Attributes:
        partition: Its number; a text if the name of its node is none.
        offset: The stored offset, the next one to be read, of the store in which the owner works; the larger one if the
            stores differ and that store is not known; None also while it is not known whether Kafka has another one.
        log_end: The offset that the next message will get.
        lag: `log_end - offset`; None if one of them is not known, and if the offset is beyond the end.
        owner: The content of its owner node: a thread id; None also if that node may not be read (`owner_is_hidden`).
        problems: The problems, a clause each.
        offset_in_zookeeper: The offset that is stored in ZooKeeper.
        offset_in_kafka: The offset that is stored in Kafka.
        storage: The store in which its owner seems to keep its offset, `zookeeper` or `kafka`.
    """

    topic: str
    partition: int | str
    offset: int | None
    log_end: int | None
    lag: int | None
    owner: str | None
    problems: tuple[str, ...] = ()
    offset_in_zookeeper: int | None = None
    offset_in_kafka: int | None = None
    storage: str | None = None

    @property
    def owner_is_hidden(self) -> bool:
        """True if the partition may have an owner that ZooKeeper does not let this client read."""
        return OWNER_HIDDEN in self.problems


@dataclass(frozen=True)
class StoreDifference:
    """Offsets that differ between ZooKeeper and Kafka.

    Attributes:
        sentence: How many partitions they are, with an example, and which offset counts.
        is_certain: It is known of all of them in which store the owner works.
    """

    sentence: str
    is_certain: bool


def store_difference(rows: Sequence[PartitionRow]) -> StoreDifference | None:
    """Return what differs between the stores, None if nothing does."""
    differing = [
        row for row in rows
        if None not in (row.offset_in_zookeeper, row.offset_in_kafka) and row.offset_in_zookeeper != row.offset_in_kafka
    ]  # fmt: skip
    if not differing:
        return None
    first, unclear = differing[0], sum(row.storage is None for row in differing)
    if not unclear:
        counts = "offset and lag are those of the store that the owner uses"
    elif unclear == len(differing):
        counts = "it is not known which store the group uses, so the larger offset counts"
    else:
        counts = f"for {unclear} of them it is not known which store the owner uses, so the larger offset counts"
    return StoreDifference(
        f"the stores differ for {len(differing)} of {len(rows)} partitions, first for {first.topic}-{first.partition}: "
        f"{first.offset_in_zookeeper} in ZooKeeper and {first.offset_in_kafka} in Kafka; {counts}",
        not unclear,
    )


@dataclass(frozen=True)
class GroupReport(JsonValue):
    """Members, partitions and lag of a group.

    Attributes:
        group: Its name.
        members: Registered consumers, by id; None if ZooKeeper does not let this client read who is registered.
        partitions: By topic and number.
        lag: Sum of the known lags; None if there are partitions and no lag is known.
        lag_unknown: Number of partitions whose lag is not known.
        problems: The problems, as sentences.
        lag_unit: The unit of offsets and lags: `messages`, or `bytes` in Kafka 0.7.
        coordination: `zookeeper`.
    """

    group: str
    members: tuple[MemberRow, ...] | None
    partitions: tuple[PartitionRow, ...]
    lag: int | None
    lag_unknown: int
    problems: tuple[str, ...]
    lag_unit: str = "messages"
    coordination: str = "zookeeper"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the stores of the offsets, as sentences."""
        notes = []
        difference = store_difference(self.partitions)
        if difference is not None and difference.is_certain:  # else it is among the problems
            notes.append(difference.sentence)
        for storage, name in (("kafka", "Kafka"), ("zookeeper", "ZooKeeper")):
            rows = [row for row in self.partitions if row.storage == storage]
            # That owners store in ZooKeeper goes without saying where nothing is in Kafka.
            if rows and any(row.offset_in_kafka is not None for row in self.partitions):
                notes.append(
                    f"owners seem to store the offsets of {len(rows)} of {len(self.partitions)} partitions in {name}, "
                    f"such as {rows[0].topic}-{rows[0].partition}"
                )
        return tuple(notes)


@dataclass(frozen=True)
class Members:
    """The members of a group and their subscriptions.

    Attributes:
        rows: All members, by id.
        subscriptions: Consumer id -> its subscription, of the members that can be understood.
        unclear: Consumer ids of the others.
    """

    rows: tuple[MemberRow, ...]
    subscriptions: Mapping[str, Subscription]
    unclear: frozenset[str]

    def threads(self, topic: str, exclude_internal_topics: bool = True) -> set[str]:
        """Return the thread ids that may own partitions of a topic."""
        return {
            thread
            for member, subscription in self.subscriptions.items()
            if subscription.matches(topic, exclude_internal_topics)
            for thread in thread_ids(member, subscription.streams_of(topic))
        }

    def thread_of(self, owner: str, threads: Container[str]) -> str:
        """Return the thread id for which the text of an owner node stands.

        kafka-node and other clients, whose members have one stream each, write the consumer id alone.

        Args:
            threads: The thread ids on the topic; a text that is one of them stands for itself.
        """
        is_member = owner in self.subscriptions or owner in self.unclear
        return f"{owner}-0" if is_member and owner not in threads else owner


def members_of(nodes: GroupNodes) -> Members:
    """Return the members, from their registrations."""
    rows: list[MemberRow] = []
    subscriptions: dict[str, Subscription] = {}
    for member, data in sorted(nodes.registrations.items()):
        refused = nodes.refused.get(znodes.registration_path(nodes.group, member))
        if refused is not None:
            rows.append(MemberRow(member, None, {}, f"registration cannot be read: {refused.fault.value}"))
            continue
        try:
            path = znodes.registration_path(nodes.group, member)
            registration = nodes.generation.parse_registration(data, path)
        except UnreadableNode as error:
            rows.append(MemberRow(member, None, {}, f"registration cannot be read: {error}"))
            continue
        problem = None
        try:
            subscriptions[member] = Subscription.from_registration(registration)
        except UnsupportedFilter as error:
            problem = f"its filter cannot be evaluated in Python: {error}"
        rows.append(MemberRow(member, registration.pattern, dict(registration.subscription), problem))
    return Members(tuple(rows), subscriptions, frozenset(row.consumer_id for row in rows if row.problem))


def concerned_topics(nodes: GroupNodes, members: Members | None = None) -> list[str]:
    """Return the topics that the group owns, has offsets of, or subscribes to.

    Args:
        members: Those of the nodes, if they are known already.
    """
    names = {topic for topic, _ in (*nodes.owners, *nodes.offsets, *nodes.kafka_offsets)} | nodes.kafka_topics
    for subscription in (members or members_of(nodes)).subscriptions.values():
        names.update(subscription.topics(nodes.known_topics))
    return sorted(names)


UNLED: Final = "brokers do not know the partition, because its topic is being deleted or never had a leader"


def unled_clause(names: Iterable[Name]) -> str | None:
    """Return why the offsets in Kafka of partitions are not known that the brokers do not know; None without any."""
    topics = sorted({topic for topic, _ in names})
    if not topics:
        return None
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    why = "because it is being deleted or never had a leader"
    return f"brokers do not know partitions of topic {topics[0]!r}{more}, {why}"


def unread(nodes: GroupNodes) -> list[str]:
    """Return what could not be read, as sentences."""
    sentences = [str(nodes.refused[path]) for path in sorted(nodes.refused)]
    # Also for a group with offsets in ZooKeeper: they may be leftovers, and those in Kafka would vanish without a word.
    if nodes.kafka_unknown is not None:
        sentences.append(
            f"the offsets in Kafka cannot be read: {nodes.kafka_unknown}; partitions whose offset is only in Kafka "
            "may be missing, and the lag of partitions whose owner has not stored an offset in ZooKeeper is not known"
        )
    return sentences


def report(nodes: GroupNodes, members: Members | None = None) -> GroupReport:
    """Return the report about the nodes.

    Args:
        members: Those of the nodes, if they are known already.
    """
    members = members or members_of(nodes)
    problems = unread(nodes)
    problems += [f"{row.consumer_id}: {row.problem}" for row in members.rows if row.problem]
    rows: list[PartitionRow] = []
    with_nodes: dict[str, set[str]] = {}
    for topic, name in (*nodes.owners, *nodes.offsets, *nodes.kafka_offsets):
        with_nodes.setdefault(topic, set()).add(name)
    for topic in concerned_topics(nodes, members):
        known = _known_partitions(nodes, topic, problems)
        threads = members.threads(topic)
        names = _in_order(with_nodes.get(topic, set()) | {str(number) for number in known or ()})
        rows.extend(_row(nodes, topic, name, known, threads, members) for name in names)
    difference = store_difference(rows)
    if difference is not None and not difference.is_certain:
        problems.append(difference.sentence)
    problems += [
        f"{row.topic}-{row.partition}: {problem}" for row in rows for problem in row.problems
        if problem not in (OWNER_HIDDEN, OFFSET_HIDDEN)  # `unread` has the node, once for all partitions
    ]  # fmt: skip
    lags = [row.lag for row in rows if row.lag is not None]
    shown = None if nodes.hides_members else members.rows
    total = None if rows and not lags else sum(lags)  # a 0 would look as if all was well
    return GroupReport(nodes.group, shown, tuple(rows), total, len(rows) - len(lags), tuple(problems), nodes.lag_unit)


def _known_partitions(nodes: GroupNodes, topic: str, problems: list[str]) -> frozenset[int | str] | None:
    """Return the partitions that the topic's node lists, None when they are not known."""
    data = nodes.topics.get(topic)
    if znodes.topic_path(topic) in nodes.refused:
        return None
    if topic not in nodes.known_topics:
        problems.append(f"{topic}: the topic does not exist")
        return frozenset()
    if topic in nodes.topics_07:
        found = nodes.topics_07[topic]
        problems += [f"{topic}: {problem}" for problem in found.problems]
        return frozenset(found.partitions)
    try:
        return _listed(topic, data)
    except UnreadableNode as error:
        problems.append(f"{topic}: {error}")
        return None


@lru_cache(maxsize=1024)
def _listed(topic: str, data: bytes | None) -> frozenset[int | str]:
    """Return the partitions that the node of a topic lists; hundreds of groups may read the same topic."""
    return frozenset(znodes.parse_topic(topic, data))


def _in_order(names: Set[str]) -> list[str]:
    """Return names of nodes, numbers first and by their values, whatever foreign clients have written."""
    numbers = {name: name.lstrip("0") for name in names if name.isascii() and name.isdigit()}
    in_order = sorted(numbers, key=lambda name: (len(numbers[name]), numbers[name], name))
    return in_order + sorted(names - numbers.keys())


def _row(
    nodes: GroupNodes, topic: str, name: str, known: frozenset[int | str] | None, threads: set[str], members: Members
) -> PartitionRow:
    problems: list[str] = []
    number = partition_number(name)
    partition = name if number is None else number
    exists = known is None or partition in known
    if not exists and topic in nodes.topics_07:
        problems.append(nodes.topics_07[topic].why_missing(name))
    elif not exists and known:
        problems.append("the partition does not exist")
    owner = _owner(nodes, topic, name, threads, members, problems)
    if owner is None and nodes.hides_owner(topic, name):
        problems.append(OWNER_HIDDEN)
    elif owner is None and exists and threads:
        problems.append("orphaned: a member subscribes to it, but no member owns it")
    in_zookeeper = _offset(nodes, topic, name, problems)
    if (topic, name) in nodes.kafka_unled:
        problems.append(f"its offset in Kafka cannot be read: {UNLED}; see zkconsumer topics {topic}")
    in_kafka = nodes.kafka_offsets.get((topic, name))
    offset = nodes.offset_that_counts((topic, name))
    end = nodes.log_ends.get((topic, name))
    if isinstance(end, str):
        problems.append(f"log end unknown: {end}")
        end = None
    lag = None if offset is None or end is None else end - offset
    if lag is not None and lag < 0:
        problems.append(f"the stored offset is {-lag}{nodes.counted_in} beyond the end of the log")
        lag = None
    if (topic, name) in nodes.entry_faults:
        problems.append(_wrong_position(nodes.group, offset, nodes.entry_faults[topic, name]))
    storage = nodes.storage_of((topic, name))
    return PartitionRow(topic, partition, offset, end, lag, owner, tuple(problems), in_zookeeper, in_kafka, storage)


def _wrong_position(group: str, offset: int | None, fault: EntryFault) -> str:
    """Return what is said of a stored position of Kafka 0.7 at which no entry starts, a clause."""
    if fault.fault_is is FaultIs.OUT_OF_LOG:
        return f"its log no longer has the stored offset {offset}: messages were deleted before they were read"
    return (f"no entry seems to start at the stored offset {offset} ({fault.reason}); "
            f"`zkconsumer verify {group}` searches for the entry around it")  # fmt: skip


def _owner(
    nodes: GroupNodes, topic: str, name: str, threads: set[str], members: Members, problems: list[str]
) -> str | None:
    if (topic, name) not in nodes.owners:
        return None
    data, session = nodes.owners[topic, name]
    owner = znodes.parse_owner(data)
    thread = members.thread_of(owner, threads)
    if thread not in threads and consumer_id_of(thread) not in members.unclear and not nodes.hides_members:
        problems.append(f"its owner {owner!r} is not a thread of a registered member on this topic")
    if not session:
        problems.append("its owner node is persistent: it stays until an operator deletes it")
    return owner


def _offset(nodes: GroupNodes, topic: str, name: str, problems: list[str]) -> int | None:
    if nodes.hides_offset(topic, name):
        problems.append(OFFSET_HIDDEN)
        return None
    if (topic, name) not in nodes.offsets:
        return None
    path = znodes.offset_path(nodes.group, topic, name)
    try:
        return znodes.parse_offset(path, nodes.offsets[topic, name])
    except UnreadableNode as error:
        problems.append(f"offset cannot be read: {error}")
        return None


STRATEGIES = ("range", "roundrobin", "roundrobin-1.0")
"""As `verify --strategy` takes them; `roundrobin-1.0` is the order of Java 1.0 and 1.1."""
_ORDERS = {"roundrobin": "0.8", "roundrobin-1.0": "1.0"}
ROUNDROBIN = frozenset(_ORDERS)
"""The strategies that differ in the order alone."""
Place = tuple[str, int | str]
"""Topic and partition."""


@dataclass(frozen=True)
class AssignmentPreview:
    """The assignment by one strategy.

    Attributes:
        strategy: One of `STRATEGIES`.
        threads: Partition -> thread id.
        undefined: Partitions whose hash another partition shares: Java leaves their order open.
    """

    strategy: str
    threads: Mapping[Place, str]
    undefined: frozenset[Place] = frozenset()

    def assigns(self, place: Place, thread: str) -> bool:
        """Return True if the partition may be the thread's."""
        return self.threads.get(place) == thread or place in self.undefined

    def differences(self, owners: Mapping[Place, str]) -> int:
        """Return the number of partitions that somebody else owns."""
        return sum(not self.assigns(place, thread) for place, thread in owners.items())


def previews(
    members: Members,
    known_topics: Sequence[str],
    partitions: Mapping[str, Sequence[int | str]],
    strategies: Iterable[str] = STRATEGIES,
) -> list[AssignmentPreview]:
    """Return what each strategy assigns; round robin is left out where the subscriptions do not allow it.

    Args:
        known_topics: All topics of the cluster.
        partitions: Topic -> its partitions, for the topics that can be read.
    """
    # Only where there are internal topics does it matter whether filters leave them out.
    excludes = [True, False] if INTERNAL_TOPICS.intersection(known_topics) else [True]
    found = []
    for exclude in excludes:
        topics: set[str] = set()
        for subscription in members.subscriptions.values():
            topics.update(subscription.topics(known_topics, exclude))
        threads = {topic: members.threads(topic, exclude) for topic in sorted(topics)}
        assigned = {topic: partitions[topic] for topic in threads if topic in partitions}
        found += [preview for name in strategies if (preview := _preview(name, assigned, threads)) is not None]
    return found


def _preview(
    strategy: str, partitions: Mapping[str, Sequence[int | str]], threads: Mapping[str, Iterable[str]]
) -> AssignmentPreview | None:
    if strategy == "range":
        return AssignmentPreview(strategy, assign_range(partitions, threads))
    order = _ORDERS[strategy]
    try:
        assigned = assign_roundrobin(partitions, threads, order)
    except UnequalSubscriptions:
        return None
    undefined = frozenset(place for group in hash_collisions(partitions, order) for place in group)
    return AssignmentPreview(strategy, assigned, undefined)


def most_followed(candidates: Sequence[AssignmentPreview], owners: Mapping[Place, str]) -> AssignmentPreview | None:
    """Return the assignment from which the owners differ least, the earlier one of equals; None of no candidates."""
    return min(candidates, key=lambda preview: preview.differences(owners), default=None)


def disagreement(candidates: Sequence[AssignmentPreview], owners: Mapping[Place, str]) -> dict[str, list[str]]:
    """Return the strategies of the members if each member follows one, but not all the same: consumer id -> strategies.

    Empty when the members may agree, and when some member owns what no strategy assigns to it.
    """
    owned: dict[str, list[tuple[Place, str]]] = {}
    for place, thread in owners.items():
        owned.setdefault(consumer_id_of(thread), []).append((place, thread))
    explained = {
        member: [number for number, preview in enumerate(candidates)
                 if all(preview.assigns(place, thread) for place, thread in held)]
        for member, held in sorted(owned.items())
    }  # fmt: skip
    if not explained or not all(explained.values()) or set.intersection(*map(set, explained.values())):
        return {}
    return {
        member: sorted({candidates[number].strategy for number in numbers}, key=STRATEGIES.index)
        for member, numbers in explained.items()
    }
