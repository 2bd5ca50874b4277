"""`read_topic` of clusters of which some brokers are given, and no ZooKeeper."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer import read_topic
from zkconsumer.cluster.metadata_reader import BrokersSilent
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigError, PartitionStopped, ReadFailed
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

Clusters = Callable[[str, int], KafkaCluster]
NOBODY = "127.0.0.1:1"


def fresh() -> str:
    return f"by-brokers-{uuid.uuid4().hex[:10]}"


def values(brokers: str, topic: str, **named: object) -> list[bytes | None]:
    with read_topic(None, topic, properties={"bootstrap.servers": brokers}, **named) as reader:  # type: ignore[arg-type]
        return [message.value for message in reader]


def send(cluster: KafkaCluster, topic: str, *sent: bytes) -> None:
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        wait_until(lambda: _is_led(broker, topic), 20, "a leader")
        broker.produce(topic, 0, sent)


def _is_led(broker: SimpleConsumer, topic: str) -> bool:
    found = broker.topic_metadata([topic], create=False).topics[topic]
    return bool(found.partitions) and all(row.leader is not None for row in found.partitions)


def test_a_cluster_of_kafka_0_8_is_read_without_its_zookeeper() -> None:
    with EmbeddedCluster(2, zookeeper=False) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.produce("t", [b"a", b"b"], partition=0)
        cluster.produce("t", [b"c"], partition=1)
        assert sorted(values(f"{NOBODY},{cluster.broker_list}", "t")) == [b"a", b"b", b"c"]  # type: ignore[type-var]
        with pytest.raises(ReadFailed, match=rf"topic 'tt' does not exist at the brokers {NOBODY},.*did you mean 't'"):
            values(f"{NOBODY},{cluster.broker_list}", "tt")


def test_a_topic_that_is_listed_and_not_there_is_not_said_to_be_misspelled() -> None:
    with EmbeddedCluster(1, generation="4.3") as cluster:
        cluster.create_topic("t")
        cluster.faults.add(Fault.error(3, api="metadata"), times=None)
        with pytest.raises(ReadFailed, match=r"topic 't' is listed, but does not exist.*being created or deleted"):
            values(cluster.broker_list, "t")


@pytest.mark.real
@pytest.mark.parametrize("version", [pytest.param("0.9.0.1", marks=pytest.mark.slow), "4.3.1"])
def test_a_real_cluster_is_read_from_a_start_to_its_end(kafka_clusters: Clusters, version: str) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh()
    cluster.create_topic(topic)
    brokers = f"{NOBODY},127.0.0.1:{cluster.port(0)}"
    if version == "4.3.1":
        send(cluster, topic, b"one", b"two", b"three")
    else:
        cluster.produce(topic, [b"one", b"two", b"three"])
    assert values(brokers, topic) == [b"one", b"two", b"three"]
    assert values(brokers, topic, start=-1) == [b"three"]
    assert values(brokers, topic, start={0: 1}, count=1) == [b"two"]


@pytest.mark.real
def test_a_time_is_exact_where_messages_have_timestamps_and_else_leaves_nothing_out(kafka_clusters: Clusters) -> None:
    """Kafka 4 does not say when its segments were written."""
    cluster, timed, plain = kafka_clusters("4.3.1", 1), fresh(), fresh()
    at = datetime(2020, 1, 1, tzinfo=UTC)
    for topic in (timed, plain):
        cluster.create_topic(topic)
        send(cluster, topic, b"first")
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        late_ms = int(time.time() * 1000)
        broker.produce(timed, 0, [b"later"], timestamp_ms=late_ms)
        broker.produce(plain, 0, [b"later"])
    brokers = f"127.0.0.1:{cluster.port(0)}"
    assert values(brokers, timed, start=at) == [b"later"]
    assert values(brokers, plain, start=at) == [b"first", b"later"], "none has a timestamp"


@pytest.mark.real
def test_a_topic_that_was_created_again_is_not_read_on(kafka_clusters: Clusters) -> None:
    """Its offsets belong to other messages; the topic id tells them apart."""
    cluster, topic = kafka_clusters("4.3.1", 1), fresh()
    cluster.create_topic(topic)
    send(cluster, topic, b"old")
    properties = {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}"}
    with read_topic(None, topic, until=None, properties=properties, stall_timeout_s=60) as reader:
        assert next(reader).value == b"old"
        cluster.delete_topic(topic)
        wait_until(lambda: not _exists(cluster, topic), 20, "the topic to go")
        cluster.create_topic(topic)
        send(cluster, topic, b"new", b"new")
        with pytest.raises(PartitionStopped, match="was deleted and created again"):
            next(reader)


def _exists(cluster: KafkaCluster, topic: str) -> bool:
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        return broker.topic_metadata([topic], create=False).topics[topic].error_code != 3


def test_a_topic_that_was_deleted_is_said_to_be_gone() -> None:
    with EmbeddedCluster(1, generation="4.3") as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"only"], partition=0)
        properties = {"bootstrap.servers": cluster.broker_list}
        with read_topic(None, "t", until=None, properties=properties, stall_timeout_s=2) as reader:
            assert next(reader).value == b"only"
            cluster.delete_topic("t")
            with pytest.raises(PartitionStopped, match="now topic 't' no longer exists"):
                next(reader)


def test_a_leader_whose_answers_make_no_sense_is_not_said_to_lead_nothing() -> None:
    with EmbeddedCluster(1, generation="4.3") as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"only"], partition=0)
        cluster.faults.add(Fault.garbage(b"HTTP/1.1 400 Bad Request", api="fetch"), times=None)
        with pytest.raises(PartitionStopped) as caught:
            values(cluster.broker_list, "t", stall_timeout_s=2)
        assert re.search(r"127\.0\.0\.1:\d+: frame of 1213486160 bytes", str(caught.value))
        assert "no broker leads it" not in str(caught.value)
        cluster.faults.clear()


def test_brokers_that_do_not_answer_are_named() -> None:
    with pytest.raises(BrokersSilent, match=f"{NOBODY}: Connection refused"):
        values(NOBODY, "t")


def test_a_cluster_is_found_in_one_way(caplog: pytest.LogCaptureFixture) -> None:
    assert ConsumerConfig("zk:2181", "g", bootstrap_servers="b:9092").where == "in ZooKeeper at zk:2181"
    assert "bootstrap.servers has no effect: zookeeper.connect is given" in caplog.text
    with pytest.raises(ConfigError, match=r"zookeeper.connect is not set; .*or give bootstrap.servers"):
        read_topic(None, "t")
    with pytest.raises(ConfigError, match=r"kafka.generation is '0\.7'; it must be left out"):
        ConsumerConfig(group_id="g", bootstrap_servers="b:9092", kafka_generation="0.7")
