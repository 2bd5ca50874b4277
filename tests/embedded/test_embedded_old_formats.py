"""Embedded brokers of 0.9 and 0.10, and clients of those days on later brokers, which convert for them."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from broker_wire import Wire, message_set, one, request, string

from simpleconsumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, KAFKA08
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import HeaderMessage, Message
from tests.kafka_peers import confluent_consume, confluent_produce
from zkconsumer import read_topic
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import Producer
from zkconsumer.testing.embedded.cluster import VERSIONS, EmbeddedCluster
from zkconsumer.testing.waiting import Deadline, wait_until

GENERATIONS = ("0.9", "0.10", "0.11", "2.8", "3.9")
SELDOM = ("0.11", "3.9")
PATIENCE_S = 30.0
COUNT = 200
VALUES = [b"message-%d" % number for number in range(COUNT)]
STAMP = 1_700_000_000_000
OLD_LIBRDKAFKA = {
    version: {"api.version.request": False, "broker.version.fallback": version} for version in ("0.8.2.2", "0.9.0.1")
}


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, EmbeddedCluster]]:
    running: dict[str, EmbeddedCluster] = {}
    try:
        for name in GENERATIONS:
            running[name] = EmbeddedCluster(2, generation=name, zookeeper=False).start_all()
        yield running
    finally:
        for cluster in running.values():
            cluster.close()


@pytest.fixture
def topic() -> str:
    return f"old-{uuid.uuid4().hex[:10]}"


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.slow if each in SELDOM else ()) for each in GENERATIONS])
def cluster(clusters: dict[str, EmbeddedCluster], request: pytest.FixtureRequest) -> EmbeddedCluster:
    return clusters[request.param]


def read(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    """What our own reader finds."""
    with read_topic(None, topic, properties={"bootstrap.servers": cluster.broker_list}) as reader:
        return [message.value for message in reader]


def old_connection(cluster: EmbeddedCluster, topic: str) -> SimpleConsumer:
    """A connection that speaks as Kafka 0.8 does."""
    return SimpleConsumer("127.0.0.1", cluster.port(cluster.leader(topic, 0) or 0), dialect=KAFKA08)


def fetched(connection: SimpleConsumer, topic: str, end: int, fetch_size: int = 1 << 20) -> list[Message]:
    found: list[Message] = []
    offset = 0
    while offset < end:
        messages = connection.fetch(topic, 0, offset, fetch_size)
        assert messages, f"nothing comes from offset {offset} on"
        found += messages
        offset = messages[-1].next_offset
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_requests_of_kafka_08_write_and_read(cluster: EmbeddedCluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic)
    with old_connection(cluster, topic) as connection:
        for start in range(0, COUNT, 20):
            connection.produce(topic, 0, VALUES[start : start + 20], codec=codec)
        assert [message.value for message in fetched(connection, topic, COUNT)] == VALUES
        assert connection.get_offsets_before(topic, 0, -1) == [COUNT]
    assert read(cluster, topic) == VALUES


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_our_producer_writes_in_the_format_of_the_broker(cluster: EmbeddedCluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic)
    config = ProducerConfig(bootstrap_servers=cluster.broker_list, request_required_acks=1, compression_codec=codec)
    with Producer(config) as producer:
        assert producer.send_all(VALUES, topic).sent == COUNT
    assert read(cluster, topic) == VALUES
    with old_connection(cluster, topic) as connection:
        assert [message.value for message in fetched(connection, topic, COUNT)] == VALUES


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
@pytest.mark.parametrize("version", OLD_LIBRDKAFKA)
def test_librdkafka_as_an_old_client(cluster: EmbeddedCluster, topic: str, version: str, codec: str) -> None:
    cluster.create_topic(topic)
    old = OLD_LIBRDKAFKA[version]
    confluent_produce(cluster.broker_list, topic, VALUES, settings={**old, "compression.type": codec})
    assert confluent_consume(cluster.broker_list, topic, COUNT, settings=old) == VALUES
    assert read(cluster, topic) == VALUES


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_librdkafka_asks_a_broker_of_0_10_what_it_serves(
    clusters: dict[str, EmbeddedCluster], topic: str, codec: str
) -> None:
    cluster = clusters["0.10"]
    cluster.create_topic(topic)
    confluent_produce(cluster.broker_list, topic, VALUES, settings={"compression.type": codec})
    assert confluent_consume(cluster.broker_list, topic, COUNT) == VALUES


@pytest.mark.parametrize("version", [(0, 9), (0, 10, 2)])
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_as_an_old_client(
    cluster: EmbeddedCluster, topic: str, version: tuple[int, ...], codec: str | None
) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed: pip install kafka-python")
    if cluster.version == VERSIONS["0.9"] and version > (0, 9):
        pytest.skip("a broker of 0.9 does not know requests of 0.10")
    cluster.create_topic(topic)
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.broker_list, api_version=version, compression_type=codec, acks=1,
        enable_idempotence=False,
    )  # fmt: skip
    try:
        sent = [producer.send(topic, value, partition=0) for value in VALUES]
        assert [each.get(timeout=PATIENCE_S).offset for each in sent] == list(range(COUNT))
    finally:
        producer.close(timeout=PATIENCE_S)
    assert consumed_by_kafka_python(kafka, cluster, topic, version) == VALUES
    assert read(cluster, topic) == VALUES


def consumed_by_kafka_python(kafka: Any, cluster: EmbeddedCluster, topic: str, version: tuple[int, ...]) -> list[bytes]:
    where = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.broker_list, api_version=version, enable_auto_commit=False, group_id=None
    )
    found: list[bytes] = []
    try:
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        deadline = Deadline(PATIENCE_S)
        while len(found) < COUNT and not deadline.expired:
            for records in consumer.poll(timeout_ms=500).values():
                found += [record.value for record in records]
    finally:
        consumer.close()
    return found


class TestConversion:
    @pytest.fixture
    def cluster(self, clusters: dict[str, EmbeddedCluster]) -> EmbeddedCluster:
        return clusters["2.8"]

    def test_a_log_may_hold_every_format(self, cluster: EmbeddedCluster, topic: str) -> None:
        cluster.create_topic(topic)
        log = cluster.batch_log(topic, 0)
        log.append_as_is(message_set(b"a", b"b"))
        log.append_batch(encode_record_batch([b"c", b"d"], "gzip", timestamp_ms=STAMP))
        log.append_set(message_set(b"e"))
        with old_connection(cluster, topic) as connection:
            assert [message.value for message in fetched(connection, topic, 5)] == [b"a", b"b", b"c", b"d", b"e"]
        assert read(cluster, topic) == [b"a", b"b", b"c", b"d", b"e"]

    def test_headers_and_markers_are_lost_and_offsets_are_kept(self, cluster: EmbeddedCluster, topic: str) -> None:
        cluster.create_topic(topic)
        log = cluster.batch_log(topic, 0)
        log.append_batch(encode_record_batch([HeaderMessage("", 0, 0, 1, b"k", b"a", STAMP, (("h", b"v"),))]))
        log.append_marker(1, commit=True)
        log.append_batch(encode_record_batch([b"b"]))
        with old_connection(cluster, topic) as connection:
            found = [(message.offset, message.key, message.value) for message in fetched(connection, topic, 3)]
        assert found == [(0, b"k", b"a"), (2, None, b"b")]

    def test_zstd_is_refused_and_what_stands_before_it_comes(self, cluster: EmbeddedCluster, topic: str) -> None:
        cluster.create_topic(topic)
        log = cluster.batch_log(topic, 0)
        log.append_batch(encode_record_batch([b"a"]))
        log.append_batch(encode_record_batch([b"b"], "zstd"))
        with old_connection(cluster, topic) as connection, Wire(cluster.port(cluster.leader(topic, 0) or 0)) as wire:
            assert [message.value for message in connection.fetch(topic, 0, 0)] == [b"a"]
            assert wire.fetch(topic, 0, 1).error == 76

    def test_a_limit_below_the_first_batch_brings_a_part_that_says_to_be_longer(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        cluster.create_topic(topic)
        cluster.batch_log(topic, 0).append_batch(encode_record_batch([bytes(500)]))
        with Wire(cluster.port(cluster.leader(topic, 0) or 0)) as wire:
            assert len(wire.fetch(topic, 0, 0, 100).data) == 100
            whole = wire.fetch(topic, 0, 0, 1000)
        assert whole.error == 0
        with old_connection(cluster, topic) as connection:
            assert [message.value for message in connection.fetch(topic, 0, 0)] == [bytes(500)]

    def test_times_survive_on_the_way_to_a_client_of_0_10(self, cluster: EmbeddedCluster, topic: str) -> None:
        cluster.create_topic(topic)
        rows = [Message("", 0, n, n + 1, None, b"%d" % n, STAMP + n) for n in range(3)]
        cluster.batch_log(topic, 0).append_batch(encode_record_batch(rows, "gzip"))
        broker: Any = cluster.brokers[cluster.leader(topic, 0) or 0]
        before = broker.served
        broker.served = {**before, 1: range(4)}
        try:
            with SimpleConsumer("127.0.0.1", broker.port, dialect=KAFKA011) as connection:
                found = [(message.value, message.timestamp_ms) for message in connection.fetch(topic, 0, 0)]
        finally:
            broker.served = before
        assert found == [(b"0", STAMP), (b"1", STAMP + 1), (b"2", STAMP + 2)]


class TestKafka09:
    def test_what_it_does_not_know_gets_no_answer_and_the_connection_stays(
        self, clusters: dict[str, EmbeddedCluster]
    ) -> None:
        with Wire(clusters["0.9"].port(0)) as wire:
            wire.send(request(18, b"", correlation_id=1))
            wire.send(request(60, b"", correlation_id=2))
            answer = wire.ask(request(3, bytes(4), correlation_id=3))
            assert answer[4:8] == b"\0\0\0\3"

    def test_old_requests_of_any_version_are_taken_for_the_newest(self, clusters: dict[str, EmbeddedCluster]) -> None:
        with Wire(clusters["0.9"].port(0)) as wire:
            assert wire.ask(request(3, bytes(4), version=9)) == wire.ask(request(3, bytes(4), version=0))


@pytest.mark.parametrize(
    ("generation", "of_unknown", "of_known"),
    [("0.9", "00000002673100044465616400000000", "00000002673200044465616400000000"),
     ("0.10", "00000002673100044465616400000000", "0000000267320005456d70747900000000")],
)  # fmt: skip
def test_groups_have_no_members(
    clusters: dict[str, EmbeddedCluster], topic: str, generation: str, of_unknown: str, of_known: str
) -> None:
    cluster = clusters[generation]
    cluster.create_topic(topic)
    with Wire(cluster.port(0)) as wire:
        found = request(10, string("g1"))
        wait_until(lambda: wire.ask(found)[8:10] == b"\0\0", PATIENCE_S, "a coordinator")
        [port] = struct.unpack_from(">i", wire.ask(found), 8 + 2 + 4 + 2 + len("127.0.0.1"))
    with Wire(port) as wire:
        committed = string("g2") + struct.pack(">i", -1) + string("") + struct.pack(">q", -1)
        wire.ask(request(8, committed + one(topic, 0, struct.pack(">q", 5) + string("")), version=2))
        for name, group in (("g1", of_unknown), ("g2", of_known)):
            answer = wire.ask(request(15, struct.pack(">i", 1) + string(name)))
            assert answer[8:].hex() == f"00000001{group}00000000"


def test_0_10_closes_a_connection_with_what_it_does_not_know(clusters: dict[str, EmbeddedCluster]) -> None:
    for api, version in ((60, 0), (3, 9), (0, 3), (1, 4), (22, 0)):
        with Wire(clusters["0.10"].port(0)) as wire:
            wire.send(request(api, bytes(4), version=version))
            assert wire.is_closed(), (api, version)
