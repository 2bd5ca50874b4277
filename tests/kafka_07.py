"""What tests of a real Kafka 0.7 share: the mark that skips them without its jar, and raw produce requests."""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.known_versions import KAFKA_07_JAR
from zkconsumer.testing.kafka.probe import OFFSETS_07, ask_on
from zkconsumer.testing.waiting import wait_until

needs_jar_07 = pytest.mark.skipif(
    not os.environ.get(KAFKA_07_JAR),
    reason=f"Kafka 0.7 is in no public repository: set {KAFKA_07_JAR} to the path of a kafka-0.7.2.jar",
)
"""For tests of a real Kafka 0.7, also where all other real servers are required."""

Both = EmbeddedCluster | KafkaCluster

BOTH_07 = ["embedded", pytest.param("real", marks=[pytest.mark.real, needs_jar_07])]
"""Kinds of clusters of Kafka 0.7, as parameters of a fixture; the second is skipped without the jar."""


SLOW_EMBEDDED_07 = [pytest.param("embedded", marks=pytest.mark.slow), *BOTH_07[1:]]
"""The same for tests of seconds whose subject others run always: with embedded brokers only among the slow tests."""


def cluster_07(kind: str, brokers: int = 2, **options: object) -> Both:
    """A cluster of that kind, not yet started."""
    if kind == "real":
        return KafkaCluster("0.7.2", brokers, **options)  # type: ignore[arg-type]
    return EmbeddedCluster(brokers, generation="0.7", **options)  # type: ignore[arg-type]


def log_files(cluster: Both, broker: int, name: str) -> list[Path]:
    """The segments of a log of a broker, oldest first."""
    data = cluster.brokers[broker].folder / ("data" if isinstance(cluster, KafkaCluster) else "")
    return sorted((data / name).glob("*.kafka"))


def entry(value: bytes, magic: int = 1) -> bytes:
    """An entry of a message set of Kafka 0.7 that is not compressed."""
    head = struct.pack(">bb", 1, 0) if magic == 1 else struct.pack(">b", 0)
    message = head + struct.pack(">I", zlib.crc32(value)) + value
    return struct.pack(">i", len(message)) + message


def produce_07(port: int, topic: str, partition: int, values: Sequence[bytes]) -> int:
    """The end of the log behind these messages, which the broker has stored and shows."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    latest = struct.pack(">h", OFFSETS_07) + name + struct.pack(">iqi", partition, -1, 1)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(_produce_request(topic, partition, b"".join(map(entry, values))))
        answer = ask_on(connection, latest)
    (end,) = struct.unpack_from(">q", answer, 6)
    return int(end)


def send_set(cluster: Both, topic: str, partition: str, data: bytes) -> int:
    """The end of the log behind a message set that was produced as it is, once the broker shows it."""
    broker, number = map(int, partition.split("-"))
    end = produce_07(cluster.port(broker), topic, number, []) + len(data)
    with socket.create_connection(("127.0.0.1", cluster.port(broker)), timeout=10) as connection:
        connection.sendall(_produce_request(topic, number, data))
        wait_until(lambda: produce_07(cluster.port(broker), topic, number, []) == end, 10, "the set")
    return end


def _produce_request(topic: str, partition: int, data: bytes) -> bytes:
    """A produce request of one message set, with its size in front."""
    head = struct.pack(">hh", 0, len(topic)) + topic.encode() + struct.pack(">ii", partition, len(data))
    return struct.pack(">i", len(head) + len(data)) + head + data


def damage_second_of_three(cluster: Both, topic: str) -> None:
    """Store three messages in `0-0`, and damage the one at 16, which ends at 33, while its broker is away."""
    for value in (b"before", b"damaged", b"behind"):
        send_set(cluster, topic, "0-0", entry(value))
    cluster.stop(0)
    [log] = log_files(cluster, 0, f"{topic}-0")
    data = bytearray(log.read_bytes())
    data[16 + 10] ^= 1
    log.write_bytes(bytes(data))
    cluster.start(0)


def four_segments(cluster: Both, topic: str) -> tuple[list[bytes], int]:
    """Eight messages in four segments of `0-0`, and a second after which 1000, 2000, 3000 and 4000 they were written.

    It is some hours ago: the broker deletes what is older than seven days whenever it looks.

    The cluster has one broker, whose `log.file.size` is 100: a segment that is larger gets no further message.
    """
    cluster.create_topic(topic)
    values = [b"%d" % number * 60 for number in range(8)]
    for value in values:
        produce_07(cluster.port(0), topic, 0, [value])
    files = log_files(cluster, 0, f"{topic}-0")
    assert [int(file.stem) for file in files] == [0, 140, 280, 420]
    base_s = int(time.time()) - 10_000
    for number, file in enumerate(files):
        os.utime(file, (base_s + 1000 * (number + 1),) * 2)
    return values, base_s
