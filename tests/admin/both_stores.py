"""Stores offsets of a group in Kafka and in ZooKeeper, and reads them, without the code that is tested."""

from __future__ import annotations

from collections.abc import Mapping

from kazoo.exceptions import NoNodeError

from simpleconsumer import SimpleConsumer, TopicPartition
from simpleconsumer.errors import BrokerError
from simpleconsumer.types import Broker
from zkconsumer.testing import wait_until
from zkconsumer.testing.cluster import Cluster


def manager_of(cluster: Cluster, group: str) -> Broker | None:
    """The broker that keeps the group's offsets; None while there is none, as at the first question."""
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
        try:
            return consumer.consumer_metadata(group)
        except BrokerError:
            return None


def store_in_kafka(cluster: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    manager = wait_until(lambda: manager_of(cluster, group), 30.0, "an offset manager")
    wanted = {TopicPartition(topic, at): value for at, value in offsets.items()}

    def is_stored() -> bool:
        with SimpleConsumer(manager.host, manager.port) as consumer:
            try:
                consumer.commit_offsets(group, wanted, version=1)
            except BrokerError as error:
                if not error.retriable:
                    raise
                return False
            return True

    wait_until(is_stored, 30.0, "the offsets to be stored")


def store_in_zookeeper(cluster: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    for partition, offset in offsets.items():
        cluster.client.create(f"/consumers/{group}/offsets/{topic}/{partition}", str(offset).encode(), makepath=True)


def in_zookeeper(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    path = f"/consumers/{group}/offsets/{topic}"
    try:
        names = sorted(cluster.client.get_children(path))
    except NoNodeError:
        return {}
    return {int(name): int(cluster.client.get(f"{path}/{name}")[0]) for name in names}


def in_kafka(cluster: Cluster, group: str, topic: str, partitions: int = 2) -> dict[int, int]:
    """The offsets that count: not those of -1."""
    manager = wait_until(lambda: manager_of(cluster, group), 30.0, "an offset manager")
    names = [TopicPartition(topic, number) for number in range(partitions)]
    with SimpleConsumer(manager.host, manager.port) as consumer:
        found = consumer.fetch_offsets(group, names, version=1)
    return {int(name.partition): row.offset for name, row in found.items() if row.offset >= 0}
