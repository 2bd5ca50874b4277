"""kafka-python and librdkafka beside us on real brokers: what one writes, all read, in every codec, with headers.

Kafka 0.11 brought headers, idempotence and transactions, and 2.1 zstd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kafka_peers import next_messages

from simpleconsumer.types import Message
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, read_topic
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import Producer
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import Deadline

kafka = pytest.importorskip("kafka")
confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("zstandard", reason="zstandard is not installed, with which kafka-python compresses")

pytestmark = pytest.mark.real

Clusters = Callable[[str, int], KafkaCluster]
SLOW = pytest.mark.slow
WITH_BATCHES = [*(pytest.param(each, marks=SLOW) for each in ("0.11.0.3", "1.1.1", "2.8.2", "4.3.1")), "3.9.2"]
VERSIONS = [pytest.param("0.10.2.2", marks=SLOW), *WITH_BATCHES]
START_MS = 1_700_000_000_000
PATIENCE_S = 60.0
EACH = 60
COMMITTED = {"isolation.level": "read_committed"}


class Row(NamedTuple):
    """A message as every client has it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None


class Place:
    """A topic of one partition, and how each client reads it from its start."""

    def __init__(self, cluster: KafkaCluster, topic: str, group: str) -> None:
        self.cluster, self.topic, self.group = cluster, topic, group
        self.since = version_tuple(cluster.version)
        self.brokers = f"127.0.0.1:{cluster.port(0)}"
        self.codecs = ["none", "gzip", "snappy", "lz4", *(["zstd"] if self.since >= (2, 1) else [])]
        cluster.create_topic(topic, config={"retention.ms": -1})

    def rows(self, codec: str) -> list[Row]:
        """What is to be written in a codec."""
        has_headers = self.since >= (0, 11)
        return [
            Row(
                b"key %d" % number if number % 2 else None,
                None if number % 14 == 7 else b"%s %d " % (codec.encode(), number) * (number % 20 + 1),
                (("codec", codec.encode()), ("größe", b""), ("größe", b"2")) if has_headers and number % 3 == 0 else (),
                START_MS + 1000 * self.codecs.index(codec) + number,
            )
            for number in range(EACH)
        ]

    def all_rows(self) -> list[Row]:
        return [row for codec in self.codecs for row in self.rows(codec)]

    def kafka_python_reads(self, count: int, **settings: Any) -> list[Row]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.brokers, enable_auto_commit=False, **settings)
        where = kafka.TopicPartition(self.topic, 0)
        found: list[Row] = []
        try:
            consumer.assign([where])
            consumer.seek_to_beginning(where)
            deadline = Deadline(PATIENCE_S)
            while len(found) < count and not deadline.expired:
                for records in consumer.poll(timeout_ms=500).values():
                    found += [Row(each.key, each.value, tuple(map(tuple, each.headers)), each.timestamp)
                              for each in records]  # fmt: skip
        finally:
            consumer.close()
        return found

    def confluent_reads(self, count: int, **settings: Any) -> list[Row]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.brokers, "group.id": "none", "enable.auto.commit": False, **settings}
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(self.topic, 0, 0)])
            return [Row(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1])
                    for each in next_messages(consumer, count)]  # fmt: skip
        finally:
            consumer.close()

    def we_read(self, **settings: object) -> list[Row]:
        """What `read_topic` reads up to the end."""
        with read_topic(None, self.topic, properties={"bootstrap.servers": self.brokers, **settings}) as reader:
            return [as_row(message) for message in reader]

    def our_group_reads(self) -> list[Row]:
        """What a new group reads until nothing comes."""
        config = ConsumerConfig(
            self.cluster.zookeeper_connect, self.group, auto_offset_reset="smallest", consumer_timeout_ms=5000
        )
        found: list[Row] = []
        with ConsumerConnector(config) as connector:
            [stream] = connector.create_message_streams({self.topic: 1})[self.topic]
            with pytest.raises(ConsumerTimeout):
                found.extend(as_row(message) for message in stream)
        return found

    def check(self, expected: list[Row], *, with_times: bool) -> None:
        """Every client reads exactly these messages, and all of them the same times, if they have any."""
        found = self.we_read()
        if with_times:
            assert found == expected
        has_times = with_times or self.since >= (0, 11)
        assert all((row.timestamp_ms is not None) == has_times for row in found)
        assert [row[:3] for row in found] == [row[:3] for row in expected]
        if self.cluster.has_zookeeper:
            assert self.our_group_reads() == found
        for others in (self.kafka_python_reads(len(expected)), self.confluent_reads(len(expected))):
            assert others == found if has_times else [row[:3] for row in others] == [row[:3] for row in found]


