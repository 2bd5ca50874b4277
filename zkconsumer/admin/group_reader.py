"""Reads a group's nodes from ZooKeeper, and the ends of its logs from the brokers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rebalance import znodes
from rebalance.errors import RefusedNode, UnreadableNode
from rebalance.requests import GetChildren, GetData, ZooKeeperPort
from simpleconsumer.consumer import LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.group_report import GroupNodes, Name, concerned_topics
from zkconsumer.cli.failures import CliError, nearest
from zkconsumer.cli.zookeeper_access import BROKER_TIMEOUT_S, READ_TIMEOUT_S, ask_all, children
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_reads import read_each

__all__ = ["read_group", "read_log_ends", "read_offsets"]

_CLIENT_ID = "zkconsumer-describe"


def read_group(port: ZooKeeperPort, zookeeper: str, group: str) -> GroupNodes:
    """The nodes of a group, without the ends of its logs.

    Raises:
        CliError: there is no such group.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    asker = _Asker(port)
    [there] = asker.ask([GetChildren(znodes.group_path(group))])
    if there is None and not asker.refused:
        raise CliError(f"group {group!r} does not exist in ZooKeeper at {zookeeper}", _other_groups(port, group))
    consumers = asker.names(znodes.ids_path(group))
    paths = [znodes.registration_path(group, name) for name in consumers]
    found = list(zip(consumers, paths, asker.ask([GetData(path) for path in paths]), strict=True))
    owners = _read_below(asker, f"{znodes.group_path(group)}/owners")
    offsets = _read_below(asker, f"{znodes.group_path(group)}/offsets")
    # One that left between the listing and the read is no member any more; one that may not be read is.
    registrations: dict[str, bytes | None] = {name: None for name, path, _ in found if path in asker.refused}
    registrations |= {name: value[0] for name, _, value in found if value is not None}
    nodes = GroupNodes(
        group,
        registrations,
        {name: (data, stat.ephemeral_owner) for name, (data, stat) in owners.items()},
        {name: data for name, (data, _) in offsets.items()},
        tuple(asker.names(znodes.TOPICS)),
        sessions={name: value[1].ephemeral_owner for name, _, value in found if value is not None},
    )
    topics = concerned_topics(nodes)
    values = asker.ask([GetData(znodes.topic_path(topic)) for topic in topics])
    data = {topic: None if value is None else value[0] for topic, value in zip(topics, values, strict=True)}
    known = nodes.known_topics
    if znodes.TOPICS in asker.refused:
        known = tuple(topic for topic in topics if data[topic] is not None or znodes.topic_path(topic) in asker.refused)
    return dataclasses.replace(nodes, topics=data, known_topics=known, refused=asker.refused)


def read_offsets(port: ZooKeeperPort, group: str) -> dict[Name, bytes]:
    """(topic, partition's name) -> data of its offset node; empty for a group that is not there."""
    nodes = _read_below(_Strict(port), f"{znodes.group_path(group)}/offsets")
    return {name: data for name, (data, _) in nodes.items()}


def _other_groups(port: ZooKeeperPort, group: str) -> str:
    groups = children(port, znodes.CONSUMERS) or []
    return nearest(group, groups, "group")


class _Asker:
    """Reads nodes, and goes on where one may not be read.

    Attributes:
        refused: path -> that it may not be read.
    """

    def __init__(self, port: ZooKeeperPort) -> None:
        self.refused: dict[str, RefusedNode] = {}
        self._port = port

    def ask(self, requests: Sequence[GetChildren | GetData]) -> list[Any]:
        """The values, `None` for what is not there or may not be read."""
        values = read_each(self._port, requests, READ_TIMEOUT_S)
        self.refused.update({value.path: value for value in values if isinstance(value, RefusedNode)})
        return [None if isinstance(value, RefusedNode) else value for value in values]

    def names(self, path: str) -> list[str]:
        """The sorted names below a node."""
        [value] = self.ask([GetChildren(path)])
        return [] if value is None else sorted(value[0])


class _Strict(_Asker):
    """Reads nodes, and raises where one may not be read."""

    def ask(self, requests: Sequence[GetChildren | GetData]) -> list[Any]:
        return ask_all(self._port, requests)


def _read_below(asker: _Asker, root: str) -> dict[Name, Any]:
    """(topic, partition's name) -> (data, stat) of all nodes two levels below."""
    topics = asker.names(root)
    listings = asker.ask([GetChildren(f"{root}/{topic}") for topic in topics])
    names = [
        (topic, name)
        for topic, listing in zip(topics, listings, strict=True)
        if listing is not None
        for name in listing[0]
    ]
    values = asker.ask([GetData(f"{root}/{topic}/{name}") for topic, name in names])
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def read_log_ends(port: ZooKeeperPort, zookeeper: str, nodes: GroupNodes) -> GroupNodes:
    """The same nodes with the ends of the logs of `nodes.topics`."""
    found = Cluster(port, _CLIENT_ID, BROKER_TIMEOUT_S).log_ends(_partitions(nodes), [LATEST])
    ends = {
        (name.topic, str(name.partition)): offsets if isinstance(offsets, str) else offsets[0]
        for name, offsets in found.items()
    }
    return dataclasses.replace(
        nodes, log_ends={name: "the broker names no offset" if end is None else end for name, end in ends.items()}
    )


def _partitions(nodes: GroupNodes) -> list[TopicPartition]:
    found = []
    for topic, data in nodes.topics.items():
        try:
            found += [TopicPartition(topic, number) for number in znodes.parse_topic(topic, data)]
        except UnreadableNode:
            pass  # the report names it
    return found
