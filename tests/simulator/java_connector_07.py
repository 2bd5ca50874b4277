"""ZookeeperConsumerConnector of Kafka 0.7.2: what differs from 0.8 outside of a rebalance. Pure.

The watch on the list of topics has a session of its own, which ends at another time than the consumer's. It is on
another event thread, and has a lock that `shut_down` waits for; a rebalance of another thread it does not wait for.

Source: kafka.consumer.ZookeeperConsumerConnector, kafka.consumer.ZookeeperTopicEventWatcher, kafka.utils.ZkUtils
(0.7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rebalance.zookeeper.znodes_07 import broker_and_number
from tests.simulator.brokers import Ends
from tests.simulator.java_connector import CLOSE_S, JavaConnector
from tests.simulator.java_delivery import Stream
from tests.simulator.java_delivery_07 import Stream07
from tests.simulator.java_rebalance import Rebalancer
from tests.simulator.java_rebalance_07 import Rebalancer07
from tests.simulator.java_threads import Body, BoundedQueue, JavaFailure, Lock
from tests.simulator.java_zkclient import NoNode, ZkClient

__all__ = ["JavaConnector07"]

_QUEUED_CHUNKS = 10
_UNKNOWN = -1


class JavaConnector07(JavaConnector):
    """One connector; `create_streams` and `shut_down` are bodies of threads."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._topic_lock = Lock()
        self._topic_watcher: ZkClient | None = None

    def _new_rebalancer(self) -> Rebalancer:
        return Rebalancer07(self)

    def _new_stream(self) -> Stream:
        return Stream07(BoundedQueue(_QUEUED_CHUNKS))

    def _shared_stream(self, number: int) -> Stream:
        """The last one, for all threads: of several streams of a wildcard only that one gets messages."""
        return self._shared_streams[-1]

    def _register(self) -> Body[None]:
        """Create the registration once: an older one with the same text passes for this one."""
        settings = self.settings
        path = self.layout.registration_path(settings.group, settings.consumer_id)
        yield from self.create_ephemeral(path, self.layout.format_registration(settings.subscription, 0))

    # -- the list of topics -----------------------------------------------------------------------------------------

    def _watch_topics(self, zookeeper: ZkClient) -> Body[None]:
        """Listen to the list of topics on a connection of its own."""
        second_port = self.surroundings.second_port
        assert second_port is not None
        watcher = self._topic_watcher = ZkClient(second_port(), self.threads, self.surroundings.rng)
        yield from watcher.connect(self.settings.session_s)
        yield from super()._watch_topics(watcher)

    def _topics_changed(self, names: Any) -> Body[None]:
        yield from self._topic_lock.acquire()
        try:
            yield from super()._topics_changed(names)
        finally:
            self._topic_lock.release()

    def _topic_changed(self, data: Any) -> Body[None]:
        yield from self.rebalancer.triggered(data)

    # -- offsets ----------------------------------------------------------------------------------------------------

    def commit_offsets(self, is_auto: bool = True) -> Body[None]:
        """Write the consumed offset of each partition in the registry, changed or not; errors are logged."""
        for topic, partitions in list(self.registry.items()):
            for partition, info in list(partitions.items()):
                path = self.layout.offset_path(self.settings.group, topic, partition)
                try:
                    yield from self.update_persistent(path, b"%d" % info.consumed)
                except JavaFailure as failure:
                    self.threads.failures.append(f"exception during commitOffsets: {failure!r}")

    def store_offset(self, topic: str, partition: int | str, offset: int) -> Body[None]:
        """Write one offset."""
        yield from self.update_persistent(
            self.layout.offset_path(self.settings.group, topic, partition), b"%d" % offset
        )

    def start_offset(self, topic: str, partition: int | str, brokers: Sequence[int]) -> Body[int]:
        """The stored offset, or where `autooffset.reset` says; -1 if the broker does not say where that is."""
        path = self.layout.offset_path(self.settings.group, topic, partition)
        try:
            data = yield from self.zookeeper.read(path)
        except NoNode:
            return (yield from self._first_offset(topic, partition, brokers))
        return self.layout.parse_offset(path, data)

    def _first_offset(self, topic: str, partition: int | str, brokers: Sequence[int]) -> Body[int]:
        if broker_and_number(partition)[0] not in brokers:
            return _UNKNOWN

        def ask(go_on: Callable[[Ends], None]) -> None:
            self.surroundings.brokers.ask_ends(self.threads.process, topic, partition, go_on)

        ends: Ends = yield ask
        if ends.error:
            return _UNKNOWN
        return ends.earliest if self.settings.reset == "smallest" else ends.latest

    # -- shutting down ----------------------------------------------------------------------------------------------

    def shut_down(self) -> Body[None]:
        """Leave in order; a rebalance that is under way is not waited for."""
        if self.is_shutting_down:
            return
        self.is_shutting_down = True
        self.rebalancer.wake()
        if self._topic_watcher is not None:
            yield from self._topic_lock.acquire()
            yield from self._topic_watcher.close(CLOSE_S)
        self._timer_is_over = True
        yield from self._end_delivery()
