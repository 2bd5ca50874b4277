"""A filled topic, for tests that do not say what is in theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import polling
import pytest
from consuming import COUNT

from zkconsumer.testing import EmbeddedCluster, load


@pytest.fixture(autouse=True)
def _earlier_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that an earlier test has left is no fault of this one."""
    monkeypatch.setattr(polling, "EARLIER", set(threading.enumerate()))


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """Two partitions with fifty messages each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2)
    load(embedded_cluster, name, COUNT)
    return name
