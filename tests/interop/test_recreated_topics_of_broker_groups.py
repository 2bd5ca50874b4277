"""Members of broker groups while their topic is deleted and created again: the new one is read from its start."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker_groups import Running, stored, wait_owned
from polling import Seen, consumer_of, offsets, poll_until

from simpleconsumer.types import TopicPartition
from zkconsumer.testing import load
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
VERSIONS = ["4.3.1", *(pytest.param(version, marks=pytest.mark.slow) for version in ("2.8.2", "3.9.2"))]
PATIENCE_S = 30.0
LENGTHS = pytest.mark.parametrize("length", [5, 10, 25], ids=["shorter", "as long", "longer"])


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.mark.catalogue("H4")
@LENGTHS
def test_streams_read_it_from_its_start_whatever_auto_offset_reset_says(
    cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], length: int
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    with Running(cluster, fresh_group, topic, auto_offset_reset="largest") as member:
        wait_owned(member, [(topic, 0)])
        load(cluster, topic, 10)
        member.reader.wait(10)
        cluster.delete_topic(topic)
        cluster.create_topic(topic, 1)
        load(cluster, topic, length)

        def came() -> list[int]:
            return [each.offset for each in member.reader.messages[10:]]

        # What was fetched behind the old position, before the new topic was noticed, may come first.
        wait_until(lambda: came()[-length:] == list(range(length)), PATIENCE_S, "the new topic", state=came)
        assert ("lost", frozenset({(topic, 0)})) in member.told.events
        member.connector.commit_offsets()
    assert stored(cluster, fresh_group, topic, [0]) == [length]


@LENGTHS
def test_a_polled_consumer_is_told_that_it_has_lost_the_topic(
    cluster: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], length: int
) -> None:
    topic, seen = fresh_topic(), Seen()
    cluster.create_topic(topic, 1)
    load(cluster, topic, 10)
    with consumer_of(cluster, fresh_group, auto_offset_reset="earliest", auto_commit_interval_ms=100) as consumer:
        consumer.subscribe([topic], listener=seen)
        assert offsets(poll_until(consumer, 10)) == list(range(10))
        consumer.commit_sync()
        cluster.delete_topic(topic)
        cluster.create_topic(topic, 1)
        load(cluster, topic, length)
        found: list[int] = []

        def come() -> bool:
            found.extend(offsets(consumer.poll(100)))
            return found[-length:] == list(range(length))

        wait_until(come, PATIENCE_S, "the new topic", interval_s=0.0, state=lambda: found)
        assert [kind for kind, _ in seen.calls] == ["assigned", "lost", "assigned"]
        consumer.commit_sync()
        assert consumer.position(TopicPartition(topic, 0)) == length
    assert stored(cluster, fresh_group, topic, [0]) == [length]
