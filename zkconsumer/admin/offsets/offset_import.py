"""Finds the offsets that an import sets in each store, and refuses those that no log has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rebalance.assignment import sort_partitions
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import OffsetsNotSet
from zkconsumer.admin.offsets.entry_starts import entry_starts, moved_note
from zkconsumer.admin.offsets.group_offsets import StoredOffsets
from zkconsumer.admin.offsets.offset_changes import PartitionName
from zkconsumer.admin.offsets.offset_lines import OffsetLine
from zkconsumer.admin.offsets.offset_plans import OffsetTarget, check_stores_agree
from zkconsumer.admin.offsets.store_choice import KAFKA, ZOOKEEPER
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.values import partition_number
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.topic_of_07 import why_away
from zkconsumer_error import first_few

__all__ = ["Imported", "check_logs", "imported_offsets", "left_in_zookeeper"]

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

    What the text says of Kafka is set there, whatever the group has now: a group that was deleted has nothing.
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
    """Return why there is no such partition among those that are known, a clause."""
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
