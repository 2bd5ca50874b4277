"""Reads the offsets in Kafka of a group that keeps its offsets in ZooKeeper, to compare the two.

Rule: a broker that does not answer must not delay each rebalance of a group that does not need its answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rebalance.counters import Counters
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.errors import ZkConsumerError
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetAnswer, OffsetManager

__all__ = ["OffsetComparison"]

log = logging.getLogger(__name__)

_AGAIN_S: Final = 60.0
"""How long nothing is read after a failure, and how long an answer holds that there are no offsets in Kafka."""


class OffsetComparison(OffsetManager):
    """An offset manager that is only read, and only if the cluster keeps offsets in Kafka.

    Args:
        has_offsets: Returns whether the cluster keeps offsets in Kafka at all; may block, and may raise a
            ZkConsumerError. A broker that is asked for an offset manager would create the topic.
        is_required: False: an offset that cannot be read counts as none, and no offset is read for a minute.

    Other arguments and threads as for `OffsetManager`.
    """

    def __init__(
        self,
        group: str,
        read_brokers: Callable[[], Sequence[Broker]],
        settings: ChannelSettings,
        counters: Counters,
        *,
        has_offsets: Callable[[], bool],
        is_required: bool,
    ) -> None:
        super().__init__(group, read_brokers, settings, counters)
        self._has_offsets = has_offsets
        self._is_required = is_required
        self._exists = False
        self._not_before = float("-inf")

    def fetch(self, partitions: Iterable[TopicPartition], deadline: float) -> OffsetAnswer:
        """Return the stored offsets, None for all where there is nothing to compare with."""
        names = list(partitions)
        try:
            if not self._is_due():
                return OffsetAnswer(dict.fromkeys(names), {})
            answer = super().fetch(names, deadline)
        except ZkConsumerError as error:
            answer = OffsetAnswer({}, dict.fromkeys(names, str(error)))
        self._drop()  # nobody else uses the connection until the next rebalance
        if not answer.unknown or self._is_required:
            return answer
        self._not_before = time.monotonic() + _AGAIN_S
        # Otherwise a group whose other members store in Kafka would skip or repeat messages without a word in the log.
        log.warning("the offsets of %d partitions are not compared with those in Kafka: %s; if other members of the "
                    "group store their offsets there (offsets.storage), messages are skipped or repeated",
                    len(answer.unknown), next(iter(answer.unknown.values())))
        return OffsetAnswer({**answer.offsets, **dict.fromkeys(answer.unknown)}, {})

    def _is_due(self) -> bool:
        if not self._exists and time.monotonic() >= self._not_before:
            self._exists = self._has_offsets()
            self._not_before = float("-inf") if self._exists else time.monotonic() + _AGAIN_S
        return self._exists and time.monotonic() >= self._not_before
