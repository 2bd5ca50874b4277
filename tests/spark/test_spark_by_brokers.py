"""Batches of clusters of which some brokers are given, and no ZooKeeper: options, plans and rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.metadata_reader import BrokersSilent
from zkconsumer.spark.errors import OptionRefused, TopicMissing
from zkconsumer.spark.options.options import SourceOptions, batch_options, stream_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.connections import search_leader
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.settings_files import with_settings_files
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

Clusters = Callable[[str, int], KafkaCluster]
NOBODY = "127.0.0.1:1"
COLUMNS = ("value", "partition", "offset")


def options(brokers: str, topic: str, **given: str) -> SourceOptions:
    return batch_options({"kafka.bootstrap.servers": brokers, "subscribe": topic, **given})


def rows(wanted: SourceOptions) -> list[Mapping[str, object]]:
    return [row for each in plan_batch(wanted) for batch in read_range(each, COLUMNS, wanted)
            for row in batch.to_pylist()]  # fmt: skip


def values(wanted: SourceOptions) -> list[object]:
    return sorted(row["value"] for row in rows(wanted))  # type: ignore[type-var]


def test_a_cluster_of_kafka_0_8_is_read_without_its_zookeeper() -> None:
    with EmbeddedCluster(2, zookeeper=False) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.produce("t", [b"a", b"b"], partition=0)
        cluster.produce("t", [b"c"], partition=1)
        brokers = f"{NOBODY},{cluster.broker_list}"
        assert values(options(brokers, "t")) == [b"a", b"b", b"c"]
        assert values(options(brokers, "t", startingOffsets='{"t": {"0": 1, "1": 1}}')) == [b"b"]
        with pytest.raises(TopicMissing, match=f"topic 'tt' does not exist at the brokers {NOBODY}") as raised:
            plan_batch(options(brokers, "tt"))
        assert raised.value.remedy == "did you mean 't'?"


@pytest.mark.real
def test_a_cluster_without_zookeeper_is_read(kafka_clusters: Clusters) -> None:
    cluster, topic = kafka_clusters("4.3.1", 1), f"spark-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions=2)
    brokers = f"127.0.0.1:{cluster.port(0)}"
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        wait_until(lambda: len(_led(broker, topic)) == 2, 20, "leaders")
        for partition in range(2):
            broker.produce(topic, partition, [b"%d-%d" % (partition, n) for n in range(500)], codec="gzip")
    assert len(rows(options(brokers, topic))) == 1000
    split = options(brokers, topic, minPartitions="6", startingOffsets="earliest")
    assert len(plan_batch(split)) == 6
    assert values(split) == sorted(b"%d-%d" % (p, n) for p in range(2) for n in range(500))
    last = {"startingOffsets": f'{{"{topic}": {{"0": 499, "1": 500}}}}'}
    assert values(options(brokers, topic, **last)) == [b"0-499"]
    found = search_leader(options(brokers, topic).config)(TopicPartition(topic, 0), 0)
    assert (found.broker is not None, found.is_gone) == (True, False)
    assert search_leader(options(brokers, "gone").config)(TopicPartition("gone-for-good", 0), None).is_gone


def _led(broker: SimpleConsumer, topic: str) -> list[object]:
    found = broker.topic_metadata([topic], create=False).topics[topic]
    return [row for row in found.partitions if row.leader is not None]


def test_brokers_that_do_not_answer_are_named() -> None:
    with pytest.raises(BrokersSilent, match=NOBODY):
        plan_batch(options(NOBODY, "t"))


def test_the_option_has_the_name_of_spark_and_that_of_kafka() -> None:
    for name in ("kafka.bootstrap.servers", "bootstrap.servers", "Kafka.Bootstrap.Servers"):
        config = batch_options({name: "b:9092", "subscribe": "t"}).config
        assert [(each.host, each.port) for each in config.bootstrap_servers or ()] == [("b", 9092)]
        assert stream_options({name: "b:9092", "subscribe": "t"}).config.bootstrap_servers is not None
    with pytest.raises(OptionRefused, match=r"bootstrap\.servers is also given, with another value"):
        batch_options({"kafka.bootstrap.servers": "b:9092", "bootstrap.servers": "c:9092", "subscribe": "t"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"zookeeper.connect": "zk:2181"}, "zookeeper.connect is also given"),
        ({"group.id": "g"}, "groups have their offsets in ZooKeeper"),
        ({"kafka.generation": "0.7"}, "brokers of Kafka 0.7 are only found through ZooKeeper"),
        ({"startingOffsets": "group"}, "`group` needs option group.id"),
    ],
)
def test_what_needs_zookeeper_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionRefused) as raised:
        options("b:9092", "t", **given)
    assert words in str(raised.value)


def test_an_option_stands_for_what_a_file_names(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("zookeeper.connect=zk:2181\nclient.id=c\n")
    of_brokers = with_settings_files({"config": str(file), "kafka.bootstrap.servers": "b:9092"})
    assert of_brokers == {"client.id": "c", "kafka.bootstrap.servers": "b:9092"}
    file.write_text("bootstrap.servers=b:9092\nclient.id=c\n")
    assert with_settings_files({"config": str(file)}) == {"bootstrap.servers": "b:9092", "client.id": "c"}
    of_zookeeper = with_settings_files({"config": str(file), "zookeeper.connect": "zk:2181"})
    assert of_zookeeper == {"client.id": "c", "zookeeper.connect": "zk:2181"}
