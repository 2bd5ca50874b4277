"""Finds the partitions and the new offsets of a change, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rebalance import znodes
from rebalance.requests import ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import NotFound, OffsetsNotSet
from zkconsumer.admin.group_offsets import StoredOffsets
from zkconsumer.admin.kafka_changes import plan_kafka_changes
from zkconsumer.admin.offset_changes import OffsetChange, PartitionName, plan_changes
from zkconsumer.admin.offset_target import OffsetTarget, shifted
from zkconsumer.admin.phrases import count_of, nearest
from zkconsumer.admin.store_choice import KAFKA, ZOOKEEPER
from zkconsumer.admin.verification import partition_number
from zkconsumer.cluster.cluster import Cluster

__all__ = ["Wanted", "changes_of", "shift_offsets", "target_offsets", "topic_partitions"]

_SHOWN = 3


class Wanted(NamedTuple):
    """The new offsets of some partitions.

    Attributes:
        offsets: Partition -> new offset.
        notes: What is not as was asked for, a sentence each.
    """

    offsets: dict[TopicPartition, int]
    notes: tuple[str, ...] = ()


def topic_partitions(cluster: Cluster, topic: str, chosen: Sequence[int]) -> list[TopicPartition]:
    """Return the chosen partitions of a topic, all of them when none is chosen.

    Raises:
        NotFound: There is no such topic or partition.
        UnreadableNode: The node of the topic cannot be understood.
    """
    known = cluster.partitions([topic]).get(topic)
    if known is None:
        raise NotFound(f"there is no topic {topic!r}", nearest(topic, cluster.topics(), "topic"))
    missing = sorted(set(chosen) - set(known))
    if missing:
        raise NotFound(
            f"topic {topic!r} has no partition {', '.join(map(str, missing))}", f"it has {', '.join(map(str, known))}"
        )
    return [TopicPartition(topic, number) for number in sorted(set(chosen) or known)]


def target_offsets(cluster: Cluster, names: Sequence[TopicPartition], target: OffsetTarget, force: bool) -> Wanted:
    """Return the offsets for which a target stands.

    Args:
        force: Do not ask whether the log has an offset that was given as a number.

    Raises:
        OffsetsNotSet: A log does not have the target, or is not known.
    """
    needs_logs = target.offset is None or not force
    logs = cluster.log_ends(names, target.times_ms) if needs_logs else {}
    remedy = "try again once a broker leads it"
    if target.offset is not None:
        remedy = "choose an offset that the log has, or set it all the same: force=True, --force"
    return Wanted(_each(names, target.text, remedy, lambda name: target.resolve(logs.get(name, ""), force)))


def shift_offsets(
    cluster: Cluster, stored: StoredOffsets, stores: Sequence[str], names: Sequence[TopicPartition], by: int
) -> Wanted:
    """Return the stored offsets moved by a number of messages, at most to the bounds of the log.

    Partitions without a stored offset are left out, which a note says.

    Raises:
        OffsetsNotSet: A log is not known, or no partition has an offset.
    """
    before = {name: stored.in_use(stores, (name.topic, str(name.partition))) for name in names}
    known = {name: offset for name, offset in before.items() if offset is not None}
    if not known:
        raise OffsetsNotSet(
            f"no offset was set: group {stored.group!r} has no offset that could be shifted, of "
            f"{count_of(len(names), 'partition')}", "set them to earliest, latest, an offset or a time",
        )  # fmt: skip
    notes = []
    if len(known) < len(names):
        left_out = [f"{name.topic}-{name.partition}" for name in names if name not in known]
        more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
        notes.append(f"left out, as without a stored offset: {', '.join(left_out[:_SHOWN])}{more}")
    logs = cluster.log_ends(list(known), [EARLIEST, LATEST])

    def moved(name: TopicPartition) -> int:
        offset, cut_off = shifted(known[name], by, logs[name])
        if cut_off is not None:
            notes.append(f"{name.topic}-{name.partition}: {cut_off}")
        return offset

    offsets = _each(list(known), f"{by:+d}", "try again once a broker leads it", moved)
    return Wanted(offsets, tuple(notes))


def _each(
    names: Sequence[TopicPartition], text: str, remedy: str, resolve: Callable[[TopicPartition], int]
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    refused: list[str] = []
    for name in names:
        try:
            offsets[name] = resolve(name)
        except ValueError as error:
            refused.append(f"{name.topic}-{name.partition}: {error}")
    if refused:
        more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        shown = "; ".join(refused[:_SHOWN])
        raise OffsetsNotSet(f"no offset was set: {text} cannot be set for {shown}{more}", remedy)
    return offsets


def changes_of(
    port: ZooKeeperPort,
    stored: Mapping[str, StoredOffsets],
    stores: Mapping[str, Sequence[str]],
    wanted: Sequence[tuple[PartitionName, int | None]],
) -> list[OffsetChange]:
    """Return the changes in each store, those of one partition beside each other.

    Args:
        stored: Group -> its offsets.
        stores: Group -> the stores in which they are changed.
        wanted: Group, topic and name of the partition's node, and the new offset; None to delete it.

    Raises:
        OffsetsNotSet: Kafka cannot have an offset of a partition whose name is no number.
    """
    in_zookeeper = {
        change.path: change
        for change in plan_changes(port, [each for each in wanted if ZOOKEEPER in stores[each[0][0]]])
    }
    changes: list[OffsetChange] = []
    for (group, topic, name), new in wanted:
        if ZOOKEEPER in stores[group]:
            changes.append(in_zookeeper[znodes.offset_path(group, topic, name)])
        if KAFKA not in stores[group]:
            continue
        number = partition_number(name)
        if number is None:
            raise OffsetsNotSet(
                f"no offset was set: partition {name!r} of {topic} in group {group!r} cannot be stored in Kafka, where "
                "partitions are numbers", "choose the store: zookeeper",
            )  # fmt: skip
        changes += plan_kafka_changes(group, {TopicPartition(topic, number): new}, stored[group].kafka)
    return changes
