"""Reads the nodes of topics in ZooKeeper, their partitions, and the bounds of their logs from the brokers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rebalance.errors import RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetData, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import NotFound
from zkconsumer.admin.phrases import nearest
from zkconsumer.admin.topics.topic_report import TopicNodes
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.topic_of_07 import Topic07
from zkconsumer.cluster.topic_partitions import read_topics_07
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, children, read_all, read_each

__all__ = ["listed_partitions", "read_listed_partitions", "read_topic_data", "read_topics"]


def listed_partitions(
    topics: Mapping[str, bytes | None], topics_07: Mapping[str, Topic07] | None = None
) -> list[TopicPartition]:
    """Return the partitions that the nodes of topics list, by topic; none of a node that cannot be understood.

    Args:
        topics: Topic -> data of its node, None without one. Reports name the nodes that cannot be understood.
        topics_07: Those of them that are of Kafka 0.7.
    """
    found: list[TopicPartition] = []
    of_07 = topics_07 or {}
    for topic, data in sorted(topics.items()):
        try:
            names = of_07[topic].partitions if topic in of_07 else znodes.parse_topic(topic, data)
            found += [TopicPartition(topic, name) for name in names]
        except UnreadableNode:
            pass
    return found


def read_topic_data(port: ZooKeeperPort, topics: Sequence[str]) -> dict[str, bytes | None]:
    """Return topic -> data of its node, of those that exist and may be read.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    values = read_each(port, [GetData(znodes.topic_path(topic)) for topic in topics], READ_TIMEOUT_S)
    return {topic: value[0] for topic, value in zip(topics, values, strict=True) if isinstance(value, tuple)}


def read_listed_partitions(port: ZooKeeperPort, cluster: Cluster, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of those of the topics whose node can be read.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    data = read_topic_data(port, topics)
    if all(data.values()):
        return listed_partitions(data)
    return listed_partitions(data, read_topics_07(port, data, cluster.generation()))


def _read_some(port: ZooKeeperPort, requests: Sequence[GetData]) -> list[Any]:
    """Return the values, and a `RefusedNode` for each node that may not be read: it hides no other topic."""
    return read_each(port, requests, READ_TIMEOUT_S)


def read_topics(port: ZooKeeperPort, cluster: Cluster, zookeeper: str, names: Sequence[str]) -> TopicNodes:
    """Return the nodes of topics, of all topics when none is named.

    Args:
        zookeeper: The connection string, for the message of the error.

    Raises:
        NotFound: There is no such topic.
        AccessRefused: The list of topics, or the node of a topic that is named, may not be read.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    known = cluster.topics()
    for name in names:
        if name not in known:
            raise NotFound(f"topic {name!r} does not exist in ZooKeeper at {zookeeper}", nearest(name, known, "topic"))
    chosen = list(dict.fromkeys(names)) or known
    values = (read_all if names else _read_some)(port, [GetData(znodes.topic_path(topic)) for topic in chosen])
    # A topic that was deleted between the two reads does not exist any more.
    data = {topic: value[0] for topic, value in zip(chosen, values, strict=True) if isinstance(value, tuple)}
    brokers = set(znodes.broker_ids(children(port, znodes.BROKERS) or []))
    of_07: dict[str, Topic07] = {}
    if not all(data.values()):
        of_07 = read_topics_07(port, data, cluster.generation())
    nodes = TopicNodes(brokers, data, topics_07=of_07)
    wanted = listed_partitions(nodes.topics, of_07)
    of_08 = [at for at in wanted if at.topic not in of_07]
    states = _read_some(port, [GetData(znodes.partition_state_path(at.topic, int(at.partition))) for at in of_08])
    return dataclasses.replace(
        nodes,
        states={at: value[0] if isinstance(value, tuple) else None for at, value in zip(of_08, states, strict=True)},
        refused={value.path: value for value in (*values, *states) if isinstance(value, RefusedNode)},
        log_offsets=cluster.log_ends(wanted, [EARLIEST, LATEST]),
    )
