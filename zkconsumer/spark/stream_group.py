"""Stores the offsets of a running stream for its group, and tries again after an error.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from zkconsumer.spark.errors import SparkSourceError
from zkconsumer.spark.group_offsets import GroupOffsets
from zkconsumer.spark.stream_offsets import StreamOffsets

__all__ = ["StreamGroup"]

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
"""Between two tries to store the same offsets."""


class StreamGroup:
    """The group of a stream.

    Args:
        group: Where the offsets are stored.
    """

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._stored: StreamOffsets | None = None
        self._refused: StreamOffsets | None = None
        self._retry_at = 0.0

    def store(self, offsets: StreamOffsets, is_connected: bool) -> None:
        """Store offsets, unless they are stored. An error is logged once, and tried again after some seconds.

        Args:
            is_connected: Whether ZooKeeper is connected.
        """
        if offsets == self._stored or (offsets == self._refused and time.monotonic() < self._retry_at):
            return
        try:
            if not is_connected:
                raise SparkSourceError("ZooKeeper is not connected")
            self._group.commit(offsets.offsets, offsets.created_zxids)
        except Exception as error:  # noqa: BLE001 - it would end the query, and the offsets are in the checkpoint
            if offsets != self._refused:
                log.warning("offsets are kept in the checkpoint and not stored for the group yet: %s", error)
            self._refused, self._retry_at = offsets, time.monotonic() + _RETRY_S
        else:
            self._stored = offsets
