"""A cluster of embedded brokers: topics, leaders, starts, stops, kills.

The cluster object is the controller of all its brokers, and has the interface of `KafkaCluster`, so that a test can run
on either. What differs from real brokers:

- A partition's files are led by one broker at a time. When the leader moves they move with it (a rename between data
  folders), whether the old leader runs, was stopped or was killed. So a follower never lags, and with a replication
  factor above 1 a death loses no message that the dead leader had stored. What was not flushed is checked again.
- The brokers share this process: one cannot be SIGSTOPped; `pause` keeps its answers back instead.
- One process serves a cluster: two of them on one ZooKeeper path would both be controllers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Literal, Self

from kazoo.client import KazooClient

from zkconsumer.testing.cluster import ClusterFrame, broker_ids
from zkconsumer.testing.embedded.broker import EmbeddedBroker
from zkconsumer.testing.embedded.controller import Controller
from zkconsumer.testing.embedded.faults import FaultPlan
from zkconsumer.testing.embedded.leadership import NO_LEADER
from zkconsumer.testing.embedded.log import PartitionLog
from zkconsumer.testing.embedded.registry import MemoryRegistry, Registry, TopicEntry, TopicExists
from zkconsumer.testing.embedded.requests import ClusterImage
from zkconsumer.testing.embedded.settings import BrokerSettings
from zkconsumer.testing.embedded.storage import hold
from zkconsumer.testing.embedded.zookeeper import ZooKeeperRegistry
from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.kafka import topics as kafka_topics
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.server import ZooKeeperServer


class EmbeddedCluster(ClusterFrame[EmbeddedBroker]):
    """Brokers of the protocol of Kafka 0.8.2, in this process, registered in a real ZooKeeper.

    `with EmbeddedCluster(brokers=2) as cluster: cluster.create_topic("t", partitions=4)`. Ports are chosen when the
    object is made, so a proxy can be put in front of a broker before it starts.

    Threads: every method from any thread.

    Attributes:
        faults: those of all its brokers.
        brokers: by id.
        folder: holds a data folder `broker-<id>` for each.
    """

    version = "0.8.2.2"

    def __init__(
        self,
        brokers: int | Iterable[int] = 1,
        *,
        zookeeper: ZooKeeperServer | str | Literal[False] | None = None,
        chroot: str = "",
        settings: Mapping[str, object] | None = None,
        folder: Path | None = None,
        port: int | None = None,
        zookeeper_port: int | None = None,
        timeout_s: float = 30.0,
        login: ZooKeeperLogin | None = None,
    ) -> None:
        """Prepare a cluster; nothing runs before `start_all()`.

        Args:
            brokers: how many (with the ids 0, 1, ...), or the ids themselves.
            zookeeper: a running server or a connect string without chroot; None starts one that belongs to the cluster;
                False does without, for tests of one client with one broker, without Java.
            chroot: path in ZooKeeper under which the cluster lives.
            settings: broker properties, see `BrokerSettings`.
            folder: for the data, that of the cluster's own ZooKeeper included, kept when the cluster is closed; a
                cluster that is started on it later goes on where this one ended. None takes a temporary one.
            port: of the first broker, the next one has the next port; None chooses free ones.
            zookeeper_port: of the ZooKeeper that belongs to the cluster; None chooses a free one.
            timeout_s: longest wait for a leader.
            login: how brokers, members and the cluster's own client authenticate to ZooKeeper.

        Raises:
            ValueError: no broker, an unknown setting, a chroot that is no absolute path, or ports that cannot be.
        """
        ids = broker_ids(brokers)
        self._settings = BrokerSettings.from_properties(settings or {})
        super().__init__(
            ids, zookeeper=zookeeper, chroot=chroot, port=port, zookeeper_port=zookeeper_port, folder=folder,
            folder_prefix="zkconsumer-embedded-", timeout_s=timeout_s,
        )  # fmt: skip
        self.login = login
        self.faults = FaultPlan()
        self.brokers = {
            n: EmbeddedBroker(n, self.folder / f"broker-{n}", self, self._settings, self.faults, port=self._ports[n])
            for n in ids
        }
        self._controller: Controller | None = None
        self._held: IO[str] | None = None

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client, inside the chroot; KitError before the start, or without ZooKeeper."""
        registry = self.registry
        if not isinstance(registry, ZooKeeperRegistry):
            raise KitError("this cluster does without ZooKeeper")
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
        return self._settings.auto_create_topics_enable

    def create_automatically(self, topic: str, *, partitions: int | None = None, config: dict[str, object]) -> None:
        """Register a topic unless it exists; returns before it has leaders."""
        assignment = kafka_topics.spread(partitions or self._settings.num_partitions, 1, sorted(self.image.brokers))
        try:
            self.registry.create_topic(topic, assignment, config)
        except TopicExists:
            pass  # another request made it meanwhile
        self._control_of_brokers.look_again()

    # ---- start and end

    def start_all(self) -> Self:
        """Start ZooKeeper (if it is the cluster's own) and all brokers; returns when all of them are registered.

        Raises:
            JavaMissing, MavenMissing: ZooKeeper cannot be run on this machine; names what to install.
            StartFailed: a port is taken.
            KitError: the folder cannot be written, or another cluster has it; or ZooKeeper did not answer, refused the
                login, or an access list does not name it.
        """
        if self._held is None:
            self._held = hold(self.folder)
        self._start_own_zookeeper()
        if self._controller is None:
            controller = Controller(self._make_registry(), self.brokers)
            controller.start()
            self._controller = controller
        for broker_id, broker in self.brokers.items():
            if not broker.running:
                self._start_where_possible(broker_id)
        self._ports_may_change = False
        return self

    def _start_where_possible(self, broker_id: int) -> None:
        try:
            self.start(broker_id)
        except StartFailed:
            if not self._ports_may_change or self.brokers[broker_id].advertised_port is not None:
                raise
            self.start(broker_id, port=free_port())  # another process was faster; no client knows the old port yet

    def _make_registry(self) -> Registry:
        if self._zookeeper is False:
            return MemoryRegistry()
        timeout_s = self._settings.zookeeper_session_timeout_ms / 1000
        return ZooKeeperRegistry(
            self.zookeeper_hosts, chroot=self.chroot, session_timeout_s=timeout_s, login=self.login
        )

    def start(self, broker_id: int, *, port: int | None = None) -> None:
        """Start one broker on its data; returns when it is registered and leads what falls to it.

        Args:
            port: another port than before.
        """
        broker = self.brokers[broker_id]
        if port is not None:
            broker.port = port
        with self._control_of_brokers.lock:
            broker.start()
            try:
                self.registry.register(broker.registration)
            except BaseException:
                broker.end(clean=True)  # a broker that no client can find would never be registered later
                raise
            self._control_of_brokers.reconcile()

    def stop(self, broker_id: int) -> None:
        """End one broker in order: logs flushed and marked clean, its id node gone, its partitions led elsewhere."""
        with self._control_of_brokers.lock:
            self.brokers[broker_id].end(clean=True)
            self.registry.unregister(broker_id, abruptly=False)
            self._control_of_brokers.reconcile()

    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """End one broker as SIGKILL does: connections reset, nothing flushed, no clean mark.

        Its id node stays until its session expires, or vanishes at once with `expire`.
        """
        with self._control_of_brokers.lock:
            self.brokers[broker_id].end(clean=False)
            self.registry.unregister(broker_id, abruptly=not expire)
            self._control_of_brokers.reconcile()

    def pause(self, broker_id: int) -> None:
        """Keep the answers of one broker back; its connections stay open."""
        self.brokers[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """Go on after `pause()`."""
        self.brokers[broker_id].resume()

    def restore(self) -> None:
        """Take back what a test did to the brokers: no fault in force or counted, all brokers running and answering.

        Topics, leaders and ports stay as they are.
        """
        self.faults.reset()
        for broker_id, broker in self.brokers.items():
            broker.resume()
            if self._controller is not None and not broker.running:
                self.start(broker_id)

    def close(self) -> None:
        """End everything that belongs to the cluster; its folder is removed if it is a temporary one."""
        with ExitStack() as last:  # from the bottom up, whatever fails
            last.callback(self._give_up_zookeeper_and_folder)
            last.callback(self._let_go)
            last.callback(self._leave)
            if self._controller is not None:
                self._controller.stop()
            for broker in self.brokers.values():
                if broker.running:
                    broker.end(clean=not self._own_folder)  # data that is thrown away need not be flushed

    def _leave(self) -> None:
        controller, self._controller = self._controller, None
        if controller is not None:
            controller.registry.close()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication: int = 1,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> dict[int | str, int]:
        """Partition -> leader of a new topic; returns when every leader serves requests.

        Args:
            assignment: partition -> replica ids, the leader first, instead of an even spread.
            config: topic settings such as `{"segment.bytes": 1048576}`.

        Raises:
            KitError: the topic exists, or its name is not allowed.
        """
        kafka_topics.check_name(name)
        count = 1 if partitions is None else partitions
        chosen = assignment or kafka_topics.spread(count, replication, sorted(self.brokers))
        try:
            self.registry.create_topic(name, chosen, config or {})
        except TopicExists:
            raise KitError(f"topic {name} exists already") from None
        return self.wait_leaders(name, sorted(chosen))

    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Partition -> leader after the topic has grown to `total` partitions."""
        present = self._entry(name).assignment
        if total <= len(present):
            raise ValueError(f"topic {name} has {len(present)} partitions, {total} would not be more")
        wanted = kafka_topics.spread(total, len(present[0]), sorted(self.brokers))
        self.registry.set_assignment(name, {**wanted, **present})
        return self.wait_leaders(name, list(range(total)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when its nodes and files are gone."""
        self._entry(name)
        self.registry.doom_topic(name)
        with self._control_of_brokers.lock:
            self._control_of_brokers.reconcile()

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
        """The log of a partition at its leader, to look at or to cut about: `truncate`, `delete_head`, `corrupt`,
        `remove`.

        Raises:
            KitError: the partition has no leader.
        """
        leader = self.leader(topic, partition)
        if leader is None:
            raise KitError(f"{topic}/{partition} has no leader")
        return self.brokers[leader].log(topic, partition)

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition; its files move there. Returns when it serves requests.

        A broker that is no replica takes the place of the last one.

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
            self._control_of_brokers.reconcile(order={(topic, partition): broker_id})

    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Partition -> leader, once all of these have one.

        Raises:
            WaitTimeout: after `timeout_s` (by default the cluster's) seconds.
        """

        def leaders() -> dict[int | str, int] | None:
            self._control_of_brokers.reconcile()
            known = self.image.topics.get(topic, {})
            found: dict[int | str, int] = {p: known[int(p)][1].leader for p in partitions if p in known}
            running = all(leader in self.brokers and self.brokers[leader].running for leader in found.values())
            return found if len(found) == len(partitions) and running else None

        limit_s = self.timeout_s if timeout_s is None else timeout_s
        what = f"leaders of {topic} {list(partitions)}"
        found = wait_until(leaders, limit_s, what, state=lambda: self.image.topics.get(topic))
        assert found is not None
        return found

    def _entry(self, topic: str) -> TopicEntry:
        entry = self.registry.topics().get(topic)
        if entry is None:
            raise KitError(f"there is no topic {topic}")
        return entry
