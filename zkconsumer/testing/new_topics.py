"""Topics that a cluster of either kind creates or grows: their names, and their replicas on its brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from zkconsumer.testing.embedded.leadership import is_legal_topic
from zkconsumer.testing.errors import KitError

__all__ = ["NewTopic", "check_name", "grown", "spread"]


class NewTopic(NamedTuple):
    """A topic that is to be created.

    Attributes:
        name: its name.
        partitions: how many; None: as many as brokers make by themselves.
        replication: replicas of each partition.
        assignment: partition -> replica ids, the leader first, instead of an even spread.
        config: settings of the topic.
    """

    name: str
    partitions: int | None
    replication: int
    assignment: Mapping[int, Sequence[int]] | None
    config: Mapping[str, object]

    def replicas(self, brokers: Collection[int]) -> Mapping[int, Sequence[int]]:
        """Return partition -> replicas on these brokers."""
        count = 1 if self.partitions is None else self.partitions
        return self.assignment or spread(count, self.replication, sorted(brokers))


def grown(
    name: str, present: Mapping[int, Sequence[int]], total: int, brokers: Collection[int]
) -> dict[int, list[int]]:
    """Return partition -> replicas of the partitions that a topic lacks, with as many replicas as partition 0 has.

    Raises:
        ValueError: it has that many already.
    """
    if total <= len(present):
        raise ValueError(f"topic {name} has {len(present)} partitions, {total} would not be more")
    wanted = spread(total, len(present[0]), sorted(brokers))
    return {partition: replicas for partition, replicas in wanted.items() if partition not in present}


def spread(partitions: int, replication: int, brokers: Sequence[int]) -> dict[int, list[int]]:
    """Partition -> replicas: partition p leads on broker p modulo n, its copies on the following ones.

    Raises:
        ValueError: more replicas than brokers, or no partition.
        TypeError: the number of partitions or replicas is no integer.
    """
    for name, number in (("partitions", partitions), ("replication", replication)):
        if not isinstance(number, int):
            raise TypeError(f"{name} is {number!r}: an int is needed")
    if not 1 <= replication <= len(brokers):
        raise ValueError(f"replication {replication}: between 1 and the number of brokers ({len(brokers)}) is possible")
    if partitions < 1:
        raise ValueError(f"{partitions} partitions: at least 1 is needed")
    ids = sorted(brokers)
    return {p: [ids[(p + copy) % len(ids)] for copy in range(replication)] for p in range(partitions)}


def check_name(topic: str) -> None:
    """Return if Kafka allows this name for a new topic; a broker cannot make the folder of any other.

    Raises:
        KitError: it does not.
    """
    if not is_legal_topic(topic):
        raise KitError(f"topic name {topic!r}: at most 255 of a-z A-Z 0-9 . _ - are allowed")
