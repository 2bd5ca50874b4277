"""Reads the offsets that a group has stored in Kafka, from its offset manager."""

from __future__ import annotations

import dataclasses
import time
from typing import Final

from rebalance import znodes
from rebalance.errors import UnreadableNode
from rebalance.requests import GetData, ZooKeeperPort
from rebalance.subscription import OFFSETS_TOPIC
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.group_report import GroupNodes
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_each
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetManager

__all__ = ["read_kafka_offsets"]

_DEADLINE_S: Final = 6.0
"""Longest wait for the offset manager: an administrator waits, and a cluster may have none just now."""
_BACKOFF_S: Final = 0.2


def read_kafka_offsets(port: ZooKeeperPort, cluster: Cluster, client_id: str, nodes: GroupNodes) -> GroupNodes:
    """Return the nodes of a group with the offsets that it has stored in Kafka.

    Without the topic of offsets no broker is asked: a question would create it. A group that has no members, owners or
    offsets in ZooKeeper is asked about all topics.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    if OFFSETS_TOPIC not in nodes.known_topics:
        return nodes
    topics = dict(nodes.topics)
    if not (nodes.registrations or nodes.owners or nodes.offsets):
        topics = _all_topics(port, nodes)
    names = _partitions(topics)
    if not names:
        return nodes
    settings = ChannelSettings(client_id, _BACKOFF_S, _DEADLINE_S)
    manager = OffsetManager(nodes.group, cluster.brokers, settings)
    try:
        answer = manager.fetch(names, time.monotonic() + _DEADLINE_S)
    finally:
        manager.close()
    found = {(name.topic, str(name.partition)): at for name, at in answer.offsets.items() if at is not None}
    with_offsets = {topic for topic, _ in found}
    return dataclasses.replace(
        nodes,
        kafka_offsets=found,
        kafka_unknown=next(iter(answer.unknown.values()), None),
        topics={topic: data for topic, data in topics.items() if topic in nodes.topics or topic in with_offsets},
    )


def _all_topics(port: ZooKeeperPort, nodes: GroupNodes) -> dict[str, bytes | None]:
    names = [topic for topic in nodes.known_topics if topic != OFFSETS_TOPIC]
    values = read_each(port, [GetData(znodes.topic_path(topic)) for topic in names], READ_TIMEOUT_S)
    return {topic: value[0] for topic, value in zip(names, values, strict=True) if isinstance(value, tuple)}


def _partitions(topics: dict[str, bytes | None]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for topic, data in sorted(topics.items()):
        try:
            found += [TopicPartition(topic, number) for number in znodes.parse_topic(topic, data)]
        except UnreadableNode:
            pass  # the report names it
    return found
