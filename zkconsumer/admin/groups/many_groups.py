"""Reads the nodes of many groups in ZooKeeper, level by level for all of them together.

A thousand groups cost hardly more round trips than one: the reads of a level are under way together, five hundred at
a time. All of them have one deadline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rebalance.errors import RefusedNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData, Read, ZooKeeperPort
from zkconsumer.admin.groups.group_report import concerned_topics
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.topic_of_07 import Topic07
from zkconsumer.cluster.topic_partitions import read_topics_07
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_each

__all__ = ["read_many_groups", "read_topic_nodes"]


class _Reader:
    """Reads nodes until a deadline; nodes that may not be read are kept by their group."""

    def __init__(self, port: ZooKeeperPort, deadline: float) -> None:
        self._port = port
        self._deadline = deadline

    def read(self, requests: Sequence[Read]) -> list[Any]:
        """Return the values, in the order of the requests.

        Raises:
            ZooKeeperSilent: No answer in time.
        """
        return read_each(self._port, requests, READ_TIMEOUT_S, self._deadline)

    def listings(self, paths: Sequence[str], refused: dict[str, RefusedNode]) -> list[list[str]]:
        """Return the names below each node; none for nodes that do not exist or may not be read."""
        return [_kept(value, refused, []) for value in self.read([GetChildren(path) for path in paths])]


def _kept(value: Any, refused: dict[str, RefusedNode], otherwise: list[str]) -> list[str]:
    if isinstance(value, RefusedNode):
        refused[value.path] = value
    return sorted(value[0]) if isinstance(value, tuple) else otherwise


def read_many_groups(
    port: ZooKeeperPort, cluster: Cluster, groups: Sequence[str], deadline: float
) -> list[GroupNodes]:
    """Return the nodes of groups, without the ends of logs and the offsets in Kafka.

    Args:
        cluster: Whose generation it is.
        groups: Names of groups.
        deadline: On the clock `time.monotonic`.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer in time.
    """
    reader = _Reader(port, deadline)
    refused: dict[str, RefusedNode] = {}
    [known] = reader.listings([znodes.TOPICS], refused)
    there = reader.read([Exists(znodes.group_path(group)) for group in groups])
    ids = reader.listings([znodes.ids_path(group) for group in groups], refused)
    paths = [znodes.registration_path(at, name) for at, names in zip(groups, ids, strict=True) for name in names]
    registrations = _read_data(reader, paths, refused)
    owners = _read_below(reader, [f"{znodes.group_path(group)}/owners" for group in groups], refused)
    offsets = _read_below(reader, [f"{znodes.group_path(group)}/offsets" for group in groups], refused)
    data = {path: held for path, held in registrations.items() if held is not None}
    generation = cluster.generation(data)
    found = []
    for number, group in enumerate(groups):
        of_member = {name: znodes.registration_path(group, name) for name in ids[number]}
        mine = {path: node for path, node in refused.items()
                if path == znodes.TOPICS or path.startswith(f"{znodes.group_path(group)}/")}  # fmt: skip
        found.append(
            GroupNodes(
                group,
                {name: registrations[path] for name, path in of_member.items() if path in registrations},
                {name: (data, stat.ephemeral_owner) for name, (data, stat) in owners[number].items()},
                {name: data for name, (data, _) in offsets[number].items()},
                tuple(known),
                refused=mine,
                offset_zxids={name: stat.mzxid for name, (_, stat) in offsets[number].items()},
                claim_zxids={name: stat.czxid for name, (_, stat) in owners[number].items()},
                exists=there[number] is not None,
                generation=generation,
            )
        )
    hidden: dict[str, RefusedNode] = {}
    concerned = [concerned_topics(nodes) for nodes in found]
    topics = read_topic_nodes(port, sorted(set().union(*concerned)), deadline, hidden)
    of_07 = read_topics_07(port, topics, generation)
    return [_with_topics(nodes, mine, topics, hidden, of_07) for nodes, mine in zip(found, concerned, strict=True)]


def _with_topics(
    nodes: GroupNodes,
    concerned: Sequence[str],
    topics: Mapping[str, bytes | None],
    hidden: Mapping[str, RefusedNode],
    of_07: Mapping[str, Topic07],
) -> GroupNodes:
    """Return the nodes of a group with those of its topics; a topic that may not be read is unknown, not missing."""
    known = nodes.known_topics
    if znodes.TOPICS in nodes.refused:
        known = tuple(name for name in concerned if topics[name] is not None or znodes.topic_path(name) in hidden)
    mine = {path: hidden[path] for path in map(znodes.topic_path, concerned) if path in hidden}
    return dataclasses.replace(
        nodes, topics={name: topics[name] for name in concerned}, known_topics=known,
        refused={**nodes.refused, **mine}, topics_07={name: of_07[name] for name in concerned if name in of_07},
    )  # fmt: skip


def _read_data(
    reader: _Reader, paths: Sequence[str], refused: dict[str, RefusedNode]
) -> dict[str, bytes | None]:
    """Return path -> data, None of nodes that may not be read; nodes that are gone meanwhile are left out."""
    values = reader.read([GetData(path) for path in paths])
    found: dict[str, bytes | None] = {}
    for path, value in zip(paths, values, strict=True):
        if isinstance(value, RefusedNode):
            refused[path] = value
            found[path] = None
        elif value is not None:
            found[path] = value[0]
    return found


def _read_below(
    reader: _Reader, roots: Sequence[str], refused: dict[str, RefusedNode]
) -> list[dict[tuple[str, str], Any]]:
    """Return, for each root, data and stat of the nodes two levels below: (topic, partition's name) -> (data, stat)."""
    topics = reader.listings(roots, refused)
    at = [(number, topic) for number, names in enumerate(topics) for topic in names]
    names = reader.listings([f"{roots[number]}/{topic}" for number, topic in at], refused)
    leaves = [(*place, name) for place, below in zip(at, names, strict=True) for name in below]
    values = reader.read([GetData(f"{roots[number]}/{topic}/{name}") for number, topic, name in leaves])
    found: list[dict[tuple[str, str], Any]] = [{} for _ in roots]
    for (number, topic, name), value in zip(leaves, values, strict=True):
        if isinstance(value, RefusedNode):
            refused[value.path] = value
        elif value is not None:
            found[number][topic, name] = value
    return found


def read_topic_nodes(
    port: ZooKeeperPort, topics: Sequence[str], deadline: float, refused: dict[str, RefusedNode] | None = None
) -> dict[str, bytes | None]:
    """Return topic -> data of its node, None without one that can be read.

    Args:
        topics: Names of topics.
        deadline: On the clock `time.monotonic`.
        refused: Takes the nodes that may not be read.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer in time.
    """
    values = _Reader(port, deadline).read([GetData(znodes.topic_path(topic)) for topic in topics])
    if refused is not None:
        refused.update({value.path: value for value in values if isinstance(value, RefusedNode)})
    return {
        topic: value[0] if isinstance(value, tuple) else None for topic, value in zip(topics, values, strict=True)
    }
