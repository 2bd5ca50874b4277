"""Brokers that die, freeze or lose their leadership while a producer sends: none lost, each partition in order."""

from __future__ import annotations

import json
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.errors import MessageNotSent, MessagesNotSent
from zkconsumer.producer.producer import Producer
from zkconsumer.testing.kafka import KafkaCluster, kafka_versions
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

WAIT_S = 90.0
MESSAGES, PARTITIONS = 100_000, 4
VERSIONS = [version for version in kafka_versions(with_zookeeper=True) if version_tuple(version) >= (0, 8)]
SOME = [each for each in ("0.8.0", "0.8.2.2", "3.9.2") if each in VERSIONS]


def cluster_of(version: str) -> KafkaCluster:
    settings: dict[str, object] = {"replica.lag.time.max.ms": 4000}
    if version_tuple(version) >= (0, 8, 2):
        settings |= {"min.insync.replicas": 2, "unclean.leader.election.enable": False}
    return KafkaCluster(version, brokers=2, settings=settings)


def config(cluster: KafkaCluster, **settings: Any) -> ProducerConfig:
    brokers = ",".join(f"127.0.0.1:{cluster.port(broker)}" for broker in cluster.brokers)
    patient = {
        "request_required_acks": -1, "producer_type": "async", "message_send_max_retries": 600,
        "retry_backoff_ms": 100, "request_timeout_ms": 2000, "queue_buffering_max_ms": 20,
    }  # fmt: skip
    return ProducerConfig(metadata_broker_list=brokers, **{**patient, **settings})


def in_sync(cluster: KafkaCluster, topic: str) -> list[int]:
    """How many in-sync replicas each partition has."""
    states = (
        cluster.client.get(f"/brokers/topics/{topic}/partitions/{number}/state")[0] for number in range(PARTITIONS)
    )
    return [len(json.loads(state)["isr"]) for state in states]


def wait_in_sync(cluster: KafkaCluster, topic: str) -> None:
    wait_until(lambda: in_sync(cluster, topic) == [2] * PARTITIONS, WAIT_S, "all replicas to be in sync",
               state=lambda: in_sync(cluster, topic))  # fmt: skip


def numbers(cluster: KafkaCluster, topic: str, partition: int) -> list[int]:
    leader = cluster.leader(topic, partition)
    assert leader is not None
    found: list[int] = []
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as consumer:
        while messages := consumer.fetch(topic, partition, len(found), 4_000_000):
            found += [int(each.value or b"-1") for each in messages]
    return found


def kill_and_restart(cluster: KafkaCluster, topic: str) -> None:
    cluster.kill(1)
    time.sleep(2)
    cluster.start(1)


def freeze(cluster: KafkaCluster, topic: str) -> None:
    cluster.pause(1)
    time.sleep(9)  # its session ends, and the other broker leads
    cluster.resume(1)


def freeze_shortly(cluster: KafkaCluster, topic: str) -> None:
    cluster.pause(0)
    time.sleep(3)
    cluster.resume(0)


def elect_preferred(cluster: KafkaCluster, topic: str) -> None:
    """Swap the preferred replicas of the partitions, which moves their leaders without the loss of a broker."""
    path = f"/brokers/topics/{topic}"
    swapped = {str(number): [1, 0] if number % 2 == 0 else [0, 1] for number in range(PARTITIONS)}
    moves = [{"topic": topic, "partition": int(number), "replicas": replicas} for number, replicas in swapped.items()]
    cluster.client.create(
        "/admin/reassign_partitions", json.dumps({"version": 1, "partitions": moves}).encode(), makepath=True
    )
    wait_until(lambda: cluster.client.exists("/admin/reassign_partitions") is None, WAIT_S, "the reassignment")
    names = [{"topic": topic, "partition": number} for number in range(PARTITIONS)]
    cluster.client.create(
        "/admin/preferred_replica_election", json.dumps({"version": 1, "partitions": names}).encode(), makepath=True
    )
    wait_until(lambda: cluster.client.exists("/admin/preferred_replica_election") is None, WAIT_S, "the election")
    assert cluster.client.exists(path)


EVENTS: dict[str, Callable[[KafkaCluster, str], None]] = {
    "kill": kill_and_restart, "freeze": freeze, "freeze-shortly": freeze_shortly, "move": elect_preferred,
}  # fmt: skip


