"""What groups and topics deliver, beside what the console consumer of the broker's own version prints: every codec.

librdkafka writes. The consumer is the one of Kafka's group protocol, which all versions from 0.9 on have.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, read_topic
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSIONS = ["0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2", "4.3.1"]
EACH = 50
PATIENCE_S = 90.0
SILENT_MS = 8000
FIRST_WITH_HEADERS, FIRST_WITH_ZSTD = (0, 11), (2, 1)


def codecs_of(version: str) -> list[str]:
    return ["none", "gzip", "snappy", "lz4", *(["zstd"] if version_tuple(version) >= FIRST_WITH_ZSTD else [])]


def write(cluster: KafkaCluster, topic: str) -> None:
    """Messages with keys, without, and without values."""
    since = version_tuple(cluster.version)
    settings: dict[str, object] = {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "linger.ms": 50}
    if since < (0, 10):  # these brokers do not say what they serve
        settings |= {"api.version.request": False, "broker.version.fallback": "0.9.0"}
    for codec in codecs_of(cluster.version):
        producer = Producer({**settings, "compression.type": codec, "log_level": 0})
        for number in range(EACH):
            value = None if number % 10 == 9 else b"%s %d " % (codec.encode(), number) * (number % 7 + 1)
            headers = [("codec", codec.encode())] if since >= FIRST_WITH_HEADERS and number % 2 else None
            key = b"key %d" % number if number % 3 else None
            producer.produce(topic, value, key, partition=0, headers=headers)
        assert producer.flush(PATIENCE_S) == 0


def printed_by_java(cluster: KafkaCluster, topic: str) -> list[bytes]:
    """Its lines `key`, tab, `value`; the jars of 4.x are without tools."""
    version = "3.9.2" if cluster.is_kraft else cluster.version
    since = version_tuple(version)
    main = "kafka.tools.ConsoleConsumer" if since < (3, 9) else "org.apache.kafka.tools.consumer.ConsoleConsumer"
    command = find_java().command(maven.jars(version), main)
    arguments = [
        "--bootstrap-server", f"127.0.0.1:{cluster.port(0)}", "--topic", topic, "--from-beginning",
        "--timeout-ms", str(SILENT_MS), "--property", "print.key=true", *(["--new-consumer"] if since < (1,) else []),
    ]  # fmt: skip
    ran = subprocess.run([*command, *arguments], capture_output=True, timeout=PATIENCE_S, check=False)
    assert b"Processed a total of" in ran.stderr + ran.stdout, ran.stderr[-2000:]
    return [line for line in ran.stdout.split(b"\n")[:-1] if not line.startswith(b"Processed")]


def as_printed(key: bytes | None, value: bytes | None) -> bytes:
    return (b"null" if key is None else key) + b"\t" + (b"null" if value is None else value)


@pytest.mark.parametrize("version", VERSIONS)
def test_values_and_keys_are_those_that_javas_consumer_of_the_version_prints(
    kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh_topic()
    cluster.create_topic(topic)
    write(cluster, topic)
    lines = printed_by_java(cluster, topic)
    assert len(lines) == EACH * len(codecs_of(version))
    brokers = {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}"}
    with read_topic(None, topic, properties=brokers) as reader:
        assert [as_printed(message.key, message.value) for message in reader] == lines
    if cluster.has_zookeeper:
        config = ConsumerConfig(
            cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", consumer_timeout_ms=3000
        )
        found: list[bytes] = []
        with ConsumerConnector(config) as connector:
            [stream] = connector.create_message_streams({topic: 1})[topic]
            with pytest.raises(ConsumerTimeout):
                found.extend(as_printed(message.key, message.value) for message in stream)
        assert found == lines
