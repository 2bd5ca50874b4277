"""The state of a group as it was read: its nodes in ZooKeeper, its offsets in Kafka, and what neither of them shows.

Pure. Rules:
- Where ZooKeeper and Kafka have different offsets of a partition, the one counts with which the owner works, and the
  larger one if that is not known: a group that moved to Kafka leaves its old offsets in ZooKeeper.
- While the offsets in Kafka cannot be read, an offset in ZooKeeper may be such a leftover, and the lag is unknown.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from rebalance.errors import RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.znodes_07 import GENERATION_08, Generation, is_partition
from zkconsumer.admin.values import partition_number
from zkconsumer.cluster.registry import Topic07

Name = tuple[str, str]
"""Topic, and the name of a partition's node."""


class FaultIs(enum.Enum):
    """The kind of a fault at a position."""

    WITHIN = "the position is inside an entry"
    DAMAGED = "an entry starts there, and is damaged"
    NO_ENTRY = "no entry seems to start there; nothing more is known"
    OUT_OF_LOG = "the log no longer has the position"
    NOT_LOOKED_AT = "it is not known what is there"


@dataclass(frozen=True)
class EntryFault:
    """A fault at a stored position.

    Attributes:
        fault_is: Its kind.
        reason: The fault, or why nothing more is known, a clause.
        start: WITHIN: where the entry around it starts.
        end: WITHIN: where the entry around it ends. DAMAGED: where the damaged entry ends; -1 if that is not known.
    """

    fault_is: FaultIs
    reason: str
    start: int = -1
    end: int = -1


@dataclass(frozen=True)
class GroupNodes:
    """The nodes that were read.

    Attributes:
        registrations: Consumer id -> data.
        owners: (topic, partition's name) -> (data, session that holds the node, 0 for a persistent node).
        offsets: (topic, partition's name) -> data.
        known_topics: All topics of the cluster.
        topics: Topic -> data of its node, None without one; of `concerned_topics`.
        log_ends: (topic, partition's name) -> offset after the last message, or why it is not known.
        sessions: Consumer id -> session that holds the registration, 0 for a persistent node.
        refused: Path -> why it cannot be read, of nodes that exist. Such a registration has no data.
        kafka_offsets: (topic, partition's name) -> the offset that is stored in Kafka.
        kafka_unknown: Why offsets in Kafka are not known, a clause; None when they are.
        kafka_answered: The partitions for which it is known in spite of that which offset they have in Kafka, or that
            they have none.
        kafka_unled: The partitions whose offset in Kafka is not known, as brokers do not know them: their topic is
            being deleted, or never had a leader.
        kafka_topics: Topics of which the group had offsets in Kafka when they were read last.
        java_members: Members whose registration was written once, as Java does and this client does not.
        offset_zxids: (topic, partition's name) -> id of the transaction that wrote the offset's node last.
        claim_zxids: (topic, partition's name) -> id of the transaction that created the owner's node.
        exists: The group has a node in ZooKeeper.
        generation: That of the cluster: how members register, and what partitions are named.
        topics_07: Those of the topics that are of Kafka 0.7.
        entry_faults: (topic, partition's name) -> what is wrong at its stored position, in Kafka 0.7.
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
    entry_faults: Mapping[Name, EntryFault] = field(default_factory=dict)

    @property
    def lag_unit(self) -> str:
        """The unit of offsets and lags: `messages`, or `bytes` in Kafka 0.7."""
        return "bytes" if self.generation.has_broker_nodes else "messages"

    @property
    def counted_in(self) -> str:
        """The text after a number of offsets in sentences: empty, or ` bytes` in Kafka 0.7."""
        return " bytes" if self.generation.has_broker_nodes else ""

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

        No node holds `offsets.storage`, and Kafka does not say when an offset was stored. Two things hint at it:
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
