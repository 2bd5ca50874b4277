"""Topics that are deleted, made again and grown while messages are sent, and an unclean election, on real brokers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.producer.stored_pairs import stored
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.outcome import SendFuture
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.producer.producer import Producer
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

WAIT_S = 60.0


@pytest.fixture(scope="module", params=["0.8.2.2", "1.1.1", "2.8.2", "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    settings = {
        "auto.create.topics.enable": False, "delete.topic.enable": True, "unclean.leader.election.enable": True,
        "replica.lag.time.max.ms": 2000,
    }  # fmt: skip
    with KafkaCluster(request.param, brokers=2, settings=settings) as made:
        yield made


def producer(cluster: KafkaCluster, **settings: Any) -> Producer:
    brokers = ",".join(f"127.0.0.1:{cluster.port(broker)}" for broker in cluster.brokers)
    patient = {
        "producer_type": "async", "message_send_max_retries": 600, "retry_backoff_ms": 50, "request_timeout_ms": 2000,
        "queue_buffering_max_ms": 5, "request_required_acks": -1, "topic_metadata_refresh_interval_ms": 200,
    }  # fmt: skip
    return Producer(ProducerConfig(metadata_broker_list=brokers, **{**patient, **settings}))


class Load:
    """Sends numbered messages in a thread until it is ended."""

    def __init__(self, made: Producer, topic: str) -> None:
        self.futures: list[SendFuture] = []
        self._made, self._topic = made, topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        self.wait_sent(200)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._end.wait(0.0005):
            number = b"%d" % len(self.futures)
            self.futures.append(self._made.send(self._topic, number, number))

    def wait_sent(self, more: int) -> None:
        """Wait until so many further messages have their outcome."""
        last = len(self.futures) + more
        wait_until(lambda: len(self.futures) > last and self.futures[last].done(), WAIT_S, f"{more} more messages")

    def acknowledged(self) -> list[int]:
        errors = [each.exception(WAIT_S) for each in self.futures]
        assert all(isinstance(each, MessageNotSent) for each in errors if each)
        return [number for number, each in enumerate(errors) if each is None]


def values(cluster: KafkaCluster, topic: str, partitions: int) -> list[list[int]]:
    """Return the numbers that each partition has."""
    return [[int(value or b"-1") for _, value in stored(cluster, topic, number)] for number in range(partitions)]


def test_a_topic_that_grows_gets_all_messages_and_uses_its_new_partitions(cluster: KafkaCluster) -> None:
    cluster.create_topic("grows", 1)
    with producer(cluster) as made:
        with Load(made, "grows") as load:
            cluster.add_partitions("grows", 3)
            wait_until(lambda: {each.result(WAIT_S).partition for each in load.futures[-50:]} == {0, 1, 2}, WAIT_S,
                       "messages in all partitions")  # fmt: skip
        assert load.acknowledged() == list(range(len(load.futures)))
    found = values(cluster, "grows", 3)
    assert sorted(number for each in found for number in each) == list(range(len(load.futures)))
    assert all(each == sorted(each) for each in found)


def test_a_topic_that_is_deleted_and_made_again_keeps_what_was_acknowledged_since(cluster: KafkaCluster) -> None:
    cluster.create_topic("again", 2)
    with producer(cluster) as made:
        with Load(made, "again") as load:
            cluster.delete_topic("again")
            wait_until(lambda: "again" not in cluster.client.get_children("/brokers/topics"), WAIT_S, "its deletion")
            first = len(load.futures)
            cluster.create_topic("again", 2)
            load.wait_sent(500)
        acknowledged = load.acknowledged()
    assert set(range(first, len(load.futures))) <= set(acknowledged)
    assert {number for each in values(cluster, "again", 2) for number in each} >= set(range(first, len(load.futures)))


def test_messages_for_a_topic_that_stays_deleted_fail_in_time(cluster: KafkaCluster) -> None:
    cluster.create_topic("gone", 1)
    with producer(cluster, message_send_max_retries=10) as made:
        made.send("gone", b"0").result(WAIT_S)
        cluster.delete_topic("gone")
        wait_until(lambda: "gone" not in cluster.client.get_children("/brokers/topics"), WAIT_S, "its deletion")

        def fails() -> bool:
            return isinstance(made.send("gone", b"1").exception(WAIT_S), MessageNotSent)

        wait_until(fails, WAIT_S, "a message to fail")


@pytest.mark.parametrize("acks", [1, -1])
def test_an_unclean_election_loses_what_only_the_lost_leader_had(cluster: KafkaCluster, acks: int) -> None:
    """With one replica in sync, acks -1 means as little as acks 1: what it alone has is cut off when it returns.

    A replica of a broker before 0.11 that starts again is cut to the high watermark that it wrote last, which may be
    seconds old: it loses even what both replicas had. With acks 1 it may not have had the first message at all.
    """
    topic = f"unclean-{acks + 2}"
    cluster.create_topic(topic, assignment={0: [0, 1]})
    wait_until(lambda: cluster.leader(topic, 0) == 0, WAIT_S, "its leader")
    with producer(cluster, request_required_acks=acks) as made:
        made.send(topic, b"0", b"k").result(WAIT_S)
        wait_until(lambda: _in_sync(cluster, topic) == [0, 1], WAIT_S, "both replicas to be in sync")
        cluster.kill(1)
        wait_until(lambda: _in_sync(cluster, topic) == [0], WAIT_S, "the leader to be alone")
        made.send(topic, b"1", b"k").result(WAIT_S)
        cluster.kill(0)
        cluster.start(1)
        wait_until(lambda: cluster.leader(topic, 0) == 1, WAIT_S, "the unclean election")
        made.send(topic, b"2", b"k").result(WAIT_S)
        cluster.start(0)
        wait_until(lambda: sorted(_in_sync(cluster, topic)) == [0, 1], WAIT_S, "both replicas to be in sync again")
    is_kept = acks == -1 and version_tuple(cluster.version) >= (0, 11)
    assert values(cluster, topic, 1) in ([[[0, 2]]] if is_kept else [[[0, 2]], [[2]]])


def _in_sync(cluster: KafkaCluster, topic: str) -> list[int]:
    state = json.loads(cluster.client.get(f"/brokers/topics/{topic}/partitions/0/state")[0])
    return sorted(state["isr"])
