"""Embedded brokers keep fetch sessions as Kafka's do: the same requests, compared."""

from __future__ import annotations

import uuid

import pytest
from broker_wire import Wire
from session_dance import SessionClient, session_dance

from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.cluster import VERSIONS
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("generation", ["1.1", "2.8", "3.9", "4.3"])
def test_the_answers_are_the_same(generation: str) -> None:
    topic, answers = f"sessions-{uuid.uuid4().hex[:8]}", []
    with (
        EmbeddedCluster(generation=generation, zookeeper=False) as embedded,
        KafkaCluster(VERSIONS[generation]) as real,
    ):
        for cluster in (real, embedded):
            cluster.create_topic(topic, 3)
            with Wire(cluster.port(min(cluster.brokers))) as wire:
                answers.append(session_dance(SessionClient(wire, topic)))
    of_kafka, ours = answers
    assert {asked: (ours[asked], answer) for asked, answer in of_kafka.items() if ours[asked] != answer} == {}
