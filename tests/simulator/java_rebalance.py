"""ZKRebalancerListener: the rebalance of the Java consumer, step by step as in the source. Pure.

An attempt stops all fetching, commits, deletes its owner nodes by their paths, reads the group, reads the offsets, and
claims all that it should own, or nothing. A conflict anywhere fails the attempt; after the last one it gives up, and
owns nothing until something else triggers it.

Source: kafka.consumer.ZookeeperConsumerConnector.ZKRebalancerListener, kafka.consumer.PartitionAssignor (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from rebalance.subscription import Subscription, sort_partitions, thread_ids
from rebalance.zookeeper import znodes
from tests.simulator.actor import Surroundings
from tests.simulator.java_delivery import Fetchers, PartitionInfo, Queue, Stream
from tests.simulator.java_hashing import in_map_order, partition_hash, topic_hash
from tests.simulator.java_layout import Decision, Layout, in_java_order, java_range, java_roundrobin
from tests.simulator.java_settings import ConnectorSettings
from tests.simulator.java_threads import Body, JavaFailure, Lock, Monitor, Threads
from tests.simulator.java_zkclient import NodeExists, NoNode, ZkClient

__all__ = ["GivenUp", "RebalanceFailed", "Rebalancer"]


class RebalanceFailed(JavaFailure):
    """ConsumerRebalanceFailedException: all attempts are used up."""


class GivenUp(NamedTuple):
    """A rebalance whose attempts were used up.

    Attributes:
        at_s: virtual time.
        conflicts: of the last attempt: owner node -> what it held; nothing if it vanished before it was read.
        error: the exception that ended the last attempt, empty with conflicts.
    """

    at_s: float
    conflicts: Mapping[str, str]
    error: str


class RebalancedConnector(Protocol):
    """What a rebalance reads and changes of its connector; the attributes are those of `JavaConnector`."""

    settings: ConnectorSettings
    layout: Layout
    zookeeper: ZkClient
    fetchers: Fetchers
    threads: Threads
    surroundings: Surroundings
    registry: dict[str, dict[int | str, PartitionInfo]]
    checkpointed: dict[tuple[str, int | str], int]
    queues: dict[tuple[str, str], Queue]
    streams: list[Stream]
    is_shutting_down: bool
    rebalance_lock: Lock

    def commit_offsets(self) -> Body[None]: ...

    def load_offset(self, topic: str, partition: int | str) -> Body[int]: ...

    def create_ephemeral(self, path: str, data: bytes) -> Body[None]: ...

    def children_or_none(self, path: str) -> Body[list[str]]: ...


class Rebalancer:
    """The rebalances of one connector.

    Attributes:
        attempts, failures, conflicts: how many attempts were started and failed, how many claims met another's node.
        given_up: the rebalances whose attempts were used up.
        is_triggered: a rebalance is wanted, and not started yet.
    """

    def __init__(self, connector: RebalancedConnector) -> None:
        self.attempts = self.failures = self.conflicts = 0
        self.given_up: list[GivenUp] = []
        self.is_triggered = False
        self._connector = connector
        self._wanted = Monitor()
        self._last_conflicts: dict[str, str] = {}
        self._last_error = ""
        connector.threads.start("executor", self._run_executor())

    # -- the executor thread ----------------------------------------------------------------------------------------

    def triggered(self, news: Any) -> Body[None]:
        """A listener of any path: a rebalance is wanted."""
        self.is_triggered = True
        self._wanted.notify_all()
        yield from ()

    def wake(self) -> None:
        """Have the executor thread look whether the connector shuts down."""
        self._wanted.notify_all()

    def _run_executor(self) -> Body[None]:
        connector = self._connector
        while not connector.is_shutting_down:
            if not self.is_triggered:
                yield self._wanted.wait
            if self.is_triggered:
                self.is_triggered = False
                try:
                    yield from self.synced_rebalance()
                except JavaFailure as failure:
                    connector.threads.failures.append(f"error during syncedRebalance: {failure!r}")

    # -- attempts ---------------------------------------------------------------------------------------------------

    def synced_rebalance(self) -> Body[None]:
        """One attempt after the other until one succeeds.

        Raises:
            RebalanceFailed: none did.
        """
        connector = self._connector
        yield from connector.rebalance_lock.acquire()
        try:
            if connector.is_shutting_down:
                return
            for _ in range(connector.settings.max_retries):
                if (yield from self._attempt(self._rebalance())):
                    return
                yield from self._close_fetchers(list(connector.queues.values()))
                yield connector.threads.sleep(connector.settings.backoff_s)
        finally:
            connector.rebalance_lock.release()
        self._give_up()

    def _give_up(self) -> NoReturn:
        connector = self._connector
        now = connector.threads.process.schedule.now
        self.given_up.append(GivenUp(now, dict(self._last_conflicts), self._last_error))
        connector.surroundings.record("gave_up", message_id=self._last_error)
        raise RebalanceFailed(
            f"{connector.settings.consumer_id} can't rebalance after {connector.settings.max_retries} retries"
        )

    def _attempt(self, rebalance: Body[bool]) -> Body[bool]:
        """Whether a rebalance came to its end; a failure in it is one of the attempt."""
        self.attempts += 1
        self._last_conflicts.clear()
        self._last_error = ""
        try:
            done = yield from rebalance
        except JavaFailure as failure:
            self._last_error = repr(failure)
            done = False
        if not done:
            self.failures += 1
        return done

    def _rebalance(self) -> Body[bool]:
        connector = self._connector
        yield from self._read_cluster()
        topics = yield from self._threads_of(connector.settings.consumer_id)
        if not (yield from self.read_brokers()):
            yield from connector.zookeeper.subscribe_children(znodes.BROKERS, self.triggered)
            return True
        yield from self._close_fetchers([queue for (topic, _), queue in connector.queues.items() if topic in topics])
        yield from self._release()
        decision = yield from self._decide()
        infos = []
        for (topic, partition), thread_id in decision.items():
            offset = yield from connector.load_offset(topic, partition)
            infos.append((topic, partition, offset, thread_id))
        if connector.is_shutting_down:
            return False
        registry: dict[str, dict[int | str, PartitionInfo]] = {}
        for topic, partition, offset, thread_id in infos:
            queue = connector.queues.get((topic, thread_id))
            registry.setdefault(topic, {})[partition] = PartitionInfo(topic, partition, offset, thread_id, queue)
            connector.checkpointed[topic, partition] = offset
        if not (yield from self._claim(decision)):
            return False
        connector.registry = registry
        connector.fetchers.start([info for partitions in registry.values() for info in partitions.values()])
        return True

    def _close_fetchers(self, queues: Sequence[Queue]) -> Body[None]:
        """Stop fetching, empty queues and streams, commit: in this order."""
        connector = self._connector
        yield from connector.fetchers.stop()
        for queue in queues:
            queue.clear()
        for stream in connector.streams:
            stream.clear()
        if connector.settings.auto_commit_s:
            yield from connector.commit_offsets()

    def _release(self) -> Body[None]:
        """Delete the owner nodes of what is in the registry, whichever member they belong to by now."""
        connector = self._connector
        registry = connector.registry
        for topic, partitions in list(registry.items()):
            for partition in sort_partitions(partitions):
                yield from connector.zookeeper.delete(self._owner_path(topic, partition))
            registry.pop(topic, None)

    def _claim(self, decision: Decision) -> Body[bool]:
        """Create all owner nodes; after a conflict delete those that were created."""
        connector = self._connector
        surroundings = connector.surroundings
        owned = []
        for (topic, partition), thread_id in decision.items():
            path = self._owner_path(topic, partition)
            try:
                yield from connector.create_ephemeral(path, thread_id.encode())
                owned.append(path)
            except NodeExists as conflict:
                self.conflicts += 1
                self._last_conflicts[path] = conflict.stored
                surroundings.record("blocked_try", surroundings.brokers.place(topic, partition), -1, conflict.stored)
        if len(owned) == len(decision):
            return True
        for path in reversed(owned):
            yield from connector.zookeeper.delete(path)
        return False

    def _owner_path(self, topic: str, partition: int | str) -> str:
        return self._connector.layout.owner_path(self._connector.settings.group, topic, partition)

    # -- reading the group ------------------------------------------------------------------------------------------

    def _decide(self) -> Body[Decision]:
        """AssignmentContext and PartitionAssignor; what comes out is in the order of a hash map."""
        connector = self._connector
        settings, layout = connector.settings, connector.layout
        mine = yield from self._threads_of(settings.consumer_id)
        partitions: dict[str, list[int | str]] = {}
        for topic in mine:
            partitions[topic] = yield from layout.read_partitions(connector.zookeeper, topic)
        everybody: dict[str, list[str]] = {}
        for consumer_id in (yield from connector.children_or_none(layout.ids_path(settings.group))):
            for topic, threads in (yield from self._threads_of(consumer_id)).items():
                everybody.setdefault(topic, []).extend(threads)
        yield from connector.zookeeper.children(layout.ids_path(settings.group))
        ordered = {topic: in_java_order(threads) for topic, threads in everybody.items()}
        if settings.strategy == "roundrobin":
            dealt = java_roundrobin(settings.consumer_id, mine, partitions, ordered, settings.order)
        else:
            dealt = java_range(settings.consumer_id, mine, partitions, ordered)
        return {partition: dealt[partition] for partition in in_map_order(dealt, partition_hash)}

    def _threads_of(self, consumer_id: str) -> Body[dict[str, list[str]]]:
        """TopicCount: topic -> threads of a consumer, as its registration says."""
        connector = self._connector
        path = connector.layout.registration_path(connector.settings.group, consumer_id)
        data = yield from connector.zookeeper.read(path)
        subscription: Subscription = connector.layout.parse_registration(path, data)
        known: Sequence[str] = ()
        if subscription.is_wildcard:
            known = yield from connector.children_or_none(znodes.TOPICS)
        topics = in_map_order(subscription.topics(known), topic_hash)
        return {topic: thread_ids(consumer_id, subscription.streams_of(topic)) for topic in topics}

    def _read_cluster(self) -> Body[None]:
        """`getCluster`: a broker that vanishes while it is read is an exception."""
        connector = self._connector
        for name in (yield from connector.children_or_none(znodes.BROKERS)):
            yield from connector.zookeeper.read(f"{znodes.BROKERS}/{name}")

    def read_brokers(self) -> Body[list[str]]:
        """`getAllBrokersInCluster`: the brokers that there are."""
        connector = self._connector
        names = yield from connector.children_or_none(znodes.BROKERS)
        found = []
        for name in sorted(names):
            try:
                yield from connector.zookeeper.read(f"{znodes.BROKERS}/{name}")
            except NoNode:
                continue
            found.append(name)
        return found
