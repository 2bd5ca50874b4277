"""`max.processing.interval.ms`: the partitions of an application that is stuck on a message go to others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simpleconsumer import SimpleConsumer
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until


def _members(cluster: KafkaCluster, group: str) -> list[str]:
    return sorted(cluster.client.get_children(f"/consumers/{group}/ids"))


@pytest.mark.catalogue("J3")
def test_others_take_over_from_a_stuck_application_and_it_comes_back_when_it_goes_on(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 2, 1)
    for partition in (0, 1):
        leader = kafka_0822.leader(topic, partition)
        assert leader is not None
        with SimpleConsumer("127.0.0.1", kafka_0822.port(leader)) as producer:
            producer.produce(topic, partition, [f"{partition}-{number}".encode() for number in range(10)])

    def config(name: str, **settings: object) -> ConsumerConfig:
        return ConsumerConfig(
            kafka_0822.zookeeper_connect, fresh_group, consumer_id=name, auto_offset_reset="smallest",
            consumer_timeout_ms=1500, rebalance_drain_timeout_ms=500, **settings,
        )  # fmt: skip

    with ConsumerConnector(config("a-stuck", max_processing_interval_ms=1000)) as stuck:
        stream = stuck.create_message_streams({topic: 1})[topic][0]
        in_hand = next(stream)
        with ConsumerConnector(config("b-spare")) as spare:
            others = spare.create_message_streams({topic: 1})[topic][0]
            wait_until(lambda: len(spare.status().owned) == 2, 20, "the spare member to own both partitions")
            assert _members(kafka_0822, fresh_group) == [f"{fresh_group}_b-spare"]
            assert stuck.status().state == "out"
            taken_over = [next(others).value for _ in range(20)]
            # The stuck message comes again: no member could know that it would be done after all.
            assert in_hand.value in taken_over
            assert sorted(taken_over) == sorted(f"{part}-{number}".encode() for part in (0, 1) for number in range(10))

            with pytest.raises(ConsumerTimeout):
                next(others)  # all is done, for the spare member too
            with pytest.raises(ConsumerTimeout):
                next(stream)  # asking again is what brings the stuck member back
            wait_until(lambda: len(stuck.status().owned) == 1, 20, "the member to have a share again")
            wait_until(lambda: len(spare.status().owned) == 1, 20, "the spare member to have given one back")
        assert len(_members(kafka_0822, fresh_group)) == 1
