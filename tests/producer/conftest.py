"""What the tests of producers share: two embedded brokers whose faults end with each test, and a topic on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from zkconsumer.testing import EmbeddedCluster


@pytest.fixture(scope="session")
def two_brokers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as made:
        yield made


@pytest.fixture
def embedded(two_brokers: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """Two embedded brokers that all tests of producers share: use topics of your own."""
    two_brokers.faults.reset()
    yield two_brokers
    two_brokers.faults.reset()
    two_brokers.start_all()


@pytest.fixture
def topic(embedded: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """A new topic of two partitions on the shared embedded brokers."""
    name = fresh_topic()
    embedded.create_topic(name, 2)
    return name
