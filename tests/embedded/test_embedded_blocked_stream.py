"""A stream that nobody reads, beside others of the same connector, over brokers that lead partitions of all of them."""

from __future__ import annotations

import time
import uuid
from itertools import islice

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing import load
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

MIB = 1024 * 1024
DEADLINE_S = 60.0
HELD_BACK_MS = 5000
"""How long a broker holds back an answer without data: a few of them in a row are past the deadline."""


def fill(cluster: EmbeddedCluster, partitions: int, count: int, size: int, *, only: list[int] | None = None) -> str:
    """A new topic with so many messages of a size in each partition, or in some alone."""
    topic = f"t{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions)
    batch = max(1, MIB // 2 // size)
    load(cluster, topic, count, partitions=only, batch=batch, value=lambda _, n: b"%d" % n + b"." * size)
    return topic


def config(cluster: EmbeddedCluster, **settings: object) -> ConsumerConfig:
    return ConsumerConfig(
        cluster.zookeeper_connect, f"g{uuid.uuid4().hex[:8]}", auto_offset_reset="smallest",
        fetch_wait_max_ms=HELD_BACK_MS, consumer_timeout_ms=int(DEADLINE_S * 1000), **settings,
    )  # fmt: skip


def await_rest(connector: ConsumerConnector) -> None:
    """Wait until all is queued that may be."""

    def rests() -> bool:
        before = connector.statistics().queued_bytes
        time.sleep(0.3)
        return connector.statistics().queued_bytes == before > 0

    wait_until(rests, DEADLINE_S, "fetching to come to rest")


@pytest.mark.catalogue("J5")
@pytest.mark.parametrize("size", [100, 900_000])
@pytest.mark.embedded_cluster(brokers=3)
def test_nobody_waits_for_a_stream_that_stands_still(embedded_cluster: EmbeddedCluster, size: int) -> None:
    """Of the stream that is read most partitions have nothing, on each broker."""
    budget = 8 * MIB
    slow = fill(embedded_cluster, 12, 3, 900_000)
    fast = fill(embedded_cluster, 12, 30, size, only=[0, 1, 2])
    with ConsumerConnector(config(embedded_cluster, queued_max_bytes=budget)) as connector:
        streams = connector.create_message_streams({slow: 1, fast: 1})
        next(streams[slow][0])
        await_rest(connector)
        begun, most = time.monotonic(), 0
        seen: dict[int | str, list[int]] = {0: [], 1: [], 2: []}
        for message in islice(streams[fast][0], 90):
            seen[message.partition].append(message.offset)
            most = max(most, connector.statistics().queued_bytes)
        assert seen == {partition: list(range(30)) for partition in range(3)}
        assert most <= budget + 2 * MIB  # for each stream one chunk more
        for number in range(30, 50):
            load(embedded_cluster, fast, 1, partitions=[3 + number % 9])
            assert next(streams[fast][0]).partition == 3 + number % 9
        assert time.monotonic() - begun < DEADLINE_S


@pytest.mark.embedded_cluster(brokers=2)
def test_the_last_of_many_streams_goes_on_where_all_others_stand_still(embedded_cluster: EmbeddedCluster) -> None:
    topic = fill(embedded_cluster, 16, 8, 500_000)
    settings = {"queued_max_bytes": 4 * MIB, "rebalance_quiet_ms": 0}
    with ConsumerConnector(config(embedded_cluster, **settings)) as connector:
        streams = connector.create_message_streams({topic: 16})[topic]
        await_rest(connector)
        for stream in reversed(streams):
            messages = list(islice(stream, 8))
            assert [message.offset for message in messages] == list(range(8))
            assert len({message.partition for message in messages}) == 1
            assert connector.statistics().queued_bytes <= 4 * MIB + 16 * 512 * 1024
