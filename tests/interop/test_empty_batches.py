"""Empty batches of real brokers: what compaction leaves of the last batch of an idempotent producer.

The broker keeps it without its messages, as it holds the producer's last number. Nothing is delivered of it, and every
reader goes on behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_peers import next_messages

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import FetchRequest
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, read_topic
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

SLOW = pytest.mark.slow
VERSIONS = [*(pytest.param(each, marks=SLOW) for each in ("0.11.0.3", "1.1.1", "2.8.2", "4.3.1")), "3.9.2"]
PATIENCE_S = 60.0
ALONE = 61
"""Bytes of a batch without messages."""
Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[str], KafkaCluster]]:
    """Gives a running broker of a version that cleans its logs often."""
    with ExitStack() as stack:
        running: dict[str, KafkaCluster] = {}

        def cluster(version: str) -> KafkaCluster:
            if version not in running:
                settings = {"log.cleaner.backoff.ms": 200}
                running[version] = stack.enter_context(KafkaCluster(version, settings=settings))
            return running[version]

        yield cluster


class CleanedLog:
    """A log whose first half is nothing but empty batches; its messages and its end."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.brokers = f"127.0.0.1:{cluster.port(0)}"
        settings = {"cleanup.policy": "compact", "segment.ms": 500, "min.cleanable.dirty.ratio": 0.01}
        cluster.create_topic(topic, config=settings)
        for producer in range(3):
            self._write(producer)
        wait_until(self._is_cleaned, PATIENCE_S, "the log to be cleaned", interval_s=0.3, state=self.batches)
        self._seen: list[tuple[int, int, int]] = []
        wait_until(self._is_at_rest, PATIENCE_S, "cleaning to end", interval_s=1.0, state=self.batches)
        self.rows = self._read_by_confluent()
        self.end = self.batches()[-1][1] + 1

    def _write(self, number: int) -> None:
        """The same keys from a new idempotent producer, in batches of five; it writes nothing more."""
        producer = Producer({"bootstrap.servers": self.brokers, "enable.idempotence": True, "log_level": 0})
        for key in range(5):
            producer.produce(self.topic, b"%d of %d" % (key, number), b"key %d" % key, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def _is_cleaned(self) -> bool:
        """A segment is closed by what comes after its time: messages of one key."""
        producer = Producer({"bootstrap.servers": self.brokers, "log_level": 0})
        producer.produce(self.topic, b"newest", b"closes segments", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        return [count for _, _, count in self.batches()][:2] == [0, 0]

    def _is_at_rest(self) -> bool:
        """Nothing is written any more, and for five rounds of the cleaner nothing was cleaned."""
        before, self._seen = self._seen, self.batches()
        return self._seen == before

    def batches(self) -> list[tuple[int, int, int]]:
        """First and last offset and number of messages of each batch, from the bytes that the broker sends."""
        found = []
        at = 0
        with SimpleConsumer("127.0.0.1", self.cluster.port(0), dialect=KAFKA011) as broker:
            while True:
                [answer] = broker.multifetch([FetchRequest(self.topic, 0, at, 1_000_000)], 100, 1)
                data = bytes(answer.message_set)
                if not data:
                    return found
                place = 0
                while place + ALONE <= len(data):
                    first, size = struct.unpack_from(">qi", data, place)
                    last, count = (struct.unpack_from(">i", data, place + each)[0] for each in (23, 57))
                    found.append((first, first + last, count))
                    at = first + last + 1
                    place += 12 + size

    def _read_by_confluent(self) -> list[Row]:
        count = sum(count for _, _, count in self.batches())
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "none", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            return [(each.offset(), each.key(), each.value()) for each in next_messages(consumer, count)]
        finally:
            consumer.close()


@pytest.fixture
def log(clusters: Callable[[str], KafkaCluster], fresh_topic: Callable[[], str], version: str) -> CleanedLog:
    return CleanedLog(clusters(version), fresh_topic())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_reader_goes_on_behind_empty_batches(log: CleanedLog, fresh_group: str) -> None:
    assert len(log.rows) >= 6
    assert log.rows[0][0] >= 10, "the first two batches are empty"
    read_topics(log)
    read_requests(log)
    if log.cluster.has_zookeeper:
        read_group(log, fresh_group)
        read_spark(log)


def read_topics(log: CleanedLog) -> None:
    """Also with fetches of one byte, each of which brings one batch, and of nothing but an empty batch."""
    for size in (1, ALONE, 2 * ALONE, 1_000_000):
        for level in ("read_uncommitted", "read_committed"):
            properties = {
                "bootstrap.servers": log.brokers, "isolation.level": level, "fetch.message.max.bytes": size,
            }  # fmt: skip
            with read_topic(None, log.topic, properties=properties) as reader:
                assert [(m.offset, m.key, m.value) for m in reader] == log.rows, (size, level)
    with read_topic(None, log.topic, start=3, count=1, properties={"bootstrap.servers": log.brokers}) as reader:
        assert [message.offset for message in reader] == [log.rows[0][0]], "from the middle of an empty batch"


def read_requests(log: CleanedLog) -> None:
    """A connection to the broker, one fetch after the other, as messages and as columns."""
    with SimpleConsumer("127.0.0.1", log.cluster.port(0), dialect=KAFKA011) as broker:
        found: list[Row] = []
        offset = 0
        while messages := broker.fetch(log.topic, 0, offset, 1):
            found += [(m.offset, m.key, m.value) for m in messages]
            offset = messages[-1].next_offset
        assert found == log.rows
        columns = broker.fetch_columns(log.topic, 0, 0, 1, columns=("offset",))
        assert columns[0].column(0).to_pylist()[0] == log.rows[0][0]


def read_group(log: CleanedLog, group: str) -> None:
    config = ConsumerConfig(
        log.cluster.zookeeper_connect, group, auto_offset_reset="smallest", consumer_timeout_ms=3000,
        fetch_message_max_bytes=1,
    )  # fmt: skip
    found: list[Row] = []
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({log.topic: 1})[log.topic]
        with pytest.raises(ConsumerTimeout):
            found.extend((m.offset, m.key, m.value) for m in stream)
        [owned] = connector.status().owned
        assert (owned.position, owned.lag) == (log.end, 0)
    assert found == log.rows


def read_spark(log: CleanedLog) -> None:
    for more in ({}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "2"}):
        options = batch_options({"zookeeper.connect": log.cluster.zookeeper_connect, "subscribe": log.topic, **more})
        rows = [row for each in plan_batch(options) for batch in read_range(each, ("offset", "key", "value"), options)
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]  # fmt: skip
        assert rows == log.rows, more
