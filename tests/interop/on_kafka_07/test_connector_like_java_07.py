"""Kafka 0.7's own tests, against embedded and real brokers of 0.7: what passes there has to pass here.

Source: kafka.consumer.ZookeeperConsumerConnectorTest (Scala and javaapi), kafka.zk.ZKLoadBalanceTest,
kafka.integration.LazyInitProducerTest, PrimitiveApiTest, AutoOffsetResetTest, LogCorruptionTest,
BackwardsCompatibilityTest, all 0.7.2. kafka.consumer.TopicFilterTest has the filters of 0.8, which
`test_connector_like_java.py` tests; FetcherTest is about delivery without loss, as `test_real_kafka_07.py` is. What
0.7.2 tests of its brokers' logs is in `tests/embedded/test_byte_log.py`, of sockets and encoded messages in
`tests/embedded/test_broker_07.py` and `tests/simpleconsumer/test_kafka07_*.py`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from consuming import member, multiset, owned, owners, position, read, texts, wait_owners
from consuming_07 import PARTITIONS, offset_of
from kafka_07 import Both, entry, log_files, needs_jar_07, produce_07
from kazoo.client import KazooClient

from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import FetchRequest, TopicPartition
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, MessageStreamsExist, PartitionStopped
from zkconsumer.testing import JavaMember
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer, group_watch

pytestmark = pytest.mark.real

EACH = 2
QUICK = {"fetcher_backoff_ms": 50}


def send(
    cluster: Both, topic: str, each: int, header: str, codec: str = "none", partitions: list[str] = PARTITIONS
) -> Counter[str]:
    """`each` messages in every partition; with a codec they are one compressed entry."""
    sent: Counter[str] = Counter()
    for name in partitions:
        values = [f"{header}{name}-{number}" for number in range(each)]
        cluster.produce(topic, values, partition=name, codec=codec)
        sent.update(values)
    return sent


def set_offset(cluster: Both, group: str, topic: str, partition: str, data: bytes) -> None:
    cluster.client.create(f"/consumers/{group}/offsets/{topic}/{partition}", data, makepath=True)


# -- ZookeeperConsumerConnectorTest ------------------------------------------------------------------------------------


def test_empty_streams_time_out_and_the_same_iterators_time_out_again(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    """ZookeeperConsumerConnectorTest.testBasic, its first part."""
    with member(cluster, fresh_group, "consumer0", consumer_timeout_ms=200, **QUICK) as consumer0:
        for stream in consumer0.create_message_streams({topic: 2})[topic]:
            for _ in range(2):
                with pytest.raises(ConsumerTimeout):
                    next(stream)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_two_members_share_a_topic_and_a_member_without_topics_changes_nothing(
    cluster: Both, topic: str, fresh_group: str, codec: str
) -> None:
    """ZookeeperConsumerConnectorTest.testBasic and testCompression, in Scala and in javaapi."""
    with (
        member(cluster, fresh_group, "consumer1", **QUICK) as consumer1,
        member(cluster, fresh_group, "consumer2", **QUICK) as consumer2,
        member(cluster, fresh_group, "consumer3", **QUICK) as consumer3,
    ):
        sent = send(cluster, topic, EACH, "batch1", codec)
        first = consumer1.create_message_streams({topic: 2})[topic]
        assert sum((multiset(read(stream, 2 * EACH)) for stream in first), Counter()) == sent
        one = [f"{fresh_group}_consumer1-{number}" for number in (0, 1)]
        assert owners(cluster, fresh_group, topic) == {"0-0": one[0], "0-1": one[0], "1-0": one[1], "1-1": one[1]}
        consumer1.commit_offsets()

        second = consumer2.create_message_streams({topic: 2})[topic]
        threads = [*one, *(f"{fresh_group}_consumer2-{number}" for number in (0, 1))]
        shared = dict(zip(PARTITIONS, threads, strict=True))
        wait_owners(cluster, fresh_group, topic, shared)
        sent = send(cluster, topic, EACH, "batch2", codec)
        assert sum((multiset(read(stream, EACH)) for stream in [*first, *second]), Counter()) == sent

        assert consumer3.create_message_streams({}) == {}
        sent = send(cluster, topic, EACH, "batch3", codec)
        assert sum((multiset(read(stream, EACH)) for stream in [*first, *second]), Counter()) == sent
        assert owners(cluster, fresh_group, topic) == shared
        with pytest.raises(MessageStreamsExist):
            consumer3.create_message_streams({})


def test_a_compressed_set_that_was_read_in_part_is_read_again_as_a_whole(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    """ZookeeperConsumerConnectorTest.testCompressionSetConsumption: with one of the two brokers stopped."""
    cluster.stop(1)
    try:
        sent = send(cluster, topic, 200, "batch1", "gzip", ["0-0", "0-1"])
        with member(cluster, fresh_group, "consumer0", consumer_timeout_ms=5000, **QUICK) as consumer0:
            part = read(consumer0.create_message_streams({topic: 1})[topic], 100)
            assert [message.index for message in part] == list(range(100))
        assert [offset_of(cluster, fresh_group, topic, name) for name in ("0-0", "0-1")] == [0, 0]
        with member(cluster, fresh_group, "consumer0", consumer_timeout_ms=5000, **QUICK) as consumer0:
            assert multiset(read(consumer0.create_message_streams({topic: 1})[topic], 400)) == sent
    finally:
        cluster.start(1)


def test_a_decoder_by_position_makes_text_of_the_values(cluster: Both, topic: str, fresh_group: str) -> None:
    """ZookeeperConsumerConnectorTest.testConsumerDecoder."""
    sent = send(cluster, topic, EACH, "batch1")
    with member(cluster, fresh_group, "consumer1", **QUICK) as consumer1:
        streams = consumer1.create_message_streams({topic: 2}, bytes.decode)[topic]
        received = [message.value for stream in streams for message in read(stream, 2 * EACH)]
        assert Counter(received) == sent


# -- ZKLoadBalanceTest -------------------------------------------------------------------------------------------------


LOAD_BALANCED = ("200-0", "200-1", "300-0", "300-1", "400-0")


def register(client: KazooClient, broker: int, topic: str, count: int) -> None:
    """What a broker of 0.7 writes (ZkUtils.setupPartition); nobody listens at its address."""
    client.create(f"/brokers/ids/{broker}", b"broker%d:127.0.0.1:1111" % broker, ephemeral=True, makepath=True)
    client.create(f"/brokers/topics/{topic}/{broker}", b"%d" % count, ephemeral=True, makepath=True)


@pytest.fixture(params=["zk-3.3.6", None], ids=["zookeeper-3.3", "zookeeper-3.9"])
def server(request: pytest.FixtureRequest) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper, with no brokers but those that a test registers."""
    with ZooKeeperServer(version=request.param) as server:
        yield server


