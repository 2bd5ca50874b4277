"""Wakes the members of a group: a registration that comes and goes in one transaction.

Java members rebalance when the children of `ids` change, and at hardly anything else; one that has used up its
`rebalance.max.retries` waits for that. The registration asks for no topic, and as it is made and deleted in one
transaction nobody ever reads it; ZooKeeper tells of the change all the same. (3.3 has no transactions: there it is
seen for a moment, and harms nobody.)

Source: ZookeeperConsumerConnector.scala, ZKRebalancerListener (0.8.0 to 1.1.1); org.apache.zookeeper.server.DataTree.
"""

from __future__ import annotations

import time
import uuid

from rebalance import znodes
from rebalance.errors import refusal_of
from rebalance.requests import Create, Delete, Fault, Multi, ZooKeeperPort
from rebalance.zookeeper import call
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.zookeeper_access import READ_TIMEOUT_S

__all__ = ["passing_registration", "wake_group"]


def passing_registration(group: str, consumer_id: str) -> tuple[Create, Delete]:
    """The two operations; in one transaction they also prove that no such consumer is registered."""
    path = znodes.registration_path(group, consumer_id)
    nothing = znodes.Registration(znodes.STATIC, (), time.time_ns() // 1_000_000)
    return Create(path, znodes.format_registration(nothing), ephemeral=True), Delete(path, 0)


def wake_group(port: ZooKeeperPort, group: str) -> None:
    """Have all members of the group rebalance once; those that hold what is dealt to them go on holding it.

    Raises:
        CliError: ZooKeeper did not do it.
    """
    operations = passing_registration(group, f"{group}_nudge-{uuid.uuid4().hex[:8]}")
    reply = call(port, Multi(operations), READ_TIMEOUT_S)
    refused = [item for item in reply.value or () if isinstance(item, Fault)]
    if reply.fault is not None or refused:
        fault = reply.fault or refused[0]
        said = refusal_of("create", operations[0].path, fault, reply.reason)
        raise CliError(f"group {group!r} was not nudged: {said}", "" if fault is Fault.NO_AUTH else "try again")
