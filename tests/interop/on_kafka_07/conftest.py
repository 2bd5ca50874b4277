"""Two brokers of Kafka 0.7, embedded and, with the jar, real."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka_07 import BOTH_07, Both, cluster_07


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest) -> Iterator[Both]:
    """They are shared by the tests of a file; a file that needs other ones overrides this."""
    with cluster_07(request.param) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Both, fresh_topic: Callable[[], str]) -> str:
    """A topic of two partitions on each of the brokers."""
    name = fresh_topic()
    cluster.create_topic(name)
    return name