@pytest.fixture
def registry(server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(server.connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.mark.parametrize("second", ["ours", pytest.param("java", marks=needs_jar_07)])
def test_partitions_are_assigned_as_brokers_come_and_go(
    server: ZooKeeperServer, registry: KazooClient, fresh_group: str, second: str
) -> None:
    """ZKLoadBalanceTest.testLoadBalance; also with a Java member as the second one."""
    register(registry, 400, "topic1", 1)

    def connector(name: str) -> ConsumerConnector:
        soon = {"zookeeper_connection_timeout_ms": 1000}  # how long a start waits for positions, which nobody knows
        return ConsumerConnector(ConsumerConfig(server.connect, fresh_group, consumer_id=name, **soon))

    def wait_for(first: list[str], second: list[str]) -> None:
        wanted = {name: f"{fresh_group}_consumer{number}-0"
                  for number, names in ((1, first), (2, second)) for name in names}  # fmt: skip

        def found() -> dict[int | str, str]:
            there = group_watch.owners(registry, fresh_group, [("topic1", name) for name in LOAD_BALANCED])
            return {partition: owner.thread_id for (_, partition), owner in there.items()}

        wait_until(lambda: found() == wanted, 20, f"{first} and {second} to be owned", state=found)

    with connector("consumer1") as consumer1, ExitStack() as stack:
        consumer1.create_message_streams({"topic1": 1})
        wait_for(["400-0"], [])
        if second == "java":
            cluster = KafkaCluster("0.7.2", zookeeper=server)  # without a broker: none is started
            stack.enter_context(JavaMember(cluster, fresh_group, topics={"topic1": 1}, consumer_id="consumer2"))
        else:
            stack.enter_context(connector("consumer2")).create_message_streams({"topic1": 1})
        register(registry, 200, "topic1", 2)
        register(registry, 300, "topic1", 2)
        wait_for(["200-0", "200-1", "300-0"], ["300-1", "400-0"])
        registry.delete("/brokers/ids/400")
        registry.delete("/brokers/topics/topic1/400")
        wait_for(["200-0", "200-1"], ["300-0", "300-1"])


# -- AutoOffsetResetTest -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [b"10000", b"-1"])
def test_smallest_brings_all_ten_messages_whatever_unusable_offset_is_stored(
    cluster: Both, topic: str, fresh_group: str, stored: bytes
) -> None:
    """AutoOffsetResetTest.testEarliestOffsetResetForward, testEarliestOffsetResetBackward."""
    sent = send(cluster, topic, 10, "test", partitions=["0-0"])
    set_offset(cluster, fresh_group, topic, "0-0", stored)
    with member(cluster, fresh_group, auto_offset_reset="smallest", **QUICK) as consumer:
        stream = consumer.create_message_streams({topic: 1})[topic][0]
        assert multiset(read(stream, 10)) == sent
        with pytest.raises(ConsumerTimeout):
            next(stream)


@pytest.mark.parametrize("stored", [b"10000", b"-1"])
def test_largest_brings_none_of_the_ten_but_every_later_message(
    cluster: Both, topic: str, fresh_group: str, stored: bytes
) -> None:
    """AutoOffsetResetTest.testLatestOffsetResetForward."""
    send(cluster, topic, 10, "test", partitions=["0-0"])
    end = produce_07(cluster.port(0), topic, 0, [])
    set_offset(cluster, fresh_group, topic, "0-0", stored)
    with member(cluster, fresh_group, auto_offset_reset="largest", **QUICK) as consumer:
        stream = consumer.create_message_streams({topic: 1})[topic][0]

        def at_the_end() -> bool:
            with pytest.raises(ConsumerTimeout):
                next(stream)
            return position(consumer, topic, "0-0") == end

        wait_until(at_the_end, 20, "the position to be reset to the end", state=consumer.status)
        produce_07(cluster.port(0), topic, 0, [b"later"])
        assert texts(read(stream, 1)) == ["later"]


# -- LazyInitProducerTest, PrimitiveApiTest ----------------------------------------------------------------------------


@pytest.fixture
def broker(cluster: Both) -> Iterator[SimpleConsumer]:
    """Broker 0, asked directly."""
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA07) as consumer:
        yield consumer


@pytest.fixture
def topics(cluster: Both, fresh_topic: Callable[[], str]) -> list[str]:
    """Three topics that no broker knows: the first message makes them."""
    return [fresh_topic() for _ in range(3)]


def wait_end(broker: SimpleConsumer, topics: list[str], bytes_each: int) -> None:
    """Return when each log ends there: brokers do not answer produce requests."""

    def ends() -> list[list[int]]:
        return [broker.get_offsets_before(topic, 0, LATEST) for topic in topics]

    wait_until(lambda: ends() == [[bytes_each]] * len(topics), 20, f"logs of {bytes_each} bytes", state=ends)


def fetch_values(broker: SimpleConsumer, topics: list[str]) -> list[list[bytes]]:
    fetched = broker.multifetch([FetchRequest(topic, 0, 0, 10_000) for topic in topics])
    return [[message.value for message in KAFKA07.decode_messages(each.message_set, each.topic, each.partition, 0)]
            for each in fetched]  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_messages_for_a_new_topic_are_fetched_back_and_an_invalid_offset_has_its_code(
    broker: SimpleConsumer, topics: list[str], codec: str
) -> None:
    """LazyInitProducerTest.testProduceAndFetch; PrimitiveApiTest.testDefaultEncoderProducerAndFetch."""
    topic = topics[0]
    broker.produce(topic, 0, [b"hello", b"there"], codec=codec)
    wait_until(lambda: len(broker.fetch(topic, 0, 0, 10_000)) == 2, 20, "the messages to be visible")
    assert [message.value for message in broker.fetch(topic, 0, 0, 10_000)] == [b"hello", b"there"]
    with pytest.raises(BrokerError) as raised:
        broker.fetch(topic, 0, -1, 10_000)
    assert (raised.value.code, raised.value.offset) == (1, -1)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_several_topics_come_in_one_fetch_and_each_error_has_its_code(
    broker: SimpleConsumer, topics: list[str], codec: str
) -> None:
    """LazyInitProducerTest.testProduceAndMultiFetch; PrimitiveApiTest.testProduceAndMultiFetch[WithCompression]."""
    for topic in topics:
        broker.produce(topic, 0, [f"a_{topic}".encode(), f"b_{topic}".encode()], codec=codec)
    wanted = [[f"a_{topic}".encode(), f"b_{topic}".encode()] for topic in topics]
    wait_until(lambda: fetch_values(broker, topics) == wanted, 20, "both messages of each topic")
    for partition, offset, code in ((0, -1, 1), (99, 0, 3)):
        fetched = broker.multifetch([FetchRequest(topic, partition, offset, 10_000) for topic in topics])
        assert [each.error_code for each in fetched] == [code] * 3


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_several_topics_are_produced_in_one_request_and_once_more(
    broker: SimpleConsumer, topics: list[str], codec: str
) -> None:
    """LazyInitProducerTest.testMultiProduce, testMultiProduceResend; PrimitiveApiTest.testMultiProduce."""
    asked = {TopicPartition(topic, 0): [f"a_{topic}".encode(), f"b_{topic}".encode()] for topic in topics}
    broker.multi_produce(asked, codec=codec)
    wait_until(lambda: fetch_values(broker, topics) == list(asked.values()), 20, "what was produced")
    broker.multi_produce(asked, codec=codec)
    twice = [[*values, *values] for values in asked.values()]
    wait_until(lambda: fetch_values(broker, topics) == twice, 20, "what was produced twice")


def test_a_topic_that_nobody_has_written_to_gives_an_empty_set(broker: SimpleConsumer, topics: list[str]) -> None:
    """PrimitiveApiTest.testConsumerNotExistTopic."""
    assert broker.fetch(topics[0], 0, 0, 10_000) == []


# -- LogCorruptionTest -------------------------------------------------------------------------------------------------


def test_a_log_with_a_wrong_message_size_raises_and_stops_no_other_partition(
    cluster: Both, topic: str, fresh_group: str, broker: SimpleConsumer
) -> None:
    """LogCorruptionTest.testMessageSizeTooLarge."""
    produce_07(cluster.port(0), topic, 0, [b"hello"])
    [log] = log_files(cluster, 0, f"{topic}-0")
    with log.open("r+b") as file:
        file.write(struct.pack(">i", 1000))
    for _ in range(2):
        with pytest.raises(SimpleConsumerError, match="1000"):
            broker.fetch(topic, 0, 0, 10_000)
    with member(cluster, fresh_group, "consumer1", **QUICK) as consumer1:
        stream = consumer1.create_message_streams({topic: 1})[topic][0]
        with pytest.raises(PartitionStopped, match=f"{topic}/0-0 at 0: stopped: 15 bytes"):
            read(stream, 1)
        produce_07(cluster.port(0), topic, 1, [b"sound"])
        assert texts(read(stream, 1)) == ["sound"]


# -- BackwardsCompatibilityTest ----------------------------------------------------------------------------------------


def test_a_log_with_messages_of_magic_0_is_read(
    cluster: Both, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """BackwardsCompatibilityTest.testProtocolVersion0: a log that a broker before 0.7 has left."""
    topic = fresh_topic()
    values = [f"message {number}".encode() for number in range(100)]
    cluster.stop(0)
    data = cluster.brokers[0].folder / ("data" if isinstance(cluster, KafkaCluster) else "")
    (data / f"{topic}-0").mkdir(parents=True)
    (data / f"{topic}-0" / f"{0:020d}.kafka").write_bytes(b"".join(entry(value, magic=0) for value in values))
    cluster.start(0)
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA07) as broker:
        [end] = broker.get_offsets_before(topic, 0, LATEST)
        assert broker.get_offsets_before(topic, 0, EARLIEST) == [0]
        offset, found = 0, []
        while offset < end:
            fetched = broker.fetch(topic, 0, offset, 1000)
            found += [message.value for message in fetched]
            offset = fetched[-1].next_offset
    assert found == values
    with member(cluster, fresh_group, **QUICK) as consumer:
        stream = consumer.create_message_streams({topic: 1})[topic][0]
        assert texts(read(stream, 100)) == [value.decode() for value in values]
        assert owned(consumer) == [(topic, "0-0"), (topic, "0-1")]
