"""Two brokers of Kafka 0.7, embedded and, with the jar, real, and their administration."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kafka_07 import BOTH_07, Both, cluster_07

from zkconsumer.admin import Admin
from zkconsumer.testing.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer) -> Iterator[Both]:
    with cluster_07(request.param, zookeeper=zookeeper, chroot=f"/{uuid.uuid4().hex}") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: Both) -> Iterator[Admin]:
    with Admin(cluster.zookeeper_connect) as admin:
        yield admin
