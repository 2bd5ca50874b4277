"""Reports a group from its nodes in ZooKeeper: members, owners, offsets, lag, and what is wrong.

Pure. Rules, as Kafka's own check tool breaks them (KAFKA-3952):
- A partition is orphaned when some member subscribes to its topic and nobody owns it.
- An owner is good when it is one of the thread ids that the registered members have on that topic.
- A node that cannot be read is reported, and what it holds counts as unknown rather than wrong.
- Where ZooKeeper and Kafka have different offsets of a partition, the one counts with which the owner works, and the
  larger one if that is not known: a group that moved to Kafka leaves its old offsets in ZooKeeper.
- While the offsets in Kafka cannot be read, an offset in ZooKeeper may be such a leftover, and the lag is unknown.

Source: kafka.tools.VerifyConsumerRebalance, ConsumerOffsetChecker (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from rebalance import znodes
from rebalance.errors import RefusedNode, UnreadableNode, UnsupportedFilter
from rebalance.generation import GENERATION_08, Generation
from rebalance.subscription import Subscription, consumer_id_of, thread_ids
from rebalance.znodes_07 import is_partition
from zkconsumer.admin.values import JsonValue, partition_number
from zkconsumer.cluster.topic_of_07 import Topic07

__all__ = [
    "OFFSET_HIDDEN", "OWNER_HIDDEN", "GroupNodes", "GroupReport", "MemberRow", "Members", "Name", "PartitionRow",
    "StoreDifference", "concerned_topics", "members_of", "report", "store_difference", "unled_clause", "unread",
]  # fmt: skip

Name = tuple[str, str]
"""Topic, and the name of a partition's node."""

OWNER_HIDDEN = "its owner is not known: ZooKeeper does not let us read it"
"""The problem of a partition whose owner node, if there is one, may not be read."""

OFFSET_HIDDEN = "its offset in ZooKeeper is not known: ZooKeeper does not let us read it"
"""The problem of a partition whose offset node, if there is one, may not be read."""


