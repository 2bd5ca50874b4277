"""SyncProducer sends to one broker: embedded ones of both generations, and real ones of Kafka 0.8.2.2 to 4.3.1."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, KAFKA07
from simpleconsumer.types import TopicPartition
from zkconsumer.producer import MessageNotSent, OversizedMessage, SentMessage, SyncProducer
from zkconsumer.testing import Cluster, EmbeddedCluster, Fault
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

SLOW = pytest.mark.slow
OLDER = ("0.9.0.1", "0.10.2.2")
NEWER = ("0.11.0.3", "1.1.1", "2.8.2", "3.9.2")


@pytest.fixture(scope="module", params=["4.3.1", *(pytest.param(each, marks=SLOW) for each in NEWER)])
def newer(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    """A broker that stores record batches."""
    return kafka_clusters(request.param, 1)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, zookeeper=False) as made:
        yield made


@pytest.fixture(scope="module")
def embedded_07() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation="0.7", zookeeper=False) as made:
        yield made


def values(cluster: Cluster, topic: str, partition: int) -> list[bytes | None]:
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
        return [message.value for message in consumer.fetch(topic, partition, 0)]


@pytest.mark.real
@pytest.mark.parametrize("kind", ["embedded", "kafka_0822"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_messages_of_several_partitions_go_in_one_request(
    kind: str, codec: str, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(kind)
    topic = f"sync-{codec}"
    cluster.create_topic(topic, 2)
    port = cluster.port(cluster.leader(topic, 0) or 0)
    with SyncProducer("127.0.0.1", port, compression_codec=codec) as producer:  # type: ignore[arg-type]
        assert producer.send(topic, [b"a", (b"k", b"b")], 0) == SentMessage(topic, 0, 0)
        both = {TopicPartition(topic, 0): [b"c"], TopicPartition(topic, 7): [b"d"]}
        found = producer.multiSend(both)
    assert found[TopicPartition(topic, 0)] == SentMessage(topic, 0, 2)
    refused = found[TopicPartition(topic, 7)]
    assert isinstance(refused, MessageNotSent)
    assert not refused.may_be_stored
    assert "UnknownTopicOrPartition" in str(refused)
    with SimpleConsumer("127.0.0.1", port) as consumer:
        assert [(each.key, each.value) for each in consumer.fetch(topic, 0, 0)] == [
            (None, b"a"), (b"k", b"b"), (None, b"c"),
        ]  # fmt: skip


def test_a_request_to_kafka_07_counts_as_read_when_the_broker_answers_behind_it(embedded_07: EmbeddedCluster) -> None:
    with SyncProducer("127.0.0.1", embedded_07.port(0), kafka_generation="0.7") as producer:
        assert producer.send("t", [b"a"], 0) == SentMessage("t", 0, None)
        assert producer.send("any", [b"b"]) == SentMessage("any", -1, None)
    with SimpleConsumer("127.0.0.1", embedded_07.port(0), dialect=KAFKA07) as consumer:
        assert [each.value for each in consumer.fetch("t", 0, 0)] == [b"a"]


def test_what_cannot_be_sent_is_refused_before_anything_is_sent(
    embedded: EmbeddedCluster, embedded_07: EmbeddedCluster
) -> None:
    embedded.create_topic("refused", 1)
    with SyncProducer("127.0.0.1", embedded.port(0), message_max_bytes=10) as producer:
        with pytest.raises(OversizedMessage, match="11 bytes, more than message_max_bytes = 10"):
            producer.send("refused", [b"small", b"x" * 11], 0)
        with pytest.raises(ValueError, match="no messages for refused/0"):
            producer.send("refused", [], 0)
        with pytest.raises(ValueError, match=r"only brokers of Kafka 0\.7 choose one"):
            producer.send("refused", [b"a"])
        with pytest.raises(TypeError, match="give bytes, or a pair of key and value"):
            producer.send("refused", ["text"], 0)  # type: ignore[list-item]
    with SyncProducer("127.0.0.1", embedded_07.port(0), kafka_generation="0.7") as producer:
        for message in ((b"k", b"v"), (None, None)):
            with pytest.raises(TypeError, match="stores no keys, headers, null values or times"):
                producer.send("t", [message], 0)
    assert values(embedded, "refused", 0) == []


def test_a_request_without_an_answer_may_be_stored_and_one_without_a_connection_is_not(
    embedded: EmbeddedCluster,
) -> None:
    embedded.create_topic("silent", 1)
    embedded.faults.add(Fault.wrong_correlation_id(api="produce", topic="silent"), times=1)
    with SyncProducer("127.0.0.1", embedded.port(0)) as producer:
        with pytest.raises(MessageNotSent, match="it may be stored nevertheless") as caught:
            producer.send("silent", [b"a"], 0)
        assert caught.value.tries == 1
    with SyncProducer("127.0.0.1", 1) as producer, pytest.raises(MessageNotSent) as caught:
        producer.send("t", [b"a"], 0)
    assert not caught.value.may_be_stored


@pytest.mark.real
def test_a_message_set_that_the_broker_finds_too_large_was_not_stored(kafka_0822: KafkaCluster) -> None:
    kafka_0822.create_topic("large", 1)
    port = kafka_0822.port(kafka_0822.leader("large", 0) or 0)
    with (
        SyncProducer("127.0.0.1", port, message_max_bytes=3_000_000) as producer,
        pytest.raises(OversizedMessage) as caught,
    ):
        producer.send("large", [b"x" * 2_000_000], 0)
    assert not caught.value.may_be_stored


@pytest.mark.real
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_brokers_of_today_get_record_batches_with_headers_in_every_codec(newer: KafkaCluster, codec: str) -> None:
    if codec == "zstd" and version_tuple(newer.version) < (2, 1):
        pytest.skip("zstd came with Kafka 2.1")
    topic, port = f"today-{codec}", newer.port(0)
    newer.create_topic(topic, 2)
    headers = (("trace", b"\x00\x01"), ("trace", None))
    before_ms = int(time.time() * 1000)
    with SyncProducer("127.0.0.1", port, compression_codec=codec) as producer:  # type: ignore[arg-type]
        assert producer.send(topic, [b"a", (b"k", None), (None, b"c", headers)], 0) == SentMessage(topic, 0, 0)
        found = producer.multi_send({TopicPartition(topic, 0): [b"d"], TopicPartition(topic, 7): [b"e"]})
        assert producer.send(topic, [b"f"], 1) == SentMessage(topic, 1, 0)
    assert found[TopicPartition(topic, 0)] == SentMessage(topic, 0, 3)
    refused = found[TopicPartition(topic, 7)]
    assert isinstance(refused, MessageNotSent)
    assert not refused.may_be_stored
    with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011) as consumer:
        messages = [*consumer.fetch(topic, 0, 0), *consumer.fetch(topic, 0, 3)][:4]
    assert [(each.key, each.value, each.headers) for each in messages] == [
        (None, b"a", ()), (b"k", None, ()), (None, b"c", headers), (None, b"d", ()),
    ]  # fmt: skip
    assert all(before_ms <= (each.timestamp_ms or 0) <= time.time() * 1000 for each in messages)


@pytest.mark.real
def test_a_broker_that_does_not_acknowledge_stores_a_record_batch_all_the_same(newer: KafkaCluster) -> None:
    newer.create_topic("unanswered", 1)
    with SyncProducer("127.0.0.1", newer.port(0), request_required_acks=0) as producer:
        assert producer.send("unanswered", [b"a"], 0) == SentMessage("unanswered", 0, None)

        def is_stored() -> bool:
            with SimpleConsumer("127.0.0.1", newer.port(0), dialect=KAFKA011) as consumer:
                return [each.value for each in consumer.fetch("unanswered", 0, 0)] == [b"a"]

        wait_until(is_stored, 30, "the message")


@pytest.mark.real
@pytest.mark.parametrize("version", ["kafka_0822", *(pytest.param(each, marks=SLOW) for each in OLDER)])
def test_headers_are_refused_by_name_where_brokers_store_none_and_nothing_is_sent(
    version: str, request: pytest.FixtureRequest
) -> None:
    with contextlib.ExitStack() as stack:
        is_shared = version.startswith("kafka")
        cluster: KafkaCluster = (
            request.getfixturevalue(version) if is_shared else stack.enter_context(KafkaCluster(version))
        )
        cluster.create_topic("headless", 1)
        port = cluster.port(cluster.leader("headless", 0) or 0)
        with SyncProducer("127.0.0.1", port) as producer:
            with pytest.raises(MessageNotSent, match=r"which brokers only store from Kafka 0\.11 on") as caught:
                producer.send("headless", [(None, b"a", [("h", b"1")])], 0)
            assert not caught.value.may_be_stored
            assert producer.send("headless", [b"b"], 0) == SentMessage("headless", 0, 0)


@pytest.mark.real
@pytest.mark.slow
def test_a_broker_that_is_replaced_by_one_of_kafka_4_is_asked_again_what_it_speaks() -> None:
    with KafkaCluster("0.9.0.1") as older:
        older.create_topic("t", 1)
        port = older.port(0)
        producer = SyncProducer("127.0.0.1", port)
        assert producer.send("t", [b"a"], 0) == SentMessage("t", 0, 0)
    with producer, KafkaCluster("4.3.1", port=port) as newer:
        newer.create_topic("t", 1)

        def is_sent() -> bool:
            try:
                return producer.send("t", [b"b"], 0) == SentMessage("t", 0, 0)
            except MessageNotSent:
                return False

        wait_until(is_sent, 30, "the message to be sent")


def test_a_broker_that_hangs_while_it_is_asked_what_it_speaks_is_left_by_close() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        producer = SyncProducer("127.0.0.1", silent.getsockname()[1], request_timeout_ms=60_000)
        failures: list[MessageNotSent] = []

        def send() -> None:
            try:
                producer.send("t", [b"a"], 0)
            except MessageNotSent as error:
                failures.append(error)

        sending = threading.Thread(target=send)
        sending.start()
        accepted, _ = silent.accept()
        accepted.recv(1)
        producer.close()
        sending.join(30)
        accepted.close()
    [error] = failures
    assert not error.may_be_stored, "only a question was sent"
