"""Triggers a rebalance of a group, by a registration that is created and deleted in one transaction.

Java members rebalance when the children of `ids` change, and at hardly anything else; a member that has used up its
`rebalance.max.retries` waits for such a change. The registration subscribes to no topic, and as it is created and
deleted in one transaction no member ever reads it; ZooKeeper reports the change all the same. (ZooKeeper 3.3 has no
transactions: there the registration exists for a moment, and harms nobody.)

Source: ZookeeperConsumerConnector.scala, ZKRebalancerListener (0.8.0 to 1.1.1); org.apache.zookeeper.server.DataTree.
"""

from __future__ import annotations

import time
import uuid

from rebalance.errors import refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.generation import Generation
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Delete, Fault, Multi, ZooKeeperPort
from zkconsumer.admin.errors import RebalanceNotTriggered
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S

__all__ = ["passing_registration", "trigger_rebalance"]


def passing_registration(group: str, consumer_id: str, generation: Generation) -> tuple[Create, Delete]:
    """Return the two operations; in one transaction they also prove that no such consumer is registered.

    Args:
        group: The group.
        consumer_id: The consumer.
        generation: That of the cluster: without transactions a Java member may read the registration.
    """
    path = znodes.registration_path(group, consumer_id)
    nothing = znodes.Registration(znodes.STATIC, (), time.time_ns() // 1_000_000)
    return Create(path, generation.format_registration(nothing), ephemeral=True), Delete(path, 0)


def trigger_rebalance(port: ZooKeeperPort, group: str, generation: Generation) -> None:
    """Have all members of the group rebalance once; members that own what is assigned to them keep it.

    Args:
        generation: That of the cluster.

    Raises:
        RebalanceNotTriggered: ZooKeeper did not take the transaction.
    """
    operations = passing_registration(group, f"{group}_nudge-{uuid.uuid4().hex[:8]}", generation)
    reply = call(port, Multi(operations), READ_TIMEOUT_S)
    refused = [item for item in reply.value or () if isinstance(item, Fault)]
    if reply.fault is not None or refused:
        fault = reply.fault or refused[0]
        said = refusal_of("create", operations[0].path, fault, reply.reason)
        raise RebalanceNotTriggered(
            f"no rebalance of group {group!r} was triggered: {said}", "" if fault is Fault.NO_AUTH else "try again"
        )
