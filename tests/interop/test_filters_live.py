"""Topics and partitions that come while a member consumes, by filters and by name: nothing is missed, nobody pauses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from consuming import (
    PATIENCE_S,
    BackgroundReader,
    member,
    multiset,
    offsets_of,
    owned,
    owner_node_transactions,
    owners,
    produce,
    produce_each,
    read,
    stored,
    texts,
    wait_owned,
    wait_owners,
)

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import BrokerError
from zkconsumer import Blacklist, ConsumerConnector, KafkaStream, Whitelist
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until


@pytest.fixture
def prefix(fresh_topic: Callable[[], str]) -> str:
    """What the topics of one test have in common."""
    return fresh_topic()


def test_a_topic_created_after_the_start_is_read_from_its_beginning_even_with_largest(
    kafka_0822: KafkaCluster, fresh_group: str, prefix: str
) -> None:
    kafka_0822.create_topic(f"{prefix}-old", 1)
    produce(kafka_0822, f"{prefix}-old", 0, ["before"])
    with member(kafka_0822, fresh_group, auto_offset_reset="largest") as consumer:
        [stream] = consumer.create_message_streams_by_filter(Whitelist(f"{prefix}.*"))
        # The broker creates the topic at this first message, which is stored before any member can know of it.
        sent = produce_to_new_topic(kafka_0822, f"{prefix}-new", 200)
        sent += produce(kafka_0822, f"{prefix}-old", 0, ["after"])
        assert multiset(read(stream, 201)) == multiset_of(sent)


UNKNOWN_PARTITION = 3


def produce_to_new_topic(kafka: KafkaCluster, topic: str, count: int) -> list[str]:
    """Messages in partition 0 of a topic that a metadata request has just made."""
    with SimpleConsumer("127.0.0.1", kafka.port(0)) as broker:
        broker.topic_metadata([topic])
    sent = [f"{topic}-{i}" for i in range(count)]

    def stored() -> bool:
        """Whether the leader took them: it may be named before it knows that it leads."""
        try:
            produce(kafka, topic, 0, sent)
        except BrokerError as error:
            if error.code != UNKNOWN_PARTITION:
                raise
            return False
        return True

    wait_until(stored, PATIENCE_S, "the leader to know its partition")
    return sent


def multiset_of(sent: list[str]) -> dict[str, int]:
    return dict.fromkeys(sent, 1)


@pytest.mark.catalogue("H5")
def test_several_streams_and_topics_share_the_work_and_every_stream_gets_some(
    kafka_0822: KafkaCluster, fresh_group: str, prefix: str
) -> None:
    sent = {}
    for number in range(4):
        kafka_0822.create_topic(f"{prefix}-{number}", 4)
        sent |= produce_each(kafka_0822, f"{prefix}-{number}", 4, 3, tag=f"t{number}")
    with member(kafka_0822, fresh_group) as consumer:
        streams = consumer.create_message_streams_by_filter(Whitelist(f"{prefix}-.*"), num_streams=4)
        readers = [BackgroundReader(stream) for stream in streams]
        wait_until(
            lambda: sum(len(reader.messages) for reader in readers) >= 48,
            20,
            "all messages",
            state=lambda: [len(reader.messages) for reader in readers],
        )
        assert all(reader.messages for reader in readers)
        assert multiset(message for reader in readers for message in reader.messages) == sent


def test_a_blacklist_follows_new_topics_too(kafka_0822: KafkaCluster, fresh_group: str, prefix: str) -> None:
    with member(kafka_0822, fresh_group) as consumer:
        [stream] = consumer.create_message_streams_by_filter(Blacklist(f"(?!{prefix}).*|{prefix}-secret.*"))
        assert owned(consumer) == []
        for name in ("secret-1", "open-1"):
            kafka_0822.create_topic(f"{prefix}-{name}", 1)
        sent = produce(kafka_0822, f"{prefix}-open-1", 0, ["seen"])
        produce(kafka_0822, f"{prefix}-secret-1", 0, ["unseen"])
        assert texts(read(stream, 1)) == sent
        wait_owned(consumer, [(f"{prefix}-open-1", 0)])


@pytest.mark.catalogue("H5")
def test_a_new_topic_pauses_nobody(kafka_0822: KafkaCluster, fresh_group: str, prefix: str) -> None:
    """While the new topic is assigned, the old one's owner nodes stay the same nodes and its messages keep coming."""
    old = f"{prefix}-old"
    kafka_0822.create_topic(old, 4)
    with (
        member(kafka_0822, fresh_group, "a") as a,
        member(kafka_0822, fresh_group, "b") as b,
    ):
        reader = BackgroundReader(*(_join(a, prefix) + _join(b, prefix)))
        shared = {0: f"{fresh_group}_a-0", 1: f"{fresh_group}_a-0", 2: f"{fresh_group}_b-0", 3: f"{fresh_group}_b-0"}
        wait_owners(kafka_0822, fresh_group, old, shared)
        transactions = owner_node_transactions(kafka_0822, fresh_group, old)
        sent = 0
        for number in range(3):
            new = f"{prefix}-new-{number}"
            kafka_0822.create_topic(new, 4)
            while len(owners(kafka_0822, fresh_group, new)) < 4:
                for partition in range(4):
                    produce(kafka_0822, old, partition, [f"{partition}-{sent}"])
                sent += 1
                reader.wait(4 * sent)
        assert owner_node_transactions(kafka_0822, fresh_group, old) == transactions
        for partition in range(4):
            assert offsets_of(reader.messages, partition) == list(range(sent))


