"""Java members of old versions beside ours in groups on brokers of 3.9.2, the newest ones with ZooKeeper.

Brokers convert record batches for the Java members, without headers, and refuse them zstd. Ours read what is stored.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from consuming import member, owners, read, wait_owners

from simpleconsumer.types import Message
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.java_member import JavaMember

pytestmark = pytest.mark.real

SLOW = pytest.mark.slow
VERSIONS = ["1.1.1", *(pytest.param(each, marks=SLOW) for each in ("0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3"))]
PATIENCE_S = 60.0
PARTITIONS, EACH = 4, 30
PATIENT = {"rebalance.backoff.ms": 2000, "zookeeper.session.timeout.ms": 30_000}


@pytest.fixture
def cluster(kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters("3.9.2", 1)


def fill(cluster: KafkaCluster, topic: str, codec: str, first: int = 0) -> list[tuple[int, bytes]]:
    """Write messages with headers to each partition; return their partitions and values."""
    settings = {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "compression.type": codec, "linger.ms": 50}
    producer = Producer({**settings, "log_level": 0})
    sent = []
    for partition in range(PARTITIONS):
        for number in range(first, first + EACH):
            value = b"%s %d %d" % (codec.encode(), partition, number)
            producer.produce(topic, value * 10, partition=partition, headers=[("codec", codec.encode()), ("n", b"")])
            sent.append((partition, value * 10))
    assert producer.flush(PATIENCE_S) == 0
    return sent


def rows(messages: list[Message]) -> list[tuple[int | str, bytes | None]]:
    return sorted((message.partition, message.value) for message in messages)  # type: ignore[type-var]


def headers_of(messages: list[Message]) -> set[object]:
    return {message.headers for message in messages}


@pytest.mark.parametrize("version", VERSIONS)
def test_members_of_both_kinds_share_what_both_can_read_and_ours_read_zstd_beside_it(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, version: str
) -> None:
    shared, compressed = fresh_topic(), fresh_topic()
    for topic in (shared, compressed):
        cluster.create_topic(topic, PARTITIONS)
    sent_zstd = fill(cluster, compressed, "zstd")
    java_id, our_id = f"{fresh_group}_java-0", f"{fresh_group}_ours-0"
    with (
        member(cluster, fresh_group, "ours") as ours,
        JavaMember(
            cluster, fresh_group, topics={shared: 1}, consumer_id="java", settings=PATIENT, version=version
        ) as java,
    ):  # fmt: skip
        java.wait_ready()
        streams = ours.create_message_streams({shared: 1, compressed: 1})
        wait_owners(cluster, fresh_group, compressed, dict.fromkeys(range(PARTITIONS), our_id))
        wait_owners(cluster, fresh_group, shared, {0: java_id, 1: java_id, 2: our_id, 3: our_id})
        zstd = read(streams[compressed], len(sent_zstd))
        assert rows(zstd) == sorted(sent_zstd)
        assert headers_of(zstd) == {(("codec", b"zstd"), ("n", b""))}
        sent = fill(cluster, shared, "gzip")
        found = read(streams[shared], len(sent) // 2)
        assert headers_of(found) == {(("codec", b"gzip"), ("n", b""))}
        there = java.wait_messages(len(sent) // 2, PATIENCE_S)
        java.stop()
        wait_owners(cluster, fresh_group, shared, dict.fromkeys(range(PARTITIONS), our_id))
        last = fill(cluster, shared, "gzip", EACH)
        found += read(streams[shared], len(last))
        delivered = [*rows(found), *((each.partition, each.value) for each in there)]
        assert sorted(delivered) == sorted(sent + last), "each once, whoever had it"
        assert java.gave_up == 0


def test_what_a_java_member_cannot_read_is_delivered_when_it_is_ours(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """The brokers refuse zstd to members of before 2.1, which wait; nothing is skipped."""
    topic = fresh_topic()
    cluster.create_topic(topic, PARTITIONS)
    sent = fill(cluster, topic, "zstd")
    with (
        member(cluster, fresh_group, "ours") as ours,
        JavaMember(
            cluster, fresh_group, topics={topic: 1}, consumer_id="java", settings=PATIENT, version="1.1.1"
        ) as java,
    ):  # fmt: skip
        java.wait_ready()
        stream = ours.create_message_streams({topic: 1})[topic][0]
        wait_owners(cluster, fresh_group, topic, {
            **dict.fromkeys((0, 1), f"{fresh_group}_java-0"), **dict.fromkeys((2, 3), f"{fresh_group}_ours-0"),
        })  # fmt: skip
        found = read(stream, len(sent) // 2)
        assert java.messages == []
        java.stop()
        found += read(stream, len(sent) // 2)
        assert rows(found) == sorted(sent)
        assert set(owners(cluster, fresh_group, topic).values()) == {f"{fresh_group}_ours-0"}
