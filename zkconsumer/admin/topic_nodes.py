"""Reads the nodes of topics in ZooKeeper, and the bounds of their logs from the brokers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rebalance import znodes
from rebalance.requests import GetData, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from zkconsumer.admin.errors import NotFound
from zkconsumer.admin.phrases import nearest
from zkconsumer.admin.topic_report import TopicNodes
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_reads import children, read_all

__all__ = ["read_topics"]


def read_topics(port: ZooKeeperPort, cluster: Cluster, zookeeper: str, names: Sequence[str]) -> TopicNodes:
    """Return the nodes of topics, of all topics when none is named.

    Args:
        zookeeper: The connection string, for the message of the error.

    Raises:
        NotFound: There is no such topic.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    known = children(port, znodes.TOPICS) or []
    for name in names:
        if name not in known:
            raise NotFound(f"there is no topic {name!r} in ZooKeeper at {zookeeper}", nearest(name, known, "topic"))
    chosen = list(dict.fromkeys(names)) or known
    values = read_all(port, [GetData(znodes.topic_path(topic)) for topic in chosen])
    # A topic that was deleted between the two reads does not exist any more.
    data = {topic: value[0] for topic, value in zip(chosen, values, strict=True) if value is not None}
    brokers = {int(name) for name in children(port, znodes.BROKERS) or [] if name.isdigit()}
    nodes = TopicNodes(brokers, data)
    wanted = nodes.partitions()
    states = read_all(port, [GetData(znodes.partition_state_path(at.topic, int(at.partition))) for at in wanted])
    return dataclasses.replace(
        nodes,
        states={at: None if value is None else value[0] for at, value in zip(wanted, states, strict=True)},
        log_offsets=cluster.log_ends(wanted, [EARLIEST, LATEST]),
    )