def _join(connector: ConsumerConnector, prefix: str) -> list[KafkaStream]:
    return connector.create_message_streams_by_filter(Whitelist(f"{prefix}.*"))


@pytest.mark.catalogue("H1")
@pytest.mark.parametrize("policy", ["smallest", "largest"])
def test_partitions_added_while_consuming_are_read_from_their_beginning(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], policy: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 2)
    produce_each(kafka_0822, topic, 2, 1, tag="before")
    with member(kafka_0822, fresh_group, auto_offset_reset=policy) as consumer:
        stream = consumer.create_message_streams({topic: 1})[topic][0]
        if policy == "smallest":
            read(stream, 2)
        kafka_0822.add_partitions(topic, 4)
        sent = produce_each(kafka_0822, topic, 4, 5, tag="after")
        assert multiset(read(stream, 20)) == sent
        wait_owners(kafka_0822, fresh_group, topic, dict.fromkeys(range(4), f"{consumer.consumer_id}-0"))


@pytest.mark.catalogue("H2")
@pytest.mark.parametrize("policy", ["smallest", "largest"])
def test_a_topic_named_before_it_exists_is_read_from_its_beginning_when_it_appears(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str], policy: str
) -> None:
    present, later = fresh_topic(), fresh_topic()
    kafka_0822.create_topic(present, 1)
    with member(kafka_0822, fresh_group, auto_offset_reset=policy) as consumer:
        streams = consumer.create_message_streams({present: 1, later: 1})
        assert owned(consumer) == [(present, 0)]
        sent = produce(kafka_0822, present, 0, ["meanwhile"])
        assert texts(read(streams[present], 1)) == sent
        assert kafka_0822.client.exists(f"/brokers/topics/{later}") is None  # asking about it would create it
        sent = produce_to_new_topic(kafka_0822, later, 50)
        assert texts(read(streams[later], 50)) == sent


