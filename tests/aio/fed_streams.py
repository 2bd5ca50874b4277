"""Asynchronous streams with queues of their own, fed by the test in place of a fetcher."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from rebalance.lease import lease_clock
from simpleconsumer.types import TopicPartition
from tests.fetching.feeding import MIB, HeldLease, config_of
from zkconsumer.aio.reading import AsyncKafkaStream, LoopStream, Reading
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.partition_queue import PartitionQueue
from zkconsumer.streams.stream import StreamParts


class AsyncFeed:
    """One stream of the running loop."""

    def __init__(self, **settings: Any) -> None:
        self.lease = HeldLease()
        decoders = {name: settings.pop(name) for name in ("key_decoder", "value_decoder") if name in settings}
        parts = StreamParts("thread-0", config_of(**settings), self.lease, lease_clock, **decoders)
        self.loop_closed = threading.Event()
        loop = asyncio.get_running_loop()
        self.inner: LoopStream[Any, Any] = LoopStream(parts, loop, self.loop_closed.set)
        self.stream: AsyncKafkaStream[Any, Any] = AsyncKafkaStream(Reading(self.inner, loop), self)
        self.budget = ByteBudget(64 * MIB)

    def queue(self, partition: int = 0, position: int = 0, topic: str = "t") -> PartitionQueue:
        return PartitionQueue(TopicPartition(topic, partition), position, self.inner, self.budget)


def later(call: Any, *arguments: object, after_s: float = 0.05) -> threading.Thread:
    """Call something on another thread, a moment later."""
    timer = threading.Timer(after_s, call, arguments)
    timer.daemon = True
    timer.start()
    return timer
