"""Reads the offsets that a group of brokers has stored, again and again, as events of its history."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rebalance.rebalance_statistics import Counters
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.errors import ZkConsumerError
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetManager
from zkconsumer.testing.history import Event, Place

_PERIOD_S: Final = 0.1
_ANSWER_S: Final = 2.0


class OffsetWatch:
    """Writes an event `offset_node` for each stored offset that is another one than before.

    Args:
        addresses: Of brokers.
        group: The group.
        places: Which partitions.

    Attributes:
        events: What was seen so far; grows.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], group: str, places: Sequence[Place]) -> None:
        self.events: list[Event] = []
        self._places = places
        self._seen: dict[TopicPartition, int] = {}
        reader = MetadataReader(addresses, "offset-watch", _ANSWER_S)
        settings = ChannelSettings("offset-watch", 0.1, _ANSWER_S, ends_at_deadline=True)
        self._manager = OffsetManager(group, reader.brokers, settings, Counters())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="offset-watch", daemon=True)

    def _run(self) -> None:
        names = [TopicPartition(topic, int(number)) for topic, number in self._places]
        while not self._stop.wait(_PERIOD_S):
            try:
                answer = self._manager.fetch(names, time.monotonic() + _ANSWER_S)
            except ZkConsumerError:
                continue  # no broker answers at the moment
            for name, offset in answer.offsets.items():
                if offset is not None and self._seen.get(name) != offset:
                    self._seen[name] = offset
                    now = time.monotonic_ns()
                    self.events.append(Event(now, "offset_node", "", name.topic, name.partition, offset))

    @property
    def stored(self) -> dict[Place, int]:
        """The offsets as they were seen last."""
        return {(name.topic, name.partition): at for name, at in list(self._seen.items())}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._manager.close()
        self._thread.join(10.0)
