"""A filled topic, for tests that do not say what is in theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from consuming import COUNT

from zkconsumer.testing import EmbeddedCluster, load


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """Two partitions with fifty messages each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2)
    load(embedded_cluster, name, COUNT)
    return name
