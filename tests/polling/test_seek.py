"""`seek` to where a partition is already costs nothing; to any other offset it reads from there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from simpleconsumer.errors import MessageError
from simpleconsumer.types import TopicPartition
from zkconsumer import KafkaConsumer
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.waiting import wait_until

COUNT = 1200
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation="2.8", zookeeper=False) as started:
        started.create_topic("t", partitions=2)
        for number in range(0, COUNT, 20):
            for partition in (0, 1):
                started.produce("t", [b"%d:%04d" % (partition, each) for each in range(number, number + 20)],
                                partition=partition)  # fmt: skip
        yield started


def consumer_of(cluster: EmbeddedCluster, **settings: object) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=cluster.broker_list, auto_offset_reset="earliest", max_poll_records=50, **settings
    )


def polled(consumer: KafkaConsumer, count: int, *, seeks: bool) -> list[bytes]:
    found: list[bytes] = []
    end = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end:
        found += [record.value for record in consumer.poll(200)]
        for name in consumer.assignment() if seeks else ():
            consumer.seek(name, consumer.position(name))
    return found


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_seek_to_the_position_after_each_poll_drops_nothing_that_was_fetched(
    cluster: EmbeddedCluster, group_id: str | None
) -> None:
    with consumer_of(cluster, group_id=group_id) as consumer:
        if group_id is None:
            consumer.assign([P0, P1])
        else:
            consumer.subscribe(["t"])
        consumer.poll(0)
        assert len(set(polled(consumer, 2 * COUNT, seeks=True))) == 2 * COUNT
        assert consumer.metrics()["requests.fetch"] < 12
        if group_id is not None:
            consumer.commit_sync()
            assert consumer.committed({P0, P1}) is not None
            assert consumer.position(P0) == COUNT


def test_a_seek_elsewhere_reads_from_there(cluster: EmbeddedCluster) -> None:
    with consumer_of(cluster, group_id=None) as consumer:
        consumer.assign([P0])
        first = polled(consumer, 50, seeks=True)
        consumer.seek(P0, 10)
        assert polled(consumer, 50, seeks=False)[:40] == first[10:]
        consumer.seek(P0, COUNT - 5)
        assert polled(consumer, 5, seeks=False) == [b"0:%04d" % number for number in range(COUNT - 5, COUNT)]


def test_a_seek_to_a_message_that_could_not_be_read_fetches_it_again(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault.corrupt("t", 0, offset=5))
    with consumer_of(cluster, group_id=None) as consumer:
        consumer.assign([P0])
        with pytest.raises(MessageError):
            polled(consumer, 1, seeks=False)
        consumer.seek(P0, consumer.position(P0))
        assert polled(consumer, 50, seeks=False)[:50] == [b"0:%04d" % number for number in range(50)]


def test_what_a_seek_to_the_position_leaves_behind_is_committed_by_the_timer(cluster: EmbeddedCluster) -> None:
    """As after a seek elsewhere, records that the last poll returned are done."""
    with consumer_of(cluster, group_id="timer", enable_auto_commit=True, auto_commit_interval_ms=100) as consumer:
        consumer.subscribe(["t"])
        found = polled(consumer, 50, seeks=False)
        assert found
        [name] = {TopicPartition("t", int(value[:1])) for value in found}
        consumer.seek(name, consumer.position(name))
        wait_until(
            lambda: getattr(consumer.committed({name})[name], "offset", None) == consumer.position(name), 10,
            "a commit by the timer", state=lambda: consumer.committed({name}),
        )  # fmt: skip
