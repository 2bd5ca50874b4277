"""ZookeeperConsumerConnector: what the Java consumer does with ZooKeeper outside of a rebalance. Pure.

Registers, commits, listens to its session, to members and to topics, and shuts down; the same methods in the same
order of requests. Nothing is fenced: offsets are written whatever member owns the partition by then, and whatever
is stored.

Source: kafka.consumer.ZookeeperConsumerConnector, kafka.consumer.ZookeeperTopicEventWatcher, kafka.utils.ZkUtils
(0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rebalance.subscription import sort_partitions, thread_ids
from rebalance.zookeeper import znodes
from tests.simulator.actor import Surroundings
from tests.simulator.java_delivery import Fetchers, PartitionInfo, Queue, Stream
from tests.simulator.java_layout import Layout
from tests.simulator.java_rebalance import Rebalancer
from tests.simulator.java_settings import ConnectorSettings
from tests.simulator.java_threads import Body, BoundedQueue, JavaFailure, Lock, Threads
from tests.simulator.java_zkclient import NodeExists, NoNode, ZkClient
from tests.simulator.kafka_offsets import MAX_RETRIES
from tests.simulator.offset_storage import BACKOFF_S, OffsetChannel

__all__ = ["JavaConnector"]

_QUEUED_CHUNKS = 2
CLOSE_S = 2.0


class JavaConnector:
    """One connector; `create_streams` and `shut_down` are bodies of threads.

    Args:
        zookeeper: its client, not connected.

    Attributes:
        registry: topic -> partition -> what it fetches: the partitions that it believes to own.
        streams: what the application reads.
        rebalancer: with the counts.
        waits_for_own_registration: whether its event thread waits for a registration to vanish that belongs to its very
            session. That lasts for ever, and no watch is processed meanwhile: it happens when a second session expires
            before the first expiry was handled (KAFKA-1387).
    """

    def __init__(
        self,
        settings: ConnectorSettings,
        layout: Layout,
        zookeeper: ZkClient,
        fetchers: Fetchers,
        threads: Threads,
        surroundings: Surroundings,
    ) -> None:
        self.settings = settings
        self.layout = layout
        self.zookeeper = self._topics_client = zookeeper
        self.fetchers = fetchers
        self.threads = threads
        self.surroundings = surroundings
        self.registry: dict[str, dict[int | str, PartitionInfo]] = {}
        self.checkpointed: dict[tuple[str, int | str], int] = {}
        self.queues: dict[tuple[str, str], Queue] = {}
        self.streams: list[Stream] = []
        self.is_shutting_down = False
        self.waits_for_own_registration = False
        self.rebalance_lock = Lock()
        self.rebalancer = self._new_rebalancer()
        self._commit_lock = Lock()
        self._channel = OffsetChannel(surroundings.brokers.offsets, threads.process)
        self._timer_is_over = False
        self._registered_in = 0
        self._shared_streams: list[Stream] = []
        self._wildcard_topics: list[str] = []

    def _new_rebalancer(self) -> Rebalancer:
        return Rebalancer(self)

    def _new_stream(self) -> Stream:
        return Stream(BoundedQueue(_QUEUED_CHUNKS))

    # -- starting ---------------------------------------------------------------------------------------------------

    def create_streams(self) -> Body[None]:
        """The constructor and `createMessageStreams`; JavaFailure is what it throws."""
        settings = self.settings
        yield from self.zookeeper.connect(settings.session_s)
        if settings.auto_commit_s:
            self.threads.start("auto-commit", self._auto_commit())
        if settings.subscription.is_wildcard:
            yield from self._create_wildcard_streams()
        else:
            yield from self._register()
            yield from self._reinitialize(dict(settings.subscription.entries))

    def _create_wildcard_streams(self) -> Body[None]:
        count = self.settings.subscription.entries[0][1]
        self._shared_streams = [self._new_stream() for _ in range(count)]
        self.streams.extend(self._shared_streams)  # the application has them before any topic matches
        self._wildcard_topics = yield from self._matching_topics()
        yield from self._register()
        yield from self._reinitialize(dict.fromkeys((yield from self._matching_topics()), count))
        yield from self._watch_topics(self.zookeeper)

    def _watch_topics(self, zookeeper: ZkClient) -> Body[None]:
        """Listen to the list of topics on this connection, and look at it once."""
        self._topics_client = zookeeper
        if not (yield from zookeeper.exists(znodes.TOPICS)):
            yield from zookeeper.create_with_parents(znodes.TOPICS)
        zookeeper.subscribe_sessions(self._resubscribe_topics)
        yield from zookeeper.subscribe_children(znodes.TOPICS, self._topics_changed)
        yield from self._topics_changed(None)

    def _register(self) -> Body[None]:
        """Create the registration, however long an older one of the same name stays."""
        settings = self.settings
        path = self.layout.registration_path(settings.group, settings.consumer_id)
        data = self.layout.format_registration(settings.subscription, self.surroundings.wall_clock_ms())
        while True:
            try:
                yield from self.create_ephemeral(path, data)
            except NodeExists:
                try:
                    yield from self.zookeeper.read(path)
                except NoNode:
                    continue
                self.waits_for_own_registration = self._registered_in == self.zookeeper.session_id
                yield self.threads.sleep(settings.session_s)
            else:
                self._registered_in = self.zookeeper.session_id
                self.waits_for_own_registration = False
                return

    def _reinitialize(self, counts: Mapping[str, int]) -> Body[None]:
        """Queues for each topic and thread, listeners, and a rebalance."""
        settings = self.settings
        for topic, count in counts.items():
            for number, thread_id in enumerate(thread_ids(settings.consumer_id, count)):
                stream = self._shared_stream(number) if self._shared_streams else self._new_stream()
                if stream not in self.streams:
                    self.streams.append(stream)
                self.queues[topic, thread_id] = stream.queue
        zookeeper = self.zookeeper
        zookeeper.subscribe_sessions(self._session_is_new)
        yield from zookeeper.subscribe_children(self.layout.ids_path(settings.group), self.rebalancer.triggered)
        for topic in dict.fromkeys(topic for topic, _ in self.queues):
            yield from self.layout.watch_topic(zookeeper, topic, self._topic_changed)
        yield from self.rebalancer.synced_rebalance()

    def _shared_stream(self, number: int) -> Stream:
        """The stream of a wildcard that this thread of every topic feeds."""
        return self._shared_streams[number]

    # -- listeners, on the event thread -----------------------------------------------------------------------------

    def _session_is_new(self) -> Body[None]:
        """All ephemeral nodes are gone. What is fetched, queued and delivered goes on until the rebalance stops it."""
        self.registry.clear()
        yield from self._register()
        yield from self.rebalancer.synced_rebalance()

    def _topic_changed(self, data: Any) -> Body[None]:
        if data is not None:  # that a topic is deleted is only logged
            yield from self.rebalancer.triggered(data)

    def _resubscribe_topics(self) -> Body[None]:
        yield from self._topics_client.subscribe_children(znodes.TOPICS, self._topics_changed)

    def _topics_changed(self, names: Any) -> Body[None]:
        try:
            known = yield from self._topics_client.children(znodes.TOPICS)
            topics = [topic for topic in known if self.settings.subscription.matches(topic)]
            before, self._wildcard_topics = self._wildcard_topics, topics
            if set(before) != set(topics):
                count = self.settings.subscription.entries[0][1]
                yield from self._reinitialize(dict.fromkeys((yield from self._matching_topics()), count))
        except JavaFailure as failure:
            self.threads.failures.append(f"error in handling child changes: {failure!r}")

    def _matching_topics(self) -> Body[list[str]]:
        known = yield from self.children_or_none(znodes.TOPICS)
        return [topic for topic in known if self.settings.subscription.matches(topic)]

    # -- offsets ----------------------------------------------------------------------------------------------------

    def _auto_commit(self) -> Body[None]:
        """At a fixed rate: what was missed is made up for, one commit after the other."""
        clock, interval_s = self.threads.process.clock, self.settings.auto_commit_s
        due_s = clock() + interval_s
        while True:
            yield self.threads.sleep(max(0.0, due_s - clock()))
            due_s += interval_s
            if self._timer_is_over:
                return
            try:
                yield from self.commit_offsets()
            except JavaFailure as failure:
                self.threads.failures.append(f"exception during autoCommit: {failure!r}")

    def commit_offsets(self, is_auto: bool = True) -> Body[None]:
        """Write the consumed offset of each partition in the registry: in ZooKeeper, if it differs from the last one.

        A commit to Kafka that fails is tried again only if the application asked for it.
        """
        yield from self._commit_lock.acquire()
        try:
            offsets = [
                (topic, partition, partitions[partition].consumed)
                for topic, partitions in self.registry.items()
                for partition in sort_partitions(partitions)
            ]
            if self.settings.storage == "zookeeper":
                yield from self._commit_to_zookeeper(offsets)
            elif offsets:
                yield from self._commit_to_kafka(offsets, 1 if is_auto else 1 + MAX_RETRIES)
        finally:
            self._commit_lock.release()

    def _commit_to_zookeeper(self, offsets: Iterable[tuple[str, int | str, int]]) -> Body[None]:
        for topic, partition, offset in offsets:
            if self.checkpointed.get((topic, partition)) != offset:
                path = self.layout.offset_path(self.settings.group, topic, partition)
                yield from self.update_persistent(path, b"%d" % offset)
                self.checkpointed[topic, partition] = offset

    def _commit_to_kafka(self, offsets: Sequence[tuple[str, int | str, int]], tries: int) -> Body[None]:
        # It also sends -1 for a partition that it has not started, which counts as no offset.
        storage = self.surroundings.brokers.offsets
        values = {(topic, int(partition)): offset for topic, partition, offset in offsets if offset >= 0}
        name = self.threads.process.name

        def serve() -> bool:
            storage.store(name, values)
            return True

        for number in range(tries):
            if (yield from self._ask_manager(serve)):
                if self.settings.storage == "dual":
                    yield from self._commit_to_zookeeper(offsets)
                return
            if number + 1 < tries:
                yield self.threads.sleep(BACKOFF_S)

    def _ask_manager(self, serve: Callable[[], Any]) -> Body[Any]:
        """One request to the offset manager; None if it was refused, or not answered."""

        def ask(go_on: Callable[[Any], None]) -> None:
            self._channel.exchange(serve, lambda answer, reason: go_on(answer))

        return (yield ask)

    def load_offset(self, topic: str, partition: int | str) -> Body[int]:
        """The stored offset, -1 for none; Kafka is asked until it answers, with dual commit the higher one counts."""
        if self.settings.storage == "zookeeper":
            return (yield from self._load_from_zookeeper(topic, partition))
        storage = self.surroundings.brokers.offsets
        found: int | None = None
        while found is None and not self.is_shutting_down:
            found = yield from self._ask_manager(lambda: storage.stored.get((topic, int(partition)), -1))
            if found is None:
                yield self.threads.sleep(BACKOFF_S)
        if found is None:
            raise JavaFailure("the consumer shuts down")
        if self.settings.storage == "dual":
            return max(found, (yield from self._load_from_zookeeper(topic, partition)))
        return found

    def _load_from_zookeeper(self, topic: str, partition: int | str) -> Body[int]:
        path = self.layout.offset_path(self.settings.group, topic, partition)
        try:
            data = yield from self.zookeeper.read(path)
        except NoNode:
            return -1
        return self.layout.parse_offset(path, data)

    # -- shutting down ----------------------------------------------------------------------------------------------

    def shut_down(self) -> Body[None]:
        """Leave in order, once a rebalance that is under way has ended."""
        if self.is_shutting_down:
            return
        self.is_shutting_down = True
        self.rebalancer.wake()
        yield from self.rebalance_lock.acquire()
        try:
            if self._shared_streams:
                self.zookeeper.unsubscribe_all()
            self._timer_is_over = True
            yield from self._commit_lock.acquire()  # a commit that is under way ends first
            self._commit_lock.release()
            yield from self._end_delivery()
        finally:
            self.rebalance_lock.release()

    def _end_delivery(self) -> Body[None]:
        """End fetchers and streams, commit what was delivered, and close the session."""
        yield from self.fetchers.stop()
        for stream in self.streams:
            stream.queue.clear()
            yield from stream.queue.put(None)
        if self.settings.auto_commit_s:
            yield from self.commit_offsets()
        yield from self.zookeeper.close(CLOSE_S)

    # -- ZkUtils ----------------------------------------------------------------------------------------------------

    def children_or_none(self, path: str) -> Body[list[str]]:
        """`getChildrenParentMayNotExist`."""
        try:
            return (yield from self.zookeeper.children(path))
        except NoNode:
            return []

    def create_ephemeral(self, path: str, data: bytes) -> Body[None]:
        """`createEphemeralPathExpectConflict`: the same text in an older node passes for ours.

        Raises:
            NodeExists: another text stands there, or the node has vanished meanwhile.
        """
        try:
            try:
                yield from self.zookeeper.create_ephemeral(path, data)
            except NoNode:
                yield from self.zookeeper.create_with_parents(path.rpartition("/")[0])
                yield from self.zookeeper.create_ephemeral(path, data)
        except NodeExists:
            try:
                stored = yield from self.zookeeper.read(path)
            except NoNode:
                stored = b""
            if stored != data:
                raise NodeExists(path, stored.decode("utf-8", "replace")) from None

    def update_persistent(self, path: str, data: bytes) -> Body[None]:
        """`updatePersistentPath`: set, whatever stands there, or create with parents."""
        try:
            yield from self.zookeeper.write(path, data)
        except NoNode:
            yield from self.zookeeper.create_with_parents(path.rpartition("/")[0])
            try:
                yield from self.zookeeper.create_persistent(path, data)
            except NodeExists:
                yield from self.zookeeper.write(path, data)
