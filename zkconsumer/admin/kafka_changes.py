"""Sets and deletes offsets of groups in Kafka, and changes both stores in the right order.

Rules, and which failure each prevents:
- Kafka's protocol cannot compare: offsets in Kafka are read again just before they are written, and nothing is written
  in either store if one has changed. What a member commits within that round trip is overwritten.
- Kafka is written first: if its offset manager does not answer, nothing is written in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalance.requests import ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import OffsetsNotSet
from zkconsumer.admin.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.offset_changes import OffsetChange, delete_empty_nodes, shown_offset, write_changes
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.store_choice import KAFKA

__all__ = ["plan_kafka_changes", "write_both"]


def plan_kafka_changes(
    group: str, wanted: Mapping[TopicPartition, int | None], stored: Mapping[tuple[str, str], int]
) -> list[OffsetChange]:
    """Return the changes in Kafka.

    Args:
        wanted: Partition -> offset to be set, None to delete it.
        stored: (topic, partition's name) -> offset that is stored now.
    """
    return [
        OffsetChange(group, topic, str(number), stored.get((topic, str(number))), None, new, KAFKA)
        for (topic, number), new in wanted.items()
    ]


def write_both(port: ZooKeeperPort, in_kafka: OffsetsInKafka, changes: Sequence[OffsetChange]) -> None:
    """Write the offsets that differ, in Kafka and then in ZooKeeper.

    Raises:
        OffsetsNotSet: An offset was changed by somebody else since it was read, or a store did not take it; says how
            many are written.
    """
    _write_kafka(in_kafka, changes)
    try:
        write_changes(port, changes)
    except OffsetsNotSet as error:
        in_both = sum(change.is_needed for change in changes if change.store == KAFKA)
        if not in_both:
            raise
        verb = "was" if in_both == 1 else "were"
        sentence = f"{error.sentence}; {count_of(in_both, 'offset')} in Kafka {verb} written before"
        raise OffsetsNotSet(sentence, error.remedy) from None
    delete_empty_nodes(port, changes)


def _write_kafka(in_kafka: OffsetsInKafka, changes: Sequence[OffsetChange]) -> None:
    """Write the offsets in Kafka that differ, group by group.

    Raises:
        OffsetsNotSet: An offset was changed by somebody else since it was read, or the offset manager did not take it;
            says how many are written.
    """
    groups: dict[str, dict[TopicPartition, OffsetChange]] = {}
    for change in changes:
        if change.is_needed and change.store == KAFKA:
            groups.setdefault(change.group, {})[TopicPartition(change.topic, int(change.partition))] = change
    total = sum(map(len, groups.values()))
    written = 0
    for group, needed in groups.items():
        answer = in_kafka.fetch(group, list(needed))
        failed = {name: f"it cannot be read ({reason})" for name, reason in answer.unknown.items()}
        for name, change in needed.items():
            if name not in failed and answer.offsets.get(name) != change.old:
                failed[name] = (f"it was changed by somebody else meanwhile: it was {shown_offset(change.old)}, it is "
                                f"{shown_offset(answer.offsets.get(name))}")
        if not failed:
            failed = in_kafka.store(group, {name: change.new for name, change in needed.items()})
            written += len(needed) - len(failed)
        if failed:
            name, reason = next(iter(failed.items()))
            more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
            raise OffsetsNotSet(
                f"the offset of {name.topic}-{name.partition} of group {group!r} in Kafka is not written: {reason}"
                f"{more}; {written} of {count_of(total, 'offset')} in Kafka {'was' if total == 1 else 'were'} written, "
                "and none in ZooKeeper",
                "read them, find out who else commits there, and set them again",
            )
