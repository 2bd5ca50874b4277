"""Logs that an unclean election cuts off below a reader, and that have grown beyond it when it looks again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from tests.interop.cut_log import KEPT, LOST, NEW, SETTINGS, CutLog, numbered
from tests.interop.polling import poll_until
from zkconsumer import (
    ConsumerConfig,
    ConsumerConnector,
    KafkaConsumer,
    LogTruncated,
    OffsetAndMetadata,
    PartitionStopped,
    read_topic,
)
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=[pytest.param("2.8.2", marks=pytest.mark.slow), "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, brokers=2, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def log(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> Iterator[CutLog]:
    made = CutLog(cluster, fresh_topic())
    yield made
    made.restore()


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


@pytest.mark.parametrize("group", [True, False], ids=["of a group", "assigned"])
def test_polls_go_on_where_the_log_was_cut_off(log: CutLog, fresh_group: str, group: bool) -> None:
    name = TopicPartition(log.topic, 0)
    with polled(log, fresh_group if group else None, "earliest") as consumer:
        assert [record.value for record in poll_until(consumer, KEPT + LOST)] == (
            numbered("kept", KEPT) + numbered("lost", LOST)
        )
        log.cut()
        assert [(record.value, record.offset) for record in poll_until(consumer, NEW)] == [
            (value, KEPT + number) for number, value in enumerate(numbered("new", NEW))
        ]
        assert consumer.position(name) == KEPT + NEW
        if group:
            consumer.commit_sync()
            assert consumer.committed([name]) == {name: OffsetAndMetadata(KEPT + NEW)}


def test_a_poll_names_where_the_log_was_cut_off_if_there_is_no_policy(log: CutLog) -> None:
    with polled(log, None, "none") as consumer:
        consumer.seek_to_beginning()
        assert len(poll_until(consumer, KEPT + LOST)) == KEPT + LOST
        log.cut()
        with pytest.raises(LogTruncated, match=rf"{log.topic}/0: the log was truncated.*up to {KEPT}") as caught:
            poll_until(consumer, 1)
        assert (caught.value.offset, caught.value.divergent_offset) == (KEPT + LOST, KEPT)
        with pytest.raises(LogTruncated):
            consumer.poll(100)
        consumer.seek(TopicPartition(log.topic, 0), KEPT)
        assert [record.value for record in poll_until(consumer, NEW)] == numbered("new", NEW)


def polled(log: CutLog, group: str | None, policy: str) -> KafkaConsumer:
    addresses = ",".join(f"127.0.0.1:{log.cluster.port(number)}" for number in (0, 1))
    settings: dict[str, Any] = {"bootstrap_servers": addresses, "auto_offset_reset": policy}
    if group is not None:  # in ZooKeeper: the broker that is killed may coordinate groups
        del settings["bootstrap_servers"]
        settings["zookeeper_connect"] = log.cluster.zookeeper_connect
        return KafkaConsumer(log.topic, group_id=group, enable_auto_commit=False, **settings)
    consumer = KafkaConsumer(**settings)
    consumer.assign([TopicPartition(log.topic, 0)])
    return consumer
