"""Lanes on real brokers: what is in the log is there once and in order, and what shows that it would not be stops them.

The rules of brokers on which lanes stand are tests, too: what real brokers of each version do with batches of one id.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from lane_writing import WAIT_S, Wire, counted, lane, source_batch, write

from simpleconsumer.types import TopicPartition
from zkconsumer.mirror.errors import AnotherWriter, Misplaced
from zkconsumer.mirror.lane_events import Run
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.real

SLOW = pytest.mark.slow
VERSIONS = [*(pytest.param(each, marks=SLOW) for each in ("0.11.0.3", "1.1.1", "2.8.2", "4.3.1")), "3.9.2"]


@pytest.fixture(params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def name(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> TopicPartition:
    topic = fresh_topic()
    cluster.create_topic(topic, config={"retention.ms": -1})
    return TopicPartition(topic, 0)


def test_a_lane_writes_every_record_once_and_the_next_one_goes_on_at_the_end(
    cluster: KafkaCluster, name: TopicPartition
) -> None:
    run = Run(Wire(cluster, name).new_id(), 0)
    with lane(cluster, name, run) as first:
        assert write(first, 2_000) == 2_000
    with lane(cluster, name, run) as second:
        assert second.position(WAIT_S) == 2_000
        assert write(second, 3_000, rng=random.Random(2)) == 3_000
    assert counted(cluster, name.topic) == 3_000


def test_a_foreign_batch_stops_the_lane_under_way_by_its_offset_and_the_next_one_by_the_end_of_the_log(
    cluster: KafkaCluster, name: TopicPartition
) -> None:
    """The number of the lane's next batch is right all the same, so brokers store it: behind its own offset."""
    wire = Wire(cluster, name)
    run = Run(wire.new_id(), 0)
    with lane(cluster, name, run) as sender:
        write(sender, 100)
        wire.put_as_is(source_batch(100, 1))
        with pytest.raises(Misplaced, match=f"{name.topic}/0: .*20 records expected at 100, found at 101; 40 records"):
            write(sender, 200)
        assert sender.stored == 100
    with lane(cluster, name, run) as second:
        with pytest.raises(AnotherWriter) as caught:
            second.position(WAIT_S)
        end = wire.end()
        assert f"ends at offset {end - 1} with sequence {end - 1}" in caught.value.expected
        assert f"ends at offset {end - 1} with sequence {end - 2}" in caught.value.found
