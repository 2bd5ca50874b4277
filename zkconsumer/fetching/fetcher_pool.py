"""The fetchers of one consumer, one for each broker, and the leader finder that gives them their partitions.

Rules, and which failure each prevents:
- A partition is given to a fetcher only while its task is the current one: a partition that was given up and taken
  again meanwhile would be fetched twice otherwise.
- A fetcher is registered after its thread was started: if the system gives no thread, the next try needs a new fetcher.

Source: kafka.server.AbstractFetcherManager, kafka.consumer.ConsumerFetcherManager (0.8.2.2).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from rebalance.rebalance_statistics import Counters
from rebalance.subscription import java_string_hash
from simpleconsumer.dialect import dialect_of
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.leaders import LeaderDirectory
from zkconsumer.config import ConsumerConfig
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.fetch_state import OutOfRange
from zkconsumer.fetching.fetcher import Fetcher, FetcherCalls
from zkconsumer.fetching.leader_finder import LeaderFinder
from zkconsumer.fetching.partition_queue import FetchTask

log = logging.getLogger(__name__)


class PoolCalls(NamedTuple):
    """The callbacks of a pool, on the threads of the leader finder and of the fetchers.

    Attributes:
        task_of: Returns the current task of a partition, None if it is not fetched any more.
        out_of_range: Called with each partition whose position turns out to be outside its log, with the offsets
            after its end that were read (`FetchState.behind_end`), and with where reading goes on.
        died: Called with the name of a thread that has ended by a fault, and the fault.
    """

    task_of: Callable[[TopicPartition], FetchTask | None]
    out_of_range: OutOfRange
    died: Callable[[str, BaseException], None]


class FetcherPool:
    """Finds the leaders of partitions and fetches from them, until a task is not wanted any more.

    Args:
        directory: Looks up leaders.
        budget: Shared by all fetchers.
        clock: Seconds.
        counters: Counts requests and errors.

    Attributes:
        finder: Looks for the leaders of the partitions that no fetcher has.

    Threads: Any.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        directory: LeaderDirectory,
        budget: ByteBudget,
        clock: Callable[[], float],
        calls: PoolCalls,
        counters: Counters,
    ) -> None:
        self._config = config
        self._directory = directory
        self._budget = budget
        self._clock = clock
        self._calls = calls
        self._counters = counters
        # Reentrant: a signal handler may close while the same thread is closing.
        self._lock = threading.RLock()
        self._fetchers: dict[tuple[Broker, int], Fetcher] = {}
        self._is_closed = False
        self.finder = LeaderFinder(
            directory, self._leader_found, config.refresh_leader_backoff_ms, clock, config.client_id, calls.died
        )

    def fetchers(self) -> list[Fetcher]:
        """Return the current fetchers."""
        with self._lock:
            return list(self._fetchers.values())

    def stop(self) -> None:
        """End the threads and close the connections, in the middle of a request if there is one; waits for nothing."""
        self.finder.stop()
        with self._lock:
            self._is_closed = True
            fetchers = self.fetchers()
        for fetcher in fetchers:
            fetcher.stop()

    def join(self, deadline: float) -> None:
        """Wait for the threads to end after `stop`; those still busy at the deadline are left to end by themselves."""
        with self._lock:
            fetchers = self.fetchers()
            self._fetchers.clear()
        for fetcher in fetchers:
            if not fetcher.join(deadline - self._clock()):
                log.warning("the fetcher of broker %d is still busy after the closing time-out", fetcher.broker.id)
        self.finder.join(deadline - self._clock())

    # -- on the threads of the finder and of the fetchers --------------------------------------------------------------

    def _leader_found(self, partition: TopicPartition, broker: Broker) -> None:
        """Give a partition to the fetcher of its leader (on the finder's thread)."""
        epoch = self._directory.epochs.get(partition, -1)
        self._place(partition, broker, lambda fetcher, task: fetcher.add(task, epoch))

    def _nearer(self, task: FetchTask, broker_id: int) -> None:
        """Give a partition to the fetcher of a replica that its leader has named (on the leader's fetcher's thread)."""
        broker = self._directory.brokers.get(broker_id)
        if broker is None:  # the next look-up learns of it
            self._leader_lost(task, None)
        else:
            self._place(task.state.partition, broker, Fetcher.follow)

    def _place(self, partition: TopicPartition, broker: Broker, give: Callable[[Fetcher, FetchTask], None]) -> None:
        task = self._calls.task_of(partition)
        if task is None or not task.is_wanted:
            return
        count = self._config.num_consumer_fetchers
        own_number = dialect_of(broker).partition_number(partition.partition)
        number = abs(31 * java_string_hash(partition.topic) + own_number) % count
        with self._lock:
            if self._is_closed or task.is_placed:
                return
            fetcher = self._fetchers.get((broker, number))
            if fetcher is None:
                fetcher = self._new_fetcher(broker, number)
                fetcher.start()
                self._fetchers[broker, number] = fetcher
            task.is_placed = True
            give(fetcher, task)

    def _new_fetcher(self, broker: Broker, number: int) -> Fetcher:
        name = f"fetcher-{self._config.client_id}-{broker.id}-{number}"
        calls = FetcherCalls(
            self._count_fetchers,
            self._leader_lost,
            self._nearer,
            self._is_idle,
            self._calls.out_of_range,
            self._calls.died,
        )
        return Fetcher(broker, self._config, self._budget, self._clock, name, calls, self._counters)

    def _count_fetchers(self) -> int:
        return len(self._fetchers)

    def _leader_lost(self, task: FetchTask, denied_by: int | None) -> None:
        if task.is_wanted and self._calls.task_of(task.state.partition) is task:
            self.finder.look_for(task.state.partition, denied_by, denials=task.state.denials)

    def _is_idle(self, fetcher: Fetcher) -> bool:
        """Return True, and remove the fetcher, if it still has no partitions."""
        with self._lock:
            if fetcher.tasks():
                return False
            for key, known in list(self._fetchers.items()):
                if known is fetcher:
                    del self._fetchers[key]
        return True
