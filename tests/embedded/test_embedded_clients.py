"""Other people's clients on the embedded broker: Kafka 0.8.2.2's own console tools, kafka-python, librdkafka.

kafka-python and confluent-kafka are wanted by these tests alone; where one is missing its tests are skipped.
"""

from __future__ import annotations

import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simpleconsumer import SimpleConsumer
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.java import find_java, maven
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import Deadline, wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

PATIENCE_S = 60.0
PARTITIONS = (0, 1)
VALUES = [f"message-{number}" for number in range(1000)]
LIBRDKAFKA = {"api.version.request": False, "broker.version.fallback": "0.8.2.2"}


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer) -> Iterator[EmbeddedCluster]:
    """Two embedded brokers; topic names in these tests are their own."""
    with EmbeddedCluster(2, zookeeper=zookeeper, chroot=f"/clients-{uuid.uuid4().hex[:10]}") as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    """A new topic with a partition on each broker."""
    name = f"clients-{uuid.uuid4().hex[:10]}"
    cluster.create_topic(name, len(PARTITIONS))
    return name


def stored(cluster: EmbeddedCluster, topic: str) -> Counter[str]:
    """Everything in a topic, as our own consumer reads it."""
    found: Counter[str] = Counter()
    for partition in PARTITIONS:
        with SimpleConsumer("127.0.0.1", cluster.port(cluster.leader(topic, partition) or 0)) as consumer:
            [start], [end] = (consumer.get_offsets_before(topic, partition, moment) for moment in (-2, -1))
            offset = start
            while offset < end:
                for message in consumer.fetch(topic, partition, offset):
                    found[message.value.decode()] += 1
                    offset = message.next_offset
    return found


def fill(cluster: EmbeddedCluster, topic: str, codec: str = "none") -> None:
    """Put the values into a topic, half of them in each partition."""
    for partition in PARTITIONS:
        half = [value.encode() for value in VALUES[partition::2]]
        with SimpleConsumer("127.0.0.1", cluster.port(cluster.leader(topic, partition) or 0)) as producer:
            for start in range(0, len(half), 100):
                producer.produce(topic, partition, half[start : start + 100], codec=codec)