@dataclass(frozen=True)
class GroupNodes:
    """The nodes that were read.

    Attributes:
        registrations: Consumer id -> data.
        owners: (topic, partition's name) -> (data, session that holds the node, 0 for a persistent node).
        offsets: (topic, partition's name) -> data.
        known_topics: All topics of the cluster.
        topics: Topic -> data of its node, None without one; of `concerned_topics`.
        log_ends: (topic, partition's name) -> offset behind the last message, or why it is not known.
        sessions: Consumer id -> session that holds the registration, 0 for a persistent node.
        refused: Path -> why it cannot be read, of nodes that exist. Such a registration has no data.
        kafka_offsets: (topic, partition's name) -> the offset that is stored in Kafka.
        kafka_unknown: Why offsets in Kafka are not known, a clause; None when they are.
        kafka_answered: The partitions whose offset in Kafka, or that there is none, is known in spite of that.
        kafka_unled: The partitions whose offset in Kafka is not known, as brokers do not know them: their topic is
            being deleted, or never had a leader.
        kafka_topics: Topics of which the group had offsets in Kafka when they were read last.
        java_members: Members whose registration was written once, as Java does and this client does not.
        offset_zxids: (topic, partition's name) -> id of the transaction that wrote the offset's node last.
        claim_zxids: (topic, partition's name) -> id of the transaction that created the owner's node.
        exists: The group has a node in ZooKeeper.
        generation: That of the cluster: how members register, and what partitions are named.
        topics_07: Those of the topics that are of Kafka 0.7.
    """

    group: str
    registrations: Mapping[str, bytes | None]
    owners: Mapping[Name, tuple[bytes | None, int]]
    offsets: Mapping[Name, bytes | None]
    known_topics: tuple[str, ...] = ()
    topics: Mapping[str, bytes | None] = field(default_factory=dict)
    log_ends: Mapping[Name, int | str] = field(default_factory=dict)
    sessions: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, RefusedNode] = field(default_factory=dict)
    kafka_offsets: Mapping[Name, int] = field(default_factory=dict)
    kafka_unknown: str | None = None
    kafka_answered: frozenset[Name] = frozenset()
    kafka_unled: frozenset[Name] = frozenset()
    kafka_topics: frozenset[str] = frozenset()
    java_members: frozenset[str] = frozenset()
    offset_zxids: Mapping[Name, int] = field(default_factory=dict)
    claim_zxids: Mapping[Name, int] = field(default_factory=dict)
    exists: bool = True
    generation: Generation = GENERATION_08
    topics_07: Mapping[str, Topic07] = field(default_factory=dict)

    @property
    def lag_unit(self) -> str:
        """What offsets and lags count: `messages`, or `bytes` in Kafka 0.7."""
        return "bytes" if self.generation.has_broker_nodes else "messages"

    def partition_of(self, name: str) -> int | str | None:
        """Return the partition after which an owner or offset node is named, None for a name that none has."""
        if self.generation.has_broker_nodes:
            return name if is_partition(name) else None
        return partition_number(name)

    def partitions(self, topic: str) -> tuple[int | str, ...]:
        """Return the partitions of a topic whose node exists.

        Raises:
            UnreadableNode: Its node cannot be understood.
        """
        if topic in self.topics_07:
            return self.topics_07[topic].partitions
        return znodes.parse_topic(topic, self.topics.get(topic))

    @property
    def hides_members(self) -> bool:
        """True if it cannot be read who is registered."""
        return znodes.ids_path(self.group) in self.refused

    @property
    def hides_any_owner(self) -> bool:
        """True if one owner at least cannot be read, so that it is not known how many partitions are owned."""
        owners = f"{znodes.group_path(self.group)}/owners"
        return any(path == owners or path.startswith(f"{owners}/") for path in self.refused)

    def hides_owners(self, topic: str) -> bool:
        """Return True if it cannot be read which partitions of a topic are owned."""
        topics = znodes.owners_path(self.group, topic)
        return topics in self.refused or topics.rpartition("/")[0] in self.refused

    def hides_owner(self, topic: str, name: str) -> bool:
        """Return True if the owner of a partition, if it has one, cannot be read."""
        return self.hides_owners(topic) or znodes.owner_path(self.group, topic, name) in self.refused

    def hides_offset(self, topic: str, name: str) -> bool:
        """Return True if the offset of a partition in ZooKeeper, if it has one, cannot be read."""
        offset = znodes.offset_path(self.group, topic, name)
        topics = offset.rpartition("/")[0]
        return any(path in self.refused for path in (offset, topics, topics.rpartition("/")[0]))

    def offset_in_zookeeper(self, name: Name) -> int | None:
        """Return the offset of a partition in ZooKeeper, None without one that can be read."""
        if name not in self.offsets:
            return None
        try:
            return znodes.parse_offset(znodes.offset_path(self.group, *name), self.offsets[name])
        except UnreadableNode:
            return None

    def storage_of(self, name: Name) -> str | None:
        """Return the store in which the owner of a partition seems to keep its offset: `zookeeper`, `kafka` or None.

        No node holds `offsets.storage`, and Kafka does not say when an offset was stored. What shows something:
        - A member that stores in Kafka alone never writes an offset node. If the node was written after the present
          owner claimed the partition, and Kafka has no offset or a lower one, the owner stores in ZooKeeper.
        - If the node was not written since then, or does not exist, and Kafka has a higher offset, the owner, or the
          owner before it, stores in Kafka.
        """
        claimed = self.claim_zxids.get(name)
        if claimed is None or self.hides_offset_in_kafka(name) or self.hides_offset(*name):
            return None
        kafka = self.kafka_offsets.get(name)
        zookeeper = self.offset_in_zookeeper(name)
        if zookeeper is not None and self.offset_zxids.get(name, 0) > claimed:
            return "zookeeper" if kafka is None or kafka < zookeeper else None
        return "kafka" if kafka is not None and (zookeeper is None or kafka > zookeeper) else None

    def hides_offset_in_kafka(self, name: Name) -> bool:
        """Return True if a partition may have an offset in Kafka that could not be read."""
        return name in self.kafka_unled or (self.kafka_unknown is not None and name not in self.kafka_answered)

    def may_be_leftover(self, name: Name) -> bool:
        """Return True if the offset in ZooKeeper may be of no use any more, because one in Kafka could not be read.

        It is of use if it was written after the present owner claimed the partition: the owner stores in ZooKeeper, or
        in both stores.
        """
        if not self.hides_offset_in_kafka(name):
            return False
        claimed = self.claim_zxids.get(name)
        return claimed is None or self.offset_zxids.get(name, 0) <= claimed

    def offset_that_counts(self, name: Name) -> int | None:
        """Return the offset at which a member would continue, None if there is none or if it is not known.

        Where the stores differ, `storage_of` decides. If the store is not known, the larger offset counts, as for
        members with the default `offsets.intent`. While the offset in Kafka is not known, that in ZooKeeper counts if
        it was written after the present owner claimed the partition: the owner stores in ZooKeeper, or in both stores.
        While that in ZooKeeper may not be read, no offset counts.
        """
        zookeeper, kafka = self.offset_in_zookeeper(name), self.kafka_offsets.get(name)
        if self.hides_offset(*name):
            return None
        if self.hides_offset_in_kafka(name):
            return None if self.may_be_leftover(name) else zookeeper
        if zookeeper is None or kafka is None:
            return kafka if zookeeper is None else zookeeper
        return {"zookeeper": zookeeper, "kafka": kafka, None: max(zookeeper, kafka)}[self.storage_of(name)]


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
        owner: What its owner node holds: a thread id; None also if that node may not be read (`owner_is_hidden`).
        problems: What is wrong, a clause each.
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
        """True if the partition may have an owner that ZooKeeper does not let us read."""
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
        counts = "offset and lag are those of the store in which the owner works"
    elif unclear == len(differing):
        counts = "it is not known in which store the group works, so the larger offset counts"
    else:
        counts = (
            f"it is not known for {unclear} of them in which store the owner works, so the larger offset counts there"
        )
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
        members: Registered consumers, by id; None if ZooKeeper does not let us read who is registered.
        partitions: By topic and number.
        lag: Sum of the known lags; None if there are partitions and no lag is known.
        lag_unknown: Number of partitions whose lag is not known.
        problems: What is wrong, as sentences.
        lag_unit: What offsets and lags count: `messages`, or `bytes` in Kafka 0.7.
    """

    group: str
    members: tuple[MemberRow, ...] | None
    partitions: tuple[PartitionRow, ...]
    lag: int | None
    lag_unknown: int
    problems: tuple[str, ...]
    lag_unit: str = "messages"

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing about the stores of the offsets, as sentences."""
        notes = []
        difference = store_difference(self.partitions)
        if difference is not None and difference.is_certain:  # else it is among the problems
            notes.append(difference.sentence)
        for storage, name in (("kafka", "Kafka"), ("zookeeper", "ZooKeeper")):
            rows = [row for row in self.partitions if row.storage == storage]
            # That owners store in ZooKeeper goes without saying where nothing is in Kafka.
            if rows and any(row.offset_in_kafka is not None for row in self.partitions):
                notes.append(
                    f"owners seem to keep the offsets of {len(rows)} of {len(self.partitions)} partitions in {name}, "
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
            problem = f"its filter cannot be applied here: {error}"
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


UNLED: Final = "brokers do not know the partition, as its topic is being deleted or never had a leader"


def unled_clause(names: Iterable[Name]) -> str | None:
    """Return why the offsets in Kafka of partitions are not known that the brokers do not know; None without any."""
    topics = sorted({topic for topic, _ in names})
    if not topics:
        return None
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    return f"brokers do not know partitions of topic {topics[0]!r}{more}, as it is being deleted or never had a leader"


def unread(nodes: GroupNodes) -> list[str]:
    """Return what could not be read, as sentences."""
    sentences = [str(nodes.refused[path]) for path in sorted(nodes.refused)]
    # Also for a group with offsets in ZooKeeper: they may be leftovers, and those in Kafka would vanish without a word.
    if nodes.kafka_unknown is not None:
        sentences.append(
            f"the offsets in Kafka cannot be read: {nodes.kafka_unknown}; partitions with an offset in Kafka alone may "
            "be missing, and the lag is not known of those whose owner has not written an offset in ZooKeeper"
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
    return GroupReport(
        nodes.group, shown, tuple(rows), total, len(rows) - len(lags), tuple(problems), nodes.lag_unit
    )


def _known_partitions(nodes: GroupNodes, topic: str, problems: list[str]) -> frozenset[int | str] | None:
    """Return the partitions that the topic's node lists, None when they are not known."""
    data = nodes.topics.get(topic)
    if znodes.topic_path(topic) in nodes.refused:
        return None
    if topic not in nodes.known_topics:
        problems.append(f"{topic}: there is no such topic")
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


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (0, int(name), name) if name.isdigit() else (1, 0, name))


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
        problems.append("the topic has no such partition")
    owner = _owner(nodes, topic, name, threads, members, problems)
    if owner is None and nodes.hides_owner(topic, name):
        problems.append(OWNER_HIDDEN)
    elif owner is None and exists and threads:
        problems.append("orphaned: a member subscribes to it, and nobody owns it")
    in_zookeeper = _offset(nodes, topic, name, problems)
    if (topic, name) in nodes.kafka_unled:
        problems.append(f"its offset in Kafka cannot be read: {UNLED}; look at it with zkconsumer topics {topic}")
    in_kafka = nodes.kafka_offsets.get((topic, name))
    offset = nodes.offset_that_counts((topic, name))
    end = nodes.log_ends.get((topic, name))
    if isinstance(end, str):
        problems.append(f"log end unknown: {end}")
        end = None
    lag = None if offset is None or end is None else end - offset
    if lag is not None and lag < 0:
        problems.append(f"the stored offset is {-lag} beyond the end of the log")
        lag = None
    storage = nodes.storage_of((topic, name))
    return PartitionRow(topic, partition, offset, end, lag, owner, tuple(problems), in_zookeeper, in_kafka, storage)


def _owner(
    nodes: GroupNodes, topic: str, name: str, threads: set[str], members: Members, problems: list[str]
) -> str | None:
    if (topic, name) not in nodes.owners:
        return None
    data, session = nodes.owners[topic, name]
    owner = znodes.parse_owner(data)
    thread = members.thread_of(owner, threads)
    if thread not in threads and consumer_id_of(thread) not in members.unclear and not nodes.hides_members:
        problems.append(f"its owner {owner!r} is no thread of a registered member on this topic")
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
