"""Stored offsets of groups as lines: exports, and what an import sets.

Exports stored offsets of groups as lines, and reads such lines.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).

Finds the offsets that an import sets in each store, and refuses offsets that no log has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalance.errors import UnreadableNode
from rebalance.subscription import sort_partitions
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.group_nodes import group_not_found
from zkconsumer.admin.groups.group_report import unled_clause
from zkconsumer.admin.groups.group_state import Name
from zkconsumer.admin.offsets.group_offsets import StoredOffsets, read_stored_offsets
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.offsets.offset_changes import PartitionName
from zkconsumer.admin.offsets.offset_lines import OffsetLine, fault_of, format_line, format_lines, parse_lines
from zkconsumer.admin.offsets.offset_plans import OffsetTarget, check_stores_agree
from zkconsumer.admin.offsets.store_choice import BOTH, KAFKA, ZOOKEEPER
from zkconsumer.admin.values import JsonValue, OffsetsNotSet, count_of, partition_number, typed
from zkconsumer.admin.verify.entry_faults import entry_starts, moved_note
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.registry import why_away
from zkconsumer.cluster.zookeeper_connection import children
from zkconsumer_error import first_few


@dataclass(frozen=True)
class ExportedOffsets(JsonValue):
    """The stored offsets of some groups.

    Attributes:
        lines: By group, topic and partition, each with the store that it comes from; where the stores differ, that in
            ZooKeeper and after it that in Kafka.
        problems: Offsets that cannot be read and were left out, a sentence each.
        notes: Notes, a sentence each: offsets that differ between the stores.
        store: The one store that was exported; None: both.
        in_both: Group, topic and partition of the lines whose offset is that of both stores.
    """

    lines: tuple[OffsetLine, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    store: str | None = None
    in_both: frozenset[tuple[str, str, str]] = frozenset()

    def to_text(self) -> str:
        """Return them in the form of Kafka's ExportZkOffsets, one per line, followed by comments about the stores."""
        return format_lines(self.lines, self.store, self.in_both)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer offsets export --json`."""
        offsets = typed([line._asdict() for line in self.lines])
        return {"offsets": offsets, "problems": list(self.problems), "notes": list(self.notes)}

    def counts(self) -> Counter[str]:
        """Return store -> number of lines that come from it."""
        return Counter(line.store for line in self.lines)


def export_offsets(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, zookeeper: str, groups: Sequence[str], store: str | None
) -> ExportedOffsets:
    """Return the stored offsets of groups, of all groups of ZooKeeper when none is named.

    Args:
        zookeeper: The connection string, for the message of an error.
        store: Offsets of that store alone; None or `both`: of each partition ZooKeeper's if there is one, else Kafka's;
            both where they differ.

    Raises:
        NotFound: There is no such group.
    """
    stores = (ZOOKEEPER, KAFKA) if store in (None, BOTH) else (str(store),)
    chosen = groups or children(port, znodes.CONSUMERS) or []
    stored = read_stored_offsets(port, in_kafka, chosen, store)
    lines: list[OffsetLine] = []
    problems: list[str] = []
    notes: list[str] = []
    unled: set[Name] = set()
    for group, found in stored.items():
        if groups and found.is_empty:
            raise group_not_found(port, zookeeper, group, found.kafka_unknown)
        if found.kafka_unknown is not None:
            problems.append(f"offsets in Kafka of group {group!r}: {found.kafka_unknown}")
        unled |= found.kafka_unled
        lines += _lines(found, stores, problems)
        differing = [name for name in found.names() if found.differs(name)] if len(stores) > 1 else []
        if differing:
            (topic, name), more = differing[0], len(differing) - 1
            notes.append(
                f"group {group!r}: {count_of(len(differing), 'offset')} of ZooKeeper differ from Kafka's, such as "
                f"{topic}-{name}" if more else
                f"group {group!r}: the offset of {topic}-{name} in ZooKeeper differs from Kafka's"
            )  # fmt: skip
    clause = unled_clause(unled)
    if clause is not None:
        problems.append(f"offsets that groups may have in Kafka for topics without leaders: {clause}")
    notes += _refused_by_import(lines)
    return ExportedOffsets(
        tuple(lines), tuple(problems), tuple(notes), stores[0] if len(stores) == 1 else None,
        frozenset(line[:3] for line in lines if len(stores) > 1 and line.store == ZOOKEEPER
                  and stored[line.group].kafka.get(line[1:3]) == line.offset),
    )  # fmt: skip


def _refused_by_import(lines: Sequence[OffsetLine]) -> list[str]:
    """Return a sentence about the lines that an import refuses: ZooKeeper holds nodes with any name."""
    faults = [(text, fault) for line in lines if (fault := fault_of(text := format_line(line))) is not None]
    if not faults:
        return []
    text, fault = faults[0]
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return [f"an import refuses {text!r} ({fault}){more}; delete such lines before you import"]


def _lines(found: StoredOffsets, stores: Collection[str], problems: list[str]) -> list[OffsetLine]:
    lines: list[OffsetLine] = []
    for topic, name in found.names():
        for store in stores:
            try:
                offset = found.offset(store, (topic, name))
            except UnreadableNode as error:
                problems.append(str(error))
                break
            if offset is not None:
                lines.append(OffsetLine(found.group, topic, name, offset, store))
                if store == ZOOKEEPER and len(stores) > 1 and found.differs((topic, name)):
                    continue
                break
    return lines


def lines_of(text: str, source: str) -> list[OffsetLine]:
    """Return the offsets in a text of lines.

    Args:
        source: Where the text comes from, for the message of the error.

    Raises:
        OffsetsNotSet: A line cannot be used, or there is none.
    """
    lines, problems = parse_lines(text)
    if problems:
        shown = first_few(*problems, between="; ", rest="; and {} more")
        raise OffsetsNotSet(
            f"no offset was set: {source} has {count_of(len(problems), 'line')} that cannot be used: {shown}",
            "correct or delete these lines; each must be /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, once",
        )
    if not lines:
        raise OffsetsNotSet(f"{source} holds no offsets")
    return lines


Imported = tuple[PartitionName, Mapping[str, int]]
"""Group, topic and name of the partition's node, and the new offset in each store."""


def imported_offsets(
    lines: Sequence[OffsetLine], stored: Mapping[str, StoredOffsets], store: str | None
) -> list[Imported]:
    """Return the new offsets.

    Args:
        stored: Group -> its offsets now.
        store: The store that was chosen, or that the text names.

    Raises:
        OffsetsNotSet: The stores of a group differ, and the text does not say which one a line is of; or the offsets of
            a group in Kafka are not known.

    Offsets of Kafka in the text are set there, whatever the group has now: a group that was deleted has nothing.
    """
    in_kafka = {line[:3]: line.offset for line in lines if line.store == KAFKA}
    plain = {line[:3]: line.offset for line in lines if line.store != KAFKA}
    stores = {group: found.stores(store) for group, found in stored.items()}
    if store is None:
        unclear: dict[str, list[tuple[str, str]]] = {}
        for group, topic, partition in plain.keys() - in_kafka.keys():
            unclear.setdefault(group, []).append((topic, partition))
        for group, names in unclear.items():
            check_stores_agree(stored[group], stores[group], sorted(names))
    wanted: list[Imported] = []
    for name in dict.fromkeys(line[:3] for line in lines):
        chosen = stores[name[0]]
        if store is None and name in in_kafka:
            chosen = (KAFKA, ZOOKEEPER) if name in plain else (KAFKA,)
        first, second = (in_kafka, plain), (plain, in_kafka)
        wanted.append((name, {each: _offset(name, *(first if each == KAFKA else second)) for each in chosen}))
    return wanted


def _offset(name: PartitionName, offsets: Mapping[PartitionName, int], others: Mapping[PartitionName, int]) -> int:
    return offsets[name] if name in offsets else others[name]


def left_in_zookeeper(wanted: Sequence[Imported], stored: Mapping[str, StoredOffsets]) -> list[str]:
    """Return a sentence about each group with offsets in ZooKeeper of which the text has one in Kafka alone."""
    notes = []
    for group, found in stored.items():
        names = [name for name, new in wanted if name[0] == group and set(new) == {KAFKA}
                 and name[1:] in found.zookeeper]  # fmt: skip
        if names:
            _, topic, partition = names[0]
            notes.append(
                f"group {group!r}: ZooKeeper has offsets of {count_of(len(names), 'partition')} that were only set "
                f"in Kafka, such as {topic}-{partition}; the offsets in ZooKeeper stay unchanged"
            )
    return notes


def check_logs(
    cluster: Cluster, wanted: Sequence[Imported], partitions_of: Callable[[Sequence[str]], Sequence[TopicPartition]]
) -> tuple[list[Imported], list[str]]:
    """Raise if a partition does not exist, or its log does not have its new offset.

    Args:
        partitions_of: Returns the partitions of those of some topics that exist.

    Returns:
        The new offsets, those of Kafka 0.7 at the starts of entries; and a sentence about each that was moved there.

    Raises:
        OffsetsNotSet: Names them.
    """
    offsets: dict[TopicPartition, list[tuple[str, int]]] = {}
    for (group, topic, text), new in wanted:
        offsets.setdefault(_name(topic, text), []).extend((group, each) for each in {*new.values()})
    known = set(partitions_of(sorted({name.topic for name in offsets})))
    logs = cluster.log_ends([name for name in offsets if name in known], [EARLIEST, LATEST])
    refused: list[str] = []
    for name, each in offsets.items():
        for group, offset in each:
            try:
                if name not in known:
                    raise ValueError(_why_unknown(name, known))
                OffsetTarget(str(offset), offset, None).resolve(logs[name], force=False)
            except ValueError as error:
                refused.append(f"{name.topic}-{name.partition} of group {group!r} to {offset}: {error}")
    moved = {} if refused else _moved(cluster, offsets, refused)
    if refused:
        shown = first_few(*refused, most=3, between="; ")
        raise OffsetsNotSet(
            f"no offset was set: {count_of(len(refused), 'offset')} cannot be set: {shown}",
            "create the topics and start their brokers first, or set the offsets nevertheless: force=True, --force",
        )
    notes = [moved_note(name, position, start) for (name, position), start in moved.items()]
    return [
        (place, {store: moved.get((_name(*place[1:]), offset), offset) for store, offset in new.items()})
        for place, new in wanted
    ], notes


def _why_unknown(name: TopicPartition, known: Collection[TopicPartition]) -> str:
    """Return why the partition is not among the known ones, a clause."""
    others = sort_partitions([each.partition for each in known if each.topic == name.topic])
    if not others:
        return "the partition does not exist: the topic does not exist, or no broker that has it is registered"
    shown = first_few(*others, most=10, rest=", ...")
    return f"the partition does not exist{why_away([name.partition], others)}; the topic has {shown}"


def _name(topic: str, text: str) -> TopicPartition:
    number = partition_number(text)
    return TopicPartition(topic, text if number is None else number)


def _moved(
    cluster: Cluster, offsets: Mapping[TopicPartition, Sequence[tuple[str, int]]], refused: list[str]
) -> dict[tuple[TopicPartition, int], int]:
    """Return the positions of Kafka 0.7 that are within an entry, with its start; `refused` gets those not known."""
    moved: dict[tuple[TopicPartition, int], int] = {}
    left = {name: sorted({offset for _, offset in each}) for name, each in offsets.items()
            if isinstance(name.partition, str)}  # fmt: skip
    while left:
        # One position of each partition at a time: several groups may have different ones.
        asked = {name: positions.pop() for name, positions in left.items()}
        left = {name: positions for name, positions in left.items() if positions}
        for name, start in entry_starts(cluster, asked).items():
            if isinstance(start, str):
                refused.append(f"{name.topic}-{name.partition} to {asked[name]}: {start}")
            elif start != asked[name]:
                moved[name, asked[name]] = start
    return moved
