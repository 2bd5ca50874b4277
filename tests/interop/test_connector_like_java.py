"""The Java consumer's own tests, against the same brokers: what passes there has to pass here.

Source: kafka.consumer.ZookeeperConsumerConnectorTest (Scala and javaapi), kafka.integration.AutoOffsetResetTest,
kafka.integration.PrimitiveApiTest, kafka.consumer.TopicFilterTest, all 0.8.2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from consuming import (
    member,
    multiset,
    owned,
    owners,
    position,
    preset_offset,
    produce,
    produce_each,
    read,
    texts,
    wait_owned,
    wait_owners,
)

from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.errors import BrokerError
from simpleconsumer.kafka08.message_set import decode_messages
from simpleconsumer.types import FetchRequest
from zkconsumer import Blacklist, ConsumerTimeout, MessageStreamsExist, Whitelist
from zkconsumer.filters import TopicFilter
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

EACH = 2


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of two partitions, one on each broker."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=2)
    return name


# -- ZookeeperConsumerConnectorTest ------------------------------------------------------------------------------------


def test_an_empty_topic_times_out_and_the_same_iterator_times_out_again(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    with member(kafka_0822, fresh_group, "consumer0", consumer_timeout_ms=200) as consumer0:
        iterator = iter(consumer0.create_message_streams({topic: 1})[topic][0])
        for _ in range(2):
            with pytest.raises(ConsumerTimeout) as raised:
                next(iterator)
            assert raised.value.timeout_ms == 200


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_two_members_share_a_topic_and_a_member_without_topics_changes_nothing(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str, codec: str
) -> None:
    with (
        member(kafka_0822, fresh_group, "consumer1") as consumer1,
        member(kafka_0822, fresh_group, "consumer2", rebalance_backoff_ms=5000) as consumer2,
        member(kafka_0822, fresh_group, "consumer3") as consumer3,
    ):
        sent = produce_each(kafka_0822, topic, 2, EACH, codec, tag="first")
        first = consumer1.create_message_streams({topic: 1})[topic]
        assert multiset(read(first, 2 * EACH)) == sent
        assert owners(kafka_0822, fresh_group, topic) == {
            0: f"{fresh_group}_consumer1-0", 1: f"{fresh_group}_consumer1-0",
        }  # fmt: skip
        consumer1.commit_offsets()

        second = consumer2.create_message_streams({topic: 1})[topic]
        shared = {0: f"{fresh_group}_consumer1-0", 1: f"{fresh_group}_consumer2-0"}
        wait_owners(kafka_0822, fresh_group, topic, shared)
        sent = produce_each(kafka_0822, topic, 2, EACH, codec, tag="second")
        assert multiset(read(first, EACH)) + multiset(read(second, EACH)) == sent

        assert consumer3.create_message_streams({}) == {}
        sent = produce_each(kafka_0822, topic, 2, EACH, codec, tag="third")
        assert multiset(read(first, EACH)) + multiset(read(second, EACH)) == sent
        assert owners(kafka_0822, fresh_group, topic) == shared
        with pytest.raises(MessageStreamsExist):
            consumer3.create_message_streams({})


def test_sets_of_two_hundred_compressed_messages_are_delivered_whole(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    sent = produce_each(kafka_0822, topic, 2, 200, "gzip")
    with member(kafka_0822, fresh_group, "consumer0") as consumer0:
        streams = consumer0.create_message_streams({topic: 1})[topic]
        assert multiset(read(streams, 400)) == sent
        assert owners(kafka_0822, fresh_group, topic) == dict.fromkeys((0, 1), f"{fresh_group}_consumer0-0")


def test_a_decoder_makes_text_of_the_values(kafka_0822: KafkaCluster, fresh_group: str, topic: str) -> None:
    sent = produce_each(kafka_0822, topic, 2, EACH)
    with member(kafka_0822, fresh_group, "consumer1") as consumer1:
        streams = consumer1.create_message_streams({topic: 1}, value_decoder=bytes.decode)[topic]
        received = read(streams, 2 * EACH)
        assert Counter(message.value for message in received) == sent


def test_the_only_partition_has_one_owner_and_keeps_the_order_of_sending(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=1)
    sent = produce(kafka_0822, topic, 0, ["test-0-0", "test-0-1"])
    with member(kafka_0822, fresh_group, "consumer1") as consumer1:
        streams = consumer1.create_message_streams({topic: 1})[topic]
        assert owned(consumer1) == [(topic, 0)]
        assert owners(kafka_0822, fresh_group, topic) == {0: f"{fresh_group}_consumer1-0"}
        assert texts(read(streams, 2)) == sent


def test_the_spellings_of_the_jvm_give_two_streams_that_share_everything(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    sent = produce_each(kafka_0822, topic, 2, EACH)
    with member(kafka_0822, fresh_group, "consumer1") as consumer1:
        streams = consumer1.createMessageStreams({topic: 2})[topic]
        assert len(streams) == 2
        assert sum((multiset(read(stream, EACH)) for stream in streams), Counter()) == sent
        consumer1.commitOffsets()
        with pytest.raises(MessageStreamsExist):
            consumer1.createMessageStreams({topic: 2})


# -- AutoOffsetResetTest -----------------------------------------------------------------------------------------------


@pytest.mark.catalogue("F8")
@pytest.mark.parametrize("stored", [b"10000", b"-1"])
def test_smallest_brings_all_ten_messages_whatever_unusable_offset_is_stored(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str, stored: bytes
) -> None:
    sent = produce(kafka_0822, topic, 0, [f"test-{i}" for i in range(10)])
    preset_offset(kafka_0822, fresh_group, topic, 0, stored)
    with member(kafka_0822, fresh_group, auto_offset_reset="smallest", fetch_wait_max_ms=0) as consumer:
        stream = consumer.create_message_streams({topic: 1})[topic][0]
        assert texts(read(stream, 10)) == sent
        with pytest.raises(ConsumerTimeout):
            next(stream)


@pytest.mark.parametrize("stored", [b"10000", b"-1"])
def test_largest_brings_none_of_the_ten_but_every_later_message(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str, stored: bytes
) -> None:
    produce(kafka_0822, topic, 0, [f"test-{i}" for i in range(10)])
    preset_offset(kafka_0822, fresh_group, topic, 0, stored)
    with member(kafka_0822, fresh_group, auto_offset_reset="largest", fetch_wait_max_ms=0) as consumer:
        stream = consumer.create_message_streams({topic: 1})[topic][0]

        def at_the_end() -> bool:
            with pytest.raises(ConsumerTimeout):
                next(stream)
            return position(consumer, topic, 0) == 10

        wait_until(at_the_end, 20, "the position to be reset to the end", state=consumer.status)
        sent = produce(kafka_0822, topic, 0, ["later"])
        assert texts(read(stream, 1)) == sent


# -- PrimitiveApiTest --------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(kafka_0822: KafkaCluster) -> Iterator[SimpleConsumer]:
    """Broker 0, asked directly."""
    with SimpleConsumer("127.0.0.1", kafka_0822.port(0), client_id="test-client") as consumer:
        yield consumer


@pytest.fixture
def four_topics(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> list[str]:
    """Four topics of one partition, all led by broker 0."""
    names = [fresh_topic() for _ in range(4)]
    for name in names:
        kafka_0822.create_topic(name, assignment={0: [0]})
    return names


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_one_message_is_fetched_back_and_the_high_watermark_is_behind_it(
    broker: SimpleConsumer, four_topics: list[str], codec: str
) -> None:
    topic = four_topics[0]
    assert broker.produce(topic, 0, [b"test-message"], codec=codec) == 0
    [fetched] = broker.multifetch([FetchRequest(topic, 0, 0, 10_000)])
    [message] = decode_messages(fetched.message_set, topic, 0)
    assert (fetched.error_code, fetched.high_watermark) == (0, 1)
    assert (message.value, message.key, message.offset, message.next_offset) == (b"test-message", None, 0, 1)
    assert broker.get_offsets_before(topic, 0, LATEST) == [1]
    assert broker.get_offsets_before(topic, 0, EARLIEST) == [0]
    assert broker.getOffsetsBefore(topic, 0, LATEST) == [1]


def test_a_fetch_of_nothing_is_refused_before_it_is_sent(broker: SimpleConsumer) -> None:
    with pytest.raises(ValueError, match="no partitions to fetch"):
        broker.multifetch([])


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_four_topics_come_in_one_fetch_each_in_order(
    broker: SimpleConsumer, four_topics: list[str], codec: str
) -> None:
    for topic in four_topics:
        broker.produce(topic, 0, [f"a_{topic}".encode(), f"b_{topic}".encode()], codec=codec)
    fetched = broker.multifetch([FetchRequest(topic, 0, 0, 10_000) for topic in four_topics])
    assert [
        [message.value for message in decode_messages(each.message_set, each.topic, each.partition)] for each in fetched
    ] == [[f"a_{topic}".encode(), f"b_{topic}".encode()] for topic in four_topics]


@pytest.mark.parametrize(("partition", "offset", "code"), [(0, -1, 1), (99, 0, 3)])
def test_an_impossible_offset_and_an_unknown_partition_have_their_codes(
    broker: SimpleConsumer, four_topics: list[str], partition: int, offset: int, code: int
) -> None:
    for topic in four_topics:
        broker.produce(topic, 0, [b"a", b"b"])
    fetched = broker.multifetch([FetchRequest(topic, partition, offset, 10_000) for topic in four_topics])
    assert [each.error_code for each in fetched] == [code] * 4
    with pytest.raises(BrokerError) as raised:
        broker.fetch(four_topics[0], partition, offset)
    assert (raised.value.code, raised.value.offset) == (code, offset)


def test_an_empty_topic_gives_an_empty_set(broker: SimpleConsumer, four_topics: list[str]) -> None:
    [fetched] = broker.multifetch([FetchRequest(four_topics[0], 0, 0, 10_000)], max_wait_ms=0)
    assert (fetched.error_code, len(fetched.message_set)) == (0, 0)
    assert broker.fetch(four_topics[0], 0, 0, max_wait_ms=0) == []


def test_unacknowledged_messages_arrive_in_order_in_all_four_topics(
    broker: SimpleConsumer, four_topics: list[str]
) -> None:
    for topic in four_topics:
        for text in (f"a_{topic}", f"b_{topic}"):
            assert broker.produce(topic, 0, [text.encode()], acks=0) == -1
    for topic in four_topics:
        wait_until(lambda topic=topic: broker.get_offsets_before(topic, 0, LATEST) == [2], 20, f"two in {topic}")
    fetched = broker.multifetch([FetchRequest(topic, 0, 0, 10_000) for topic in four_topics])
    assert [each.high_watermark for each in fetched] == [2] * 4
    for each in fetched:
        values = [message.value for message in decode_messages(each.message_set, each.topic, 0)]
        assert values == [f"a_{each.topic}".encode(), f"b_{each.topic}".encode()]


# -- TopicFilterTest ---------------------------------------------------------------------------------------------------


def names_matched(kafka: KafkaCluster, group: str, chosen: TopicFilter, topics: list[str]) -> list[str]:
    """Which of the topics a member with that filter owns."""
    for name in topics:
        kafka.create_topic(name)
    with member(kafka, group, auto_offset_reset="largest") as consumer:
        consumer.create_message_streams_by_filter(chosen)
        return sorted({name for name, _ in owned(consumer)})


@pytest.mark.parametrize(
    ("whitelist", "allowed", "other"),
    [
        ("{0}-white1,{0}-white2", ["{0}-white2"], ["{0}-black1"]),
        (" {0}-white1 , {0}-white2 ", ["{0}-white1"], ["{0}-white11"]),
        ("{0}-.+", ["{0}-alltopics"], ["{0}"]),
        ("{0}-listed-topic.+", ["{0}-listed-topic1"], ["{0}-black1"]),
        (r"{0}-(?!bad\b)[\w]+", ["{0}-good"], ["{0}-bad"]),
    ],
)
def test_a_whitelist_owns_what_the_java_filter_allows(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    fresh_topic: Callable[[], str],
    whitelist: str,
    allowed: list[str],
    other: list[str],
) -> None:
    prefix = fresh_topic()
    chosen = Whitelist(whitelist.replace("{0}", prefix))
    topics = [name.format(prefix) for name in allowed + other]
    assert names_matched(kafka_0822, fresh_group, chosen, topics) == [name.format(prefix) for name in allowed]


def test_a_blacklist_owns_everything_else(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    prefix = fresh_topic()
    chosen = Blacklist(f"(?!{prefix}).*|{prefix}-black1")
    names = names_matched(kafka_0822, fresh_group, chosen, [f"{prefix}-white2", f"{prefix}-black1"])
    assert names == [f"{prefix}-white2"]


@pytest.mark.catalogue("N4")
def test_the_offsets_topic_is_matched_only_when_internal_topics_are_not_excluded(
    kafka_0822: KafkaCluster, broker: SimpleConsumer, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    plain = fresh_topic()
    kafka_0822.create_topic(plain)
    _create_offsets_topic(kafka_0822, broker)
    chosen = Whitelist(f"{plain}|__consumer_offsets")
    with member(kafka_0822, f"{fresh_group}-without") as consumer:
        consumer.create_message_streams_by_filter(chosen)
        wait_owned(consumer, [(plain, 0)])
    with member(kafka_0822, f"{fresh_group}-with", exclude_internal_topics=False) as consumer:
        consumer.create_message_streams_by_filter(chosen)
        wait_owned(consumer, [(plain, 0), ("__consumer_offsets", 0)])


def _create_offsets_topic(kafka: KafkaCluster, broker: SimpleConsumer) -> None:
    """A broker creates it when it is asked who coordinates a group."""

    def is_there() -> bool:
        try:
            broker.consumer_metadata("any")
        except BrokerError:
            return False
        return True

    wait_until(is_there, 30, "the offsets topic")
    kafka.wait_leaders("__consumer_offsets", [0])
