"""Reads the nodes of a simulated group as of the last write: registrations, owners, and the rightful owners. Pure."""

from __future__ import annotations

from rebalance.errors import UnequalSubscriptions
from rebalance.zookeeper import znodes
from rebalance.zookeeper.snapshot import Strategy
from tests.simulator.brokers import Brokers
from tests.simulator.plan import GROUP
from tests.simulator.zookeeper import SimulatedZooKeeper
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.events import partition_of
from zkconsumer.testing.history.groups import rightful_owners

__all__ = ["owner_nodes", "registrations", "should_own"]


def registrations(zookeeper: SimulatedZooKeeper) -> dict[str, bytes]:
    """Consumer id -> data, of all that are registered."""
    ids = znodes.ids_path(GROUP)
    found = {}
    for name in zookeeper.children(ids):
        node = zookeeper.read(f"{ids}/{name}")
        if node is not None:
            found[name] = node[0]
    return found


def owner_nodes(zookeeper: SimulatedZooKeeper, brokers: Brokers) -> dict[Place, str]:
    """(topic, partition) -> what its owner node holds, of topics that exist."""
    found: dict[Place, str] = {}
    for topic in brokers.topics:
        path = znodes.owners_path(GROUP, topic)
        for name in zookeeper.children(path):
            node = zookeeper.read(f"{path}/{name}")
            if node is not None:
                found[topic, partition_of(name)] = node[0].decode("utf-8", "replace")
    return found


def should_own(
    zookeeper: SimulatedZooKeeper, brokers: Brokers, strategy: str, order: str = "0.8"
) -> dict[Place, str] | None:
    """(topic, partition) -> thread id, as the assignment rule says; None where it says nothing."""
    try:
        return rightful_owners(
            registrations(zookeeper), brokers.partitions, Strategy(strategy, order), brokers.generation
        )
    except UnequalSubscriptions:
        return None
