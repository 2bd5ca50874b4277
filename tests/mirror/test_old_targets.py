"""Mirrors to real brokers before Kafka 0.11, which have no sequence numbers: each record once and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mirroring import numbered, send, settings_of, values

from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.mirror.reports import audit, mirror_status
from zkconsumer.mirror.sides import MirrorSettings
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.real

PAIRS = [("3.9.2", "0.8.2.2"), ("4.3.1", "0.10.2.2"), ("0.8.2.2", "0.9.0.1")]


@pytest.fixture
def topic(fresh_topic: Callable[[], str]) -> str:
    return fresh_topic()


@pytest.fixture(params=PAIRS, ids="->".join)
def pair(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> Any:
    return tuple(kafka_clusters(version, 1) for version in request.param)


def old(name: str, source: KafkaCluster, target: KafkaCluster, topic: str, **more: Any) -> MirrorSettings:
    return settings_of(name, source, target, topic, target_zookeeper=target.zookeeper_connect, **more)


def test_a_topic_is_made_and_copied_and_the_same_command_goes_on(pair: Any, topic: str) -> None:
    source, target = pair
    source.create_topic(topic, partitions=2, config={"retention.ms": 700_000_000, "max.message.bytes": 2_000_000})
    for partition in (0, 1):
        send(source, topic, numbered(0, 500, 100), partition)
    settings = old(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    for partition in (0, 1):
        send(source, topic, numbered(500, 700, 100), partition)
    Mirror(settings).run()
    for partition in (0, 1):
        assert values(target, topic, partition) == numbered(0, 700, 100)
    [first, _] = mirror_status(settings)
    assert (first.position, first.source_end, first.lag, first.runs, first.holes) == (700, 700, 0, 1, ())
    for found in audit(settings):
        assert (found.records, found.different, found.only_target, found.not_copied) == (700, 0, 0, 0)
