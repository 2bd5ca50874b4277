"""An operator who puts stored positions of Kafka 0.7 right at which no entry starts, when all faults are over.

Members of ours go back to the start of the entry by themselves. A Java member ends with an exception, each time that it
starts there, and what it commits until then is the same position.
"""

from __future__ import annotations

from typing import Final

from rebalance.zookeeper import znodes
from tests.simulator.plan import GROUP
from tests.simulator.stage import Stage

__all__ = ["PositionRepairs"]

_LOOK_S: Final = 1.0


class PositionRepairs:
    """Looks every second, as a Java member may store the position once more behind its repair."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def start(self) -> None:
        """Start to look."""
        self._stage.schedule.after(_LOOK_S, self._look)

    def _look(self) -> None:
        if not self._stage.faults_left_s:
            for topic, partitions in self._stage.brokers.partitions.items():
                for partition in partitions:
                    self._put_right(topic, partition)
        self._stage.schedule.after(_LOOK_S, self._look)

    def _put_right(self, topic: str, partition: int | str) -> None:
        stage, place = self._stage, self._stage.brokers.place(topic, partition)
        path = znodes.offset_path(GROUP, topic, partition)
        node = stage.zookeeper.read(path)
        if node is None or not node[0].isdigit():
            return
        position = int(node[0])
        start = stage.brokers.entries.start_of(place, position)
        if start != position:
            stage.operator_writes(lambda: stage.zookeeper.set_data(path, b"%d" % start))
