"""`examples/static_streams.py` on real brokers of Kafka 0.8.2.2."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

from tests.examples.example_process import Example, members, stored
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load

NAME = "static_streams.py"
PARTITIONS, EACH = 4, 25


def test_two_threads_share_the_partitions_and_a_restart_goes_on_with_the_next_message(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, start: Callable[..., Example]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, PARTITIONS)
    for turn, number in enumerate((signal.SIGINT, signal.SIGTERM)):
        sent = load(kafka_0822, topic, EACH, first=turn * EACH)
        example = start(NAME, zookeeper=kafka_0822.zookeeper_connect, group=fresh_group, topic=topic)
        rows = [line.split(" ", 1) for line in example.wait_lines(len(sent))]
        assert example.end(number) == 0, example.errors()
        assert len(example.lines()) == len(sent)
        assert sorted(row for _, row in rows) == sorted(f"{each.partition} {each.offset} {each.id}" for each in sent)
        assert Counter(thread for thread, _ in rows) == {"0": 2 * EACH, "1": 2 * EACH}
        assert stored(kafka_0822, fresh_group, topic) == dict.fromkeys(range(PARTITIONS), (turn + 1) * EACH)
        assert members(kafka_0822, fresh_group) == []


def test_a_thread_that_fails_ends_the_program_and_its_message_is_not_committed(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, start: Callable[..., Example]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 1)
    load(kafka_0822, topic, 5, value=lambda partition, n: b"\xff" if n == 3 else b"text")
    example = start(NAME, zookeeper=kafka_0822.zookeeper_connect, group=fresh_group, topic=topic)
    assert example.process.wait(60) == 1
    assert [line.split()[2] for line in example.lines()] == ["0", "1", "2"]
    assert "UnicodeDecodeError" in example.errors()
    assert stored(kafka_0822, fresh_group, topic) == {0: 3}
    assert members(kafka_0822, fresh_group) == []