class TestJavaConsoleTools:
    def command(self, main: str, *arguments: str) -> list[str]:
        return find_java().command(maven.jars("0.8.2.2"), main, arguments)

    @pytest.mark.parametrize("more", [(), ("--new-producer",), ("--compression-codec", "snappy")])
    def test_the_console_producer_delivers_every_line(
        self, cluster: EmbeddedCluster, topic: str, more: tuple[str, ...]
    ) -> None:
        main = "kafka.tools.ConsoleProducer"
        where = ("--broker-list", cluster.broker_list, "--topic", topic, "--request-required-acks", "1")
        ran = subprocess.run(
            self.command(main, *where, *more),
            input="".join(f"{value}\n" for value in VALUES),
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-2000:]
        assert stored(cluster, topic) == Counter(VALUES), ran.stderr[-2000:]

    def test_the_console_producer_makes_its_topic(self, cluster: EmbeddedCluster) -> None:
        topic = f"made-by-java-{uuid.uuid4().hex[:10]}"
        main = "kafka.tools.ConsoleProducer"
        where = ("--broker-list", cluster.broker_list, "--topic", topic, "--request-required-acks", "1")
        subprocess.run(self.command(main, *where), input="hello\n", capture_output=True, text=True,
                       timeout=PATIENCE_S, check=True)  # fmt: skip
        assert stored(cluster, topic) == Counter(["hello"])

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
    def test_the_console_consumer_prints_every_message_and_stores_its_offsets(
        self, cluster: EmbeddedCluster, topic: str, tmp_path: Path, codec: str
    ) -> None:
        fill(cluster, topic, codec)
        group = f"console-{uuid.uuid4().hex[:10]}"
        (tmp_path / "consumer.properties").write_text(f"group.id={group}\n")
        arguments = ("--zookeeper", cluster.zookeeper_connect, "--topic", topic, "--from-beginning",
                     "--consumer.config", str(tmp_path / "consumer.properties"),
                     "--max-messages", str(len(VALUES)))  # fmt: skip
        ran = subprocess.run(
            self.command("kafka.tools.ConsoleConsumer", *arguments),
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert Counter(ran.stdout.split()) == Counter(VALUES), ran.stderr[-2000:]
        offsets = [int(cluster.client.get(f"/consumers/{group}/offsets/{topic}/{p}")[0]) for p in PARTITIONS]
        assert sum(offsets) == len(VALUES)

    def test_the_console_consumer_follows_a_leader_to_another_broker(
        self, cluster: EmbeddedCluster, topic: str, tmp_path: Path
    ) -> None:
        output = tmp_path / "output"
        output.touch()
        arguments = ("--zookeeper", cluster.zookeeper_connect, "--topic", topic, "--from-beginning")
        process = ChildProcess("console consumer", self.command("kafka.tools.ConsoleConsumer", *arguments),
                               tmp_path / "log", output_path=output)  # fmt: skip
        try:
            with SimpleConsumer("127.0.0.1", cluster.port(0)) as producer:
                producer.produce(topic, 0, [b"before"])
            wait_until(lambda: "before" in output.read_text(), PATIENCE_S, "the first message", state=process.tail)
            cluster.move_leader(topic, 0, 1)
            with SimpleConsumer("127.0.0.1", cluster.port(1)) as producer:
                producer.produce(topic, 0, [b"after"])
            wait_until(lambda: "after" in output.read_text(), PATIENCE_S, "the second message", state=process.tail)
        finally:
            process.stop()
        assert output.read_text().split() == ["before", "after"]

    def test_kafkas_own_tool_makes_and_deletes_topics(self, cluster: EmbeddedCluster) -> None:
        topic = f"made-by-tool-{uuid.uuid4().hex[:10]}"
        where = ("--zookeeper", cluster.zookeeper_connect, "--topic", topic)
        main = "kafka.admin.TopicCommand"
        make = self.command(main, "--create", *where, "--partitions", "3", "--replication-factor", "2")
        subprocess.run(make, capture_output=True, timeout=PATIENCE_S, check=True)
        wait_until(lambda: cluster.leader(topic, 2) is not None, PATIENCE_S, "leaders")
        told = subprocess.run(self.command(main, "--describe", *where), capture_output=True, text=True,
                              timeout=PATIENCE_S, check=True).stdout  # fmt: skip
        assert "PartitionCount:3\tReplicationFactor:2" in told
        assert "Leader: -1" not in told
        subprocess.run(self.command(main, "--delete", *where), capture_output=True, timeout=PATIENCE_S, check=True)
        wait_until(lambda: cluster.client.exists(f"/brokers/topics/{topic}") is None, PATIENCE_S, "the topic to go")


class TestKafkaPython:
    @pytest.fixture
    def kafka(self) -> Any:
        return pytest.importorskip("kafka", reason="kafka-python is not installed: pip install kafka-python")

    @pytest.mark.parametrize("codec", [None, "gzip", "snappy"])
    def test_it_produces_what_we_read(
        self, kafka: Any, cluster: EmbeddedCluster, topic: str, codec: str | None
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=cluster.broker_list, api_version=(0, 8, 2), compression_type=codec, acks=1
        )
        try:
            sent = [producer.send(topic, value.encode(), partition=n % 2) for n, value in enumerate(VALUES)]
            offsets = [future.get(timeout=PATIENCE_S).offset for future in sent]
        finally:
            producer.close(timeout=PATIENCE_S)
        assert offsets == [number // 2 for number in range(len(VALUES))]
        assert stored(cluster, topic) == Counter(VALUES)

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
    def test_it_consumes_what_we_wrote(self, kafka: Any, cluster: EmbeddedCluster, topic: str, codec: str) -> None:
        fill(cluster, topic, codec)
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=cluster.broker_list, api_version=(0, 8, 2), group_id=None, auto_offset_reset="earliest"
        )
        found: Counter[str] = Counter()
        try:
            where = [kafka.TopicPartition(topic, partition) for partition in PARTITIONS]
            consumer.assign(where)
            consumer.seek_to_beginning(*where)
            deadline = Deadline(PATIENCE_S)
            while found.total() < len(VALUES) and not deadline.expired:
                for records in consumer.poll(timeout_ms=500).values():
                    found.update(record.value.decode() for record in records)
            assert consumer.end_offsets(where) == dict.fromkeys(where, 500)
        finally:
            consumer.close()
        assert found == Counter(VALUES)

    def test_it_keeps_offsets_in_kafka(self, kafka: Any, cluster: EmbeddedCluster, topic: str) -> None:
        fill(cluster, topic)
        where = kafka.TopicPartition(topic, 0)

        def consumer() -> Any:
            made = kafka.KafkaConsumer(
                bootstrap_servers=cluster.broker_list, api_version=(0, 8, 2), group_id=f"group-of-{topic}",
                enable_auto_commit=False, auto_offset_reset="earliest",
            )  # fmt: skip
            made.assign([where])
            return made

        first = consumer()
        first.seek(where, 123)
        first.commit()
        first.close(autocommit=False)
        second = consumer()
        assert second.committed(where) == 123
        second.close(autocommit=False)


class TestLibrdkafka:
    @pytest.fixture
    def confluent(self) -> Any:
        reason = "confluent-kafka is not installed: pip install confluent-kafka"
        return pytest.importorskip("confluent_kafka", reason=reason)

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
    def test_it_produces_what_we_read(self, confluent: Any, cluster: EmbeddedCluster, topic: str, codec: str) -> None:
        failed: list[Any] = []
        producer = confluent.Producer(
            {**LIBRDKAFKA, "bootstrap.servers": cluster.broker_list, "compression.codec": codec, "acks": 1}
        )
        for number, value in enumerate(VALUES):
            producer.produce(topic, value.encode(), partition=number % 2,
                             on_delivery=lambda error, _: failed.append(error) if error else None)  # fmt: skip
        assert producer.flush(PATIENCE_S) == 0
        assert failed == []
        assert stored(cluster, topic) == Counter(VALUES)

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
    def test_it_consumes_what_we_wrote(self, confluent: Any, cluster: EmbeddedCluster, topic: str, codec: str) -> None:
        fill(cluster, topic, codec)
        consumer = confluent.Consumer(
            {**LIBRDKAFKA, "bootstrap.servers": cluster.broker_list, "group.id": "unused",
             "enable.auto.commit": False}
        )  # fmt: skip
        found: Counter[str] = Counter()
        try:
            start = confluent.OFFSET_BEGINNING
            consumer.assign([confluent.TopicPartition(topic, partition, start) for partition in PARTITIONS])
            deadline = Deadline(PATIENCE_S)
            while found.total() < len(VALUES) and not deadline.expired:
                for message in consumer.consume(500, timeout=0.5):
                    assert message.error() is None, message.error()
                    found[message.value().decode()] += 1
        finally:
            consumer.close()
        assert found == Counter(VALUES)
