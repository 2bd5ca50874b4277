"""`OffsetAdministration`: shows, sets, deletes, exports and imports the stored offsets of groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rebalance.subscription import check_group
from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.broker_groups import BrokerGroups
from zkconsumer.admin.groups.group_nodes import (
    group_not_found,
    only_topic,
    read_entry_faults,
    read_group,
    read_log_ends,
)
from zkconsumer.admin.groups.group_report import PartitionRow, concerned_topics, report, store_difference, unread
from zkconsumer.admin.offsets.group_offsets import (
    StoredOffsets,
    check_not_consumed,
    chosen_offsets,
    keeps_offsets_of_deleted_topics,
    note_of_kept_offsets,
    read_stored_offsets,
    with_kept_offsets,
)
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka, read_group_and_kafka
from zkconsumer.admin.offsets.offset_changes import OffsetChange, OffsetChanges, check_no_members, write_both
from zkconsumer.admin.offsets.offset_changing import OffsetChanging, away_07, check_partitions
from zkconsumer.admin.offsets.offset_lines import parse_store
from zkconsumer.admin.offsets.offset_plans import OffsetTarget, changes_of, topic_partitions
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER, check_store
from zkconsumer.admin.offsets.stored_offsets import ExportedOffsets, export_offsets, lines_of
from zkconsumer.admin.topics.topic_nodes import read_listed_partitions
from zkconsumer.admin.values import JsonValue, NotFound, OffsetsNotSet
from zkconsumer.cluster.cluster import Cluster
from zkconsumer_error import first_few

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupOffsets(JsonValue):
    """The stored offsets of a group.

    Attributes:
        group: Its name.
        partitions: By topic and number; also partitions without a stored offset that the group owns or subscribes to.
        unread: Nodes that could not be read, as sentences with their remedies: their content is unknown, not missing.
        notes: Offsets that differ between the stores, and which of them count, as sentences.
        lag_unit: The unit of offsets and lags: `messages`, or `bytes` in Kafka 0.7.
    """

    group: str
    partitions: tuple[PartitionRow, ...]
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lag_unit: str = "messages"


def _nothing(group: str) -> None:
    pass


class OffsetAdministration(OffsetChanging):
    """The methods of `Admin` for stored offsets.

    Offsets live in ZooKeeper, in Kafka or in both. A method that changes them has an argument `store`: `zookeeper`,
    `kafka` or `both`. Without it, those stores are changed in which the group has offsets; for a group without any it
    is ZooKeeper.
    """

    _port: ZooKeeperPort
    _zookeeper: str
    _cluster: Cluster
    _in_kafka: OffsetsInKafka
    broker_groups: BrokerGroups

    def offsets(self, group: str, topic: str | None = None) -> GroupOffsets:
        """Return the stored offsets of a group and their lag, of one topic or of all.

        Raises:
            NotFound: There is no such group, or it has nothing to do with the topic.
        """
        check_group(group)
        nodes = read_group_and_kafka(self._port, self._zookeeper, self._in_kafka, group)
        if topic is not None:
            nodes = only_topic(nodes, topic)
        found = report(read_entry_faults(self._cluster, read_log_ends(self._cluster, nodes)))
        rows = tuple(row for row in found.partitions if topic in (None, row.topic))
        difference = store_difference(rows)
        notes = () if difference is None else (difference.sentence,)
        return GroupOffsets(group, rows, tuple(unread(nodes)), notes, nodes.lag_unit)

    def export_offsets(self, *groups: str, store: str | None = None) -> ExportedOffsets:
        """Return the stored offsets of groups, of all groups of ZooKeeper when none is named, as lines of text.

        Args:
            groups: Names of groups.
            store: `zookeeper` or `kafka`: of that store alone. Without it, of each partition the offset in ZooKeeper if
                there is one, else that in Kafka; both where they differ.

        Raises:
            NotFound: There is no such group.
            ValueError: `store` is none.
        """
        check_store(store)
        return export_offsets(self._port, self._in_kafka, self._zookeeper, groups, store)

    def set_offsets(
        self,
        group: str,
        topic: str | None,
        target: str | int | OffsetTarget,
        partitions: Sequence[int | str] = (),
        *,
        force: bool = False,
        dry_run: bool = False,
        store: str | None = None,
        warn: Callable[[str], object] = log.warning,
        on_new_group: Callable[[str], object] = _nothing,
    ) -> OffsetChanges:
        """Set the stored offsets of a topic; all are checked before the first one is written.

        Args:
            group: The group; it need not exist.
            topic: The topic; None: all topics that the group subscribes to, owns partitions of or has offsets of.
            target: `earliest`, `latest`, an offset, or a time such as `2014-03-01T12:00:00Z` (UTC without a zone). In
                Kafka 0.7 offsets are byte positions: one within an entry is set to the start of that entry, which
                `notes` of the result says.
            partitions: These partitions alone, by number, in Kafka 0.7 by name; all of the topic when there are none.
            force: Also while the group has members, and beyond the bounds of the log.
            dry_run: Check everything, and write nothing.
            store: `zookeeper`, `kafka` or `both`; without it the stores in which the group has offsets.
            warn: Called with a sentence when the group has members and that does not prevent the call.
            on_new_group: Called with the group, before anything is written, if it does not exist yet.

        Raises:
            ValueError: The target or the store is none, or partitions are given without a topic.
            NotFound: There is no such topic or partition, or no such group if no topic is given.
            GroupHasMembers: Consumers are in the group.
            OffsetsNotSet: A log does not have the target, somebody else has changed an offset meanwhile, or it is not
                known in which stores the group has offsets.
        """
        wanted = OffsetTarget.of(target)
        self._check_change(group, topic, partitions, store)
        check_no_members(self._port, [group], warn if force or dry_run else None)
        stored = self._stored(group, store)
        notes: tuple[str, ...] = ()
        if not stored.exists and ZOOKEEPER not in stored.stores(store):
            notes = (f"group {group!r} has no node in ZooKeeper: until a member joins, lists of groups do not show "
                     "it, and its lag is only shown if you name the group",)  # fmt: skip
        return self._set(stored, topic, wanted, partitions, store, force, dry_run, on_new_group, notes)

    def shift_offsets(
        self,
        group: str,
        topic: str | None,
        by: int,
        partitions: Sequence[int | str] = (),
        *,
        force: bool = False,
        dry_run: bool = False,
        store: str | None = None,
        warn: Callable[[str], object] = log.warning,
    ) -> OffsetChanges:
        """Move the stored offsets of a topic by a number of messages, at most to the bounds of the log.

        The offset of each store is moved; a store that has none of a partition gets none. Without `store` the call is
        refused if the stores differ. `notes` of the result says what was cut off at a bound of a log, and which
        partitions have no offset and are left out.

        Args:
            by: Messages forward; backward if negative. In Kafka 0.7 bytes, and then to the start of the entry there.
            force: Also while the group has members.

        Other arguments and errors as for `set_offsets`.

        Raises:
            NotFound: There is no such group, topic or partition.
            GroupHasMembers: Consumers are in the group.
            OffsetsNotSet: No partition has an offset, a log is not known, the stores differ and none was chosen, or
                somebody else has changed an offset meanwhile.
        """
        self._check_change(group, topic, partitions, store)
        check_no_members(self._port, [group], warn if force or dry_run else None)
        stored = self._stored(group, store)
        if stored.is_empty:
            raise group_not_found(self._port, self._zookeeper, group, stored.kafka_unknown)
        return self._shift(stored, topic, by, partitions, store, dry_run)

    def delete_offsets(
        self,
        group: str,
        topic: str | None = None,
        partitions: Sequence[int | str] = (),
        *,
        dry_run: bool = False,
        store: str | None = None,
    ) -> OffsetChanges:
        """Delete stored offsets of a group; members that claim the partitions next start at `auto.offset.reset`.

        In ZooKeeper the nodes are deleted, at the version that was read. In Kafka the offset counts as none at once,
        and the broker deletes it when it looks for expired offsets next (`offsets.retention.check.interval.ms`, 10
        minutes). Offsets in Kafka of topics that do not exist any more stay until they expire, as brokers before 0.10.2
        do not list them; `notes` says so.

        Args:
            topic: Of this topic alone; None: of all topics.
            partitions: These partitions of the topic alone; all that have an offset when there are none.
            dry_run: Check everything, and delete nothing.
            store: `zookeeper`, `kafka` or `both`; without it the stores in which the group has offsets.

        Raises:
            ValueError: The store is none, or partitions are given without a topic.
            NotFound: There is no such group, or it has no such offsets.
            GroupHasMembers: A member subscribes to one of the topics, or a session that lives owns a partition
                of it.
            OffsetsNotSet: Somebody else has changed an offset meanwhile, or it is not known in which stores the group
                has offsets.
        """
        self._check_change(group, topic, partitions, store)
        stored = self._stored(group, store)
        is_kept = store != ZOOKEEPER and keeps_offsets_of_deleted_topics(self._port, self._in_kafka)
        if stored.is_empty:
            missing = group_not_found(self._port, self._zookeeper, group, stored.kafka_unknown)
            raise with_kept_offsets(missing) if is_kept else missing
        stores = stored.stores(store)
        try:
            names = chosen_offsets(stored, stores, topic, partitions)
        except NotFound as error:
            if not is_kept or topic is None or self._cluster.reader.topic_exists(topic):
                raise
            raise with_kept_offsets(error, topic) from None
        notes = check_not_consumed(self._port, self._cluster, self._zookeeper, group, {name for name, _ in names})
        if is_kept and topic is None and KAFKA in stores:
            notes.append(note_of_kept_offsets(group))
        deleted = dict.fromkeys(stores)
        changes = changes_of(self._port, {group: stored}, [((group, *name), deleted) for name in names])
        return self._write([change for change in changes if change.is_needed], dry_run, notes=tuple(notes))

    def import_offsets(
        self,
        text: str,
        *,
        source: str = "the text",
        force: bool = False,
        dry_run: bool = False,
        store: str | None = None,
        warn: Callable[[str], object] = log.warning,
    ) -> OffsetChanges:
        """Set the offsets that lines of text name, as `export_offsets` and Kafka's ExportZkOffsets write them.

        Args:
            text: One line for each offset: `/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`; and the comments of an
                export about its stores.
            source: Where the text comes from, for the messages of errors.
            force: Also while groups have members, of partitions that do not exist, and beyond the bounds of a log.
            dry_run: Check everything, and write nothing.
            store: `zookeeper`, `kafka` or `both`; without it the stores that the text names, whatever the group has
                now; for lines of which it names none those in which the group has offsets.
            warn: Called with a sentence when groups have members and that does not prevent the call.

        Raises:
            ValueError: The store is none.
            GroupHasMembers: Consumers are in one of the groups.
            OffsetsNotSet: A line cannot be used, a log does not have an offset, the stores of a group differ and
                neither `store` nor the text chooses one, somebody else has changed an offset meanwhile, or it is
                not known in which stores a group has offsets.
        """
        check_store(store)
        lines = lines_of(text, source)
        groups = list(dict.fromkeys(line.group for line in lines))
        check_no_members(self._port, groups, warn if force or dry_run else None)
        chosen = store or parse_store(text)
        stored = read_stored_offsets(self._port, self._in_kafka, groups, chosen)
        return self._import(lines, stored, chosen, force, dry_run)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _check_change(self, group: str, topic: str | None, partitions: Sequence[int | str], store: str | None) -> None:
        check_group(group)
        check_store(store)
        check_partitions(topic, partitions)

    def _partitions_of_group(
        self, stored: StoredOffsets, store: str | None
    ) -> tuple[list[TopicPartition], tuple[str, ...]]:
        group = stored.group
        nodes = read_group(self._port, self._cluster, self._zookeeper, group, must_exist=False)
        everywhere = self._stored(group, None) if store == ZOOKEEPER else stored
        if not nodes.exists and everywhere.is_empty:
            raise group_not_found(self._port, self._zookeeper, group, everywhere.kafka_unknown)
        topics = sorted({*concerned_topics(nodes), *(name for name, _ in everywhere.names())})
        gone = [name for name in topics if name not in nodes.known_topics]
        left_out = first_few(*gone, most=3)
        if len(gone) == len(topics):
            raise OffsetsNotSet(
                f"no offset was set: no topic of group {group!r} exists ({left_out})" if gone else
                f"no offset was set: group {group!r} reads no topic and has no offsets",
                "name an existing topic: --topic (topic=...)",
            )  # fmt: skip
        known = self._cluster.partitions([name for name in topics if name not in gone])
        names = [name for each, there in known.items() if there for name in topic_partitions(self._cluster, each, ())]
        if not names:
            raise OffsetsNotSet(f"no offset was set: no broker that has a topic of group {group!r} is registered",
                                "start its brokers first; their partitions are then back")  # fmt: skip
        notes = (f"left out, because the topic does not exist: {left_out}",) if gone else ()
        return names, notes + away_07(stored, names, known)

    def _stored(self, group: str, store: str | None) -> StoredOffsets:
        return read_stored_offsets(self._port, self._in_kafka, [group], store)[group]

    def _listed_partitions(self, topics: Sequence[str]) -> Sequence[TopicPartition]:
        return read_listed_partitions(self._port, self._cluster, topics)

    def _new_groups(self, stored: Mapping[str, StoredOffsets], store: str | None) -> tuple[str, ...]:
        empty = {group: found for group, found in stored.items() if found.is_empty}
        if store == ZOOKEEPER and empty:  # that alone was read
            empty = read_stored_offsets(self._port, self._in_kafka, list(empty))
        return super()._new_groups(empty, store)

    def _store_changes(self, changes: Sequence[OffsetChange]) -> None:
        try:
            write_both(self._port, self._in_kafka, changes)
        except OffsetsNotSet as error:
            self.broker_groups.name_members(error, {change.group for change in changes if change.store == KAFKA})
            raise
