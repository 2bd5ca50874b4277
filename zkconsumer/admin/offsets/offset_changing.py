"""Changes stored offsets, of groups in ZooKeeper and of groups that brokers coordinate, in the same steps.

Rule: all offsets of a call are found and checked before the first one is written, those of all groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

from rebalance.subscription import check_topic
from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.offsets.group_offsets import StoredOffsets
from zkconsumer.admin.offsets.offset_changes import OffsetChange, OffsetChanges
from zkconsumer.admin.offsets.offset_lines import OffsetLine
from zkconsumer.admin.offsets.offset_plans import (
    OffsetTarget,
    Wanted,
    changes_of,
    shift_offsets,
    target_offsets,
    topic_partitions,
)
from zkconsumer.admin.offsets.stored_offsets import check_logs, imported_offsets, left_in_zookeeper
from zkconsumer.cluster.cluster import Cluster
from zkconsumer_error import first_few

Left = tuple[str, ...]
"""Sentences about what is left out."""


class OffsetChanging(ABC):
    """The steps of a change; where the offsets are, derived classes say.

    `store` is `zookeeper`, `kafka`, `both`, or None for the stores in which a group has offsets.
    """

    _cluster: Cluster
    _port: ZooKeeperPort | None

    @abstractmethod
    def _partitions_of_group(self, stored: StoredOffsets, store: str | None) -> tuple[list[TopicPartition], Left]:
        """Return the partitions of all topics of a group that exist, and sentences about the others.

        Raises:
            NotFound: There is no such group.
            OffsetsNotSet: The group has no topic that exists.
        """

    @abstractmethod
    def _listed_partitions(self, topics: Sequence[str]) -> Sequence[TopicPartition]:
        """Return the partitions of those topics that exist."""

    @abstractmethod
    def _store_changes(self, changes: Sequence[OffsetChange]) -> None:
        """Write the offsets that differ.

        Raises:
            OffsetsNotSet: Somebody else has changed an offset since it was read, or a store did not take it.
        """

    def _new_groups(self, stored: Mapping[str, StoredOffsets], store: str | None) -> tuple[str, ...]:
        """Return the groups that no store knows."""
        return tuple(group for group, found in stored.items() if found.is_empty and found.kafka_unknown is None)

    def _set(
        self, stored: StoredOffsets, topic: str | None, target: OffsetTarget, partitions: Sequence[int | str],
        store: str | None, force: bool, dry_run: bool, on_new_group: Callable[[str], object], notes: Left = (),
    ) -> OffsetChanges:  # fmt: skip
        names, left_out = self._partitions(stored, topic, partitions, store)
        found = target_offsets(self._cluster, stored.stores(store), names, target, force)
        new_groups = self._new_groups({stored.group: stored}, store)
        changes = self._changes(stored, found)
        for group in new_groups:
            on_new_group(group)
        return self._write(changes, dry_run, new_groups, (*left_out, *notes, *found.notes))

    def _shift(
        self, stored: StoredOffsets, topic: str | None, by: int, partitions: Sequence[int | str], store: str | None,
        dry_run: bool,
    ) -> OffsetChanges:  # fmt: skip
        names, left_out = self._partitions(stored, topic, partitions, store)
        found = shift_offsets(self._cluster, stored, stored.stores(store), names, by, store is not None)
        return self._write(self._changes(stored, found), dry_run, (), (*left_out, *found.notes))

    def _import(
        self, lines: Sequence[OffsetLine], stored: Mapping[str, StoredOffsets], store: str | None, force: bool,
        dry_run: bool,
    ) -> OffsetChanges:  # fmt: skip
        wanted = imported_offsets(lines, stored, store)
        moved: list[str] = []
        if not force:
            wanted, moved = check_logs(self._cluster, wanted, self._listed_partitions)
        new_groups = self._new_groups(stored, store)
        notes = (*moved, *(() if store else left_in_zookeeper(wanted, stored)))
        return self._write(changes_of(self._port, stored, wanted), dry_run, new_groups, notes)

    def _write(
        self, changes: Sequence[OffsetChange], dry_run: bool, new_groups: tuple[str, ...] = (), notes: Left = ()
    ) -> OffsetChanges:
        if not dry_run:
            self._store_changes(changes)
        return OffsetChanges(tuple(changes), not dry_run, new_groups, notes)

    def _changes(self, stored: StoredOffsets, found: Wanted) -> list[OffsetChange]:
        wanted = [((stored.group, name.topic, str(name.partition)), new) for name, new in found.offsets.items()]
        return changes_of(self._port, {stored.group: stored}, wanted)

    def _partitions(
        self, stored: StoredOffsets, topic: str | None, partitions: Sequence[int | str], store: str | None
    ) -> tuple[list[TopicPartition], Left]:
        """Return the chosen partitions, of all topics of the group when none is named, and notes about those left out.

        Raises:
            NotFound: There is no such topic, partition or group.
            OffsetsNotSet: The group has no topic that exists.
        """
        if topic is None:
            return self._partitions_of_group(stored, store)
        names = topic_partitions(self._cluster, topic, partitions)
        return names, () if partitions else away_07(stored, names, [topic])


def check_partitions(topic: str | None, partitions: Sequence[int | str]) -> None:
    """Raise if a topic has a name that no topic can have, or partitions are given without one.

    Raises:
        InvalidName, ValueError: Says which.
    """
    if topic is not None:
        check_topic(topic)
    elif partitions:
        raise ValueError(f"partitions {list(partitions)} are given without a topic")


def away_07(stored: StoredOffsets, names: Sequence[TopicPartition], topics: Collection[str]) -> Left:
    """Return a note about stored offsets of partitions of Kafka 0.7 whose brokers are away, as these are not changed.

    Args:
        names: All partitions that the topics have now.
        topics: Those whose offsets are changed.
    """
    if any(isinstance(name.partition, int) for name in names):
        return ()  # a later Kafka, in which such a name is no partition: `verify` reports it
    away = [f"{topic}-{name}" for topic, name in stored.names()
            if topic in topics and "-" in name and TopicPartition(topic, name) not in names]  # fmt: skip
    if not away:
        return ()
    return (f"left out, because no registered broker has them now: {first_few(*away, most=3)}; their offsets stay",)
