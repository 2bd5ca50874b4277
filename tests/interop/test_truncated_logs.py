"""Logs that an unclean election cuts off below a reader, and that have grown beyond it when it looks again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import BrokerError
from zkconsumer import ConsumerConfig, ConsumerConnector, PartitionStopped, read_topic
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

WAIT_S = 60.0
KEPT, LOST, NEW = 10, 10, 40


@pytest.fixture(scope="module", params=[pytest.param("2.8.2", marks=pytest.mark.slow), "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    settings = {
        "auto.create.topics.enable": False, "unclean.leader.election.enable": True, "replica.lag.time.max.ms": 2000,
        "offsets.topic.num.partitions": 1,
    }  # fmt: skip
    with KafkaCluster(request.param, brokers=2, settings=settings) as made:
        yield made


class CutLog:
    """A partition with a replica on each broker; the one that leads first has messages which the other one lacks."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        cluster.create_topic(topic, assignment={0: [0, 1]})
        wait_until(lambda: self._in_sync() == [0, 1], WAIT_S, "both replicas to be in sync")
        self.produce(0, b"kept", KEPT, acks=-1)
        cluster.kill(1)
        wait_until(lambda: self._in_sync() == [0], WAIT_S, "the leader to be alone")
        self.produce(0, b"lost", LOST)

    def produce(self, broker_id: int, kind: bytes, count: int, acks: int = 1) -> None:
        """Write numbered messages to the broker, once it leads the partition."""
        wait_until(lambda: self.cluster.leader(self.topic, 0) == broker_id, WAIT_S, f"broker {broker_id} to lead")
        with SimpleConsumer("127.0.0.1", self.cluster.port(broker_id), dialect=KAFKA011) as broker:
            def sent() -> bool:
                try:
                    broker.produce(self.topic, 0, [b"%s %d" % (kind, number) for number in range(count)], acks=acks)
                except BrokerError:  # it has not heard yet that it leads
                    return False
                return True

            wait_until(sent, WAIT_S, "the messages to be taken")

    def cut(self) -> None:
        """Have the other replica lead, and write until its log has grown beyond what the first one had."""
        self.cluster.kill(0)
        self.cluster.start(1)
        self.produce(1, b"new", NEW)

    def _in_sync(self) -> list[int]:
        state = json.loads(self.cluster.client.get(f"/brokers/topics/{self.topic}/partitions/0/state")[0])
        return sorted(state["isr"])


@pytest.fixture
def log(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> Iterator[CutLog]:
    yield CutLog(cluster, fresh_topic())
    for broker_id in (0, 1):
        if not cluster.brokers[broker_id].running:
            cluster.start(broker_id)


def numbered(kind: str, count: int) -> list[bytes]:
    return [f"{kind} {number}".encode() for number in range(count)]


@pytest.mark.catalogue("F10")
def test_a_group_goes_on_where_the_log_was_cut_off_and_names_what_was_lost(
    log: CutLog, fresh_group: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = ConsumerConfig(
        log.cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", consumer_timeout_ms=60_000,
        auto_commit_interval_ms=100,
    )  # fmt: skip
    with ConsumerConnector(config) as connector, caplog.at_level(logging.WARNING):
        [stream] = connector.create_message_streams({log.topic: 1})[log.topic]
        found = [message.value for message in islice(stream, KEPT + LOST)]
        assert found == numbered("kept", KEPT) + numbered("lost", LOST)
        log.cut()
        assert [(message.value, message.offset) for message in islice(stream, NEW)] == [
            (value, KEPT + number) for number, value in enumerate(numbered("new", NEW))
        ]
        lost = f"messages {KEPT} to {KEPT + LOST - 1}, which were read, are lost"
        assert any(lost in warning for warning in connector.status().warnings)
    assert f"{log.topic}/0: its log was truncated at offset {KEPT}" in caplog.text
    stored = log.cluster.client.get(f"/consumers/{fresh_group}/offsets/{log.topic}/0")[0]
    assert int(stored) == KEPT + NEW


def test_a_reader_of_the_topic_stops_there(log: CutLog) -> None:
    with read_topic(log.cluster.zookeeper_connect, log.topic, start="earliest", until=None) as reader:
        assert len(list(islice(reader, KEPT + LOST))) == KEPT + LOST
        log.cut()
        with pytest.raises(PartitionStopped, match=rf"truncated at offset {KEPT}, below {KEPT + LOST}.*are lost"):
            next(reader)
