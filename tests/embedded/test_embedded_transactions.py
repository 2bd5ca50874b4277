"""Transactions on embedded brokers: our producer, confluent-kafka and kafka-python, and what goes wrong on the way."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer

from simpleconsumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import OffsetAndTimestamp
from tests.kafka_peers import confluent_consume
from zkconsumer import read_topic
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import Producer, ProducerFenced, TransactionFailed
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.broker import Broker011
from zkconsumer.testing.embedded.offsets import TRANSACTIONS_TOPIC
from zkconsumer.testing.waiting import wait_until

GENERATIONS = ("0.11", "2.8", "3.9", "4.3")
MARKED = [pytest.param("0.11", marks=pytest.mark.slow), "2.8", pytest.param("3.9", marks=pytest.mark.slow), "4.3"]
PATIENCE_S = 30.0
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
COMMITTED = {"isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, EmbeddedCluster]]:
    running: dict[str, EmbeddedCluster] = {}
    try:
        for name in GENERATIONS:
            running[name] = EmbeddedCluster(2, generation=name, zookeeper=False, settings=SETTINGS).start_all()
        yield running
    finally:
        for cluster in running.values():
            cluster.close()


@pytest.fixture
def cluster(clusters: dict[str, EmbeddedCluster]) -> Iterator[EmbeddedCluster]:
    """The one of Kafka 2.8."""
    yield clusters["2.8"]
    clusters["2.8"].restore()


@pytest.fixture
def topic() -> str:
    return f"transactions-{uuid.uuid4().hex[:10]}"


def producer(cluster: EmbeddedCluster, name: str, **settings: Any) -> Producer:
    given = {"request_required_acks": -1, "producer_type": "async", "queue_buffering_max_ms": 5, **settings}
    return Producer(ProducerConfig(metadata_broker_list=cluster.broker_list, transactional_id=name, **given))


def started(cluster: EmbeddedCluster, name: str, **settings: Any) -> Producer:
    made = producer(cluster, name, **settings)
    made.init_transactions()
    return made


def read(cluster: EmbeddedCluster, topic: str, **settings: str) -> list[bytes | None]:
    where = {"bootstrap.servers": cluster.broker_list, **settings}
    with read_topic(None, topic, properties=where) as reader:
        return [message.value for message in reader]


def stable_offset(cluster: EmbeddedCluster, topic: str) -> int:
    port = cluster.port(cluster.leader(topic, 0) or 0)
    with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011, read_committed=True) as consumer:
        return consumer.get_offsets_before(topic, 0, -1)[0]


def send(made: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        made.send(topic, value, partition=partition).result(PATIENCE_S)


def test_a_time_finds_no_message_that_is_not_decided_for_who_reads_what_is_committed(
    cluster: EmbeddedCluster, topic: str
) -> None:
    cluster.create_topic(topic, 1)
    later_ms = int(time.time() * 1000) + 60_000
    port = cluster.port(cluster.leader(topic, 0) or 0)
    made = ConfluentProducer({"bootstrap.servers": cluster.broker_list, "transactional.id": topic})
    made.init_transactions(PATIENCE_S)

    def found(*, read_committed: bool) -> OffsetAndTimestamp | None:
        with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011, read_committed=read_committed) as consumer:
            return consumer.offset_for_time(topic, 0, later_ms)

    made.begin_transaction()
    made.produce(topic, b"a", partition=0, timestamp=later_ms)
    made.flush(PATIENCE_S)
    message = OffsetAndTimestamp(0, later_ms, 0)
    assert (found(read_committed=True), found(read_committed=False)) == (None, message)
    made.commit_transaction(PATIENCE_S)
    assert found(read_committed=True) == message


class TestClients:
    @pytest.mark.parametrize("generation", MARKED)
    def test_ours(self, clusters: dict[str, EmbeddedCluster], topic: str, generation: str) -> None:
        cluster = clusters[generation]
        cluster.create_topic(topic, 2)
        with started(cluster, topic) as made:
            with made.transaction():
                send(made, topic, b"a")
                send(made, topic, b"b", partition=1)
            made.begin_transaction()
            send(made, topic, b"lost")
            made.abort_transaction()
            made.begin_transaction()
            send(made, topic, b"c")
            assert sorted(read(cluster, topic, **COMMITTED)) == [b"a", b"b"]
            made.commit_transaction()
        assert sorted(read(cluster, topic, **COMMITTED)) == [b"a", b"b", b"c"]
        assert sorted(read(cluster, topic)) == [b"a", b"b", b"c", b"lost"]
        assert confluent_consume(cluster.broker_list, topic, 2, settings=COMMITTED) == [b"a", b"c"]

    @pytest.mark.parametrize("generation", MARKED)
    def test_librdkafka(self, clusters: dict[str, EmbeddedCluster], topic: str, generation: str) -> None:
        cluster = clusters[generation]
        cluster.create_topic(topic, 2)
        made = ConfluentProducer({"bootstrap.servers": cluster.broker_list, "transactional.id": topic})
        made.init_transactions(PATIENCE_S)
        for values, ends in (((b"a", b"b"), made.commit_transaction), ((b"lost",), made.abort_transaction),
                             ((b"c",), made.commit_transaction)):  # fmt: skip
            made.begin_transaction()
            for number, value in enumerate(values):
                made.produce(topic, value, partition=number)
            made.flush(PATIENCE_S)
            ends(PATIENCE_S)
        assert sorted(read(cluster, topic, **COMMITTED)) == [b"a", b"b", b"c"]
        assert sorted(read(cluster, topic)) == [b"a", b"b", b"c", b"lost"]

    @pytest.mark.parametrize("generation", MARKED)
    def test_kafka_python(self, clusters: dict[str, EmbeddedCluster], topic: str, generation: str) -> None:
        kafka = pytest.importorskip("kafka", reason="kafka-python is not installed: pip install kafka-python")
        cluster = clusters[generation]
        cluster.create_topic(topic, 2)
        made = kafka.KafkaProducer(bootstrap_servers=cluster.broker_list, transactional_id=topic)
        try:
            made.init_transactions()
            for values, ends in (((b"a", b"b"), made.commit_transaction), ((b"lost",), made.abort_transaction),
                                 ((b"c",), made.commit_transaction)):  # fmt: skip
                made.begin_transaction()
                for sent in [made.send(topic, value, partition=number) for number, value in enumerate(values)]:
                    sent.get(timeout=PATIENCE_S)
                ends()
        finally:
            made.close(timeout=PATIENCE_S)
        assert sorted(read(cluster, topic, **COMMITTED)) == [b"a", b"b", b"c"]
        assert sorted(read(cluster, topic)) == [b"a", b"b", b"c", b"lost"]


class TestFencing:
    def test_the_newer_producer_of_a_name_aborts_what_the_older_one_began(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        cluster.create_topic(topic)
        with producer(cluster, topic) as older, producer(cluster, topic) as newer:
            older.init_transactions()
            older.begin_transaction()
            send(older, topic, b"of the older")
            newer.init_transactions()
            with pytest.raises(ProducerFenced):
                older.commit_transaction()
            with newer.transaction():
                send(newer, topic, b"of the newer")
        assert read(cluster, topic, **COMMITTED) == [b"of the newer"]

    def test_librdkafka_is_fenced(self, cluster: EmbeddedCluster, topic: str) -> None:
        cluster.create_topic(topic)
        older = ConfluentProducer({"bootstrap.servers": cluster.broker_list, "transactional.id": topic})
        older.init_transactions(PATIENCE_S)
        older.begin_transaction()
        with started(cluster, topic):
            older.produce(topic, b"late")
            with pytest.raises(KafkaException, match="fenced"):
                older.commit_transaction(PATIENCE_S)
        assert read(cluster, topic) == []


class TestTimes:
    def test_a_transaction_that_is_open_for_too_long_is_aborted(self, cluster: EmbeddedCluster, topic: str) -> None:
        cluster.create_topic(topic)
        with started(cluster, topic, transaction_timeout_ms=300) as made:
            made.begin_transaction()
            send(made, topic, b"late")
            wait_until(lambda: stable_offset(cluster, topic) == 2, PATIENCE_S, "the transaction to be aborted")
            with pytest.raises(ProducerFenced, match="open for too long"):
                made.commit_transaction()
        assert read(cluster, topic, **COMMITTED) == []

    def test_a_time_above_the_limit_is_refused(self, cluster: EmbeddedCluster, topic: str) -> None:
        made = producer(cluster, topic, transaction_timeout_ms=16 * 60_000)
        with made, pytest.raises(TransactionFailed, match="50"):
            made.init_transactions()


class TestFaults:
    @pytest.mark.parametrize(
        ("api", "code"),
        [("consumer_metadata", 15), ("init_producer_id", 14), ("init_producer_id", 51), ("add_partitions_to_txn", 16),
         ("add_partitions_to_txn", 51), ("end_txn", 14), ("end_txn", 51)],
    )  # fmt: skip
    @pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "librdkafka"])
    def test_what_another_try_changes_is_tried_again(
        self, cluster: EmbeddedCluster, topic: str, api: str, code: int, is_ours: bool
    ) -> None:
        cluster.create_topic(topic)
        fault = cluster.faults.add(Fault.error(code, api=api), times=2)
        if is_ours:
            with started(cluster, topic) as made, made.transaction():
                send(made, topic, b"kept")
        else:
            other = ConfluentProducer({"bootstrap.servers": cluster.broker_list, "transactional.id": topic})
            other.init_transactions(PATIENCE_S)
            other.begin_transaction()
            other.produce(topic, b"kept")
            other.commit_transaction(PATIENCE_S)
        assert cluster.faults.used(fault) == 2
        assert read(cluster, topic, **COMMITTED) == [b"kept"]

    @pytest.mark.parametrize("api", ["init_producer_id", "add_partitions_to_txn", "end_txn"])
    def test_an_answer_that_is_lost_costs_nothing(self, cluster: EmbeddedCluster, topic: str, api: str) -> None:
        cluster.create_topic(topic)
        fault = cluster.faults.add(Fault.close(api=api))
        with started(cluster, topic) as made, made.transaction():
            send(made, topic, b"kept")
        assert cluster.faults.used(fault) == 1
        assert read(cluster, topic, **COMMITTED) == [b"kept"]

    @pytest.mark.parametrize("api", ["add_partitions_to_txn", "end_txn"])
    def test_a_fence_is_final(self, cluster: EmbeddedCluster, topic: str, api: str) -> None:
        def transaction(made: Producer) -> None:
            made.begin_transaction()
            send(made, topic, b"lost")
            made.commit_transaction()

        cluster.create_topic(topic)
        cluster.faults.add(Fault.error(47, api=api))
        with started(cluster, topic) as made:
            with pytest.raises(ProducerFenced):
                transaction(made)
            with pytest.raises(ProducerFenced):
                made.begin_transaction()
        assert read(cluster, topic, **COMMITTED) == []

    def test_one_partition_that_is_refused_keeps_the_others_out(self, cluster: EmbeddedCluster, topic: str) -> None:
        cluster.create_topic(topic, 2)
        cluster.faults.add(Fault.error(29, api="add_partitions_to_txn", topic=topic, partition=1))
        with started(cluster, topic) as made:
            made.begin_transaction()
            send(made, topic, b"lost")
            with pytest.raises(TransactionFailed, match="29"):
                made.send(topic, b"refused", partition=1)
            made.abort_transaction()
        assert read(cluster, topic, **COMMITTED) == []


class TestCoordinatorsThatMove:
    @pytest.mark.parametrize("how", ["moved", "killed", "restarted"])
    def test_a_transaction_outlives_its_coordinator(self, how: str, topic: str) -> None:
        with EmbeddedCluster(2, generation="2.8", zookeeper=False, settings=SETTINGS) as cluster:
            cluster.create_topic(topic, assignment={0: [0]})
            with started(cluster, topic) as made:
                made.begin_transaction()
                send(made, topic, b"kept")
                self.lose_coordinator(cluster, how)
                made.commit_transaction()
                with made.transaction():
                    send(made, topic, b"kept, too")
            assert read(cluster, topic, **COMMITTED) == [b"kept", b"kept, too"]

    def lose_coordinator(self, cluster: EmbeddedCluster, how: str) -> None:
        was = cluster.leader(TRANSACTIONS_TOPIC, 0)
        assert was is not None
        if how == "moved":
            cluster.move_leader(TRANSACTIONS_TOPIC, 0, 1 - was)
        else:
            (cluster.kill if how == "killed" else cluster.stop)(was)
            cluster.start(was)

    def test_a_marker_waits_for_the_leader_of_its_partition(self, topic: str) -> None:
        with (
            EmbeddedCluster(2, generation="2.8", zookeeper=False, settings=SETTINGS) as cluster,
            started(cluster, topic) as made,
        ):
            coordinator = cluster.leader(TRANSACTIONS_TOPIC, 0)
            assert coordinator is not None
            cluster.create_topic(topic, assignment={0: [1 - coordinator]})
            made.begin_transaction()
            send(made, topic, b"kept")
            cluster.stop(1 - coordinator)
            made.commit_transaction()
            cluster.start(1 - coordinator)
            wait_until(lambda: read(cluster, topic, **COMMITTED) == [b"kept"], PATIENCE_S, "the marker")

    def test_a_later_cluster_on_the_folder_goes_on(self, tmp_path: Path, topic: str) -> None:
        def cluster() -> EmbeddedCluster:
            return EmbeddedCluster(generation="4.3", settings=SETTINGS, folder=tmp_path)

        with cluster() as first, started(first, topic) as made:
            first.create_topic(topic)
            made.begin_transaction()
            send(made, topic, b"open")
        with cluster() as second:
            second.create_topic(topic)  # without ZooKeeper, the names of topics are not kept
            assert stable_offset(second, topic) == 0
            with started(second, topic) as made, made.transaction():
                send(made, topic, b"kept")
            assert read(second, topic, **COMMITTED) == [b"kept"]


def test_a_transaction_of_a_deleted_topic_is_ended(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic)
    gone = f"{topic}-gone"
    cluster.create_topic(gone)
    with started(cluster, topic) as made:
        with made.transaction():
            send(made, gone, b"lost")
            send(made, topic, b"kept")
            cluster.delete_topic(gone)
        with made.transaction():
            send(made, topic, b"kept, too")
    assert read(cluster, topic, **COMMITTED) == [b"kept", b"kept, too"]


def test_a_broker_that_does_not_lead_the_states_knows_none(cluster: EmbeddedCluster, topic: str) -> None:
    with started(cluster, topic):
        pass
    broker = cluster.brokers[1 - (cluster.leader(TRANSACTIONS_TOPIC, 0) or 0)]
    assert isinstance(broker, Broker011)
    with pytest.raises(Refusal) as refused:
        broker.transactions.state(topic)
    assert refused.value.code == 16
