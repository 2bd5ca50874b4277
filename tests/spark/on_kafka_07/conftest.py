"""Brokers of Kafka 0.7 for what Spark reads of them: embedded ones, and real ones where their jar is given."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from kafka_07 import BOTH_07, Both, cluster_07

from zkconsumer.testing.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer) -> Iterator[Both]:
    with cluster_07(request.param, zookeeper=zookeeper, chroot=f"/{uuid.uuid4().hex}") as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Both, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    cluster.create_topic(name)
    return name
