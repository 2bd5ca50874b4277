"""Fills topics of a test cluster fast, and remembers what the brokers acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history.events import Event


def load(
    cluster: Cluster,
    topic: str,
    count: int,
    *,
    partitions: Sequence[int] | None = None,
    value: Callable[[int, int], bytes] | None = None,
    first: int = 0,
    codec: str = "none",
    batch: int = 500,
    timeout_s: float = 30.0,
) -> list[Event]:
    """One `acked` event per message that was stored, with its partition, offset and value (as `id`).

    Args:
        count: messages for each partition.
        partitions: which ones; None takes all of the topic.
        value: makes the value of message number n of a partition: `value(partition, n)`; by default `b"partition:n"`.
        first: number of the first message of each partition.
        codec: none, gzip, snappy, lz4.
        batch: messages in one request.

    Raises:
        KitError: there is no such topic, or a partition has no leader.
        simpleconsumer's errors: a broker refused messages.
    """
    make = value or (lambda partition, n: b"%d:%d" % (partition, n))
    chosen = cluster.partitions(topic) if partitions is None else list(partitions)
    events: list[Event] = []
    for partition in chosen:
        leader = cluster.leader(topic, partition)
        if leader is None:
            raise KitError(f"{topic}/{partition} has no leader")
        with SimpleConsumer("127.0.0.1", cluster.port(leader), timeout_s=timeout_s) as broker:
            for start in range(first, first + count, batch):
                values = [make(partition, n) for n in range(start, min(start + batch, first + count))]
                base = broker.produce(topic, partition, values, codec=codec, acks=1)
                now = time.monotonic_ns()
                events += [
                    Event(now, "acked", "", topic, partition, base + n, text.decode("ascii", "backslashreplace"))
                    for n, text in enumerate(values)
                ]
    return events
