"""A load that goes on while its brokers die and leaders move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simpleconsumer import SimpleConsumer
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.loads import LastingLoad
from zkconsumer.testing.waiting import wait_until


def stored(cluster: EmbeddedCluster, topic: str, partition: int) -> dict[int, str]:
    """Offset -> value of what a partition holds."""
    leader = cluster.leader(topic, partition)
    assert leader is not None
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
        messages = broker.fetch(topic, partition, 0, 1_000_000)
    return {message.offset: message.value.decode() for message in messages if message.value is not None}


@pytest.mark.embedded_cluster(brokers=2)
def test_it_follows_leaders_and_says_exactly_what_is_stored(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2, replication=2)
    with LastingLoad(embedded_cluster, [topic], 2, 100.0, acks=-1, padding_bytes=10) as load:
        load.grow(20)
        embedded_cluster.kill(0, expire=True)
        load.grow(20)
        embedded_cluster.start(0)
        load.grow(20)
        load.stop()
        assert load.unsure >= 1
    for partition in (0, 1):
        held = stored(embedded_cluster, topic, partition)
        acked = {event.offset: event.id for event in load.acked if event.partition == partition}
        assert acked
        assert acked.items() <= held.items()
        assert all(value.endswith("." * 10) for value in acked.values())


@pytest.mark.embedded_cluster(brokers=2)
def test_a_partition_without_leader_holds_up_no_other(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, 2)
    with LastingLoad(embedded_cluster, [topic], 2, 100.0) as load:
        load.grow(10)
        embedded_cluster.kill(1, expire=True)
        wait_until(lambda: load.unsure, 10, "a message to be refused")
        since = len(load.acked)
        load.grow(30)
        assert {event.partition for event in load.acked[since:]} == {0}
