"""Partitions move from broker to broker while a group and a reader without group read them, on real brokers."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Producer

from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, Message, read_topic
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]
PARTITIONS, BROKERS, MESSAGES, MOVES = 4, 3, 20_000, 4
REASSIGN = "/admin/reassign_partitions"


def send(brokers: str, until: threading.Event) -> int:
    """Send messages with zstd until the moves are over, and then some; return how many."""
    producer = Producer({"bootstrap.servers": brokers, "compression.type": "zstd", "enable.idempotence": True})
    sent = 0
    while sent < MESSAGES or not until.is_set():
        producer.produce("clicks", value=b"%d" % sent, partition=sent % PARTITIONS)
        sent += 1
        if sent % 100 == 0:
            producer.poll(0.05)
    assert producer.flush(60) == 0
    return sent


def values_of(messages: Iterable[Message]) -> Counter[bytes | None]:
    """The values up to the end, which is that nothing came for some seconds."""
    found: Counter[bytes | None] = Counter()
    try:
        for message in messages:
            found[message.value] += 1
    except ConsumerTimeout:
        pass
    return found


def test_partitions_that_move_are_read_without_loss_and_repetition() -> None:
    with KafkaCluster("3.9.2", brokers=BROKERS) as cluster:
        cluster.create_topic("clicks", partitions=PARTITIONS)
        brokers = ",".join(f"127.0.0.1:{cluster.port(number)}" for number in range(BROKERS))
        found: dict[str, Counter[bytes | None]] = {}
        sent: list[int] = []
        are_moved = threading.Event()

        def as_group() -> None:
            config = ConsumerConfig(
                cluster.zookeeper_connect, "group", auto_offset_reset="smallest", consumer_timeout_ms=10_000
            )
            with ConsumerConnector(config) as connector:
                found["group"] = values_of(connector.create_message_streams({"clicks": 1})["clicks"][0])

        def as_reader() -> None:
            settings = {"bootstrap.servers": brokers, "consumer.timeout.ms": "10000"}
            with read_topic(None, "clicks", until=None, properties=settings) as reader:
                found["reader"] = values_of(reader)

        calls: list[Callable[[], None]] = [lambda: sent.append(send(brokers, are_moved)), as_group, as_reader]
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for move in range(1, MOVES + 1):
            wanted = {number: (number + move) % BROKERS for number in range(PARTITIONS)}
            rows = [{"topic": "clicks", "partition": number, "replicas": [to]} for number, to in wanted.items()]
            cluster.client.create(REASSIGN, json.dumps({"version": 1, "partitions": rows}).encode())
            wait_until(lambda: cluster.client.exists(REASSIGN) is None, 60, "the partitions to move")

            def have_moved(wanted: dict[int, int] = wanted) -> bool:
                return {each: cluster.leader("clicks", each) for each in wanted} == wanted

            wait_until(have_moved, 30, "leaders of partitions that have moved")
        are_moved.set()
        for thread in threads:
            thread.join(180)
        [count] = sent
        once = Counter(b"%d" % number for number in range(count))
        assert found == {"group": once, "reader": once}
