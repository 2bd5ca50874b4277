"""`read_topic` on real brokers of several versions: transactions, compaction, times, retention, brokers that die."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from simpleconsumer.consumer import SimpleConsumer
from tests.spark.transaction_marks import add_mark
from zkconsumer import PartitionStopped, read_topic
from zkconsumer.admin import Admin
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

Clusters = Callable[[str, int], KafkaCluster]
SLOW = pytest.mark.slow
OTHERS = ("0.11.0.3", "1.1.1", "2.8.2")


def fresh() -> str:
    return f"read-{uuid.uuid4().hex[:10]}"


def offsets(cluster: KafkaCluster, topic: str, **named: object) -> list[int]:
    with read_topic(cluster.zookeeper_connect, topic, **named) as reader:  # type: ignore[arg-type]
        return [message.offset for message in reader]


@pytest.mark.parametrize("version", [*(pytest.param(each, marks=SLOW) for each in OTHERS), "3.9.2"])
def test_marks_of_transactions_at_the_end_are_an_end(kafka_clusters: Clusters, version: str) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh()
    cluster.create_topic(topic)
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        add_mark(cluster.port(0), topic, 0)
        broker.produce(topic, 0, [b"1", b"2"], magic=1, version=2)
        for _ in range(3):
            add_mark(cluster.port(0), topic, 0)
    started_at = time.monotonic()
    assert offsets(cluster, topic) == [1, 2]
    assert offsets(cluster, topic, start=-3) == []
    assert offsets(cluster, topic, start=4) == []
    assert offsets(cluster, topic, start="earliest", count=2) == [1, 2]
    assert time.monotonic() - started_at < 30


def test_transactions_of_another_client_are_read_to_their_end(kafka_clusters: Clusters) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    cluster, topic = kafka_clusters("3.9.2", 1), fresh()
    cluster.create_topic(topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(60)
    for number in range(5):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    with read_topic(cluster.zookeeper_connect, topic) as reader:
        assert [message.value for message in reader] == [b"0", b"1", b"2", b"3", b"4"]
        assert list(reader.positions().values()) == [10]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.8.2.2", "2.8.2"])
def test_compacted_offsets_are_no_obstacle(version: str) -> None:
    eager = {"log.cleaner.enable": True, "log.cleaner.backoff.ms": 300, "log.cleaner.min.cleanable.ratio": 0.01}
    compacted = {"cleanup.policy": "compact", "segment.bytes": 200, "min.cleanable.dirty.ratio": 0.01}
    with KafkaCluster(version, 1, settings=eager) as cluster:
        cluster.create_topic("t", config=compacted)
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            for n in range(60):
                broker.produce("t", 0, [(b"k%d" % (n % 3), b"v%d" % n)])
        wait_until(lambda: len(offsets(cluster, "t")) < 30, 90, "compaction")
        found = offsets(cluster, "t")
        assert {57, 58, 59} <= set(found)
        assert offsets(cluster, "t", start=0, count=1) == found[:1]
        assert offsets(cluster, "t", start={0: found[0] + 1}) == found[1:]


@pytest.mark.parametrize("version", ["0.8.2.2", pytest.param("0.10.2.2", marks=SLOW), "3.9.2"])
def test_a_time_is_as_exact_as_the_broker_knows_it(
    kafka_clusters: Clusters, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, topic = kafka_clusters(version, 1), fresh()
    is_timed = version != "0.8.2.2"
    kept = {"retention.ms": -1, "message.timestamp.difference.max.ms": 2**62} if is_timed else None
    cluster.create_topic(topic, config=kept)
    times_ms = [1_400_000_000_000 + 1000 * number for number in range(10)]
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
        for number, time_ms in enumerate(times_ms):
            if is_timed:
                broker.produce(topic, 0, [b"%d" % number], magic=1, version=2, timestamp_ms=time_ms)
            else:
                broker.produce(topic, 0, [b"%d" % number])
    fourth = datetime.fromtimestamp(times_ms[4] / 1000, UTC)
    assert offsets(cluster, topic, start=fourth) == ([*range(4, 10)] if is_timed else [*range(10)])
    assert ("searched by segments" in caplog.text) == (not is_timed)
    assert offsets(cluster, topic, start=datetime(2044, 1, 1, tzinfo=UTC)) == []
    caplog.clear()
    with Admin(cluster.zookeeper_connect) as admin:  # a group is set where a reader starts
        for moment, offset in ((fourth, 4 if is_timed else 0), (datetime(2044, 1, 1, tzinfo=UTC), 10)):
            found = admin.set_offsets("readers", topic, moment.isoformat(), store="zookeeper", dry_run=True)
            assert [each.new for each in found.changes] == [offset]
    assert ("searched by segments" in caplog.text) == (not is_timed)


@pytest.mark.parametrize("version", ["0.8.2.2", pytest.param("3.9.2", marks=SLOW)])
def test_a_broker_that_is_killed_half_way_costs_no_message(version: str) -> None:
    with KafkaCluster(version, brokers=2) as cluster:
        cluster.create_topic("t", 2, 2)
        for partition in (0, 1):
            leader = cluster.wait_leaders("t", [partition])[partition]
            with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
                for first in range(0, 4000, 500):
                    values = [b"%d" % number for number in range(first, first + 500)]
                    broker.produce("t", partition, values, acks=-1)
        found: dict[int | str, list[int]] = {0: [], 1: []}
        small = {"fetch.message.max.bytes": 4000}
        with read_topic(cluster.zookeeper_connect, "t", properties=small) as reader:
            for number, message in enumerate(reader):
                found[message.partition].append(message.offset)
                if number == 1000:
                    cluster.kill(0)
        assert found == {0: [*range(4000)], 1: [*range(4000)]}


def test_a_partition_whose_only_broker_is_gone_is_named_and_the_rest_is_read() -> None:
    with KafkaCluster("0.8.2.2", brokers=2) as cluster:
        cluster.create_topic("t", assignment={0: [0], 1: [1]})
        for partition in (0, 1):
            leader = cluster.wait_leaders("t", [partition])[partition]
            with SimpleConsumer("127.0.0.1", cluster.port(leader)) as broker:
                broker.produce("t", partition, [b"x" * 100] * 2000)
        small = {"fetch.message.max.bytes": 4000}
        with read_topic(cluster.zookeeper_connect, "t", properties=small, stall_timeout_s=4) as reader:
            counts = {0: 0, 1: 0}
            errors = []
            while True:
                try:
                    counts[int(next(reader).partition)] += 1
                    if sum(counts.values()) == 20:
                        cluster.kill(0)
                except PartitionStopped as error:
                    errors.append(error)
                except StopIteration:
                    break
        [error] = errors
        assert (error.partition, error.offset) == (0, counts[0])
        assert counts[0] < counts[1] == 2000
        assert "no message for 4 s" in str(error)
