"""Idempotent and transactional producers on real brokers: nothing is stored twice, and no part of a transaction."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.errors import ConfigError
from zkconsumer.producer import MessageNotSent, Producer, ProducerFenced, TransactionFailed
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

SLOW = pytest.mark.slow
OTHERS = ("0.11.0.3", "1.1.1", "2.8.2", "3.9.2")
WAIT_S = 60.0
ALONE = {
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 3,
}  # fmt: skip


@pytest.fixture(scope="module", params=["4.3.1", *(pytest.param(each, marks=SLOW) for each in OTHERS)])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, settings=ALONE) as made:
        yield made


def producer(cluster: KafkaCluster, **settings: Any) -> Producer:
    address = f"127.0.0.1:{cluster.port(min(cluster.brokers))}"
    given = {"request_required_acks": -1, "producer_type": "async", "queue_buffering_max_ms": 5, **settings}
    return Producer(ProducerConfig(metadata_broker_list=address, **given))


def stored(
    cluster: KafkaCluster, topic: str, partition: int = 0, *, read_committed: bool = False
) -> list[bytes | None]:
    """Read a partition to its end, with our consumer."""
    port = cluster.port(min(cluster.brokers))
    with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011, read_committed=read_committed) as consumer:
        found: list[bytes | None] = []
        [end] = consumer.get_offsets_before(topic, partition, -1)
        at = 0
        while at < end:
            [answer] = consumer.multifetch([(topic, partition, at, 4_000_000)], 100, 1)  # type: ignore[list-item]
            data = bytes(answer.message_set)
            found += [
                each.value for each in KAFKA011.decode_messages(data, topic, partition, at, aborted=answer.aborted)
            ]
            _, behind, _ = KAFKA011.set_end(data, at)
            if behind is None:
                return found
            at = behind
        return found


def committed(cluster: KafkaCluster, topic: str, count: int, *, partitions: int = 1) -> list[list[bytes | None]]:
    """Wait until so many messages can be read with `read_committed`: markers are written behind the answer."""

    def found() -> list[list[bytes | None]]:
        values = [stored(cluster, topic, each, read_committed=True) for each in range(partitions)]
        return values if sum(map(len, values)) >= count else []

    return wait_until(found, WAIT_S, f"{count} messages of {topic}")


def committed_by_confluent(cluster: KafkaCluster, topic: str, count: int) -> list[bytes | None]:
    address = f"127.0.0.1:{cluster.port(min(cluster.brokers))}"
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False,
                         "isolation.level": "read_committed", "enable.partition.eof": True})  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error():
                break  # the end
            if message is not None:
                found.append(message.value())
        return found
    finally:
        consumer.close()


def send_and_raise(made: Producer) -> None:
    made.send("transactions", b"lost", partition=0).result(WAIT_S)
    raise ZeroDivisionError


@pytest.mark.real
def test_committed_transactions_are_read_and_aborted_ones_are_not(cluster: KafkaCluster) -> None:
    cluster.create_topic("transactions", 2)
    with producer(cluster, transactional_id="t-1") as made:
        made.init_transactions()
        with made.transaction():
            made.send("transactions", b"a", partition=0)
            made.send("transactions", b"b", partition=1, headers=[("h", b"1")])
        with pytest.raises(ZeroDivisionError), made.transaction():
            send_and_raise(made)
        with made.transaction():
            assert made.send_all([b"%d" % number for number in range(300)], "transactions").sent == 300
            made.send("transactions", b"c", partition=0)
        with pytest.raises(TransactionFailed, match="no transaction is open"):
            made.send("transactions", b"outside", partition=0)
    first, second = committed(cluster, "transactions", 303, partitions=2)
    assert (first[0], first[-1], second[0]) == (b"a", b"c", b"b")
    assert Counter(first + second) == Counter([b"a", b"b", b"c", *(b"%d" % number for number in range(300))])
    assert b"lost" in stored(cluster, "transactions", 0), "without read_committed, aborted messages are there"
    assert committed_by_confluent(cluster, "transactions", len(first)) == first


@pytest.mark.real
def test_a_producer_is_fenced_for_good_by_the_next_one_of_its_name(cluster: KafkaCluster) -> None:
    cluster.create_topic("fenced", 1)
    with producer(cluster, transactional_id="t-2") as older, producer(cluster, transactional_id="t-2") as newer:
        older.init_transactions()
        older.begin_transaction()
        older.send("fenced", b"of the older one", partition=0).result(WAIT_S)
        newer.init_transactions()
        with pytest.raises(ProducerFenced, match="has taken over"):
            older.commit_transaction()
        for call in (older.begin_transaction, older.abort_transaction, older.init_transactions):
            with pytest.raises(ProducerFenced):
                call()
        with newer.transaction():
            newer.send("fenced", b"of the newer one", partition=0)
    assert committed(cluster, "fenced", 1) == [[b"of the newer one"]]


@pytest.mark.real
def test_a_message_that_fails_has_its_transaction_aborted_and_the_next_one_works(cluster: KafkaCluster) -> None:
    cluster.create_topic("fails", 1, config={"max.message.bytes": 2000})
    with producer(cluster, transactional_id="t-3") as made:
        made.init_transactions()
        made.begin_transaction()
        made.send("fails", b"fits", partition=0)
        future = made.send("fails", b"x" * 5000, partition=0)
        with pytest.raises(MessageNotSent):
            future.result(WAIT_S)
        with pytest.raises(TransactionFailed, match="abort it"):
            made.commit_transaction()
        made.abort_transaction()
        with made.transaction():
            made.send("fails", b"after", partition=0)
    assert committed(cluster, "fails", 1) == [[b"after"]]


@pytest.mark.real
def test_no_message_of_an_idempotent_producer_is_twice_in_the_log_or_lost_when_brokers_are_killed(
    cluster: KafkaCluster,
) -> None:
    cluster.create_topic("once", 1)
    broker = min(cluster.brokers)
    count, is_over = 0, threading.Event()
    values: list[bytes | None] = []

    def kill() -> None:
        for _ in range(2):
            seen = len(values)
            deadline = time.monotonic() + WAIT_S
            while len(values) < seen + 3000 and time.monotonic() < deadline:
                is_over.wait(0.01)
            cluster.kill(broker)
            cluster.start(broker, port=cluster.port(broker))
        is_over.set()

    with producer(
        cluster, enable_idempotence=True, message_send_max_retries=2000, retry_backoff_ms=50, batch_num_messages=20
    ) as made:
        killing = threading.Thread(target=kill)
        killing.start()
        futures = []
        while not is_over.is_set():
            values.append(b"%d" % count)
            futures.append(made.send("once", values[-1], partition=0))
            count += 1
        killing.join()
        assert made.flush(WAIT_S)
        repeated = made.repeated
        for future in futures:
            future.result(0.0)
    assert repeated, "no acknowledgement was lost"
    found = stored(cluster, "once")
    assert found == values


def test_a_broker_without_producer_ids_refuses_an_idempotent_producer(embedded: EmbeddedCluster, topic: str) -> None:
    address = f"127.0.0.1:{embedded.port(min(embedded.brokers))}"
    config = ProducerConfig(metadata_broker_list=address, enable_idempotence=True, request_required_acks=-1)
    with Producer(config) as made, pytest.raises(MessageNotSent, match=r"need brokers of Kafka 0\.11 or later"):
        made.send(topic, b"v")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"enable.idempotence": "true", "request.required.acks": "1"}, "request.required.acks"),
        ({"transactional.id": "t", "request.required.acks": "0"}, "request.required.acks"),
        ({"transactional.id": "t", "request.required.acks": "-1", "enable.idempotence": "false"}, "enable.idempotence"),
        ({"transactional.id": "t", "request.required.acks": "-1", "callback.handler": "a:b"}, "transactional.id"),
        ({"enable.idempotence": "true", "request.required.acks": "-1", "kafka.generation": "0.7"},
         "enable.idempotence"),
    ],
)  # fmt: skip
def test_settings_that_contradict_idempotence_are_named(settings: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ProducerConfig.from_properties({"metadata.broker.list": "b:9092", **settings})


def test_all_replicas_acknowledge_what_is_stored_once_unless_it_is_said_otherwise() -> None:
    assert ProducerConfig(metadata_broker_list="b:9092").request_required_acks == 1
    assert ProducerConfig(metadata_broker_list="b:9092", enable_idempotence=True).request_required_acks == -1
    assert ProducerConfig(metadata_broker_list="b:9092", transactional_id="t").request_required_acks == -1


def test_a_producer_without_a_transactional_id_has_no_transactions(embedded: EmbeddedCluster) -> None:
    address = f"127.0.0.1:{embedded.port(min(embedded.brokers))}"
    config = ProducerConfig(metadata_broker_list=address)
    with Producer(config) as made, pytest.raises(TypeError, match=r"without transactional\.id"):
        made.begin_transaction()
