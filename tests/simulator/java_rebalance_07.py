"""The rebalance of the Java consumer of Kafka 0.7.2, step by step as in the source. Pure.

Differences from 0.8: offsets are committed in every rebalance, whatever auto-commit says; brokers are read before each
attempt, and one that goes meanwhile ends all attempts; a missing offset is asked for within the rebalance; and a
partition whose broker is not there fails the attempt when its owner nodes stand already.

Source: kafka.consumer.ZookeeperConsumerConnector.ZKRebalancerListener (0.7.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from rebalance.zookeeper import znodes
from tests.simulator.java_delivery import PartitionInfo, Queue
from tests.simulator.java_delivery_07 import Fetchers07
from tests.simulator.java_layout import Decision, in_java_order, java_range
from tests.simulator.java_rebalance import RebalancedConnector, Rebalancer
from tests.simulator.java_threads import Body

__all__ = ["Rebalancer07"]


class _Connector07(RebalancedConnector, Protocol):
    """What it reads and changes of its connector beyond what 0.8 does."""

    def start_offset(self, topic: str, partition: int | str, brokers: Sequence[int]) -> Body[int]: ...


class Rebalancer07(Rebalancer):
    """The rebalances of one connector."""

    def synced_rebalance(self) -> Body[None]:
        """One attempt after the other until one succeeds.

        Raises:
            RebalanceFailed: none did.
            JavaFailure: a broker has gone while the cluster was read.
        """
        connector = self._connector
        yield from connector.rebalance_lock.acquire()
        try:
            for _ in range(connector.settings.max_retries):
                brokers = yield from self._cluster()
                if (yield from self._attempt(self._rebalance_on(brokers))):
                    return
                yield from self._close_fetchers(list(connector.queues.values()))
                yield connector.threads.sleep(connector.settings.backoff_s)
        finally:
            connector.rebalance_lock.release()
        self._give_up()

    def _cluster(self) -> Body[list[int]]:
        connector = self._connector
        names = yield from connector.children_or_none(znodes.BROKERS)
        for name in names:
            yield from connector.zookeeper.read(f"{znodes.BROKERS}/{name}")
        return [int(name) for name in names]

    def _rebalance_on(self, brokers: Sequence[int]) -> Body[bool]:
        connector = cast(_Connector07, self._connector)
        settings, layout = connector.settings, connector.layout
        mine = yield from self._threads_of(settings.consumer_id)
        everybody: dict[str, list[str]] = {}
        for consumer_id in (yield from connector.children_or_none(layout.ids_path(settings.group))):
            for topic, threads in (yield from self._threads_of(consumer_id)).items():
                everybody.setdefault(topic, []).extend(threads)
        partitions: dict[str, list[int | str]] = {}
        for topic in mine:
            partitions[topic] = yield from layout.read_partitions(connector.zookeeper, topic)
        yield from self._close_fetchers([queue for (topic, _), queue in connector.queues.items() if topic in mine])
        yield from self._release()
        ordered = {topic: in_java_order(threads) for topic, threads in everybody.items()}
        decision: Decision = java_range(settings.consumer_id, mine, partitions, ordered)
        registry: dict[str, dict[int | str, PartitionInfo]] = {topic: {} for topic in mine}
        for (topic, partition), thread_id in decision.items():
            offset = yield from connector.start_offset(topic, partition, brokers)
            queue = connector.queues.get((topic, thread_id))
            registry[topic][partition] = PartitionInfo(topic, partition, offset, thread_id, queue)
        if not (yield from self._claim(decision)):
            return False
        connector.registry = registry
        fetchers = connector.fetchers
        assert isinstance(fetchers, Fetchers07)
        fetchers.start_on([info for infos in registry.values() for info in infos.values()], brokers)
        return True

    def _close_fetchers(self, queues: Sequence[Queue]) -> Body[None]:
        """Stop fetching, empty queues and streams, and commit."""
        connector = self._connector
        yield from connector.fetchers.stop()
        for queue in queues:
            queue.clear()
        for stream in connector.streams:
            stream.clear()
        yield from connector.commit_offsets()
