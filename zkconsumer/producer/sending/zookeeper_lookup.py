"""Looks up partitions and leaders of a cluster whose brokers are found in ZooKeeper.

With brokers of 0.8 and later, ZooKeeper names the brokers, and these name partitions and leaders. With Kafka 0.7,
ZooKeeper names everything: a partition belongs to the broker in its name, and a topic that does not exist is made by
its first message, in partition 0 of any broker.

Threads: one at a time; reads of ZooKeeper have a deadline.

Source: kafka.producer.ZKBrokerPartitionInfo (0.7.2).

Watches the brokers and topics of Kafka 0.7 in ZooKeeper, so that a producer learns of changes at once.

Requests of one session are served in their order. So what is read after a watch was asked for is not older than the
watch, and no change is missed between the two.

Threads: any; ZooKeeper's callbacks only mark a path, and call what was given, which must not wait.

Source: kafka.producer.ZKBrokerPartitionInfo (0.7.2) watches the same nodes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence

from rebalance.errors import RebalanceError
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, Reply, WatchEvent, ZooKeeperPort
from rebalance.zookeeper.znodes_07 import broker_and_number
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.producer.sending.topic_lookup import FoundTopic, TopicLookup

__all__ = ["Lookup07", "Watches07", "ZooKeeperLookup"]


class Watches07:
    """The watches of one producer.

    Args:
        port: A connected ZooKeeper port; it stays the caller's.
    """

    def __init__(self, port: ZooKeeperPort) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._watched: set[str] = set()
        self._changed: Callable[[], None] | None = None

    def notify(self, changed: Callable[[], None]) -> None:
        """Have this called at every change from now on."""
        self._changed = changed

    def watch(self, topics: Iterable[str]) -> None:
        """Watch the brokers, and the brokers of each of the topics; those that are watched already are left out."""
        if self._changed is None:
            return
        for path in (znodes.BROKERS, *map(znodes.topic_path, topics)):
            with self._lock:
                if path in self._watched:
                    continue
                self._watched.add(path)
            self._watch_children(path)

    def _watch_children(self, path: str) -> None:
        def fired(event: WatchEvent) -> None:
            self._forget(path)
            if self._changed is not None:
                self._changed()

        def answered(reply: Reply) -> None:
            if reply.fault is Fault.NO_NODE:
                self._port.send(Exists(path, fired), lost)
            else:
                lost(reply)

        def lost(reply: Reply) -> None:
            if reply.fault is not None:
                self._forget(path)

        self._port.send(GetChildren(path, fired), answered)

    def _forget(self, path: str) -> None:
        with self._lock:
            self._watched.discard(path)


class ZooKeeperLookup:
    """Asks the brokers that are registered in ZooKeeper.

    Args:
        port: A connected ZooKeeper port; it stays the caller's.
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for one broker, in seconds.
        rng: Chooses the order in which brokers are asked.
        security: TLS and SASL of connections to brokers; None for neither.
    """

    def __init__(
        self, port: ZooKeeperPort, client_id: str, timeout_s: float, rng: random.Random | None = None,
        security: Security | None = None,
    ) -> None:  # fmt: skip
        self._cluster = Cluster(port, client_id, timeout_s, security=security)
        self._registered: dict[int, Broker] = {}
        self._lookup = TopicLookup(self._addresses, client_id, timeout_s, rng, security)

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics."""
        try:
            self._registered = {broker.id: broker for broker in self._cluster.brokers()}
        except RebalanceError as error:
            return dict.fromkeys(topics, FoundTopic({}, f"the brokers are not known: {error}"))
        if not self._registered:
            return dict.fromkeys(topics, FoundTopic({}, "no broker is registered in ZooKeeper"))
        self._lookup.know(self._registered.values())
        return {topic: self._with_addresses(found) for topic, found in self._lookup.look_up(topics).items()}

    def brokers(self) -> list[Broker]:
        """Return the brokers that are registered; those of the last look-up while ZooKeeper does not answer."""
        try:
            return list(self._cluster.brokers())
        except RebalanceError:
            return list(self._registered.values())

    def _addresses(self) -> list[tuple[str, int]]:
        return [(broker.host, broker.port) for broker in self._registered.values()]

    def _with_addresses(self, found: FoundTopic) -> FoundTopic:
        """Return leaders with the addresses under which they are registered: other brokers may report older ones."""
        registered = self._registered
        return found._replace(leaders={
            number: leader and registered.get(leader.id, leader) for number, leader in found.leaders.items()
        })  # fmt: skip


class Lookup07:
    """Reads topics and brokers of Kafka 0.7 in ZooKeeper.

    Args:
        port: A connected ZooKeeper port; it stays the caller's.
        client_id: For the log.
        timeout_s: Longest wait for the reads, in seconds.

    Attributes:
        notify: Has a function called when brokers, or partitions of topics that were looked up, change.
    """

    def __init__(self, port: ZooKeeperPort, client_id: str, timeout_s: float) -> None:
        self._cluster = Cluster(port, client_id, timeout_s, security=None)
        self._watches = Watches07(port)
        self.notify = self._watches.notify

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return the partitions of each of the topics, sorted by broker and number, and watch them."""
        self._watches.watch(topics)
        try:
            brokers = {broker.id: broker for broker in self._cluster.brokers()}
            partitions = self._cluster.partitions(topics)
        except RebalanceError as error:
            return dict.fromkeys(topics, FoundTopic({}, f"the brokers are not known: {error}"))
        if not brokers:
            return dict.fromkeys(topics, FoundTopic({}, "no broker is registered in ZooKeeper"))
        found: dict[str, FoundTopic] = {}
        for topic in topics:
            names = [str(name) for name in partitions.get(topic, ())] or [f"{broker}-0" for broker in brokers]
            ordered = sorted(names, key=broker_and_number)
            found[topic] = FoundTopic({name: brokers.get(broker_and_number(name)[0]) for name in ordered})
        return found
