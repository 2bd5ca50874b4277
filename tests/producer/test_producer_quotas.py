"""Client quotas: a producer that brokers throttle waits, and loses, repeats and fails nothing for it.

Embedded brokers throttle as those of their versions do: from 2.0 on they answer at once and read no request for a
while; before, they hold the answer back. The real ones have real quotas.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from client_quotas import set_quota

from simpleconsumer import KAFKA011, SimpleConsumer
from simpleconsumer.throttling import THROTTLE_LOG
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import MessageNotSent, Producer, SyncProducer, TransactionFailed
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

WAIT_S = 60.0
SHORT_MS = 250
"""`request.timeout.ms`: an answer may take twice as long."""
ALONE = {
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 3,
}  # fmt: skip


def cluster_of(generation: str) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation=generation, zookeeper=False) as cluster:
        cluster.create_topic("t", 1)
        yield cluster


@pytest.fixture(params=["2.8", "4.3"])
def muting(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    yield from cluster_of(request.param)


@pytest.fixture(params=["0.9", "1.1"])
def holding(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    yield from cluster_of(request.param)


def producer(address: str, **settings: Any) -> Producer:
    given = {"producer_type": "async", "queue_buffering_max_ms": 1, "request_timeout_ms": SHORT_MS,
             "retry_backoff_ms": 1, "message_send_max_retries": 0, **settings}  # fmt: skip
    return Producer(ProducerConfig(metadata_broker_list=address, **given))


def stored(cluster: EmbeddedCluster | KafkaCluster, topic: str = "t") -> list[bytes | None]:
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011, read_committed=True) as consumer:
        return [message.value for message in consumer.fetch(topic, 0, 0, max_bytes=50_000_000)]


def stored_08(cluster: EmbeddedCluster) -> list[bytes | None]:
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
        return [message.value for message in consumer.fetch("t", 0, 0)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.fixture(autouse=True)
def _new_log() -> None:
    """What other tests have logged counts as not logged: ports are used again."""
    THROTTLE_LOG._logged.clear()


def test_messages_wait_for_the_end_of_a_throttle_that_is_longer_than_a_request_may_take(
    muting: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    muting.faults.add(Fault.throttle(1.0, api="produce"), times=2)
    started_at = time.monotonic()
    with producer(muting.broker_list) as made:
        made.send("t", b"0").result(WAIT_S)
        futures = [made.send("t", b"%d" % number) for number in range(1, 6)]
        for future in futures:
            future.result(WAIT_S)
        made.send("t", b"6").result(WAIT_S)
        found = made.statistics()
    assert time.monotonic() - started_at > 1.9, "two throttles"
    assert muting.faults.early_requests == 0
    assert stored(muting) == [b"%d" % number for number in range(7)]
    assert (found.retried_batches, found.repeated_messages, found.failed_messages) == (0, 0, 0)
    assert found.failed_requests == {}
    assert (found.throttled, found.throttle_ms) == ({"produce": 2}, {"produce": 2000})
    [line] = warnings(caplog)
    assert "throttles this client for 1 s" in line


def test_a_throttled_producer_is_closed_in_its_time(muting: EmbeddedCluster) -> None:
    muting.faults.add(Fault.throttle(WAIT_S, api="produce"), times=1)
    made = producer(muting.broker_list)
    made.send("t", b"0").result(WAIT_S)
    future = made.send("t", b"1")
    started_at = time.monotonic()
    assert made.close(0.5) == 1
    assert time.monotonic() - started_at < WAIT_S / 2
    with pytest.raises(MessageNotSent) as failed:
        future.result(0)
    assert not failed.value.may_be_stored


def test_a_throttle_of_the_request_for_an_id_is_waited_out(muting: EmbeddedCluster) -> None:
    muting.faults.add(Fault.throttle(1.0, api="init_producer_id"), times=1)
    with producer(muting.broker_list, enable_idempotence=True) as made:
        made.send("t", b"0").result(WAIT_S)
        made.send("t", b"1").result(WAIT_S)
        found = made.statistics()
    assert muting.faults.early_requests == 0
    assert stored(muting) == [b"0", b"1"]
    assert (found.retried_batches, found.throttled) == (0, {"init_producer_id": 1})


@pytest.mark.parametrize("api", ["init_producer_id", "add_partitions_to_txn", "end_txn"])
def test_the_coordinator_is_asked_when_its_throttle_is_over(muting: EmbeddedCluster, api: str) -> None:
    muting.faults.add(Fault.throttle(1.0, api=api), times=2)
    with producer(muting.broker_list, transactional_id=f"t-{api}") as made:
        made.init_transactions()
        for number in range(3):
            with made.transaction():
                made.send("t", b"%d" % number, partition=0)
        found = made.statistics()
    assert muting.faults.early_requests == 0
    assert stored(muting) == [b"0", b"1", b"2"]
    assert found.throttled == {api: 1 if api == "init_producer_id" else 2}


def test_a_coordinator_that_throttles_beyond_the_time_of_a_call_is_not_asked_again(muting: EmbeddedCluster) -> None:
    with producer(muting.broker_list, transactional_id="beyond") as made:
        muting.faults.add(Fault.throttle(3.0, api="add_partitions_to_txn"), times=1)
        made.init_transactions()
        made.begin_transaction()
        made.send("t", b"0", partition=0)
        with pytest.raises(TransactionFailed, match="throttles this client") as failed:
            made.commit_transaction(0.5)
        assert not failed.value.outcome_is_unknown
        made.commit_transaction()
    assert muting.faults.early_requests == 0
    assert stored(muting) == [b"0"]


def test_an_answer_that_is_held_back_is_waited_for(holding: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """After a time-out the producer would send the messages again, and be charged for them again."""
    holding.faults.add(Fault.throttle(6.0, api="produce"), times=1)
    with producer(holding.broker_list, request_timeout_ms=2000) as made:
        futures = [made.send("t", b"%d" % number) for number in range(5)]
        for future in futures:
            future.result(WAIT_S)
        found = made.statistics()
    assert (found.retried_batches, found.repeated_messages, found.failed_requests) == (0, 0, {})
    assert stored_08(holding) == [b"%d" % number for number in range(5)]
    assert [line for line in warnings(caplog) if "throttles this client, or is slow" in line]


def test_a_broker_that_answers_nothing_is_not_taken_for_one_that_throttles(holding: EmbeddedCluster) -> None:
    with producer(holding.broker_list, request_timeout_ms=500) as made:
        made.send("t", b"0").result(WAIT_S)
        holding.pause(0)
        future = made.send("t", b"1")
        with pytest.raises(MessageNotSent):
            future.result(WAIT_S)
        holding.resume(0)


def test_a_producer_of_one_broker_waits_too(muting: EmbeddedCluster) -> None:
    muting.faults.add(Fault.throttle(1.0, api="produce"), times=1)
    with SyncProducer("127.0.0.1", muting.port(0), request_timeout_ms=1000) as made:
        made.send("t", [b"0"], 0)
        made.send("t", [b"1"], 0)
    assert muting.faults.early_requests == 0
    muting.faults.add(Fault.throttle(2.0, api="produce"), times=1)
    with SyncProducer("127.0.0.1", muting.port(0), request_timeout_ms=SHORT_MS) as made:
        made.send("t", [b"2"], 0)
        with pytest.raises(MessageNotSent, match="throttles this client") as failed:
            made.send("t", [b"3"], 0)
        assert not failed.value.may_be_stored
    assert muting.faults.early_requests == 0


VALUES = [b"%04d" % number + b"x" * 996 for number in range(600)]


@pytest.fixture(scope="module", params=["1.1.1", "3.9.2", "4.3.1"])
def real(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, settings=ALONE) as cluster:
        set_quota(cluster, "slow", producer_byte_rate=20_000)
        set_quota(cluster, "busy", request_percentage=0.01)
        yield cluster


def wait_until_in_force(cluster: KafkaCluster) -> None:
    def is_throttled() -> bool:
        seen: list[object] = []
        with SimpleConsumer(
            "127.0.0.1", cluster.port(0), client_id="slow", timeout_s=60, dialect=KAFKA011, on_throttle=seen.append
        ) as broker:
            broker.produce("probe", 0, [b"x" * 100_000])
            broker.produce("probe", 0, [b"x" * 100_000])
        return bool(seen)

    cluster.create_topic("probe", 1)
    wait_until(is_throttled, WAIT_S, "the quota to be in force")


@pytest.mark.real
@pytest.mark.slow
def test_a_producer_under_a_byte_quota_of_a_real_broker_sends_all_once(
    real: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """All messages are worth 30 s of the quota, each request 8 s, and an answer may take 4 s."""
    wait_until_in_force(real)
    with producer(real.broker_list, enable_idempotence=True, message_send_max_retries=1000) as made:
        made.send("probe", b"when brokers have just started, they have no ids yet").result(WAIT_S)
    for idempotent in (False, True):
        topic = f"bytes-{idempotent}"
        real.create_topic(topic, 1)
        started_at = time.monotonic()
        with producer(
            real.broker_list, client_id="slow", request_timeout_ms=2000, enable_idempotence=idempotent,
            batch_max_bytes=160_000, request_max_bytes=160_000,
        ) as made:  # fmt: skip
            summary = made.send_all(VALUES, topic)
            found = made.statistics()
        took_s = time.monotonic() - started_at
        slowest_s = max(each.largest for each in found.request_seconds.values())
        print(f"{real.version}: {took_s:.1f} s, {found.throttled['produce']} answers throttled for "
              f"{found.throttle_ms['produce']} ms, the slowest one after {slowest_s:.1f} s")  # fmt: skip
        assert summary.sent == len(VALUES)
        assert (found.retried_batches, found.repeated_messages, found.failed_requests) == (0, 0, {})
        assert found.throttled["produce"] > 0
        assert sorted(each for each in stored(real, topic) if each is not None) == sorted(VALUES)
    assert len([line for line in warnings(caplog) if "(produce)" in line]) <= 2


@pytest.mark.real
@pytest.mark.slow
def test_transactions_under_a_request_quota_of_a_real_broker_are_committed(real: KafkaCluster) -> None:
    topic = "busy"
    real.create_topic(topic, 1)
    with producer(real.broker_list, client_id="busy", request_timeout_ms=3000, transactional_id="busy") as made:
        made.init_transactions()
        for number in range(10):
            with made.transaction():
                made.send(topic, b"%d" % number, partition=0)
        found = made.statistics()
    print(f"{real.version}: throttled {found.throttled} {found.throttle_ms}")
    assert (found.retried_batches, found.failed_requests) == (0, {})
    assert stored(real, topic) == [b"%d" % number for number in range(10)]
