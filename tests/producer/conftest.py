"""What the tests of producers share: a topic on two embedded brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zkconsumer.testing import EmbeddedCluster


@pytest.fixture
def embedded(embedded_clusters: Callable[[int], EmbeddedCluster]) -> EmbeddedCluster:
    """Two embedded brokers that all tests share: use topics of your own."""
    return embedded_clusters(2)


@pytest.fixture
def topic(embedded: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """A new topic of two partitions on the shared embedded brokers."""
    name = fresh_topic()
    embedded.create_topic(name, 2)
    return name
