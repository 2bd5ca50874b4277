"""Record batches of real brokers, read as they are: groups in ZooKeeper, topics without a group, Spark ranges.

Another client writes and reads the same topics. zstd is among the codecs: no broker converts it to an older format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simpleconsumer import KAFKA011, SimpleConsumer
from simpleconsumer.types import HeaderMessage, Message
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, read_topic
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.real

Clusters = Callable[[str, int], KafkaCluster]
SLOW = pytest.mark.slow
VERSIONS = [*(pytest.param(each, marks=SLOW) for each in ("0.11.0.3", "1.1.1", "2.8.2")), "3.9.2"]
FIRST_WITH_ZSTD = (2, 1)
START_MS = 1_700_000_000_000
PLACES = ("offset", "key", "value", "headers")
PATIENCE_S = 60


def codecs_of(version: str) -> list[str]:
    return ["none", "gzip", "snappy", "lz4", *(["zstd"] if version_tuple(version) >= FIRST_WITH_ZSTD else [])]


def servers(cluster: KafkaCluster) -> dict[str, object]:
    return {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "log_level": 0}


def topic_of_all_codecs(cluster: KafkaCluster, topic: str, version: str) -> None:
    """Fill a topic with some batches of each codec, with headers, nulls and times here and there."""
    cluster.create_topic(topic, config={"retention.ms": -1})
    for number, codec in enumerate(codecs_of(version)):
        producer = confluent_kafka.Producer({**servers(cluster), "compression.type": codec, "linger.ms": 50})
        for index in range(200):
            headers = [("codec", codec.encode()), ("n", None), ("n", b"")] if index % 3 == 0 else None
            producer.produce(
                topic, None if index % 7 == 0 else b"value %d " % index * (index % 20), b"key" if index % 2 else None,
                headers=headers, timestamp=START_MS + 1000 * number + index,
            )  # fmt: skip
        assert producer.flush(PATIENCE_S) == 0


def read_by_confluent(cluster: KafkaCluster, topic: str, **settings: object) -> list[tuple[Any, ...]]:
    """Return offset, key, value, headers and timestamp of all messages, as librdkafka reads them."""
    consumer = confluent_kafka.Consumer(
        {**servers(cluster), "group.id": topic, "auto.offset.reset": "earliest", "enable.partition.eof": True,
         "enable.auto.commit": False, **settings}
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            consumer.close()
            return found
        headers = tuple((key, value) for key, value in message.headers() or ())
        found.append((message.offset(), message.key(), message.value(), headers, message.timestamp()[1]))


def shown(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [(m.offset, m.key, m.value, m.headers, m.timestamp_ms) for m in messages]


def group_config(cluster: KafkaCluster, group: str, **settings: Any) -> ConsumerConfig:
    return ConsumerConfig(
        cluster.zookeeper_connect, group, auto_offset_reset="smallest", consumer_timeout_ms=5000, **settings
    )


def read_by_group(cluster: KafkaCluster, topic: str, group: str, **settings: Any) -> list[Message]:
    """Return all messages of a topic, as a new group reads them; what it has committed is the end of the log."""
    messages: list[Message] = []
    with ConsumerConnector(group_config(cluster, group, **settings)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        with pytest.raises(ConsumerTimeout):
            messages.extend(stream)
        assert [owned.lag for owned in connector.status().owned] == [0]
    return messages


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_reads_every_codec_and_headers_as_another_client_does(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    topic_of_all_codecs(cluster, topic, version)
    expected = read_by_confluent(cluster, topic)
    assert len(expected) == 200 * len(codecs_of(version))
    messages = read_by_group(cluster, topic, fresh_group)
    assert shown(messages) == expected
    assert [type(m) for m in messages] == [HeaderMessage if row[3] else Message for row in expected]
    stored = cluster.client.get(f"/consumers/{fresh_group}/offsets/{topic}/0")[0]
    assert int(stored) == len(expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_topics_and_ranges_of_spark_hold_the_same(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    topic_of_all_codecs(cluster, topic, version)
    expected = read_by_confluent(cluster, topic)
    rows: list[tuple[Any, ...]] = []
    with ConsumerConnector(group_config(cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        with pytest.raises(ConsumerTimeout):
            rows.extend(row for batch in stream.batches(columns=PLACES) for row in rows_of(batch.record_batch))
    assert rows == [row[:4] for row in expected]
    with read_topic(cluster.zookeeper_connect, topic) as reader:
        assert shown(list(reader)) == expected
    for more in ({}, {"minPartitions": "7"}, {"fetch.message.max.bytes": "500"}):
        options = batch_options(
            {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "includeHeaders": "true", **more}
        )
        ranges = plan_batch(options)
        found = [row for each in ranges for batch in read_range(each, PLACES, options) for row in rows_of(batch)]
        assert found == [row[:4] for row in expected], more


def rows_of(batch: Any) -> list[tuple[Any, ...]]:
    """Return rows of `PLACES`, headers as messages have them."""
    columns = [column.to_pylist() for column in batch.columns]
    columns[3] = [tuple((each["key"], each["value"]) for each in row or ()) for row in columns[3]]
    return list(zip(*columns, strict=True))


def transactions(cluster: KafkaCluster, topic: str) -> None:
    """Write ten transactions of three messages, every second one aborted, with plain messages between them."""
    cluster.create_topic(topic)
    plain = confluent_kafka.Producer(servers(cluster))
    producer = confluent_kafka.Producer({**servers(cluster), "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number in range(10):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%s %d-%d" % (b"aborted" if number % 2 else b"kept", number, part))
            producer.flush(PATIENCE_S)
            plain.produce(topic, b"plain %d-%d" % (number, part))
            plain.flush(PATIENCE_S)
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_transactions_are_left_out_where_that_is_asked_for(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    transactions(cluster, topic)
    everything = read_by_confluent(cluster, topic, **{"isolation.level": "read_uncommitted"})
    committed = read_by_confluent(cluster, topic, **{"isolation.level": "read_committed"})
    assert (len(everything), len(committed)) == (60, 45)
    assert shown(read_by_group(cluster, topic, fresh_group)) == everything
    for size in (1, 1_000_000):
        group = f"{fresh_group}-{size}"
        found = read_by_group(cluster, topic, group, isolation_level="read_committed", fetch_message_max_bytes=size)
        assert shown(found) == committed
    options = batch_options(
        {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "isolation.level": "read_committed",
         "minPartitions": "5"}
    )  # fmt: skip
    values = [value for each in plan_batch(options) for batch in read_range(each, ("value",), options)
              for value in batch.column(0).to_pylist()]  # fmt: skip
    assert values == [row[2] for row in committed]


def test_fetches_one_by_one_pass_by_markers_and_aborted_transactions(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = kafka_clusters("3.9.2", 1), fresh_topic()
    transactions(cluster, topic)
    for level in (False, True):
        found, offset = [], 0
        with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011, read_committed=level) as consumer:
            while messages := consumer.fetch(topic, 0, offset, 1):
                found += messages
                offset = messages[-1].next_offset
            [columns] = consumer.fetch_columns(topic, 0, 0, columns=("value",))
        name = "read_committed" if level else "read_uncommitted"
        expected = read_by_confluent(cluster, topic, **{"isolation.level": name})
        assert shown(found) == expected
        assert columns.column(0).to_pylist() == [row[2] for row in expected]


def test_an_open_transaction_is_an_end_for_who_reads_what_is_committed(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    cluster, topic = kafka_clusters("3.9.2", 1), fresh_topic()
    cluster.create_topic(topic)
    producer = confluent_kafka.Producer({**servers(cluster), "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    plain = confluent_kafka.Producer(servers(cluster))
    plain.produce(topic, b"before")
    plain.flush(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(PATIENCE_S)
    plain.produce(topic, b"behind")
    plain.flush(PATIENCE_S)
    with read_topic(cluster.zookeeper_connect, topic, properties={"isolation.level": "read_committed"}) as reader:
        assert [message.value for message in reader] == [b"before"]
    with ConsumerConnector(group_config(cluster, fresh_group, isolation_level="read_committed")) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert next(stream).value == b"before"
        with pytest.raises(ConsumerTimeout):
            next(stream)
        producer.commit_transaction(PATIENCE_S)
        assert [next(stream).value for _ in range(2)] == [b"open", b"behind"]


def test_a_large_batch_behind_a_busy_partition_is_not_left_out_for_ever(
    kafka_clusters: Clusters, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """A fetch brings the first batch whole, however large, of the first partition that has any."""
    cluster, topic = kafka_clusters("3.9.2", 1), fresh_topic()
    cluster.create_topic(topic, partitions=2)
    producer = confluent_kafka.Producer(servers(cluster))
    for _ in range(50):
        for partition in (0, 1):
            producer.produce(topic, bytes(50_000), partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    with ConsumerConnector(group_config(cluster, fresh_group, fetch_message_max_bytes=1000)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        found = [next(stream) for _ in range(100)]
    assert sorted((m.partition, m.offset) for m in found) == [(p, offset) for p in (0, 1) for offset in range(50)]