def test_every_stream_of_several_topics_belongs_to_its_topic(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    one, two = fresh_topic(), fresh_topic()
    for topic in (one, two):
        kafka_0822.create_topic(topic, 2)
        produce_each(kafka_0822, topic, 2, 2, tag=topic)
    with member(kafka_0822, fresh_group) as consumer:
        streams = consumer.create_message_streams({one: 2, two: 1})
        assert {topic: len(each) for topic, each in streams.items()} == {one: 2, two: 1}
        assert {message.partition for message in read(streams[one][0], 2)} == {0}
        assert {message.partition for message in read(streams[one][1], 2)} == {1}
        assert {message.topic for message in read(streams[two][0], 4)} == {two}


@pytest.mark.catalogue("H3")
def test_a_deleted_topic_is_let_go_and_never_created_again_by_us(
    kafka_0822: KafkaCluster, fresh_group: str, prefix: str
) -> None:
    gone, kept = f"{prefix}-gone", f"{prefix}-kept"
    for topic in (gone, kept):
        kafka_0822.create_topic(topic, 1)
        produce(kafka_0822, topic, 0, [topic])
    with member(kafka_0822, fresh_group) as consumer:
        [stream] = consumer.create_message_streams_by_filter(Whitelist(f"{prefix}.*"))
        assert set(texts(read(stream, 2))) == {gone, kept}
        kafka_0822.delete_topic(gone)
        reader = BackgroundReader(stream)
        wait_owned(consumer, [(kept, 0)])
        sent = produce(kafka_0822, kept, 0, [f"after-{i}" for i in range(10)])
        assert texts(reader.wait(10)) == sent
        assert kafka_0822.client.exists(f"/brokers/topics/{gone}") is None


@pytest.mark.catalogue("H4")
@pytest.mark.parametrize("length", [5, 10, 25], ids=["shorter", "as long", "longer"])
def test_a_topic_created_again_is_read_from_its_new_beginning(
    kafka_0822: KafkaCluster, fresh_group: str, prefix: str, length: int
) -> None:
    topic = f"{prefix}-twice"
    kafka_0822.create_topic(topic, 1)
    produce(kafka_0822, topic, 0, [f"first-{i}" for i in range(10)])
    with member(kafka_0822, fresh_group) as consumer:
        [stream] = consumer.create_message_streams_by_filter(Whitelist(f"{prefix}.*"))
        reader = BackgroundReader(stream)
        reader.wait(10)
        kafka_0822.delete_topic(topic)
        wait_owned(consumer, [])
        kafka_0822.create_topic(topic, 1)
        sent = produce(kafka_0822, topic, 0, [f"second-{i}" for i in range(length)])
        assert texts(reader.wait(10 + length)[10:]) == sent
    # The offset that was stored in the topic's first incarnation is overwritten, also where it was the higher one.
    assert stored(kafka_0822, fresh_group, topic, 0) == str(length).encode()


def test_a_topic_created_again_while_a_message_of_its_earlier_life_is_in_hand_is_read_from_its_new_beginning(
    kafka_0822: KafkaCluster, fresh_group: str, prefix: str
) -> None:
    topic = f"{prefix}-twice"
    kafka_0822.create_topic(topic, 1)
    produce(kafka_0822, topic, 0, [f"first-{i}" for i in range(10)])
    with member(kafka_0822, fresh_group, auto_commit_interval_ms=20, rebalance_drain_timeout_ms=20_000) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        read(stream, 10)
        kafka_0822.delete_topic(topic)
        kafka_0822.create_topic(topic, 1)
        sent = produce(kafka_0822, topic, 0, [f"second-{i}" for i in range(15)])
        wait_until(lambda: [owned.position for owned in consumer.status().owned] == [0], PATIENCE_S, "the new topic")
        assert texts(read(stream, 15)) == sent


def test_jvm_spellings_are_the_very_same_methods() -> None:
    assert ConsumerConnector.createMessageStreams is ConsumerConnector.create_message_streams
    assert ConsumerConnector.createMessageStreamsByFilter is ConsumerConnector.create_message_streams_by_filter
    assert ConsumerConnector.commitOffsets is ConsumerConnector.commit_offsets
    assert SimpleConsumer.getOffsetsBefore is SimpleConsumer.get_offsets_before
