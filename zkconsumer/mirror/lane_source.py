"""Fetches the partitions of the source: one pool of fetchers for all lanes, and for each lane its chunks in order.

Chunks that are fetched and not copied take part in one budget of bytes: a target that stalls stops the reading.

Threads: each lane reads with its own thread; `LaneSource.stop` and `SourcePool.stop` from any.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from rebalance.rebalance_statistics import Counters
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import StreamFailed
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.fetch_state import EMPTY_TRIES, FetchState, LogTruncated, OutOfLog
from zkconsumer.fetching.fetcher_pool import FetcherPool, PoolCalls
from zkconsumer.fetching.partition_queue import Chunk, FetchTask, InHand, PartitionQueue
from zkconsumer.mirror.errors import SourceLost
from zkconsumer.mirror.lane_runs import RunCause
from zkconsumer.wakeup import Wakeup

_JOIN_S: Final = 2.0


class SourcePool:
    """The fetchers of the source.

    Args:
        config: Of a consumer of the source.
        cluster: The source.
        lanes: How many lanes may read at a time.
        counters: Counts requests, and how the brokers throttle this client.

    Attributes:
        budget: Of the chunks that are fetched and not copied.
        tasks: What is fetched now.
        config: Of a consumer of the source.
    """

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, lanes: int, counters: Counters | None = None
    ) -> None:  # fmt: skip
        self.config = config
        self.budget = ByteBudget(config.queued_max_bytes, max(1, lanes))
        self.tasks: dict[TopicPartition, FetchTask] = {}
        self.fault: StreamFailed | None = None
        calls = PoolCalls(self.tasks.get, lambda partition, gone, restart: None, self._died)
        counters = Counters() if counters is None else counters
        self._pool = FetcherPool(config, cluster.directory, self.budget, time.monotonic, calls, counters)

    def look_for(self, name: TopicPartition) -> None:
        """Start to fetch a partition that has a task now."""
        self._pool.finder.look_for(name, is_new=True)

    def forget(self, name: TopicPartition) -> None:
        """Fetch a partition no more."""
        task = self.tasks.pop(name, None)
        if task is not None:
            task.is_cancelled = True
            self._pool.finder.forget(name)
            if task.queue is not None:
                task.queue.end()

    def stop(self) -> None:
        """End the threads and the connections."""
        self._pool.stop()
        for name in list(self.tasks):
            self.forget(name)
        self._pool.join(time.monotonic() + _JOIN_S)

    def _died(self, name: str, error: BaseException) -> None:
        failure = StreamFailed(f"{name} has ended because of a bug: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self.fault = failure


class LaneSource:
    """The chunks of one partition of the source, in the order of its offsets.

    Attributes:
        _ready, _reader, handed: See `zkconsumer.fetching.partition_queue.Reader`; the last two are not used.
    """

    def __init__(self, pool: SourcePool, name: TopicPartition) -> None:
        self._pool = pool
        self._name = name
        self._ready: deque[PartitionQueue] = deque()
        self._reader: object = None
        self.handed: InHand | None = None
        self._wakeup = Wakeup()
        self._queue: PartitionQueue | None = None
        self._task: FetchTask | None = None

    def start(self, offset: int) -> None:
        """Read from an offset on; what was fetched before is dropped."""
        self.stop()
        self._queue = PartitionQueue(self._name, offset, self, self._pool.budget)
        state = FetchState(self._name, offset, self._pool.config.fetch_message_max_bytes)
        self._task = self._pool.tasks[self._name] = FetchTask(state, self._queue, "stop")
        self._pool.look_for(self._name)

    def stop(self) -> None:
        """Read no further."""
        if self._task is not None and self._pool.tasks.get(self._name) is self._task:
            self._pool.forget(self._name)
        self._queue = self._task = None
        self._ready.clear()

    def next_chunk(self, timeout_s: float) -> Chunk | None:
        """Return the next chunk; the same one again until `done` is called for it. None: there is none in time.

        Raises:
            SourceLost: The position is not in the log.
            StreamFailed: A thread has ended by a fault.
        """
        if self._pool.fault is not None:
            raise self._pool.fault
        queue = self._queue
        assert queue is not None
        if not queue.chunks:
            self._wakeup.wait(timeout_s)
        if not queue.chunks:
            return None
        chunk = queue.chunks[0]
        if isinstance(chunk.error, OutOfLog):
            raise self._lost(chunk.error)
        return chunk

    def done(self, chunk: Chunk) -> None:
        """Take note that a chunk was copied."""
        assert self._queue is not None
        self._queue.position = max(self._queue.position, chunk.next_offset)
        self._queue.take_out(chunk)

    def wake(self) -> None:
        """End a wait for the next chunk."""
        self._wakeup.wake()

    def is_empty_to(self, end: int) -> bool:
        """Return whether the log has no records between the position and an offset, as its leader says."""
        if self._task is None or self._queue is None or self._queue.chunks:
            return False
        return self._task.state.empty >= EMPTY_TRIES and self._task.state.high_watermark >= end

    @property
    def end(self) -> int:
        """Where the log of the source ends, as its leader last said; -1 if it has not."""
        return -1 if self._task is None else self._task.state.high_watermark

    @property
    def trouble(self) -> str:
        """Why nothing comes, a clause; empty if nothing is wrong."""
        return "" if self._task is None else self._task.state.holds_up(time.monotonic()) or ""

    def _lost(self, error: OutOfLog) -> SourceLost:
        place = f"{self._name.topic}/{self._name.partition}"
        if isinstance(error, LogTruncated):
            reason = (
                f"{error}: records {error.latest} to {error.position - 1}, which were copied, are lost at the source"
            )
            return SourceLost(place, error.position, None, RunCause.TRUNCATED.value, reason)
        if error.position < error.earliest:
            reason = f"{error}: offsets {error.position} to {error.earliest - 1} were deleted before they were copied"
            return SourceLost(place, error.position, error.earliest, RunCause.RETENTION.value, reason)
        reason = f"{error}: the log was cut off at {error.latest}, and its later records were copied"
        return SourceLost(place, error.position, None, RunCause.TRUNCATED.value, reason)

    # -- for the queue -------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._wakeup.wake()

    def _has_in_hand(self, reader: object, hand: InHand) -> bool:
        return False

    def _is_being_read(self) -> bool:
        return self._task is not None
