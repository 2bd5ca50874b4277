"""A producer whose successor has started takes no epoch: neither after an abort, nor by init_transactions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import MessageNotSent, Producer, ProducerFenced, TransactionFailed
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.kafka import KafkaCluster

WAIT_S = 60.0
UNKNOWN, MOVED, TOO_LARGE, NOT_IN_SYNC = -1, 16, 10, 19
NAMES = (f"zombie-{number}" for number in itertools.count())
ALONE = {
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 3,
}  # fmt: skip
Cluster = EmbeddedCluster | KafkaCluster


def cluster_of(generation: str) -> EmbeddedCluster:
    return EmbeddedCluster(generation=generation, zookeeper=False)


@pytest.fixture(scope="module", params=["0.11", "1.1", "2.8", "4.3"])
def brokers(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with cluster_of(request.param) as cluster:
        yield cluster


@pytest.fixture
def topic(brokers: EmbeddedCluster, fresh_topic: Callable[[], str]) -> Iterator[str]:
    name = fresh_topic()
    brokers.create_topic(name, 1)
    yield name
    brokers.faults.reset()


def has_epochs(brokers: Cluster) -> bool:
    return brokers.version.startswith(("2.8", "3.", "4."))


def producer(brokers: Cluster, name: str) -> Producer:
    return Producer(ProducerConfig(
        metadata_broker_list=f"127.0.0.1:{brokers.port(0)}", transactional_id=name, producer_type="async",
        queue_buffering_max_ms=1, message_send_max_retries=0,
    ))  # fmt: skip


def read(brokers: Cluster, topic: str) -> list[bytes | None]:
    with SimpleConsumer("127.0.0.1", brokers.port(0), dialect=KAFKA011, read_committed=True) as consumer:
        return [message.value for message in consumer.fetch(topic, 0, 0)]


def lose_a_message(brokers: EmbeddedCluster, made: Producer, topic: str) -> None:
    """Have a transaction fail whose last message may be stored: its numbers are not known any more."""
    made.begin_transaction()
    made.send(topic, b"sent", partition=0).result(WAIT_S)
    brokers.faults.add(Fault.error(UNKNOWN, api="produce", topic=topic), times=1)
    with pytest.raises(MessageNotSent) as failed:
        made.send(topic, b"lost", partition=0).result(WAIT_S)
    assert failed.value.may_be_stored


def abort_as_far_as_its_end(brokers: EmbeddedCluster, made: Producer) -> None:
    """End the transaction at the coordinator, and have the producer stand still before it has another epoch."""
    fault = Fault.error(MOVED, api="init_producer_id")
    brokers.faults.add(fault, times=None)
    with pytest.raises(TransactionFailed, match="in time" if has_epochs(brokers) else "brokers before Kafka 2.5"):
        made.abort_transaction(timeout_s=0.5)
    brokers.faults.clear()


def test_an_abort_that_ended_its_transaction_does_not_fence_the_successor(brokers: EmbeddedCluster, topic: str) -> None:
    name = next(NAMES)
    with producer(brokers, name) as zombie, producer(brokers, name) as successor:
        zombie.init_transactions()
        lose_a_message(brokers, zombie, topic)
        abort_as_far_as_its_end(brokers, zombie)
        successor.init_transactions()
        successor.begin_transaction()
        successor.send(topic, b"of the successor", partition=0)
        if has_epochs(brokers):
            with pytest.raises(ProducerFenced):
                zombie.abort_transaction()
        for call in (zombie.abort_transaction, zombie.begin_transaction, zombie.init_transactions):
            with pytest.raises(ProducerFenced if has_epochs(brokers) else TransactionFailed):
                call()
        successor.commit_transaction()
    assert read(brokers, topic) == [b"of the successor"]


def test_init_transactions_of_a_producer_that_had_them_does_not_fence_the_successor(
    brokers: EmbeddedCluster, topic: str
) -> None:
    name = next(NAMES)
    with producer(brokers, name) as zombie, producer(brokers, name) as successor:
        zombie.init_transactions()
        successor.init_transactions()
        successor.begin_transaction()
        successor.send(topic, b"of the successor", partition=0)
        with pytest.raises(ProducerFenced):
            zombie.init_transactions()
        successor.commit_transaction()
    assert read(brokers, topic) == [b"of the successor"]


def test_a_producer_without_a_successor_goes_on_after_a_loss_where_brokers_have_epochs_for_it(
    brokers: EmbeddedCluster, topic: str
) -> None:
    with producer(brokers, next(NAMES)) as made:
        made.init_transactions()
        lose_a_message(brokers, made, topic)
        if not has_epochs(brokers):
            with pytest.raises(TransactionFailed, match="close it, and create another producer"):
                made.abort_transaction()
            return
        abort_as_far_as_its_end(brokers, made)
        made.abort_transaction()
        with made.transaction():
            made.send(topic, b"next", partition=0)
    assert read(brokers, topic) == [b"next"]


def test_all_answers_about_the_next_epoch_may_be_lost_and_the_abort_called_again(
    brokers: EmbeddedCluster, topic: str
) -> None:
    """By then the coordinator has another epoch, which is not that of a successor."""
    if not has_epochs(brokers):
        pytest.skip("brokers before 2.5 are not asked")
    with producer(brokers, next(NAMES)) as made:
        made.init_transactions()
        lose_a_message(brokers, made, topic)
        brokers.faults.add(Fault.close(api="init_producer_id"), times=None)
        with pytest.raises(TransactionFailed, match="in time"):
            made.abort_transaction(timeout_s=0.5)
        brokers.faults.clear()
        made.abort_transaction()
        with made.transaction():
            made.send(topic, b"next", partition=0)
    assert read(brokers, topic) == [b"next"]


def test_a_second_init_transactions_without_an_answer_is_finished_by_an_abort(
    brokers: EmbeddedCluster, topic: str
) -> None:
    if not has_epochs(brokers):
        pytest.skip("brokers before 2.5 are not asked")
    with producer(brokers, next(NAMES)) as made:
        made.init_transactions()
        brokers.faults.add(Fault.close(api="init_producer_id"), times=None)
        with pytest.raises(TransactionFailed, match="in time"):
            made.init_transactions(timeout_s=0.5)
        brokers.faults.clear()
        with pytest.raises(TransactionFailed, match="abort again"):
            made.begin_transaction()
        made.abort_transaction()
        with made.transaction():
            made.send(topic, b"next", partition=0)
    assert read(brokers, topic) == [b"next"]


def test_an_answer_about_the_next_epoch_may_be_lost(brokers: EmbeddedCluster, topic: str) -> None:
    if not has_epochs(brokers):
        pytest.skip("brokers before 2.5 are not asked")
    with producer(brokers, next(NAMES)) as made:
        made.init_transactions()
        lose_a_message(brokers, made, topic)
        brokers.faults.add(Fault.close(api="init_producer_id"), times=1)
        made.abort_transaction()
        with made.transaction():
            made.send(topic, b"next", partition=0)
    assert read(brokers, topic) == [b"next"]


@pytest.mark.parametrize("code", [TOO_LARGE, NOT_IN_SYNC])
def test_a_message_that_a_broker_refuses_needs_no_new_epoch(brokers: EmbeddedCluster, topic: str, code: int) -> None:
    """The broker has not stored it, so the next one has its number: on every version the producer goes on."""
    fault = Fault.error(code, api="produce", topic=topic)
    asked = Fault.error(MOVED, api="init_producer_id")
    with producer(brokers, next(NAMES)) as made:
        made.init_transactions()
        brokers.faults.add(asked, times=None)
        for number in range(3):
            made.begin_transaction()
            made.send(topic, b"before", partition=0).result(WAIT_S)
            brokers.faults.add(fault, times=1)
            with pytest.raises(MessageNotSent) as failed:
                made.send(topic, b"refused", partition=0).result(WAIT_S)
            assert not failed.value.may_be_stored
            made.abort_transaction()
            with made.transaction():
                made.send(topic, b"%d" % number, partition=0)
        assert not brokers.faults.used(asked)
    assert read(brokers, topic) == [b"0", b"1", b"2"]


@pytest.mark.real
@pytest.mark.parametrize("version", ["4.3.1", *(pytest.param(each, marks=pytest.mark.slow)
                                                for each in ("0.11.0.3", "1.1.1", "2.8.2", "3.9.2"))])  # fmt: skip
def test_real_brokers_take_the_numbers_after_a_refusal_and_fence_a_zombie(version: str) -> None:
    def fail_and_abort(made: Producer, value: bytes) -> None:
        made.begin_transaction()
        made.send("zombies", b"before", partition=0).result(WAIT_S)
        with pytest.raises(MessageNotSent):
            made.send("zombies", b"x" * 5000, partition=0).result(WAIT_S)
        made.abort_transaction()
        with made.transaction():
            made.send("zombies", value, partition=0)

    with KafkaCluster(version, settings=ALONE) as cluster:
        cluster.create_topic("zombies", 1, config={"max.message.bytes": 2000})
        with producer(cluster, "z") as zombie, producer(cluster, "z") as successor:
            zombie.init_transactions()
            for value in (b"0", b"1"):
                fail_and_abort(zombie, value)
            transactions, _ = zombie._transactional()
            transactions._needs_epoch = True  # as after a request to the coordinator that was not answered
            zombie.begin_transaction()
            zombie.send("zombies", b"before", partition=0).result(WAIT_S)
            zombie.abort_transaction()
            fail_and_abort(zombie, b"2")
            successor.init_transactions()
            successor.begin_transaction()
            successor.send("zombies", b"of the successor", partition=0).result(WAIT_S)
            with pytest.raises(ProducerFenced):
                fail_and_abort(zombie, b"3")
            successor.commit_transaction()
        assert read(cluster, "zombies") == [b"0", b"1", b"2", b"of the successor"]
