"""Other people's clients on embedded brokers with record batches: confluent-kafka, kafka-python, Kafka's own."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simpleconsumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.types import Message
from tests.kafka_peers import confluent_consume, confluent_produce
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.kafka011.generations import GENERATIONS, WITH_RECORD_BATCHES
from zkconsumer.testing.java import find_java, maven
from zkconsumer.testing.waiting import Deadline

PATIENCE_S = 60.0
COUNT = 300
VALUES = [b"message-%d" % number for number in range(COUNT)]
FIRST_WITH_ZSTD = "2.8"
SELDOM = ("1.1", "3.9")
MARKED = [pytest.param(each, marks=pytest.mark.slow if each in SELDOM else ()) for each in WITH_RECORD_BATCHES]
CODECS = [
    pytest.param(generation, codec, marks=pytest.mark.slow if generation in SELDOM else ())
    for generation in WITH_RECORD_BATCHES
    for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    if codec != "zstd" or generation >= FIRST_WITH_ZSTD
]


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, EmbeddedCluster]]:
    """Two brokers of each generation, without ZooKeeper."""
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
    return f"peers-{uuid.uuid4().hex[:10]}"


def stored(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> list[Message]:
    """Everything in a partition, as our own client reads it."""
    found: list[Message] = []
    with SimpleConsumer("127.0.0.1", cluster.port(cluster.leader(topic, partition) or 0), dialect=KAFKA011) as consumer:
        [end] = consumer.get_offsets_before(topic, partition, -1)
        offset = 0
        while offset < end:
            for message in consumer.fetch(topic, partition, offset):
                found.append(message)
                offset = message.next_offset
    return found


class TestLibrdkafka:
    @pytest.mark.parametrize(("generation", "codec"), CODECS)
    def test_what_it_writes_is_read_by_us_and_by_itself(
        self, clusters: dict[str, EmbeddedCluster], topic: str, generation: str, codec: str
    ) -> None:
        cluster = clusters[generation]
        cluster.create_topic(topic, 2)
        settings = {"compression.type": codec, "linger.ms": 5, "enable.idempotence": True}
        confluent_produce(cluster.broker_list, topic, VALUES, partition=1, settings=settings)
        assert [message.value for message in stored(cluster, topic, 1)] == VALUES
        assert confluent_consume(cluster.broker_list, topic, COUNT, partition=1) == VALUES

    @pytest.mark.parametrize(("generation", "codec"), [each for each in CODECS if each.values[1] != "zstd"])
    def test_it_reads_what_we_write(
        self, clusters: dict[str, EmbeddedCluster], topic: str, generation: str, codec: str
    ) -> None:
        cluster = clusters[generation]
        cluster.produce(topic, VALUES, codec=codec)
        assert confluent_consume(cluster.broker_list, topic, COUNT) == VALUES

    def test_it_reads_committed_transactions_alone(self, clusters: dict[str, EmbeddedCluster], topic: str) -> None:
        cluster = clusters["2.8"]
        cluster.create_topic(topic)
        write_transactions(cluster, topic)
        settings = {"isolation.level": "read_committed"}
        assert confluent_consume(cluster.broker_list, topic, 3, settings=settings) == [b"a", b"c", b"d"]
        settings = {"isolation.level": "read_uncommitted"}
        assert confluent_consume(cluster.broker_list, topic, 5, settings=settings) == [b"a", b"b", b"c", b"d", b"open"]


def write_transactions(cluster: EmbeddedCluster, topic: str) -> None:
    """Committed a and c, aborted b, d without a transaction, and one that stays open."""
    log = cluster.batch_log(topic, 0)

    def send(value: bytes, producer_id: int, sequence: int = 0) -> None:
        producer = BatchProducer(producer_id, 0, sequence, is_transactional=True)
        log.append_batch(encode_record_batch([value], timestamp_ms=1_700_000_000_000, producer=producer))

    send(b"a", 1)
    send(b"b", 2)
    log.append_marker(1, commit=True)
    send(b"c", 3)
    log.append_marker(2, commit=False)
    log.append_marker(3, commit=True)
    log.append_batch(encode_record_batch([b"d"], timestamp_ms=1_700_000_000_000))
    send(b"open", 1, 1)


class TestKafkaPython:
    @pytest.fixture
    def kafka(self) -> Any:
        return pytest.importorskip("kafka", reason="kafka-python is not installed: pip install kafka-python")

    @pytest.mark.parametrize("generation", MARKED)
    @pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
    def test_what_it_writes_is_read_by_us_and_by_itself(
        self, kafka: Any, clusters: dict[str, EmbeddedCluster], topic: str, generation: str, codec: str | None
    ) -> None:
        cluster = clusters[generation]
        cluster.create_topic(topic, 2)
        producer = kafka.KafkaProducer(
            bootstrap_servers=cluster.broker_list, compression_type=codec, enable_idempotence=True
        )
        try:
            sent = [producer.send(topic, value, partition=0, headers=[("h", b"x")]) for value in VALUES]
            assert [each.get(timeout=PATIENCE_S).offset for each in sent] == list(range(COUNT))
        finally:
            producer.close(timeout=PATIENCE_S)
        messages = stored(cluster, topic)
        assert [message.value for message in messages] == VALUES
        assert {message.headers for message in messages} == {(("h", b"x"),)}
        assert consumed_by_kafka_python(kafka, cluster, topic, COUNT) == VALUES

    def test_it_reads_committed_transactions_alone(
        self, kafka: Any, clusters: dict[str, EmbeddedCluster], topic: str
    ) -> None:
        cluster = clusters["2.8"]
        cluster.create_topic(topic)
        write_transactions(cluster, topic)
        found = consumed_by_kafka_python(kafka, cluster, topic, 3, isolation_level="read_committed")
        assert found == [b"a", b"c", b"d"]

    def test_it_keeps_offsets_in_kafka(self, kafka: Any, clusters: dict[str, EmbeddedCluster], topic: str) -> None:
        cluster = clusters["2.8"]
        cluster.produce(topic, VALUES)
        where = kafka.TopicPartition(topic, 0)

        def consumer() -> Any:
            made = kafka.KafkaConsumer(
                bootstrap_servers=cluster.broker_list, group_id=f"group-of-{topic}", enable_auto_commit=False
            )
            made.assign([where])
            return made

        first = consumer()
        first.seek(where, 123)
        first.commit()
        first.close(autocommit=False)
        second = consumer()
        assert second.committed(where) == 123
        second.close(autocommit=False)


def consumed_by_kafka_python(
    kafka: Any, cluster: EmbeddedCluster, topic: str, count: int, **settings: Any
) -> list[bytes]:
    """The first messages of partition 0."""
    where = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.broker_list, enable_auto_commit=False, **settings)
    found: list[bytes] = []
    try:
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        deadline = Deadline(PATIENCE_S)
        while len(found) < count and not deadline.expired:
            for records in consumer.poll(timeout_ms=500).values():
                found += [record.value for record in records]
    finally:
        consumer.close()
    return found


@pytest.mark.real
class TestJava:
    @pytest.mark.parametrize(("generation", "jars"), [("1.1", "1.1.1"), ("2.8", "2.8.2")])
    def test_what_the_console_producer_writes_the_console_consumer_reads(
        self, clusters: dict[str, EmbeddedCluster], topic: str, generation: str, jars: str
    ) -> None:
        cluster = clusters[generation]
        cluster.create_topic(topic)
        lines = "".join(f"{value.decode()}\n" for value in VALUES)
        brokers = "--broker-list" if generation == "1.1" else "--bootstrap-server"
        producer = (brokers, cluster.broker_list, "--topic", topic)
        consumer = ("--bootstrap-server", cluster.broker_list, "--topic", topic, "--partition", "0", "--offset",
                    "earliest", "--max-messages", str(COUNT))  # fmt: skip
        self.run(jars, "kafka.tools.ConsoleProducer", producer, lines)
        assert [message.value for message in stored(cluster, topic)] == VALUES
        assert self.run(jars, "kafka.tools.ConsoleConsumer", consumer, "") == lines

    @pytest.mark.parametrize("generation", ["2.8", "4.3"])
    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_the_clients_of_kafka_4_write_and_read(
        self, clusters: dict[str, EmbeddedCluster], topic: str, generation: str, codec: str
    ) -> None:
        cluster = clusters[generation]
        cluster.create_topic(topic)
        if not find_java().runs_sources:
            pytest.skip("only a JDK runs a source file")
        program = str(Path(__file__).with_name("WriteAndRead.java"))
        found = self.run("4.3.1", program, (cluster.broker_list, topic, str(COUNT), codec), "").split()
        assert [text.encode() for text in found] == VALUES
        assert [message.value for message in stored(cluster, topic)] == VALUES

    def run(self, jars: str, main: str, arguments: tuple[str, ...], text: str) -> str:
        command = find_java().command(maven.jars(jars), main, arguments)
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout
