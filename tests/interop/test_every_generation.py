"""One program on Kafka 0.7, 0.8.2.2 and 3.9.2: a group that reads what a filter lets through."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from kafka_07 import BOTH_07, cluster_07, needs_jar_07

from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, Message, Whitelist
from zkconsumer.testing import EmbeddedCluster, JavaMember
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

Cluster = EmbeddedCluster | KafkaCluster

PROGRAM = """
import sys
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, Whitelist

config = ConsumerConfig(sys.argv[1], sys.argv[2], auto_offset_reset="smallest", consumer_timeout_ms=2000)
with ConsumerConnector(config) as connector:
    [stream] = connector.create_message_streams_by_filter(Whitelist(sys.argv[3]), 1)
    try:
        for message in stream:
            print(message.topic, message.partition, message.offset, message.value.decode(), flush=True)
    except ConsumerTimeout:
        print("done")
"""
KINDS = [*BOTH_07, "0.8.2.2", pytest.param("3.9.2", marks=pytest.mark.slow)]


@pytest.fixture(params=KINDS)
def any_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    kind = request.param
    with cluster_07(kind) if kind in ("embedded", "real") else KafkaCluster(kind) as cluster:
        yield cluster


def run(cluster: Cluster, group: str, pattern: str) -> list[str]:
    """The lines that the program prints."""
    command = [sys.executable, "-c", PROGRAM, cluster.zookeeper_connect, group, pattern]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    *lines, last = ran.stdout.splitlines()
    assert last == "done", ran.stderr
    return lines


def test_ten_lines_read_every_generation_and_commit_it(any_cluster: Cluster, fresh_group: str) -> None:
    expected: list[str] = []
    for topic in ("clicks", "logs-a", "other"):
        any_cluster.create_topic(topic)
        for partition in any_cluster.partitions(topic):
            values = [f"{topic}:{partition}:{number}" for number in range(4)]
            places = any_cluster.produce(topic, values, partition=partition)
            lines = [f"{topic} {where} {offset} {value}" for (where, offset), value in zip(places, values, strict=True)]
            expected += [] if topic == "other" else lines
    assert sorted(run(any_cluster, fresh_group, "clicks,logs-.*")) == sorted(expected)
    for topic, end in (("clicks", 4), ("logs-a", 4)):
        for partition in any_cluster.partitions(topic):
            stored, _ = any_cluster.client.get(f"/consumers/{fresh_group}/offsets/{topic}/{partition}")
            entry_bytes = len(f"{topic}:{partition}:0") + 10
            assert int(stored) == (end if isinstance(partition, int) else end * entry_bytes)
    assert not any_cluster.client.exists(f"/consumers/{fresh_group}/offsets/other")


# -- what differs on Kafka 0.7 ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster_07(request.param) as cluster:
        yield cluster


def read_all(streams: list[object]) -> dict[int, list[Message]]:
    """Number of a stream -> what it has now."""
    found: dict[int, list[Message]] = defaultdict(list)
    for number, stream in enumerate(streams):
        try:
            for message in stream:  # type: ignore[attr-defined]
                found[number].append(message)
        except ConsumerTimeout:
            continue
    return found


def test_each_stream_of_a_filter_gets_its_partitions(
    cluster: Cluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """In Kafka 0.7.2 the last stream gets everything."""
    name = fresh_topic()
    for topic in (f"{name}-1", f"{name}-2"):
        cluster.create_topic(topic)
        for partition in cluster.partitions(topic):
            cluster.produce(topic, [f"{topic} {partition}"], partition=partition)
    config = ConsumerConfig(
        cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", consumer_timeout_ms=1000
    )
    with ConsumerConnector(config) as connector:
        streams = connector.create_message_streams_by_filter(Whitelist(f"{name}.*"), 3)
        found = read_all(list(streams))
    for topic in (f"{name}-1", f"{name}-2"):
        got = {
            number: [each.partition for each in messages if each.topic == topic] for number, messages in found.items()
        }
        assert {number: sorted(names) for number, names in got.items()} == {0: ["0-0", "0-1"], 1: ["1-0"], 2: ["1-1"]}


@needs_jar_07
def test_streams_of_a_filter_share_topics_that_appear_with_a_java_member(
    cluster: Cluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    name = fresh_topic()
    cluster.create_topic(f"{name}-1")
    config = ConsumerConfig(
        cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", consumer_timeout_ms=1000, consumer_id="a"
    )
    sent: set[str] = set()
    with ConsumerConnector(config) as connector:
        streams = list(connector.create_message_streams_by_filter(Whitelist(f"{name}.*"), 3))
        with JavaMember(cluster, fresh_group, whitelist=f"{name}.*", streams=1, consumer_id="b") as java:
            java.wait_owned(1)
            for topic in (f"{name}-2", f"{name}-3"):
                cluster.create_topic(topic)
                for partition in cluster.partitions(topic):
                    values = [f"{topic} {partition} {number}" for number in range(5)]
                    cluster.produce(topic, values, partition=partition)
                    sent.update(values)
            wait_until(lambda: len(connector.status().owned) == 9, 20, "our three partitions of each topic")
            assert java.wait_owned(3) == [(f"{name}-{number}", "1-1") for number in (1, 2, 3)]
            found = read_all(streams)
            java.wait_messages(10)
            java.stop()
            got = [str(each.value, "utf-8") for messages in found.values() for each in messages]
            got += [str(each.value, "utf-8") for each in java.messages if each.value is not None]
            assert sorted(got) == sorted(sent), "each of them once"
            assert java.gave_up == 0


def test_the_log_says_whose_defaults_a_group_on_kafka_07_has(
    cluster: Cluster, fresh_topic: Callable[[], str], fresh_group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = fresh_topic()
    for generation, is_said in (("auto", True), ("0.7", False)):
        caplog.clear()
        config = ConsumerConfig(cluster.zookeeper_connect, fresh_group, kafka_generation=generation)
        with caplog.at_level(logging.INFO), ConsumerConnector(config) as connector:
            connector.create_message_streams({topic: 1})
        sentence = f"group {fresh_group} is of Kafka 0.7, but the defaults are those of 0.8; set kafka.generation=0.7"
        assert (sentence in caplog.text) == is_said
        assert config.auto_offset_reset == ("largest" if is_said else "smallest")
