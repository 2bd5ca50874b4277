"""Reads the offsets of groups in ZooKeeper and in Kafka, before they are exported, changed or deleted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import ZooKeeperPort
from zkconsumer.admin.groups.group_nodes import read_offsets
from zkconsumer.admin.groups.group_state import Name
from zkconsumer.admin.offsets.kafka_offsets import GROUPS_TIMEOUT_S, OffsetsInKafka
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER, chosen_stores
from zkconsumer.cluster.zookeeper_reads import children

__all__ = ["StoredOffsets", "read_stored_offsets"]

_GROUP_S: Final = 0.2
"""Longest wait for the offsets of one group among many, on average."""


@dataclass(frozen=True)
class StoredOffsets:
    """The stored offsets of one group.

    Attributes:
        group: Its name.
        exists: It has a node in ZooKeeper.
        zookeeper: (topic, partition's name) -> data of the offset's node.
        kafka: (topic, partition's name) -> offset.
        kafka_unled: Partitions whose offset in Kafka is not known, as brokers do not know them: their topic is being
            deleted, or never had a leader.
        kafka_unknown: Why not all other offsets in Kafka are known, a clause; None when they are.
    """

    group: str
    exists: bool
    zookeeper: Mapping[Name, bytes]
    kafka: Mapping[Name, int] = field(default_factory=dict)
    kafka_unknown: str | None = None
    kafka_unled: frozenset[Name] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether the group is not known anywhere."""
        return not self.exists and not self.kafka

    def names(self) -> list[Name]:
        """Return the partitions with an offset in either store, by topic and number; names of Kafka 0.7 as text."""
        return sorted({*self.zookeeper, *self.kafka}, key=_place)

    def offset(self, store: str, name: Name) -> int | None:
        """Return the offset in one store, None without one.

        Raises:
            UnreadableNode: ZooKeeper holds something that is no offset.
        """
        if store == KAFKA:
            return self.kafka.get(name)
        if name not in self.zookeeper:
            return None
        return znodes.parse_offset(znodes.offset_path(self.group, *name), self.zookeeper[name])

    def differs(self, name: Name) -> bool:
        """Return whether both stores have an offset of a partition, and not the same."""
        try:
            zookeeper = self.offset(ZOOKEEPER, name)
        except UnreadableNode:
            return False
        return zookeeper is not None and self.kafka.get(name, zookeeper) != zookeeper

    def stores(self, store: str | None) -> tuple[str, ...]:
        """Return the stores in which offsets of the group are changed, as `chosen_stores`.

        Raises:
            OffsetsNotSet: The offsets in Kafka are not known, and ZooKeeper alone was not chosen.
        """
        return chosen_stores(store, self.group, bool(self.zookeeper), bool(self.kafka), self.kafka_unknown)


def _place(name: Name) -> tuple[str, bool, str]:
    topic, partition = name
    is_number = partition.isascii() and partition.isdigit()
    return topic, not is_number, partition.zfill(19) if is_number else partition


def read_stored_offsets(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, groups: Sequence[str], store: str | None = None
) -> dict[str, StoredOffsets]:
    """Return the offsets of some groups.

    Args:
        store: Read that store alone.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
        AccessRefused: An offset may not be read.
    """
    known = set(children(port, znodes.CONSUMERS) or [])
    found = {
        group: StoredOffsets(
            group, group in known, read_offsets(port, group) if group in known and store != KAFKA else {}
        )
        for group in dict.fromkeys(groups)
    }
    if store == ZOOKEEPER or not in_kafka.exists():
        return found
    # Partitions that do not exist are not asked for: a broker of 0.8.2 refuses the whole request.
    everywhere = in_kafka.all_partitions()
    # A change or an export must know all of them, however many there are.
    timeout_s = max(GROUPS_TIMEOUT_S, _GROUP_S * len(found))
    for group, answer in in_kafka.fetch_each(dict.fromkeys(found, everywhere), timeout_s).items():
        offsets = {(name.topic, str(name.partition)): at for name, at in answer.offsets.items() if at is not None}
        unled = frozenset((name.topic, str(name.partition)) for name in answer.unled)
        found[group] = dataclasses.replace(
            found[group], kafka=offsets, kafka_unknown=answer.unanswered, kafka_unled=unled
        )
    return found
