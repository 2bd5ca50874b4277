"""SyncProducer sends to one broker: embedded ones of both generations, and a real one of Kafka 0.8.2.2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import TopicPartition
from zkconsumer.producer import MessageNotSent, OversizedMessage, SentMessage, SyncProducer
from zkconsumer.testing import Cluster, EmbeddedCluster, Fault
from zkconsumer.testing.kafka import KafkaCluster


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1) as made:
        yield made


@pytest.fixture(scope="module")
def embedded_07() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation="0.7") as made:
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
        with pytest.raises(ValueError, match=r"only a broker of Kafka 0\.7 chooses one"):
            producer.send("refused", [b"a"])
        with pytest.raises(TypeError, match="bytes, or a key and a value"):
            producer.send("refused", ["text"], 0)  # type: ignore[list-item]
    with SyncProducer("127.0.0.1", embedded_07.port(0), kafka_generation="0.7") as producer:
        for message in ((b"k", b"v"), (None, None)):
            with pytest.raises(TypeError, match="stores no keys and no null values"):
                producer.send("t", [message], 0)
    assert values(embedded, "refused", 0) == []


def test_a_request_without_an_answer_may_be_stored_and_one_without_a_connection_is_not(
    embedded: EmbeddedCluster,
) -> None:
    embedded.create_topic("silent", 1)
    embedded.faults.add(Fault.wrong_correlation_id(api="produce", topic="silent"), times=1)
    with SyncProducer("127.0.0.1", embedded.port(0)) as producer:
        with pytest.raises(MessageNotSent, match="it may be stored all the same") as caught:
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
