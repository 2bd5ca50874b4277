"""Real brokers of Kafka 0.7 for what Spark reads of them; the tests are skipped without the jar."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from zkconsumer.testing.kafka import KafkaCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster("0.7.2", brokers=2) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    cluster.create_topic(name)
    return name
