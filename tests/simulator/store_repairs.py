"""An operator who makes the offsets of both stores equal where members refuse to choose (`offsets.intent`).

The store that all members write is right; where it has no offset, the other one is.
"""

from __future__ import annotations

from typing import Final

from rebalance.zookeeper import znodes
from tests.simulator.member import OurMember
from tests.simulator.offset_storage import Partition
from tests.simulator.plan import GROUP
from tests.simulator.stage import Stage
from zkconsumer.offsets.two_stores import TwoStores

__all__ = ["StoreRepairs"]

_LOOK_S: Final = 2.0


class StoreRepairs:
    """Looks every two seconds for partitions that members refuse to start.

    Attributes:
        count: How many offsets were made equal.
    """

    def __init__(self, stage: Stage) -> None:
        self.count = 0
        self._stage = stage

    def start(self) -> None:
        """Start to look."""
        self._stage.schedule.after(_LOOK_S, self._look)

    def _look(self) -> None:
        for each in self._stage.all_living():
            actor = each.actor
            if isinstance(actor, OurMember) and isinstance(actor.offsets, TwoStores):
                for topic, number in actor.offsets.refused:
                    self._make_equal((topic, int(number)))
        self._stage.schedule.after(_LOOK_S, self._look)

    def _make_equal(self, partition: Partition) -> None:
        stage, offsets = self._stage, self._stage.brokers.offsets
        path = znodes.offset_path(GROUP, *partition)
        node = stage.zookeeper.read(path)
        kafka = offsets.stored.get(partition)
        zookeeper = int(node[0]) if node is not None and node[0].isdigit() else None
        if kafka is not None and (stage.is_stored_in_kafka or zookeeper is None) and kafka != zookeeper:
            if node is None:
                self.count += stage.operator_writes(lambda: stage.zookeeper.create(path, b"%d" % kafka, parents=True))
            else:
                self.count += stage.operator_writes(lambda: stage.zookeeper.set_data(path, b"%d" % kafka))
        elif zookeeper is not None and kafka != zookeeper:
            self.count += 1
            offsets.set_by_operator(partition, zookeeper)
