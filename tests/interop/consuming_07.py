"""What tests of groups on Kafka 0.7 share: members of this process, and messages with known positions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_07 import produce_07

from zkconsumer import ConsumerConfig, ConsumerConnector, Message
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.streams.stream import KafkaStream
from zkconsumer.testing.cluster import Cluster

PARTITIONS = ["0-0", "0-1", "1-0", "1-1"]
"""Of a topic on two brokers of the kit."""


def fill(cluster: Cluster, topic: str, count: int, first: int = 0, partitions: list[str] | None = None) -> set[bytes]:
    """The values of so many new messages in each partition, `partition:number`."""
    values: set[bytes] = set()
    for name in partitions or PARTITIONS:
        broker, number = map(int, name.split("-"))
        each = [f"{name}:{n}".encode() for n in range(first, first + count)]
        produce_07(cluster.port(broker), topic, number, each)
        values.update(each)
    return values


@contextmanager
def member(cluster: Cluster, group: str, topics: dict[str, int], **settings: object) -> Iterator[list[KafkaStream]]:
    """The streams of a member."""
    settings = {"auto_offset_reset": "smallest", "consumer_timeout_ms": 200, "fetcher_backoff_ms": 50, **settings}
    config = ConsumerConfig(cluster.zookeeper_connect, group, **settings)
    with ConsumerConnector(config) as connector:
        streams = connector.create_message_streams(topics)
        yield [stream for each in streams.values() for stream in each]


def take(stream: KafkaStream, count: int, timeout_s: float = 30.0) -> list[Message]:
    """So many messages of a stream."""
    got: list[Message] = []
    until = time.monotonic() + timeout_s
    while len(got) < count and time.monotonic() < until:
        try:
            got.append(next(stream))
        except ConsumerTimeout:
            continue
    assert len(got) == count, f"{len(got)} of {count} messages came: {got[-3:]}"
    return got


def offset_of(cluster: Cluster, group: str, topic: str, partition: str) -> int:
    """The stored offset of a partition; -1 without one."""
    path = f"/consumers/{group}/offsets/{topic}/{partition}"
    return int(cluster.client.get(path)[0]) if cluster.client.exists(path) else -1
