"""A cluster of embedded brokers: topics, leaders, starts, stops, kills.

The cluster has the interface of `KafkaCluster`, so that a test can run on either. The differences from real brokers:

- From Kafka 0.8 on a partition's files are led by one broker at a time, and move with their leader
  (`coordination_08`). So a follower never lags, and a death loses no message that the dead leader had stored.
- The brokers share this process: one cannot be SIGSTOPped; `pause` keeps its answers back instead.
- One process serves a cluster: from Kafka 0.8 on, two of them on one ZooKeeper path would both be controllers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, Literal, Self, overload

from kazoo.client import KazooClient

from simpleconsumer.kafka011.batch_head import MAGIC
from zkconsumer.testing.cluster import Cluster, NewTopic, broker_ids
from zkconsumer.testing.embedded.broker import EmbeddedBroker
from zkconsumer.testing.embedded.coordination_08 import Coordination08
from zkconsumer.testing.embedded.disk.log import PartitionLog
from zkconsumer.testing.embedded.disk.storage import hold
from zkconsumer.testing.embedded.faults import KILL, MOVE_COORDINATOR, MOVE_LEADER, WRONG_CORRELATION_ID, FaultPlan
from zkconsumer.testing.embedded.kafka011.broker import Broker011
from zkconsumer.testing.embedded.kafka011.generations import GENERATIONS
from zkconsumer.testing.embedded.kafka011.log import BatchLog
from zkconsumer.testing.embedded.kafka07.coordination import VERSION as VERSION_07
from zkconsumer.testing.embedded.kafka07.coordination import Coordination07
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07
from zkconsumer.testing.embedded.leading_broker import Broker08, LeadingBroker
from zkconsumer.testing.embedded.registries.registry import Registry
from zkconsumer.testing.embedded.settings import BrokerSettings
from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.server import ZooKeeperServer

VERSIONS: Final = {"0.8": "0.8.2.2", "0.7": VERSION_07} | {name: each.version for name, each in GENERATIONS.items()}
"""Generation -> the version of Kafka whose protocol its embedded brokers speak."""

WITH_ZOOKEEPER: Final = {name for name in VERSIONS if name not in GENERATIONS or GENERATIONS[name].node_version}
"""The generations whose brokers are registered in ZooKeeper."""


class EmbeddedCluster(Cluster):
    """Brokers of the protocol of one version of Kafka in this process, registered in a real ZooKeeper.

    `with EmbeddedCluster(brokers=2) as cluster: cluster.create_topic("t", partitions=4)`. Ports are chosen when the
    object is made, so a proxy can be put in front of a broker before it starts.

    Threads: every method from any thread.

    Attributes:
        faults: those of all its brokers.
        brokers: by id.
        folder: holds a data folder `broker-<id>` for each.
    """

    version = VERSIONS["0.8"]
    brokers: dict[int, EmbeddedBroker]

    def __init__(
        self,
        brokers: int | Iterable[int] = 1,
        *,
        generation: str = "0.8",
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
            generation: of Kafka: 0.8 (the protocol of 0.8.2), 0.7, 0.9, 0.10, or one with record batches: 0.11, 1.1,
                2.8, 3.9, or 4.3, which has no ZooKeeper.
            zookeeper: a running server or a connect string without chroot; None starts one that belongs to the cluster;
                False does without, for clients that are given the brokers' addresses, and without Java.
            chroot: path in ZooKeeper under which the cluster lives.
            settings: broker properties, see `BrokerSettings` and, of Kafka 0.7, `BrokerSettings07`.
            folder: for the data, that of the cluster's own ZooKeeper included, kept when the cluster is closed; a
                cluster that is started on it later goes on where this one ended. None takes a temporary one.
            port: of the first broker, the next one has the next port; None chooses free ones.
            zookeeper_port: of the ZooKeeper that belongs to the cluster; None chooses a free one.
            timeout_s: longest wait for a leader.
            login: how brokers, members and the cluster's own client authenticate to ZooKeeper.

        Raises:
            ValueError: no broker, an unknown generation or setting, a chroot that is no absolute path, ports that
                cannot be, or a ZooKeeper for brokers of Kafka 4.
        """
        ids = broker_ids(brokers)
        if generation not in VERSIONS:
            raise ValueError(f"generation {generation!r}: embedded brokers are of {', '.join(VERSIONS)}")
        self._native = GENERATIONS.get(generation)
        if generation not in WITH_ZOOKEEPER:
            if zookeeper:
                raise ValueError(f"brokers of Kafka {generation} have no ZooKeeper, but zookeeper is {zookeeper!r:.80}")
            zookeeper = False
        chosen = _settings_of(generation, settings or {})
        super().__init__(
            ids, zookeeper=zookeeper, chroot=chroot, port=port, zookeeper_port=zookeeper_port, folder=folder,
            folder_prefix="zkconsumer-embedded-", timeout_s=timeout_s,
        )  # fmt: skip
        self.login = login
        self.faults = FaultPlan()
        self.version = VERSIONS[generation]
        self._coordination: Coordination07 | Coordination08
        if isinstance(chosen, BrokerSettings07):
            self.faults = FaultPlan(absent={WRONG_CORRELATION_ID, MOVE_LEADER, MOVE_COORDINATOR, KILL})
            self._coordination = Coordination07(self, self._ports, chosen, self.faults)
        else:
            node_version = self._native.node_version if self._native else 1
            self._coordination = Coordination08(self, ids, chosen, self._make_broker, node_version=node_version)
        self.brokers = dict(self._coordination.brokers)
        self._held: IO[str] | None = None

    def _make_broker(self, broker_id: int, coordination: Coordination08) -> LeadingBroker[Any]:
        folder = self.folder / f"broker-{broker_id}"
        settings, port = coordination.settings, self._ports[broker_id]
        if self._native is not None:
            return Broker011(broker_id, folder, coordination, settings, self.faults, self._native, port=port)
        return Broker08(broker_id, folder, coordination, settings, self.faults, port=port)

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client, inside the chroot; KitError before the start, or without ZooKeeper."""
        return self._coordination.client

    @property
    def has_zookeeper(self) -> bool:
        """False for a cluster that does without."""
        return self._zookeeper is not False

    @property
    def is_written_as_08(self) -> bool:
        """Whether the kit writes to its brokers with the requests of Kafka 0.8: those whose logs have message sets."""
        return self._native is None or self._native.habits.log_magic < MAGIC

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
        self._coordination.start()
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

    def start(self, broker_id: int, *, port: int | None = None) -> None:
        """Start one broker on its data; returns when it is registered and leads what falls to it.

        Args:
            port: another port than before.
        """
        if port is not None:
            self.brokers[broker_id].port = port
        self._coordination.start_broker(broker_id)

    def stop(self, broker_id: int) -> None:
        """End one broker in order: logs flushed and marked clean, its id node gone, its partitions led elsewhere."""
        self._coordination.stop_broker(broker_id)

    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """End one broker as SIGKILL does: connections reset, nothing flushed, no clean mark.

        Its id node stays until its session expires, or vanishes at once with `expire`.
        """
        self._coordination.kill_broker(broker_id, expire=expire)

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
            if self._coordination.started and not broker.running:
                self.start(broker_id)

    def close(self) -> None:
        """End everything that belongs to the cluster; its folder is removed if it is a temporary one."""
        with ExitStack() as last:  # from the bottom up, whatever fails
            last.callback(self._give_up_zookeeper_and_folder)
            last.callback(self._let_go)
            last.callback(self._coordination.close)
            self._coordination.freeze()
            for broker in self.brokers.values():
                if broker.running:
                    broker.end(clean=not self._own_folder)  # data that is thrown away need not be flushed

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    # ---- topics

    def _create(self, topic: NewTopic) -> dict[int | str, int]:
        return self._coordination.create_topic(topic)

    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Partition -> leader after the topic has grown to `total` partitions."""
        return self._coordination.add_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when its nodes and files are gone."""
        self._coordination.delete_topic(name)

    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of a topic, in order.

        Raises:
            KitError: there is no such topic.
        """
        return self._coordination.partitions(topic)

    def leader(self, topic: str, partition: int | str) -> int | None:
        """Leader of a partition as it is registered; None without one."""
        return self._coordination.leader(topic, partition)

    @property
    def registry(self) -> Registry:
        """Where the cluster of Kafka 0.8 or later is registered; KitError before the start, and in Kafka 0.7."""
        if not isinstance(self._coordination, Coordination08):
            raise KitError("brokers of Kafka 0.7 register themselves")
        return self._coordination.registry

    @overload
    def log(self, topic: str, partition: int) -> PartitionLog: ...

    @overload
    def log(self, topic: str, partition: str) -> ByteLog: ...

    def log(self, topic: str, partition: int | str) -> PartitionLog | ByteLog:
        """The log of a partition at its leader, to look at or to cut about: `truncate`, `delete_head`, `corrupt`, and
        in Kafka 0.8 `remove`.

        Args:
            partition: its number; in Kafka 0.7 its name, `broker-number`.

        Raises:
            KitError: the partition has no leader, or in Kafka 0.7 no log.
        """
        if isinstance(self._coordination, Coordination08) and isinstance(partition, int):
            return self._coordination.log(topic, partition)
        if isinstance(self._coordination, Coordination07) and isinstance(partition, str):
            return self._coordination.log(topic, partition)
        raise KitError(f"{partition!r} is not a partition of Kafka {self.version}")

    def batch_log(self, topic: str, partition: int) -> BatchLog:
        """The same of a cluster with record batches: it also takes markers of transactions, and entries as they are.

        Raises:
            KitError: the partition has no leader, or the cluster is of Kafka 0.7 or 0.8.
        """
        log = self.log(topic, partition)
        if not isinstance(log, BatchLog):
            raise KitError(f"the logs of Kafka {self.version} have no record batches")
        return log

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition; its files move there. Returns when it serves requests.

        A broker that is no replica takes the place of the last one.

        Raises:
            KitError: the broker does not run, or there is no such partition.
        """
        self._coordination.move_leader(topic, partition, broker_id)

    def elect_unclean(self, topic: str, partition: int, end_offset: int, broker_id: int | None = None) -> None:
        """Lose everything from an offset on, and lead the partition in a new epoch, as an unclean election does.

        Args:
            end_offset: the new end of the log.
            broker_id: the new leader; None: the one of now.

        Raises:
            KitError: the broker does not run, or there is no such partition; or the cluster is of Kafka 0.7.
        """
        if not isinstance(self._coordination, Coordination08):
            raise KitError("Kafka 0.7 elects no leaders")
        leader = self._coordination.leader(topic, partition) if broker_id is None else broker_id
        if leader is None:
            raise KitError(f"{topic}/{partition} has no leader")
        self._coordination.move_leader(topic, partition, leader, end_offset=end_offset)

    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Partition -> leader, once all of these have one.

        Raises:
            WaitTimeout: after `timeout_s` (by default the cluster's) seconds.
        """
        return self._coordination.wait_leaders(topic, partitions, timeout_s)


def _settings_of(generation: str, settings: Mapping[str, object]) -> BrokerSettings | BrokerSettings07:
    """The settings of brokers of a generation; ValueError for an unknown one."""
    if generation == "0.7":
        return BrokerSettings07.from_properties(settings)
    return BrokerSettings.from_properties(settings)
