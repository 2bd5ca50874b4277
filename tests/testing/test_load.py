"""load() fills a topic and returns where each message is stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zkconsumer.testing.history.checks import check_history
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.members.java_member import JavaMember


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_was_acknowledged_is_what_a_java_consumer_gets(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, codec: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=3)
    acked = load(kafka_0822, topic, 700, codec=codec, batch=300)
    assert [(each.partition, each.offset, each.id) for each in acked[:2]] == [(0, 0, "0:0"), (0, 1, "0:1")]
    assert len(acked) == 2100
    with JavaMember(kafka_0822, fresh_group, topics={topic: 2}) as member:
        member.wait_messages(2100)
        got = member.events()
    assert {(each.place, each.offset, each.id) for each in got} == {
        (each.place, each.offset, each.id) for each in acked
    }
    assert check_history([*acked, *got]) == []


def test_later_loads_go_on_counting(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    load(kafka_0822, topic, 2)
    more = load(kafka_0822, topic, 1, partitions=[1], first=2)
    assert [(each.partition, each.offset, each.id) for each in more] == [(1, 2, "1:2")]
