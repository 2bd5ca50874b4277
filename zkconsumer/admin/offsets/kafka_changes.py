"""Sets and deletes offsets of groups in Kafka, and changes both stores in the right order.

Rules, and which failure each prevents:
- Kafka's protocol cannot compare: offsets in Kafka are read again just before they are written, and nothing is written
  in either store if one has changed. What a member commits within that round trip is overwritten.
- Kafka takes each group for itself: those of all groups are read again before the first one is written.
- Kafka is written first: if its offset manager does not answer, nothing is written in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import OffsetsNotSet
from zkconsumer.admin.offsets.kafka_offsets import GROUPS_TIMEOUT_S, OffsetsInKafka
from zkconsumer.admin.offsets.offset_changes import OffsetChange, delete_empty_nodes, shown_offset, write_changes
from zkconsumer.admin.offsets.store_choice import KAFKA
from zkconsumer.admin.phrases import count_of
from zkconsumer.offsets.offset_manager import OffsetAnswer
from zkconsumer_error import first_few

__all__ = ["plan_kafka_changes", "write_both"]

_GROUP_S: Final = 0.2
"""Longest wait for the offsets of one group among many, on average."""
_UNWRITTEN: Final = "check that the topic exists and its offset manager answers, and set the offsets again"


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
    """Write the offsets in Kafka that differ, group by group, after those of all groups were read again.

    Raises:
        OffsetsNotSet: An offset was changed by somebody else since it was read, or the offset manager did not take it;
            says how many are written, and of which groups.
    """
    groups: dict[str, dict[TopicPartition, OffsetChange]] = {}
    for change in changes:
        if change.is_needed and change.store == KAFKA:
            groups.setdefault(change.group, {})[TopicPartition(change.topic, int(change.partition))] = change
    progress = _Progress(sum(map(len, groups.values())))
    if len(groups) > 1:
        # What one group's manager refuses shall not leave the groups before it written.
        wanted = {group: list(found) for group, found in groups.items()}
        answers = in_kafka.fetch_each(wanted, max(GROUPS_TIMEOUT_S, _GROUP_S * len(groups)))
        for group, answer in answers.items():
            _check_unchanged(group, groups[group], answer, progress)
    for group, needed in groups.items():
        _check_unchanged(group, needed, in_kafka.fetch(group, list(needed)), progress)
        failed = in_kafka.store(group, {name: change.new for name, change in needed.items()})
        progress.written[group] = len(needed) - len(failed)
        if failed:
            raise progress.error(group, failed, _UNWRITTEN)


def _check_unchanged(
    group: str, needed: Mapping[TopicPartition, OffsetChange], answer: OffsetAnswer, progress: _Progress
) -> None:
    if answer.unknown:
        raise progress.error(
            group, {name: f"it cannot be read ({reason})" for name, reason in answer.unknown.items()}, _UNWRITTEN
        )
    changed = {
        name: (f"another client has changed it in the meantime: it was {shown_offset(change.old)}, it is "
               f"{shown_offset(answer.offsets.get(name))}")
        for name, change in needed.items() if answer.offsets.get(name) != change.old
    }  # fmt: skip
    if changed:
        raise progress.error(group, changed,
                             "read the offsets, find out which client commits there, and set them again")


class _Progress:
    """How much is written in Kafka.

    Args:
        total: Number of offsets that shall be written.

    Attributes:
        written: Group -> number of its offsets that are written.
    """

    def __init__(self, total: int) -> None:
        self.written: dict[str, int] = {}
        self._total = total

    def error(self, group: str, failed: Mapping[TopicPartition, str], remedy: str) -> OffsetsNotSet:
        """Return the error about offsets of a group.

        Args:
            failed: Partition -> why its offset is not written, a clause; at least one.
        """
        name, reason = next(iter(failed.items()))
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        written = sum(self.written.values())
        groups = [each for each, count in self.written.items() if count and each != group]
        of_groups = ""
        if groups:
            of_groups = f", including all of {first_few(*map(repr, groups), most=3, rest=', ...')}"
        return OffsetsNotSet(
            f"the offset of {name.topic}-{name.partition} of group {group!r} in Kafka is not written: {reason}"
            f"{more}; {written} of {count_of(self._total, 'offset')} in Kafka {'was' if self._total == 1 else 'were'} "
            f"written{of_groups}, and none in ZooKeeper",
            remedy,
        )
