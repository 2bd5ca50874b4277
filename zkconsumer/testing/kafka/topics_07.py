"""Topics of Kafka 0.7: every broker has partitions of its own, and a topic is made by the first produce request for it.

The number of partitions is a setting of the broker: `num.partitions`, or `topic.partition.count.map` for one topic.
Source: Kafka 0.7.2, LogManager.scala; shared facts in docs/COMPATIBILITY.md.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.cluster import Broker, Cluster, NewTopic
from zkconsumer.testing.errors import KitError, NotSupported, require
from zkconsumer.testing.kafka.probe import OFFSETS_07, ask_on
from zkconsumer.testing.waiting import wait_until

_PRODUCE_07 = 0
_ANY_PARTITION = -1
_LATEST = -1


def partition_name(broker_id: int, number: int) -> str:
    """Return the name of a partition in ZooKeeper, `broker-partition`."""
    return f"{broker_id}-{number}"


def broker_of(partition: int | str) -> int:
    """Return the broker of a partition, of its name.

    Raises:
        KitError: It is no such name.
    """
    broker, dash, number = str(partition).partition("-")
    if not (dash and broker.isdecimal() and number.isdecimal()):
        raise KitError(f"{partition!r} is not a partition of Kafka 0.7; it must be broker-number, such as '0-3'")
    return int(broker)


def number_of(partition: int | str) -> int:
    """Return the number of a partition on its broker, of its name; KitError if it is no such name."""
    broker_of(partition)
    return int(str(partition).partition("-")[2])


def create(port: int, topic: str, timeout_s: float = 5.0) -> None:
    """Have a broker make a topic, by a produce request without messages.

    Returns once an offsets request after it was answered: the broker has made a log then, and registers the topic.

    Raises:
        OSError: The broker does not answer, or refuses the name.
    """
    name = topic.encode()
    place = struct.pack(">h", len(name)) + name
    nothing = struct.pack(">h", _PRODUCE_07) + place + struct.pack(">ii", _ANY_PARTITION, 0)
    offsets = struct.pack(">h", OFFSETS_07) + place + struct.pack(">iqi", 0, _LATEST, 1)
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(nothing)) + nothing)
        ask_on(connection, offsets, timeout_s=timeout_s)


def partitions_of(client: KazooClient, topic: str, brokers: Iterable[int] | None = None) -> list[str]:
    """Return the registered partitions of a topic in the order of Kafka 0.7, that of text; empty without the topic.

    Args:
        brokers: Only of these brokers; None means all.
    """
    path = f"/brokers/topics/{topic}"
    wanted = None if brokers is None else {str(each) for each in brokers}
    found: list[str] = []
    try:
        for broker in client.get_children(path):
            if wanted is None or broker in wanted:
                count, _ = client.get(f"{path}/{broker}")
                found += [partition_name(int(broker), number) for number in range(int(count))]
    except NoNodeError:
        pass  # the topic, or the broker's share of it, is gone
    return sorted(found)


class Topics07:
    """The topics of a cluster of Kafka 0.7, of either kind.

    Args:
        cluster: Whose brokers and time-out count.
        known: Returns the registered partitions of a topic.
    """

    def __init__(self, cluster: Cluster, known: Callable[[str], list[str]]) -> None:
        self._cluster = cluster
        self._known = known

    def create(self, topic: NewTopic) -> dict[int | str, int]:
        """Have all running brokers make a topic; return partition -> broker once all have registered it.

        Raises:
            KitError: The topic exists.
            NotSupported: Replicas or settings are wanted, or the brokers are set to another number of partitions.
            WaitTimeout: A broker has not registered it in time.
        """
        name, wanted, timeout_s = topic.name, topic.partitions, self._cluster.timeout_s
        if topic.replication != 1 or topic.assignment or topic.config:
            require(self._cluster.version, (0, 8), "a topic with replicas or settings of its own")
        running = self._running()
        if self._known(name):
            raise KitError(f"topic {name} exists already")
        for broker in running.values():
            create(broker.port, name, timeout_s)
        found: list[str] = []

        def by_all() -> bool:
            found[:] = self._known(name)
            return {broker_of(each) for each in found} == set(running)

        wait_until(by_all, timeout_s, f"topic {name} to be registered by brokers {sorted(running)}",
                   state=lambda: found)  # fmt: skip
        if wanted is not None and wanted * len(running) != len(found):
            raise NotSupported(
                f"topic {name} has the partitions {', '.join(found)}: in Kafka 0.7 the brokers' settings decide, as "
                f'settings={{"num.partitions": {wanted}}} or {{"topic.partition.count.map": "{name}:{wanted}"}}'
            )
        return {each: broker_of(each) for each in found}

    def partitions(self, topic: str) -> list[int | str]:
        """Return the partitions of the registered brokers, `broker-partition`; KitError without any."""
        found: list[int | str] = [*self._known(topic)]
        if not found:
            raise KitError(f"topic {topic} does not exist")
        return found

    def leader(self, topic: str, partition: int | str) -> int | None:
        """Return the broker of a partition; None while it is not registered."""
        return broker_of(partition) if partition in self._known(topic) else None

    def wait_leaders(
        self, topic: str, partitions: Sequence[int | str], timeout_s: float | None = None
    ) -> dict[int | str, int]:
        """Return partition -> broker, once all of these partitions are registered and their brokers run.

        Raises:
            KitError: One of them is no name of a partition.
            WaitTimeout: They are not in time.
        """
        wanted = {each: broker_of(each) for each in partitions}
        running = self._running().keys()
        found: list[str] = []

        def all_there() -> bool:
            found[:] = self._known(topic)
            return set(wanted) <= set(found) and set(wanted.values()) <= running

        limit_s = self._cluster.timeout_s if timeout_s is None else timeout_s
        wait_until(all_there, limit_s, f"partitions {list(partitions)} of {topic}", state=lambda: found)
        return wanted

    def _running(self) -> dict[int, Broker]:
        return {broker.broker_id: broker for broker in self._cluster.brokers.values() if broker.running}