@pytest.fixture(scope="module", params=SOME if os.environ.get("ZKCONSUMER_SOME_VERSIONS") else VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with cluster_of(request.param) as made:
        yield made


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_nothing_is_lost_and_each_partition_keeps_its_order(cluster: KafkaCluster, event: str, codec: str) -> None:
    if codec != "none" and event != "kill":
        pytest.skip("once is enough")
    topic = f"{event}-{codec}"
    spread = {number: [number % 2, 1 - number % 2] for number in range(PARTITIONS)}
    cluster.create_topic(topic, assignment=spread)
    wait_in_sync(cluster, topic)
    made = Producer(config(cluster, compression_codec=codec), partitioner=lambda key, count: key[0] % count)
    happened = threading.Event()

    def messages() -> Iterator[tuple[bytes, bytes]]:
        """Messages until the event is over, and at least as many as there are to be."""
        number = 0
        while number < MESSAGES or not happened.is_set():
            if number >= MESSAGES:
                time.sleep(0.001)
            yield b"%c" % (number % PARTITIONS), b"%d" % number
            number += 1
        sent.append(number)

    sent: list[int] = []
    failures: list[BaseException] = []

    def fail_brokers() -> None:
        try:
            time.sleep(0.7)
            EVENTS[event](cluster, topic)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            happened.set()

    thread = threading.Thread(target=fail_brokers)
    with made:
        thread.start()
        summary = made.send_all(messages(), topic)
        thread.join()
        repeated = made.repeated
    assert not failures, failures
    assert (summary.sent, summary.failed) == (sent[0], 0)
    wait_in_sync(cluster, topic)
    again = 0
    for partition in range(PARTITIONS):
        found = numbers(cluster, topic, partition)
        first: dict[int, None] = dict.fromkeys(found)
        assert list(first) == list(range(partition, sent[0], PARTITIONS))
        again += len(found) - len(first)
    assert again <= repeated


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_not_acknowledged_is_named(cluster: KafkaCluster, acks: int) -> None:
    """With few retries messages fail while a broker is away; all that were acknowledged are there."""
    topic = f"named-{acks + 2}"
    spread = {number: [number % 2, 1 - number % 2] for number in range(PARTITIONS)}
    cluster.create_topic(topic, assignment=spread)
    wait_in_sync(cluster, topic)
    settings = {"message_send_max_retries": 1, "request_required_acks": acks, "queue_buffering_max_ms": 1}
    outcomes = []
    with Producer(config(cluster, **settings), partitioner=lambda key, count: key[0] % count) as made:
        for number in range(6000):
            if number == 1000:
                cluster.kill(1)
            outcomes.append(made.send(topic, b"%d" % number, b"%c" % (number % PARTITIONS)))
            if number > 1000:
                time.sleep(0.001)
        assert made.flush(WAIT_S)
    cluster.start(1)
    wait_in_sync(cluster, topic)
    errors = [each.exception(0) for each in outcomes]
    stored: set[int] = set()
    for partition in range(PARTITIONS):
        found = numbers(cluster, topic, partition)
        assert [each for number, each in enumerate(found) if each not in found[:number][-2000:]] == sorted(set(found))
        stored |= set(found)
    assert any(errors)
    assert all(isinstance(each, MessageNotSent) for each in errors if each is not None)
    unexplained = [
        n
        for n, each in enumerate(errors)
        if isinstance(each, MessageNotSent) and not each.may_be_stored and n in stored
    ]
    assert not unexplained
    lost = [number for number, each in enumerate(errors) if each is None and number not in stored]
    if acks == -1:
        assert not lost


def test_memory_is_bounded_while_a_broker_is_frozen(cluster: KafkaCluster) -> None:
    topic = "bounded"
    cluster.create_topic(topic, assignment={0: [0, 1]})
    limits = {
        "queue_buffering_max_bytes": 4_000_000,
        "queue_buffering_max_messages": 1000,
        "message_send_max_retries": 0,
    }
    made = Producer(config(cluster, queue_enqueue_timeout_ms=200, request_required_acks=1, **limits))
    cluster.pause(0)
    tracemalloc.start()  # what the process has resident depends on the allocator, and on the tests before
    try:
        with pytest.raises(MessagesNotSent):
            made.send_all((b"%d" % number + b"x" * 9000 for number in range(3000)), topic)  # 27 MB
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()
        cluster.resume(0)
        made.close(0)
