"""Fixtures of what talks to a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from reading import Reading

from rebalance.subscription import Subscription
from zkconsumer.testing.zookeeper import ZooKeeperServer


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client beside the one that is tested."""
    made = KazooClient(zookeeper.connect)
    made.start()
    yield made
    made.stop()
    made.close()


@pytest.fixture
def reading(zookeeper: ZooKeeperServer, fresh_group: str, topic: str) -> Iterator[Reading]:
    """A reader of a group that wants the `topic` of the test."""
    made = Reading(zookeeper.connect, fresh_group, Subscription.static({topic: 1}))
    yield made
    made.asker.close()
