"""Topics of Kafka 0.7: every broker has partitions of its own, and a topic is made by the first produce request for it.

The number of partitions is a setting of the broker: `num.partitions`, or `topic.partition.count.map` for one topic.
Source: Kafka 0.7.2, LogManager.scala; shared facts in docs/COMPATIBILITY.md.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.kafka.probe import OFFSETS_07, ask_on

__all__ = ["create", "partition_name", "partitions_of"]

_PRODUCE_07 = 0
_ANY_PARTITION = -1
_LATEST = -1


def partition_name(broker_id: int, number: int) -> str:
    """Return the name of a partition in ZooKeeper, `broker-partition`."""
    return f"{broker_id}-{number}"


def create(port: int, topic: str, timeout_s: float = 5.0) -> None:
    """Have a broker make a topic, by a produce request without messages.

    Returns once an offsets request behind it was answered: the broker has made a log then, and registers the topic.

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
