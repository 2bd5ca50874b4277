"""Messages for the tests of Spark, given to whoever leads a partition."""

from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.testing.kafka import KafkaCluster

Message = tuple[bytes | None, bytes | None]
"""Key and value."""


def produce(
    cluster: KafkaCluster, topic: str, partition: int, messages: Sequence[Message], codec: str = "none"
) -> None:
    leader = cluster.leader(topic, partition)
    assert leader is not None
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
        broker.produce(topic, partition, messages, codec=codec)
