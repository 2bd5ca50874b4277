"""Topics of an embedded cluster of Kafka 0.7: each broker registers itself and the topics of which it has logs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from kazoo.client import KazooClient

from zkconsumer.testing.cluster import Cluster, NewTopic
from zkconsumer.testing.embedded.faults import FaultPlan
from zkconsumer.testing.embedded.kafka07.broker import Broker07
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.registration import IDS, Registration07
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07
from zkconsumer.testing.embedded.registries.zookeeper import cluster_client, end_owner
from zkconsumer.testing.errors import KitError, refused, require
from zkconsumer.testing.kafka import topics_07

VERSION = "0.7.2"


class Coordination07:
    """The brokers of a cluster of Kafka 0.7; with the methods of `Coordination08`.

    Attributes:
        brokers: by id.
    """

    def __init__(self, cluster: Cluster, ports: Mapping[int, int], settings: BrokerSettings07, plan: FaultPlan) -> None:
        """Make the brokers.

        Args:
            ports: by broker id.
        """
        self._cluster = cluster
        self._settings = settings
        self.brokers = {
            n: Broker07(n, cluster.folder / f"broker-{n}", settings, plan, port=port) for n, port in ports.items()
        }
        self._topics = topics_07.Topics07(cluster, self._known)
        self._lock = threading.RLock()
        self._client: KazooClient | None = None
        self._started = False

    # ---- start and end

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client."""
        if not self._cluster.has_zookeeper:
            raise KitError("this cluster has no ZooKeeper")
        if self._client is None:
            raise KitError("the cluster was not started")
        return self._client

    @property
    def started(self) -> bool:
        """True between `start()` and `close()`."""
        return self._started

    def start(self) -> None:
        """Connect to ZooKeeper."""
        if self._cluster.has_zookeeper and self._client is None:
            self._client = cluster_client(self._cluster.zookeeper_hosts, self._cluster.chroot, self._cluster.login)
        self._started = True

    def freeze(self) -> None:
        """End the sessions of the brokers in order, also of those whose data is thrown away."""
        for broker in self.brokers.values():
            broker.unregister(abruptly=False)

    def close(self) -> None:
        """End the cluster's own session."""
        self._started = False
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    def start_broker(self, broker_id: int) -> None:
        """Start a broker; returns when it and its topics are registered."""
        broker = self.brokers[broker_id]
        with self._lock:
            if not self._started:
                raise KitError("the cluster was not started")
            broker.start()
            try:
                broker.serve_as(self._registered(broker) if self._cluster.has_zookeeper else None)
            except BaseException:
                broker.end(clean=True)  # a broker that no client can find would never be registered later
                raise

    def _registered(self, broker: Broker07) -> Registration07:
        registration = broker.make_registration()
        registration.start(
            self._cluster.zookeeper_hosts, self._cluster.chroot, self._settings.session_timeout_ms / 1000,
            self._cluster.login, self.client,
        )  # fmt: skip
        return registration

    def stop_broker(self, broker_id: int) -> None:
        """End a broker in order; its partitions go with its session."""
        with self._lock:
            self.brokers[broker_id].end(clean=True)

    def kill_broker(self, broker_id: int, *, expire: bool) -> None:
        """End a broker as SIGKILL does; with `expire` its session ends at once."""
        with self._lock:
            self.brokers[broker_id].end(clean=False)
            if expire and self._cluster.has_zookeeper:
                path = f"{IDS}/{broker_id}"
                end_owner(self.client, self._cluster.zookeeper_hosts, path, self._cluster.login)

    # ---- topics

    def create_topic(self, topic: NewTopic) -> dict[int | str, int]:
        """Partition -> broker, once every running broker has registered the topic."""
        return self._topics.create(topic)

    def _known(self, topic: str) -> list[str]:
        if self._cluster.has_zookeeper:
            return topics_07.partitions_of(self.client, topic)
        return sorted(name for broker in self.brokers.values() for name in broker.partitions(topic))

    def add_partitions(self, name: str, total: int) -> dict[int | str, int]:
        """Raise NotSupported: the brokers' settings decide."""
        raise refused(VERSION, (0, 8), "adding partitions")

    def delete_topic(self, name: str) -> None:
        """Raise NotSupported."""
        require(VERSION, (0, 8, 2), "deleting a topic")

    def partitions(self, topic: str) -> list[int | str]:
        """The partitions of the registered brokers, `broker-partition`, in the order of Kafka 0.7."""
        return self._topics.partitions(topic)

    def leader(self, topic: str, partition: int | str) -> int | None:
        """The broker of a partition; None while it is not registered."""
        return self._topics.leader(topic, partition)

    def log(self, topic: str, partition: str) -> ByteLog:
        """The log of a partition; KitError without one, or while its broker does not run."""
        broker_id = topics_07.broker_of(partition)
        if broker_id not in self.brokers:
            raise KitError(f"there is no broker {broker_id}, and so no partition {partition}")
        return self.brokers[broker_id].log(topic, topics_07.number_of(partition))

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Raise NotSupported: a partition belongs to its broker."""
        require(VERSION, (0, 8), "moving a leader")

    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Partition -> broker, once all of these are registered and their brokers run."""
        return self._topics.wait_leaders(topic, partitions, timeout_s)
