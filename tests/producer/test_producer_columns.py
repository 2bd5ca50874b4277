"""What a producer does with messages that are given as columns, on embedded brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain

import pytest
from stored_pairs import stored

from simpleconsumer.types import TopicPartition
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.columns import MessageColumns
from zkconsumer.producer.errors import MessagesNotSent
from zkconsumer.producer.partitioners import partition_082
from zkconsumer.producer.producer import Producer
from zkconsumer.testing import EmbeddedCluster, Fault

pytestmark = pytest.mark.real  # the embedded cluster has a ZooKeeper

Topic = Callable[[], str]


@pytest.fixture
def cluster(embedded: EmbeddedCluster) -> EmbeddedCluster:
    return embedded


def producer(cluster: EmbeddedCluster, **settings: object) -> Producer:
    quick = {"zookeeper.connect": cluster.zookeeper_connect, "retry.backoff.ms": 50, **settings}
    return Producer(ProducerConfig.from_properties(quick))


def test_columns_go_where_keys_and_partitions_say_in_order(cluster: EmbeddedCluster, fresh_topic: Topic) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 3)
    keys = [b"key %d" % (n % 7) if n % 5 else None for n in range(2000)]
    values: list[bytes | None] = [b"%d" % n if n % 11 else None for n in range(2000)]
    given = [2 if n % 13 == 0 else None for n in range(2000)]
    with producer(cluster, **{"batch.num.messages": 150, "batch.max.bytes": 1000}) as made:
        sending = made.columns()
        for first in range(0, 2000, 300):
            last = first + 300
            sending.add(MessageColumns(topic, values[first:last], keys[first:last], given[first:last]))
        assert sending.finish() == (2000, 0, ())
        assert sum(sending.sent_to.values()) == 2000
    logs = [stored(cluster, topic, number) for number in range(3)]
    assert {TopicPartition(topic, number): len(log) for number, log in enumerate(logs)} == sending.sent_to
    sent = list(zip(keys, values, given, strict=True))
    by_key = [partition_082(key, 3) if key and partition is None else partition for key, _, partition in sent]
    for number, log in enumerate(logs):
        wanted = [sent[n][:2] for n, place in enumerate(by_key) if place == number and values[n] is not None]
        assert [pair for pair in log if pair in set(wanted)] == wanted
    assert sorted(chain(*logs), key=repr) == sorted(((key, value) for key, value, _ in sent), key=repr)


def test_messages_without_a_key_keep_their_place_among_those_with_one(
    cluster: EmbeddedCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    pairs = [(b"key" if n % 3 else None, b"%d" % n) for n in range(500)]
    with producer(cluster, **{"batch.num.messages": 70}) as made:
        sending = made.columns()
        sending.add(MessageColumns(topic, [value for _, value in pairs], [key for key, _ in pairs]))
        assert sending.finish().sent == 500
    assert stored(cluster, topic, 0) == pairs


def test_a_choice_of_the_caller_replaces_the_partitioner(cluster: EmbeddedCluster, fresh_topic: Topic) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 4)
    seen: list[int] = []

    def choose(partitions: int) -> list[int]:
        seen.append(partitions)
        return [0, 3, -1, 3]

    with producer(cluster) as made:
        sending = made.columns()
        keys = [b"a", b"b", None, b"c"]
        sending.add(MessageColumns(topic, [b"0", b"1", b"2", b"3"], keys, [None, None, None, 1], choose))
        assert sending.finish().sent == 4
    assert seen == [4]
    assert (b"a", b"0") in stored(cluster, topic, 0)
    assert (b"b", b"1") in stored(cluster, topic, 3)
    assert (b"c", b"3") in stored(cluster, topic, 1)


def test_messages_that_cannot_be_sent_are_named_by_their_numbers(cluster: EmbeddedCluster, fresh_topic: Topic) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 2)
    with producer(cluster) as made:
        sending = made.columns()
        sending.add(MessageColumns(topic, [b"a", b"b" * 1_000_001, None], None, [0, 1, 7]))
        sending.add(MessageColumns(topic, [b"c", b"d"], numbers=[10, 20]))
        sending.add(MessageColumns(topic, []))
        with pytest.raises(MessagesNotSent) as caught:
            sending.finish()
    assert (caught.value.sent, caught.value.failed, sending.failed) == (3, 2, 2)
    (first, oversized), (second, nowhere) = caught.value.failures
    assert (first, second) == (1, 2)
    assert f"a message for {topic}/1 was not acknowledged: it has 1000001 bytes" in str(oversized)
    assert f"topic '{topic}' has no partition 7; it has 0, 1" in str(nowhere)


def test_a_topic_that_no_broker_knows_fails_all_its_messages(cluster: EmbeddedCluster, fresh_topic: Topic) -> None:
    topic = fresh_topic()
    cluster.faults.add(Fault.error(3, "metadata"), None)
    with producer(cluster, **{"message.send.max.retries": 1}) as made:
        sending = made.columns()
        sending.add(MessageColumns(topic, [b"a", b"b"]))
        with pytest.raises(MessagesNotSent, match=f"2 of 2 messages were not sent.*{topic}"):
            sending.finish()
        with pytest.raises(ValueError, match="no/topic"):
            made.columns().add(MessageColumns("no/topic", [b"a"]))


def test_a_broker_that_never_answers_fails_what_was_sent_after_the_stall(
    cluster: EmbeddedCluster, fresh_topic: Topic
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 1)
    with producer(cluster, **{"queue.buffering.max.messages": 100, "batch.num.messages": 100}) as made:
        sending = made.columns(stall_s=0.5)
        sending.add(MessageColumns(topic, [b"before"]))
        sending.finish()
        cluster.faults.add(Fault.delay(60, "produce", topic), None)
        since = time.monotonic()
        for _ in range(3):
            sending.add(MessageColumns(topic, [b"%d" % n for n in range(100)]))
        with pytest.raises(MessagesNotSent) as caught:
            sending.finish()
        assert 0.4 < time.monotonic() - since < 10
        assert caught.value.sent == 1
        assert caught.value.failed == 300
        errors = [str(error) for _, error in caught.value.failures]
        assert any("no message got an outcome for 0.5 s; it may be stored nevertheless" in each for each in errors)
        made.close(0)
