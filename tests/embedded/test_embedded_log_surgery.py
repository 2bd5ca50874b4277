"""A consumer of embedded brokers' logs that are cut, damaged, or have holes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaStream, MessageError
from zkconsumer.testing import EmbeddedCluster, load


def values(stream: KafkaStream, count: int) -> list[bytes]:
    return [next(stream).value for _ in range(count)]


def config(cluster: EmbeddedCluster, group: str, reset: str = "smallest") -> ConsumerConfig:
    return ConsumerConfig(cluster.zookeeper_connect, group, auto_offset_reset=reset, consumer_timeout_ms=20_000)


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """Ten messages in two segments, five in each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name)
    load(embedded_cluster, name, 5)
    embedded_cluster.log(name, 0).roll()
    load(embedded_cluster, name, 5, first=5)
    return name


@pytest.mark.catalogue("G2")
def test_a_spoilt_message_is_named_once_and_the_others_come(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    embedded_cluster.log(topic, 0).corrupt(3)
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert values(stream, 3) == [b"0:0", b"0:1", b"0:2"]
        with pytest.raises(MessageError, match=f"{topic}.*3"):
            next(stream)
        assert values(stream, 6) == [b"0:%d" % n for n in range(4, 10)]


@pytest.mark.catalogue("G7")
def test_a_gap_is_no_loss(embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str) -> None:
    log = embedded_cluster.log(topic, 0)
    log.remove({0, 3, 4, 5, 7})
    assert log.end_offset == 10
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert [next(stream).offset for _ in range(5)] == [1, 2, 6, 8, 9]


def test_what_retention_took_is_passed_over(embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str) -> None:
    assert embedded_cluster.log(topic, 0).delete_head(5) == 5
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert values(stream, 5) == [b"0:%d" % n for n in range(5, 10)]


@pytest.mark.catalogue("F10")
def test_a_log_that_lost_its_end_is_read_from_where_the_policy_says(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        values(stream, 10)
    embedded_cluster.log(topic, 0).truncate(4)
    load(embedded_cluster, topic, 2, first=20)
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert values(stream, 6) == [b"0:0", b"0:1", b"0:2", b"0:3", b"0:20", b"0:21"]


def test_what_cannot_be_done_to_a_log_is_said(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    log = embedded_cluster.log(topic, 0)
    with pytest.raises(ValueError, match="does not hold offset 10"):
        log.corrupt(10)
    with pytest.raises(ValueError, match="offset 9 is the last one"):
        log.remove({9})
