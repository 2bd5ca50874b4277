"""Topics of an embedded cluster of Kafka 0.7: each broker registers itself and the topics of which it has logs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from kazoo.client import KazooClient

from zkconsumer.testing.embedded.coordination import Place
from zkconsumer.testing.embedded.faults import FaultPlan
from zkconsumer.testing.embedded.kafka07.broker import Broker07
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.registration import IDS, Registration07
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07
from zkconsumer.testing.embedded.registries.session import cluster_client, end_owner
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka import topics as kafka_topics
from zkconsumer.testing.kafka import topics_07
from zkconsumer.testing.versions import refused, require

VERSION = "0.7.2"


class Coordination07:
    """The brokers of a cluster of Kafka 0.7; see `Coordination`.

    Attributes:
        brokers: by id.
    """

    def __init__(self, place: Place, ports: Mapping[int, int], settings: BrokerSettings07, plan: FaultPlan) -> None:
        """Make the brokers.

        Args:
            ports: by broker id.
        """
        self._place = place
        self._settings = settings
        self.brokers = {
            n: Broker07(n, place.folder / f"broker-{n}", settings, plan, port=port) for n, port in ports.items()
        }
        self._lock = threading.RLock()
        self._client: KazooClient | None = None
        self._started = False

    # ---- start and end

    @property
    def client(self) -> KazooClient:
        """The cluster's own ZooKeeper client."""
        if not self._place.has_zookeeper:
            raise KitError("this cluster does without ZooKeeper")
        if self._client is None:
            raise KitError("the cluster was not started")
        return self._client

    @property
    def started(self) -> bool:
        """True between `start()` and `close()`."""
        return self._started

    def start(self) -> None:
        """Connect to ZooKeeper."""
        if self._place.has_zookeeper and self._client is None:
            self._client = cluster_client(self._place.zookeeper_hosts, self._place.chroot, self._place.login)
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
                broker.serve_as(self._registered(broker) if self._place.has_zookeeper else None)
            except BaseException:
                broker.end(clean=True)  # a broker that no client can find would never be registered later
                raise

    def _registered(self, broker: Broker07) -> Registration07:
        registration = broker.make_registration()
        registration.start(
            self._place.zookeeper_hosts, self._place.chroot, self._settings.session_timeout_ms / 1000,
            self._place.login, self.client,
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
            if expire and self._place.has_zookeeper:
                path = f"{IDS}/{broker_id}"
                end_owner(self.client, self._place.zookeeper_hosts, path, self._place.login)

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication: int,
        assignment: Mapping[int, Sequence[int]] | None,
        config: Mapping[str, object] | None,
    ) -> dict[int | str, int]:
        """Partition -> broker, once every running broker has registered the topic."""
        kafka_topics.check_name(name)
        if replication != 1 or assignment or config:
            require(VERSION, (0, 8), "a topic with replicas or settings of its own")
        ports = {broker.broker_id: broker.port for broker in self.brokers.values() if broker.running}
        return topics_07.create_on_all(ports, name, partitions, lambda: self._known(name), self._place.timeout_s)

    def _known(self, topic: str) -> list[str]:
        if self._place.has_zookeeper:
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
        found: list[int | str] = [*self._known(topic)]
        if not found:
            raise KitError(f"there is no topic {topic}")
        return found

    def leader(self, topic: str, partition: int | str) -> int | None:
        """The broker of a partition; None while it is not registered."""
        return topics_07.broker_of(partition) if partition in self._known(topic) else None

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
        limit_s = self._place.timeout_s if timeout_s is None else timeout_s
        running = {broker.broker_id for broker in self.brokers.values() if broker.running}
        return topics_07.wait_registered(lambda: self._known(topic), topic, partitions, running, limit_s)
