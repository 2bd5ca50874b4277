"""Transactions over TLS and SASL on three real brokers, whose coordinator moves or dies in the middle of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import MessageNotSent, Producer, ProducerFenced, TransactionFailed
from zkconsumer.producer.transactions import TransactionState
from zkconsumer.testing import BrokerSecurity
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

WAIT_S = 120.0
TRANSACTIONS = 30
MOST_TRIES = 20
REPLICATED = {
    "offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2, "transaction.state.log.num.partitions": 3, "min.insync.replicas": 2,
}  # fmt: skip


@pytest.fixture(scope="module", params=["3.9.2", "4.3.1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    security = BrokerSecurity(protocols=["SASL_SSL"], mechanisms=["SCRAM-SHA-256"])
    with KafkaCluster(request.param, 3, settings=REPLICATED, security=security) as made:
        yield made


def producer(cluster: KafkaCluster, name: str) -> Producer:
    """One that finds its brokers in ZooKeeper if there is one, else by their addresses."""
    if cluster.is_kraft:
        where = {"bootstrap.servers": cluster.addresses("SASL_SSL")}
    else:
        where = {"zookeeper.connect": cluster.zookeeper_connect}
    made = Producer(ProducerConfig.from_properties({
        **where, "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(Path(cluster.certificates.authority.certificate)),
        "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "secret-of-alice",
        "transactional.id": name, "request.required.acks": "-1", "producer.type": "async",
        "queue.buffering.max.ms": "1", "message.send.max.retries": "1000", "request.timeout.ms": "5000",
    }))  # fmt: skip
    made.init_transactions(WAIT_S)
    return made


def coordinator_of(cluster: KafkaCluster, name: str) -> int:
    """The broker that coordinates a producer, as a broker that runs says."""

    def ask() -> int | None:
        running = next(each for each in cluster.brokers.values() if each.running)
        with SimpleConsumer("127.0.0.1", running.port, dialect=KAFKA011) as consumer:
            code, found = consumer.ask(KAFKA011.coordinator(name, of_transactions=True))
        return None if code else found.id + 1

    return wait_until(ask, WAIT_S, f"a coordinator of {name}") - 1


def committed(cluster: KafkaCluster, topic: str, partition: int) -> list[bytes | None]:
    """What can be read of a partition, when its last transaction has ended."""
    leader = cluster.wait_leaders(topic, [partition])[partition]
    port = cluster.brokers[leader].port
    with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011, read_committed=True) as consumer:

        def is_over() -> bool:
            [end] = consumer.get_offsets_before(topic, partition, LATEST)
            with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011) as other:
                return [end] == other.get_offsets_before(topic, partition, LATEST)

        wait_until(is_over, WAIT_S, f"the last transaction of {topic}/{partition} to end")
        [end] = consumer.get_offsets_before(topic, partition, LATEST)
        found: list[bytes | None] = []
        at = 0
        while at < end:
            messages = list(consumer.fetch(topic, partition, at, 4_000_000))
            found += [message.value for message in messages]
            if not messages:
                break
            at = messages[-1].next_offset
        return found


def commit_at_last(made: Producer) -> bool:
    """Commit, again while the outcome is not known; abort what cannot be committed, and return whether it was."""
    while True:
        try:
            made.commit_transaction(timeout_s=10.0)
        except ProducerFenced:
            raise
        except TransactionFailed as error:
            if error.outcome_is_unknown:
                continue
            abort_at_last(made)
            return False
        return True


def abort_at_last(made: Producer) -> None:
    for attempt in count():
        try:
            made.abort_transaction(timeout_s=10.0)
        except TransactionFailed:
            if attempt == MOST_TRIES:
                raise
        else:
            return


def one_transaction(made: Producer, topic: str, number: int) -> bool:
    """Send two halves to two partitions; return whether they are committed. Every fourth one is aborted."""
    made.begin_transaction()
    try:
        for partition in range(2):
            made.send(topic, b"%d" % number, partition=partition)
    except ProducerFenced:
        raise
    except (TransactionFailed, MessageNotSent):
        abort_at_last(made)
        return False
    if number % 4 == 3:
        abort_at_last(made)
        return False
    return commit_at_last(made)


def test_a_commit_whose_coordinator_dies_with_it_is_asked_of_the_next_one(cluster: KafkaCluster) -> None:
    topic = "dies"
    with producer(cluster, topic) as made:
        dying = coordinator_of(cluster, topic)
        others = [each for each in cluster.brokers if each != dying]
        cluster.create_topic(topic, assignment={0: [*others, dying], 1: [*others[::-1], dying]})
        made.begin_transaction()
        for partition in range(2):
            made.send(topic, b"a", partition=partition).result(WAIT_S)
        transactions, _ = made._transactional()
        cluster.pause(dying)
        try:
            committing = threading.Thread(target=made.commit_transaction, args=(WAIT_S,))
            committing.start()
            wait_until(lambda: transactions.state is TransactionState.COMMITTING, WAIT_S, "the commit to be asked for")
        finally:
            cluster.kill(dying)
        committing.join(WAIT_S)
        assert transactions.state is TransactionState.READY
        assert coordinator_of(cluster, topic) != dying
        with made.transaction():
            made.send(topic, b"b", partition=0)
        cluster.start(dying)
    assert committed(cluster, topic, 0) == [b"a", b"b"]
    assert committed(cluster, topic, 1) == [b"a"]


@pytest.mark.parametrize("how", [KafkaCluster.stop, KafkaCluster.kill], ids=["stop", "kill"])
def test_no_transaction_is_lost_or_half_committed_while_its_coordinators_come_and_go(
    cluster: KafkaCluster, how: Callable[[KafkaCluster, int], None]
) -> None:
    topic = f"moves-{how.__name__}"
    cluster.create_topic(topic, 2, replication=3)
    kept: list[bytes] = []
    is_over = threading.Event()
    moved: list[int] = []

    def wait_for_transactions(seen: int) -> None:
        wait_until(lambda: len(kept) > seen + 1 or is_over.is_set(), WAIT_S, "transactions without it")

    def move() -> None:
        while not is_over.is_set():
            at, seen = coordinator_of(cluster, topic), len(kept)
            how(cluster, at)
            moved.append(at)
            wait_for_transactions(seen)
            cluster.start(at)
            cluster.wait_leaders(topic, [0, 1])

    with producer(cluster, topic) as made:
        moving = threading.Thread(target=move)
        moving.start()
        try:
            for number in count():
                if one_transaction(made, topic, number):
                    kept.append(b"%d" % number)
                if number >= TRANSACTIONS and len(moved) >= 3:
                    break
        finally:
            is_over.set()
            moving.join(WAIT_S)
    assert len(kept) > TRANSACTIONS // 2
    for partition in range(2):
        assert committed(cluster, topic, partition) == kept
