"""Embedded brokers convert messages as Kafka's do: the same requests in every version, compared."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from broker_wire import Wire
from format_dance import FETCH, PRODUCE, format_dance

from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.cluster import VERSIONS
from zkconsumer.testing.kafka import KafkaCluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WITH_ZSTD = ("2.8", "3.9", "4.3")
pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module", params=["0.9", "0.10", "0.11", "1.1", "2.8", "3.9", "4.3"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster, KafkaCluster]]:
    with (
        EmbeddedCluster(generation=request.param, zookeeper=False) as embedded,
        KafkaCluster(VERSIONS[request.param]) as real,
    ):
        yield request.param, embedded, real


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_stored_and_fetched_is_the_same(pair: tuple[str, EmbeddedCluster, KafkaCluster], codec: str) -> None:
    generation, embedded, real = pair
    if codec == "zstd" and generation not in WITH_ZSTD:
        pytest.skip("there is zstd from Kafka 2.1 on")
    served = embedded.brokers[0].served  # type: ignore[attr-defined]
    topic, stamp, answers = f"formats-{uuid.uuid4().hex[:8]}", time.time_ns() // 1_000_000, []
    for cluster in (real, embedded):
        cluster.create_topic(topic)
        with Wire(cluster.port(min(cluster.brokers))) as wire:
            versions = {PRODUCE: served[PRODUCE], FETCH: served[FETCH]}
            answers.append(format_dance(wire, topic, versions, codec, stamp))
    of_kafka, ours = answers
    assert {asked: (ours[asked], answer) for asked, answer in of_kafka.items() if ours[asked] != answer} == {}
