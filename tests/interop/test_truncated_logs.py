"""Logs that an unclean election cuts off below a reader, and that have grown beyond it when it looks again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from tests.interop.cut_log import KEPT, LOST, NEW, SETTINGS, CutLog, numbered
from zkconsumer import ConsumerConfig, ConsumerConnector, PartitionStopped, read_topic
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
