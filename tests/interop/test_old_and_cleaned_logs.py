"""Logs of real brokers that hold older formats, or that cleaning and retention have made holes into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simpleconsumer.consumer import EARLIEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, Message, read_topic
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.real

Clusters = Callable[[str, int], KafkaCluster]
SLOW = pytest.mark.slow
WITH_OLD_FORMATS = ("0.11.0.3", "1.1.1", "2.8.2")
PATIENCE_S = 60
COMMITTED = {"isolation.level": "read_committed"}


def brokers(cluster: KafkaCluster) -> str:
    return f"127.0.0.1:{cluster.port(0)}"


def produce(cluster: KafkaCluster, topic: str, rows: list[tuple[bytes | None, bytes]], **settings: object) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers(cluster), "linger.ms": 20, **settings})
    for key, value in rows:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def read(cluster: KafkaCluster, topic: str, properties: dict[str, Any] | None = None) -> list[Message]:
    with read_topic(None, topic, properties={"bootstrap.servers": brokers(cluster), **(properties or {})}) as reader:
        return list(reader)


def by_group(cluster: KafkaCluster, topic: str, group: str) -> list[Message]:
    config = ConsumerConfig(cluster.zookeeper_connect, group, auto_offset_reset="smallest", consumer_timeout_ms=4000)
    found: list[Message] = []
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        with pytest.raises(ConsumerTimeout):
            found.extend(stream)
    return found


@pytest.mark.parametrize("version", [pytest.param(each, marks=SLOW) for each in WITH_OLD_FORMATS])
def test_logs_in_the_formats_of_older_brokers(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    """A setting of the topic says in which format a broker stores what comes: of magic 0, 1 or 2."""
    cluster = kafka_clusters(version, 1)
    topics = {form: fresh_topic() for form in ("0.9.0", "0.10.0", version.rpartition(".")[0])}
    for form, topic in topics.items():
        cluster.create_topic(topic, config={"message.format.version": form, "retention.ms": -1})
        values = [b"%s %s %d" % (form.encode(), codec, number) for codec in (b"none", b"gzip", b"snappy", b"lz4")
                  for number in range(20)]  # fmt: skip
        for at, codec in enumerate(("none", "gzip", "snappy", "lz4")):
            rows: list[tuple[bytes | None, bytes]] = [(b"k", value) for value in values[20 * at : 20 * at + 20]]
            produce(cluster, topic, rows, **{"compression.type": codec})
        grouped = by_group(cluster, topic, f"{fresh_group}-{form}")
        for found in (read(cluster, topic), read(cluster, topic, COMMITTED), grouped):
            assert [message.value for message in found] == values
            assert [message.offset for message in found] == list(range(80))
            assert {message.timestamp_ms is None for message in found} == {form == "0.9.0"}


@pytest.mark.parametrize("version", [pytest.param(each, marks=SLOW) for each in (*WITH_OLD_FORMATS, "3.9.2")])
def test_what_cleaning_leaves_of_a_log_is_read_to_its_end(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(
        topic, config={"cleanup.policy": "compact", "segment.bytes": 2000, "min.cleanable.dirty.ratio": 0.01}
    )
    produce(cluster, topic, [(b"once", bytes(200))])  # stays, and what is behind it goes
    for number in range(40):
        produce(cluster, topic, [(b"key %d" % (number % 3), b"value %d " % number + bytes(200))])

    def is_cleaned() -> bool:
        produce(cluster, topic, [(b"last", b"x" * 300)])  # cleaning begins when a segment is rolled
        return len(read(cluster, topic)) < 40

    wait_until(is_cleaned, 2 * PATIENCE_S, "the log to be cleaned", interval_s=1)
    found = read(cluster, topic)
    newest = {bytes(m.key or b""): bytes(m.value or b"") for m in found}
    assert {key: newest[key][: newest[key].index(b" ", 6)] for key in (b"key 0", b"key 1", b"key 2")} == {
        b"key 0": b"value 39", b"key 1": b"value 37", b"key 2": b"value 38",
    }  # fmt: skip
    offsets = [message.offset for message in found]
    assert offsets == sorted(set(offsets))
    assert offsets[0] == 0
    assert offsets != list(range(offsets[-1] + 1)), "there are holes"


@pytest.mark.parametrize("version", [pytest.param("4.3.1", marks=SLOW)])
def test_retention_moves_the_start_of_a_log(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic, config={"retention.bytes": 1, "segment.bytes": 1_100_000, "retention.ms": -1})
    for _ in range(40):
        produce(cluster, topic, [(None, bytes(100_000))])
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        wait_until(lambda: broker.get_offsets_before(topic, 0, EARLIEST)[0] > 0, 2 * PATIENCE_S, "old segments to go")
        start = broker.get_offsets_before(topic, 0, EARLIEST)[0]
    assert [message.offset for message in read(cluster, topic)] == list(range(start, 40))
