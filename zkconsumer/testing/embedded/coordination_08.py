"""Leaders and topics of an embedded cluster of Kafka 0.8 or later: one controller for all brokers.

The difference from real brokers: a partition's files are led by one broker at a time. When the leader moves they move
with it (a rename between data folders), whether the old leader runs, was stopped or was killed. So a follower never
lags, and with a replication factor above 1 a death loses no message that the dead leader had stored. Messages that were
not flushed are checked again.

The controller of an embedded cluster: makes the right broker lead each partition, with its files there.

It compares what is registered with what is led, whenever something may have changed and every two seconds besides, and
makes both what they should be.

Source: kafka.controller.KafkaController (0.8.2.2), which it stands in for.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kazoo.client import KazooClient

from zkconsumer.testing.cluster import Cluster, NewTopic, grown, spread
from zkconsumer.testing.embedded.access_rules import AccessLists
from zkconsumer.testing.embedded.cluster_image import ClusterImage
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.leadership import NO_LEADER, PartitionState, decide, moved
from zkconsumer.testing.embedded.leading_broker import LeadingBroker
from zkconsumer.testing.embedded.registries.registry import (
    MemoryRegistry,
    Registry,
    RegistryUnavailable,
    TopicEntry,
    TopicExists,
)
from zkconsumer.testing.embedded.registries.zookeeper import ZooKeeperRegistry
from zkconsumer.testing.embedded.settings import BrokerSettings
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.waiting import wait_until
from zkconsumer_error import ErrorCode

AUDIT_INTERVAL_S: Final = 2.0
STOP_TIMEOUT_S: Final = 10.0
_log = logging.getLogger(__name__)
Topics = dict[str, dict[int, tuple[tuple[int, ...], PartitionState]]]


class Controller:
    """One for a cluster.

    Threads: every method from any thread; a thread of its own handles changes that others made.

    Attributes:
        registry: where the cluster is registered.
        image: the brokers' metadata of the cluster; replaced as a whole.
        lock: held while something is started, stopped or moved.
    """

    def __init__(self, registry: Registry, brokers: Mapping[int, LeadingBroker[Any]]) -> None:
        self.registry = registry
        self.brokers = brokers
        self.image = ClusterImage()
        self.lock = threading.RLock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_order, name="embedded controller", daemon=True)

    def start(self) -> None:
        """Connect the registry and start to watch it."""
        self.registry.start(self._wake.set)
        self._thread.start()

    def look_again(self) -> None:
        """Have the controller's own thread compare soon."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; from now on nothing is changed."""
        self._closed.set()
        self._wake.set()
        self._thread.join(STOP_TIMEOUT_S)

    def _keep_order(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(AUDIT_INTERVAL_S)
            self._wake.clear()
            if self._closed.is_set():
                return
            try:
                self.reconcile()
            except RegistryUnavailable as error:
                _log.info("the embedded controller waits: %s", error)
            except Exception:  # noqa: BLE001 - top of the thread; the next look may succeed
                _log.exception("the embedded controller failed")

    def reconcile(
        self, order: Mapping[tuple[str, int], int] | None = None, ends: Mapping[tuple[str, int], int] | None = None
    ) -> bool:
        """Compare what is registered with what is led, and make both what they should be.

        Returns False without doing it while the registry cannot be asked, as under load for a moment: then it is made
        good at the next look, all but `order` and `ends`.

        Args:
            order: leaders to be changed although the old ones run.
            ends: partitions of these that lose everything from an offset on, and get a new epoch in any case.
        """
        with self.lock:
            if self._closed.is_set() or not self.registry.reachable:
                return False
            registry = self.registry
            running = sorted(broker_id for broker_id, broker in self.brokers.items() if broker.running)
            for broker_id in running:
                if registry.needs_registration(broker_id):
                    registry.register(self.brokers[broker_id].registration)
            for topic in registry.doomed_topics():
                self._delete(topic)
            alive = registry.live_brokers()
            entries = registry.topics()
            epoch = registry.controller_epoch(running)
            topics, changed = self._decide(entries, set(alive), epoch, order or {}, ends or {})
            self._apply(topics, entries, ends or {})
            for (topic, partition), state in changed.items():
                registry.set_state(topic, partition, state)
            ids = {topic: entry.topic_id for topic, entry in entries.items() if entry.topic_id is not None}
            self.image = ClusterImage(alive, topics, ids)
            return True

    def _decide(
        self,
        entries: Mapping[str, TopicEntry],
        alive: set[int],
        epoch: int,
        order: Mapping[tuple[str, int], int],
        ends: Mapping[tuple[str, int], int],
    ) -> tuple[Topics, dict[tuple[str, int], PartitionState]]:
        topics: Topics = {}
        changed: dict[tuple[str, int], PartitionState] = {}
        for topic, entry in entries.items():
            known = self.image.topics.get(topic, {})
            for partition, replicas in entry.assignment.items():
                old = known[partition][1] if partition in known else self.registry.state(topic, partition)
                leader = order.get((topic, partition))
                is_new = (topic, partition) in ends
                if old is not None and leader is not None and (is_new or leader != old.leader):
                    new: PartitionState | None = moved(old, replicas, leader, epoch)
                else:
                    new = decide(old, replicas, alive, epoch)
                if new is None:
                    continue
                topics.setdefault(topic, {})[partition] = (replicas, new)
                if new != old:
                    changed[topic, partition] = new
        return topics, changed

    def _apply(self, topics: Topics, entries: Mapping[str, TopicEntry], ends: Mapping[tuple[str, int], int]) -> None:
        """Have every partition led by its leader alone, in its epoch, with its files there."""
        states = {(topic, p): state for topic, each in topics.items() for p, (_, state) in each.items()}
        clean = set()
        for broker in self.brokers.values():
            for where in broker.led:
                state = states.get(where)
                if state is None or state.leader != broker.broker_id or where in ends:
                    broker.resign(*where)
                    clean.add(where)
                else:
                    broker.stay_leader(*where, state.leader_epoch)
                    broker.configure(*where, entries[where[0]].config)
        for (topic, partition), state in states.items():
            host = self.brokers.get(state.leader)
            if host is not None and host.running and (topic, partition) not in host.led:
                arrived = self._fetch_files(f"{topic}-{partition}", host)
                safe = (topic, partition) in clean
                host.lead(
                    topic, partition, entries[topic].config, clean=safe if arrived or safe else None,
                    epoch=state.leader_epoch, end_offset=ends.get((topic, partition)),
                )  # fmt: skip

    def _fetch_files(self, name: str, host: LeadingBroker[Any]) -> bool:
        """True if a partition's files lay with another broker; they are with `host` now."""
        for broker in self.brokers.values():
            files = broker.folder / name
            if broker is not host and files.is_dir():
                shutil.rmtree(host.folder / name, ignore_errors=True)
                files.rename(host.folder / name)
                return True
        return False

    def _delete(self, topic: str) -> None:
        partitions = set(self.image.topics.get(topic, {}))
        for broker in self.brokers.values():
            for partition in partitions:
                broker.resign(topic, partition, delete=True)
                shutil.rmtree(broker.folder / f"{topic}-{partition}", ignore_errors=True)
        self.registry.forget_topic(topic)
        topics = {name: each for name, each in self.image.topics.items() if name != topic}
        self.image = ClusterImage(self.image.brokers, topics, self.image.topic_ids)


_IDS_PER_S: Final = 1000


class Coordination08:
    """The brokers of a cluster of Kafka 0.8 or later, with their controller.

    `kafka07.coordination.Coordination07` has the same methods for brokers that register themselves and their topics.

    Threads: every method from any thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        broker_ids: Sequence[int],
        settings: BrokerSettings,
        make: Callable[[int, Coordination08], LeadingBroker[Any]],
        *,
        node_version: int = 1,
    ) -> None:
        """Make the brokers.

        Args:
            cluster: where they are, and how long they wait.
            make: makes a broker by its id.
            node_version: of their nodes in ZooKeeper.
        """
        self._cluster = cluster
        self.settings = settings
        self._node_version = node_version
        # Above those of an earlier run, whose batches the folder may hold.
        self._access_lists = AccessLists() if settings.authorizer_class_name else None
        self._producer_ids = itertools.count(int(time.time()) * _IDS_PER_S)
        self.brokers = {broker_id: make(broker_id, self) for broker_id in broker_ids}
        self._controller: Controller | None = None

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client."""
        registry = self.registry
        if not isinstance(registry, ZooKeeperRegistry):
            raise KitError("this cluster has no ZooKeeper")
        return registry.client

    # ---- what the brokers ask for

    @property
    def image(self) -> ClusterImage:
        """Running brokers, topics, leaders, as the brokers' metadata names them."""
        return self._controller.image if self._controller else ClusterImage()

    @property
    def registry(self) -> Registry:
        """Where the cluster is registered; KitError before the start."""
        return self._control_of_brokers.registry

    @property
    def _control_of_brokers(self) -> Controller:
        if self._controller is None:
            raise KitError("the cluster was not started")
        return self._controller

    @property
    def auto_create_topics(self) -> bool:
        """Whether asking for a topic makes it."""
        return self.settings.auto_create_topics_enable

    @property
    def num_partitions(self) -> int:
        """Of a topic for which nobody says how many."""
        return self.settings.num_partitions

    @property
    def access_lists(self) -> AccessLists | None:
        """The rules of the cluster; None without an authorizer."""
        return self._access_lists

    def look_again(self) -> None:
        """Have the controller compare soon what is registered with what is led."""
        self._control_of_brokers.look_again()

    def create_automatically(self, topic: str, *, partitions: int | None = None, config: dict[str, object]) -> None:
        """Register a topic unless it exists; returns before it has leaders."""
        assignment = spread(partitions or self.settings.num_partitions, 1, sorted(self.image.brokers))
        try:
            self.registry.create_topic(topic, assignment, config)
        except TopicExists:
            pass  # another request made it meanwhile
        self._control_of_brokers.look_again()

    def leading_log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition at its leader.

        Raises:
            Refusal: 5 it has no leader; 3 and 6 as the broker has it that was its leader last.
        """
        found = self.image.topics.get(topic, {}).get(partition)
        leader = self.brokers.get(found[1].leader) if found else None
        if leader is None:
            raise Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}/{partition} has no leader")
        log: PartitionLog = leader.log(topic, partition)
        return log

    def next_producer_id(self) -> int:
        """Return an id that no producer of the cluster has had."""
        return next(self._producer_ids)

    # ---- start and end

    @property
    def started(self) -> bool:
        """True between `start()` and `close()`."""
        return self._controller is not None

    def start(self) -> None:
        """Connect to ZooKeeper and start the controller."""
        if self._controller is None:
            controller = Controller(self._make_registry(), self.brokers)
            controller.start()
            self._controller = controller

    def _make_registry(self) -> Registry:
        if not self._cluster.has_zookeeper:
            return MemoryRegistry()
        timeout_s = self.settings.zookeeper_session_timeout_ms / 1000
        return ZooKeeperRegistry(
            self._cluster.zookeeper_hosts, chroot=self._cluster.chroot, session_timeout_s=timeout_s,
            login=self._cluster.login, node_version=self._node_version,
        )  # fmt: skip

    def start_broker(self, broker_id: int) -> None:
        """Start a broker; returns when it is registered and leads what falls to it."""
        broker = self.brokers[broker_id]
        with self._control_of_brokers.lock:
            broker.start()
            try:
                self.registry.register(broker.registration)
            except BaseException:
                broker.end(clean=True)  # a broker that no client can find would never be registered later
                raise
            self._once_reachable(self._control_of_brokers.reconcile, f"broker {broker_id} to lead its partitions")

    def stop_broker(self, broker_id: int) -> None:
        """End a broker in order; its partitions are led elsewhere."""
        with self._control_of_brokers.lock:
            self.brokers[broker_id].end(clean=True)
            self.registry.unregister(broker_id, abruptly=False)
            self._control_of_brokers.reconcile()

    def kill_broker(self, broker_id: int, *, expire: bool) -> None:
        """End a broker as SIGKILL does; its id node stays until its session expires, or goes with `expire`."""
        with self._control_of_brokers.lock:
            self.brokers[broker_id].end(clean=False)
            self.registry.unregister(broker_id, abruptly=not expire)
            self._control_of_brokers.reconcile()

    def freeze(self) -> None:
        """End the controller's thread."""
        if self._controller is not None:
            self._controller.stop()

    def close(self) -> None:
        """End all sessions."""
        controller, self._controller = self._controller, None
        if controller is not None:
            controller.registry.close()

    # ---- topics

    def create_topic(self, topic: NewTopic) -> dict[int | str, int]:
        """Partition -> leader of a new topic; returns when every leader serves requests."""
        replicas = topic.replicas(self.brokers)
        try:
            self.registry.create_topic(topic.name, replicas, topic.config)
        except TopicExists:
            raise KitError(f"topic {topic.name} exists already") from None
        return self.wait_leaders(topic.name, sorted(replicas))

    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Partition -> leader after the topic has grown to `total` partitions."""
        present = self._entry(name).assignment
        self.registry.set_assignment(name, {**grown(name, present, total, self.brokers), **present})
        return self.wait_leaders(name, list(range(total)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when its nodes and files are gone."""
        self._entry(name)
        self.registry.doom_topic(name)

        def is_gone() -> bool:  # the wish goes last, after nodes and files
            return self._control_of_brokers.reconcile() and name not in self.registry.doomed_topics()

        self._once_reachable(is_gone, f"topic {name} to be deleted")

    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of a topic, in order.

        Raises:
            KitError: there is no such topic.
        """
        return sorted(self._entry(topic).assignment)

    def leader(self, topic: str, partition: int | str) -> int | None:
        """Leader of a partition as it is registered; None without one."""
        state = self.registry.state(topic, int(partition))
        return None if state is None or state.leader == NO_LEADER else state.leader

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition at its leader; KitError without a leader."""
        leader = self.leader(topic, partition)
        if leader is None:
            raise KitError(f"{topic}/{partition} has no leader")
        log: PartitionLog = self.brokers[leader].log(topic, partition)
        return log

    def move_leader(self, topic: str, partition: int, broker_id: int, *, end_offset: int | None = None) -> None:
        """Make a broker the leader of a partition; its files move there. Returns when it serves requests.

        A broker that is no replica takes the place of the last one.

        Args:
            end_offset: everything from there on is lost, as by an unclean election; the leader may be the old one.

        Raises:
            KitError: the broker does not run, or there is no such partition.
        """
        with self._control_of_brokers.lock:
            if not self.brokers[broker_id].running:
                raise KitError(f"broker {broker_id} does not run")
            assignment = dict(self._entry(topic).assignment)
            if partition not in assignment:
                raise KitError(f"there is no {topic}/{partition}")
            replicas = assignment[partition]
            others = [replica for replica in replicas if replica != broker_id]
            wanted = (broker_id, *others[: len(replicas) - 1])
            if wanted != replicas:
                self.registry.set_assignment(topic, assignment | {partition: wanted})
            where = topic, partition
            ends = {} if end_offset is None else {where: end_offset}
            self._once_reachable(
                lambda: self._control_of_brokers.reconcile({where: broker_id}, ends),
                f"broker {broker_id} to lead {topic}/{partition}",
            )

    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Partition -> leader, once all of these have one.

        Raises:
            WaitTimeout: after `timeout_s` (by default the cluster's) seconds.
        """

        def leaders() -> dict[int | str, int] | None:
            try:
                self._control_of_brokers.reconcile()
            except RegistryUnavailable:
                return None
            known = self.image.topics.get(topic, {})
            found: dict[int | str, int] = {p: known[int(p)][1].leader for p in partitions if p in known}
            running = all(leader in self.brokers and self.brokers[leader].running for leader in found.values())
            return found if len(found) == len(partitions) and running else None

        limit_s = self._cluster.timeout_s if timeout_s is None else timeout_s
        what = f"leaders of {topic} {list(partitions)}"
        found = wait_until(leaders, limit_s, what, state=lambda: self.image.topics.get(topic))
        assert found is not None
        return found

    def _once_reachable(self, act: Callable[[], bool], what: str) -> None:
        """Return when an act that may be repeated is done; the registry may be away for moments.

        Raises:
            WaitTimeout: after the cluster's time.
        """

        def is_done() -> bool:
            try:
                return act()
            except RegistryUnavailable:
                return False

        wait_until(is_done, self._cluster.timeout_s, what)

    def _entry(self, topic: str) -> TopicEntry:
        entry = self.registry.topics().get(topic)
        if entry is None:
            raise KitError(f"topic {topic} does not exist")
        return entry