def as_row(message: Message) -> Row:
    return Row(message.key, message.value, message.headers, message.timestamp_ms)  # type: ignore[arg-type]


@pytest.fixture
def place(kafka_clusters: Clusters, fresh_topic: Callable[[], str], fresh_group: str, version: str) -> Place:
    return Place(kafka_clusters(version, 1), fresh_topic(), fresh_group)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_kafka_python_writes_is_read_by_all(place: Place) -> None:
    for codec in place.codecs:
        producer = kafka.KafkaProducer(
            bootstrap_servers=place.brokers, compression_type=None if codec == "none" else codec, acks="all",
            linger_ms=50, enable_idempotence=place.since >= (0, 11),
        )  # fmt: skip
        try:
            sent = [
                producer.send(
                    place.topic, row.value, row.key, headers=list(row.headers), partition=0,
                    timestamp_ms=row.timestamp_ms,
                )
                for row in place.rows(codec)
            ]  # fmt: skip
            for each in sent:
                each.get(timeout=PATIENCE_S)
        finally:
            producer.close(timeout=PATIENCE_S)
    place.check(place.all_rows(), with_times=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_we_write_is_read_by_all(place: Place) -> None:
    for codec in place.codecs:
        config = ProducerConfig(
            metadata_broker_list=place.brokers, compression_codec=codec, producer_type="async",
            request_required_acks=-1, queue_buffering_max_ms=50,
        )  # fmt: skip
        with Producer(config) as producer:
            for row in place.rows(codec):
                producer.send(place.topic, row.value, row.key, partition=0, headers=row.headers or None)
            assert producer.flush(PATIENCE_S)
    place.check(place.all_rows(), with_times=False)


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_transactions_of_kafka_python_are_read_by_us_and_ours_by_it(place: Place) -> None:
    theirs = kafka.KafkaProducer(bootstrap_servers=place.brokers, transactional_id=f"{place.topic}-theirs")
    ours = Producer(ProducerConfig(
        metadata_broker_list=place.brokers, transactional_id=f"{place.topic}-ours", request_required_acks=-1,
        producer_type="async", queue_buffering_max_ms=5,
    ))  # fmt: skip
    kept: list[bytes] = []
    with ours:
        theirs.init_transactions()
        ours.init_transactions()
        for number in range(6):
            is_kept = number % 3 != 2
            values = [b"%s %d-%d" % (b"kept" if is_kept else b"aborted", number, each) for each in range(4)]
            theirs.begin_transaction()
            ours.begin_transaction()
            for writer, value in zip((theirs, ours) * 2, values, strict=True):
                future = writer.send(place.topic, value, partition=0)
                future.get(timeout=PATIENCE_S) if writer is theirs else future.result(PATIENCE_S)
            for writer in (theirs, ours):
                (writer.commit_transaction if is_kept else writer.abort_transaction)()
            kept += values if is_kept else []
    theirs.close(timeout=PATIENCE_S)
    for found in (
        place.kafka_python_reads(len(kept), isolation_level="read_committed"),
        place.confluent_reads(len(kept), **COMMITTED), place.we_read(**COMMITTED),
    ):  # fmt: skip
        assert [row.value for row in found] == kept
    assert len(place.we_read()) == len(place.kafka_python_reads(24)) == 24
