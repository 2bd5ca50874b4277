"""Streams of clusters of which some brokers are given: topics are known again by their ids."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import AnotherCluster, MessagesLost, PlanningFailed
from zkconsumer.spark.options.options import stream_options
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.spark.streaming.stream_offsets import (
    StreamOffsets,
    number_of_cluster,
    number_of_topic,
    parse_stream_offsets,
)
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

Clusters = Callable[[str, int], KafkaCluster]
ID = "b8f1c2d3e4f54a6b8c7d9e0f1a2b3c4d"
ZERO = TopicPartition("t", 0)


def driver(brokers: str, topic: str, **given: str) -> StreamDriver:
    return StreamDriver(stream_options(
        {"kafka.bootstrap.servers": brokers, "subscribe": topic, "startingOffsets": "earliest", **given}
    ))  # fmt: skip


def stored(offsets: StreamOffsets) -> StreamOffsets:
    """What a checkpoint brings back."""
    return parse_stream_offsets(offsets.to_json())


def values(stream: StreamDriver, start: StreamOffsets, end: StreamOffsets) -> list[object]:
    wanted = stream._options
    return [row["value"] for each in stream.plan(start, end) for batch in read_range(each, ("value",), wanted)
            for row in batch.to_pylist()]  # fmt: skip


def send(cluster: KafkaCluster, topic: str, *sent: bytes) -> None:
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        wait_until(lambda: _leaders(broker, topic) == [0], 20, "a leader")
        broker.produce(topic, 0, sent)


def _leaders(broker: SimpleConsumer, topic: str) -> list[int | None]:
    return [row.leader for row in broker.topic_metadata([topic], create=False).topics[topic].partitions]


def test_ids_of_topics_and_cluster_stand_in_the_checkpoint() -> None:
    offsets = StreamOffsets({ZERO: 42}, {"t": number_of_topic(ID)}, number_of_cluster("mKBItNTPRZGwZpSZV725eQ"))
    shown = {"t": {"0": 42}, "@ids": {"t": ID, "@cluster": "mKBItNTPRZGwZpSZV725eQ"}}
    assert offsets.to_json() == shown
    assert parse_stream_offsets(shown) == offsets
    leading_zero = StreamOffsets({ZERO: 1}, {"t": number_of_topic("0" + ID[1:])})
    assert leading_zero.to_json()["@ids"] == {"t": "0" + ID[1:]}
    assert stored(leading_zero) == leading_zero


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ({"t": 7}, "'@ids' has values that are not ids"),
        ([], "'@ids' has values that are not ids"),
        ({"t": "zz"}, "invalid literal"),
        ({"t": "7"}, "'@ids' has values that are not ids of topics"),
    ],
)
def test_what_is_no_id_is_refused(ids: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_stream_offsets({"t": {"0": 1}, "@ids": ids})


def test_both_kinds_in_one_checkpoint_are_refused() -> None:
    with pytest.raises(ValueError, match="they have both '@born' and '@ids'"):
        parse_stream_offsets({"t": {"0": 1}, "@born": {"t": 7}, "@ids": {"t": ID}})


def test_a_stream_of_brokers_that_give_no_ids_has_plain_offsets() -> None:
    with EmbeddedCluster(1, zookeeper=False) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"a", b"b"], partition=0)
        stream = driver(cluster.broker_list, "t")
        start = stream.initial_offsets()
        assert start.to_json() == {"t": {"0": 0}}
        stream.plan(start, start)
        end = stream.next_offsets(stored(start), None)
        assert (end.to_json(), values(stream, start, end)) == ({"t": {"0": 2}}, [b"a", b"b"])
        stream.close()


@pytest.mark.real
def test_a_stream_goes_on_and_notices_a_topic_that_was_created_again(kafka_clusters: Clusters) -> None:
    cluster, topic = kafka_clusters("4.3.1", 1), f"stream-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic)
    brokers = f"127.0.0.1:1,127.0.0.1:{cluster.port(0)}"
    send(cluster, topic, b"one")
    stream = driver(brokers, topic)
    start = stored(stream.initial_offsets())
    assert set(start.created_zxids) == {topic}
    stream.plan(start, start)
    end = stored(stream.next_offsets(start, None))
    assert values(stream, start, end) == [b"one"]
    stream.close()
    cluster.delete_topic(topic)
    wait_until(lambda: not _exists(cluster, topic), 20, "the topic to go")
    cluster.create_topic(topic)
    send(cluster, topic, b"new", b"new")
    again = driver(brokers, topic)
    again.plan(end, end)
    with pytest.raises(MessagesLost, match="its topic was deleted and created again"):
        again.next_offsets(end, None)
    again.close()
    lenient = driver(brokers, topic, failOnDataLoss="false")
    lenient.plan(end, end)
    step = stored(lenient.next_offsets(end, None))
    assert step.offsets == {TopicPartition(topic, 0): 0}, "a step to the start of the new topic"
    assert values(lenient, step, stored(lenient.next_offsets(step, None))) == [b"new", b"new"]
    with pytest.raises(AnotherCluster, match="the checkpoint belongs to the cluster another, but"):
        lenient.next_offsets(_of(step, number_of_cluster("another")), None)
    lenient.close()


def _of(offsets: StreamOffsets, cluster: int) -> StreamOffsets:
    return StreamOffsets(offsets.offsets, offsets.created_zxids, cluster)


def _exists(cluster: KafkaCluster, topic: str) -> bool:
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        return broker.topic_metadata([topic], create=False).topics[topic].error_code != 3


@pytest.mark.parametrize("marks", [{"@born": {"t": 7, "@cluster": 1393632000000}}, {"@born": {"t": 7}}])
def test_a_checkpoint_of_zookeeper_is_not_continued_by_brokers(marks: Mapping[str, object]) -> None:
    with EmbeddedCluster(1, zookeeper=False) as cluster:
        cluster.create_topic("t")
        stream = driver(cluster.broker_list, "t")
        with pytest.raises(PlanningFailed, match=r"identifies topics by ZooKeeper, but bootstrap\.servers is given"):
            stream.next_offsets(parse_stream_offsets({"t": {"0": 0}, **marks}), None)
        stream.close()


@pytest.mark.real
def test_a_checkpoint_of_ids_is_not_continued_by_zookeeper() -> None:
    with EmbeddedCluster(1) as cluster:
        cluster.create_topic("t")
        stream = StreamDriver(stream_options({"zookeeper.connect": cluster.zookeeper_connect, "subscribe": "t"}))
        with pytest.raises(PlanningFailed, match=r"identifies topics by topic ids, but zookeeper\.connect is given"):
            stream.next_offsets(parse_stream_offsets({"t": {"0": 0}, "@ids": {"t": ID}}), None)
        stream.close()
