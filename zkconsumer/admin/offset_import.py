"""Finds the offsets that an import sets in each store, and refuses those that no log has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rebalance.requests import ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import OffsetsNotSet
from zkconsumer.admin.group_offsets import StoredOffsets
from zkconsumer.admin.offset_changes import PartitionName
from zkconsumer.admin.offset_lines import OffsetLine
from zkconsumer.admin.offset_plans import check_stores_agree
from zkconsumer.admin.offset_target import OffsetTarget
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.store_choice import KAFKA
from zkconsumer.admin.topic_nodes import read_listed_partitions
from zkconsumer.admin.verification import partition_number
from zkconsumer.cluster.cluster import Cluster

__all__ = ["Imported", "check_logs", "imported_offsets"]

Imported = tuple[PartitionName, Mapping[str, int]]
"""Group, topic and name of the partition's node, and the new offset in each store."""

_SHOWN: Final = 3


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
    """
    in_kafka = {line[:3]: line.offset for line in lines if line.store == KAFKA}
    plain = [line for line in lines if line.store != KAFKA]
    stores = {group: found.stores(store) for group, found in stored.items()}
    if store is None:
        unclear: dict[str, list[tuple[str, str]]] = {}
        for line in plain:
            if line[:3] not in in_kafka:
                unclear.setdefault(line.group, []).append((line.topic, line.partition))
        for group, names in unclear.items():
            check_stores_agree(stored[group], stores[group], names)
    return [
        (line[:3], {each: in_kafka.get(line[:3], line.offset) if each == KAFKA else line.offset
                    for each in stores[line.group]})
        for line in plain
    ]  # fmt: skip


def check_logs(port: ZooKeeperPort, cluster: Cluster, wanted: Sequence[Imported]) -> None:
    """Raise if a partition does not exist, or its log does not have its new offset.

    Partitions whose name is no number, as in Kafka 0.7, are not checked.

    Raises:
        OffsetsNotSet: Names them.
    """
    offsets: dict[TopicPartition, list[tuple[str, int]]] = {}
    for (group, topic, text), new in wanted:
        number = partition_number(text)
        if number is not None:
            offsets.setdefault(TopicPartition(topic, number), []).extend((group, each) for each in {*new.values()})
    known = set(read_listed_partitions(port, sorted({name.topic for name in offsets})))
    logs = cluster.log_ends([name for name in offsets if name in known], [EARLIEST, LATEST])
    refused: list[str] = []
    for name, each in offsets.items():
        for group, offset in each:
            try:
                if name not in known:
                    raise ValueError("there is no such partition")
                OffsetTarget(str(offset), offset, None).resolve(logs[name], force=False)
            except ValueError as error:
                refused.append(f"{name.topic}-{name.partition} of group {group!r} to {offset}: {error}")
    if refused:
        more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise OffsetsNotSet(
            f"no offset was set: {count_of(len(refused), 'offset')} cannot be set: {'; '.join(refused[:_SHOWN])}{more}",
            "create the topics and start their brokers first, or set them all the same: force=True, --force",
        )
