"""Reads back what producers have sent."""

from __future__ import annotations

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.testing import Cluster


def stored(cluster: Cluster, topic: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values of a partition, in order."""
    leader = cluster.leader(topic, partition)
    assert leader is not None
    found: list[tuple[bytes | None, bytes | None]] = []
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as consumer:
        while messages := consumer.fetch(topic, partition, len(found)):
            found += [(each.key, each.value) for each in messages]
    return found
