"""Pauses and resumes partitions for the application: they stay owned, and are not delivered meanwhile.

Rule: all partitions of a call are paused or none, and only owned ones; whatever ends an ownership ends its pause.

Source: docs/SEMANTICS.md, "Pauses"; KafkaConsumer.pause of Kafka 0.9 (the consumer of 0.8 has none).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rebalance import partition as steps
from rebalance.loop import Loop
from rebalance.subscription import Partition
from zkconsumer.member.coordination import GroupCoordinator
from zkconsumer.member.delivery import Delivery


def checked_partitions(partitions: Iterable[object]) -> list[Partition]:
    """The partitions, each once.

    Raises:
        TypeError: it is a single partition, or an item is none.
    """
    shape = "it must be a collection of partitions, such as [TopicPartition('clicks', 0)]"
    if isinstance(partitions, str) or (isinstance(partitions, tuple) and partitions and isinstance(partitions[0], str)):
        raise TypeError(f"partitions is {partitions!r}; {shape}")
    found: dict[Partition, None] = {}
    for each in partitions:
        match each:
            case (str(topic), int(partition) | str(partition)) if isinstance(each, tuple):
                found[topic, partition] = None
            case _:
                raise TypeError(f"partitions has {each!r}; {shape}")
    return list(found)


class Pauses:
    """The pauses of one member.

    Args:
        coordinator: knows which partitions are owned.
        delivery: is stopped and started.
        loop: the coordinator's.

    Threads: the coordinator's alone.
    """

    def __init__(self, coordinator: GroupCoordinator, delivery: Delivery, loop: Loop) -> None:
        self._coordinator = coordinator
        self._delivery = delivery
        self._loop = loop

    def pause(self, partitions: Collection[Partition]) -> dict[Partition, str]:
        """Pause all of them, or none; the partitions that may not be paused, with reasons."""
        refused = self._refused(partitions)
        if not refused:
            for partition in partitions:
                self._delivery.pause(partition)
        return refused

    def resume(self, partitions: Collection[Partition]) -> dict[Partition, str]:
        """Resume all of them, or none; the partitions that may not be resumed, with reasons."""
        refused = self._refused(partitions)
        if not refused:
            for partition in partitions:
                self._resume(partition)
        return refused

    def _resume(self, partition: Partition) -> None:
        # Perhaps on the thread of a stream, when it is done with its message.
        def hand_empty(queue: object, position: int) -> None:
            self._loop.post(self._delivery.go_on, partition, queue, position)

        self._delivery.resume(partition, hand_empty)

    def _refused(self, partitions: Collection[Partition]) -> dict[Partition, str]:
        refused = {}
        for partition in partitions:
            entry = self._coordinator.partitions.get(partition)
            state = None if entry is None else entry.machine.state
            if state in (steps.PartitionState.DRAINING, steps.PartitionState.RELEASING):
                refused[partition] = "this member is releasing it"
            elif state is not steps.PartitionState.OWNED:
                refused[partition] = "this member does not own it"
        return refused
