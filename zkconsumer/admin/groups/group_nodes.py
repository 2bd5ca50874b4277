"""Reads a group's nodes in ZooKeeper, and the ends of its logs from the brokers.

Reads the nodes of many groups in ZooKeeper, level by level for all of them together.

A thousand groups cost hardly more round trips than one: the reads of a level are under way together, five hundred at
a time. All of them have one deadline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rebalance.errors import RefusedNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.owner_audit import JAVA_VERSION
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData, Read, ZooKeeperPort
from simpleconsumer.consumer import LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.groups.group_report import concerned_topics
from zkconsumer.admin.groups.group_state import FaultIs, GroupNodes, Name
from zkconsumer.admin.topics.topic_nodes import listed_partitions
from zkconsumer.admin.values import GroupList, GroupRow, NotFound, nearest
from zkconsumer.admin.verify.entry_faults import GLANCE, find_entry_faults
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.registry import Topic07, read_topics_07
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, children, error_of, read_all, read_each


def read_group(
    port: ZooKeeperPort, cluster: Cluster, zookeeper: str, group: str, must_exist: bool = True
) -> GroupNodes:
    """Return the nodes of a group, without the ends of its logs and the offsets in Kafka.

    Args:
        cluster: Whose generation it is.
        zookeeper: The connection string, for the message of the error.
        must_exist: False: a group that does not exist in ZooKeeper has empty nodes.

    Raises:
        NotFound: There is no such group.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    reader = _Reader(port)
    [there] = reader.read([GetChildren(znodes.group_path(group))])
    exists = there is not None or bool(reader.refused)
    if must_exist and not exists:
        raise group_not_found(port, zookeeper, group)
    consumers = reader.names(znodes.ids_path(group))
    paths = [znodes.registration_path(group, name) for name in consumers]
    found = list(zip(consumers, paths, reader.read([GetData(path) for path in paths]), strict=True))
    owners = _read_below(reader, f"{znodes.group_path(group)}/owners")
    offsets = _read_below(reader, f"{znodes.group_path(group)}/offsets")
    # A consumer that left between the two reads is no member any more; one whose registration may not be read is.
    registrations: dict[str, bytes | None] = {name: None for name, path, _ in found if path in reader.refused}
    registrations |= {name: value[0] for name, _, value in found if value is not None}
    by_path = {path: value[0] for _, path, value in found if value is not None}
    nodes = GroupNodes(
        group,
        registrations,
        {name: (data, stat.ephemeral_owner) for name, (data, stat) in owners.items()},
        {name: data for name, (data, _) in offsets.items()},
        tuple(reader.names(znodes.TOPICS)),
        sessions={name: value[1].ephemeral_owner for name, _, value in found if value is not None},
        java_members=frozenset(
            name for name, _, value in found if value is not None and value[1].version == JAVA_VERSION
        ),
        offset_zxids={name: stat.mzxid for name, (_, stat) in offsets.items()},
        claim_zxids={name: stat.czxid for name, (_, stat) in owners.items()},
        exists=exists,
        generation=cluster.generation(by_path),
    )
    topics = concerned_topics(nodes)
    values = reader.read([GetData(znodes.topic_path(topic)) for topic in topics])
    data = {topic: None if value is None else value[0] for topic, value in zip(topics, values, strict=True)}
    known = nodes.known_topics
    if znodes.TOPICS in reader.refused:
        hidden = {topic for topic in topics if znodes.topic_path(topic) in reader.refused}
        known = tuple(topic for topic in topics if data[topic] is not None or topic in hidden)
    of_07 = read_topics_07(port, data, nodes.generation)
    return dataclasses.replace(nodes, topics=data, known_topics=known, refused=reader.refused, topics_07=of_07)


def read_offsets(port: ZooKeeperPort, group: str) -> dict[Name, bytes]:
    """Return the data of the offset nodes: (topic, partition's name) -> data; empty for a group that does not exist."""
    nodes = _read_below(_Strict(port), f"{znodes.group_path(group)}/offsets")
    return {name: data for name, (data, _) in nodes.items()}


def group_not_found(port: ZooKeeperPort, zookeeper: str, group: str, kafka_unknown: str | None = None) -> NotFound:
    """Return the error about a group that does not exist.

    Args:
        zookeeper: The connection string.
        kafka_unknown: Why it is not known whether the group has offsets in Kafka, a clause.
    """
    sentence = f"group {group!r} does not exist in ZooKeeper at {zookeeper}"
    if kafka_unknown is not None:
        sentence += f", and whether it has offsets in Kafka is not known: {kafka_unknown}"
    return NotFound(sentence, nearest(group, children(port, znodes.CONSUMERS) or [], "group"))


def only_topic(nodes: GroupNodes, topic: str) -> GroupNodes:
    """Return the nodes with this topic alone among those whose log ends are read.

    Raises:
        NotFound: The group has nothing to do with the topic.
        AccessRefused: It may have, in a node that may not be read.
    """
    if topic not in nodes.topics and nodes.refused:
        raise error_of(nodes.refused[min(nodes.refused)])
    if topic not in nodes.topics:
        raise NotFound(
            f"group {nodes.group!r} has no offsets for topic {topic!r} and does not subscribe to it",
            nearest(topic, sorted(nodes.topics), "topic"),
        )
    return dataclasses.replace(nodes, topics={topic: nodes.topics[topic]})


def members(port: ZooKeeperPort, group: str) -> list[str]:
    """Return the consumer ids that are registered."""
    return children(port, znodes.ids_path(group)) or []


def read_groups(port: ZooKeeperPort) -> tuple[GroupList, dict[str, list[str]]]:
    """Return all groups, without their offsets in Kafka; and of each the topics that it has, or had, to do with.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    names = children(port, znodes.CONSUMERS) or []
    reader = _Reader(port)
    ids = reader.listings([znodes.ids_path(group) for group in names])
    offset_topics = reader.listings([f"{znodes.group_path(group)}/offsets" for group in names])
    owner_topics = reader.listings([f"{znodes.group_path(group)}/owners" for group in names])
    topic_paths = [
        f"{znodes.group_path(group)}/owners/{topic}"
        for group, topics in zip(names, owner_topics, strict=True) for topic in topics
    ]  # fmt: skip
    owned = dict(zip(topic_paths, map(len, reader.listings(topic_paths)), strict=True))
    rows = []
    concerned: dict[str, list[str]] = {}
    for group, registered, has_offsets, has_owners in zip(names, ids, offset_topics, owner_topics, strict=True):
        counts = {topic: owned[f"{znodes.group_path(group)}/owners/{topic}"] for topic in has_owners}
        # A group that is done with a topic leaves an empty node under owners.
        topics = sorted({*has_offsets, *(topic for topic, count in counts.items() if count)})
        owners = f"{znodes.group_path(group)}/owners"
        members = None if znodes.ids_path(group) in reader.refused else len(registered)
        hidden = any(path in reader.refused for path in (owners, *(f"{owners}/{topic}" for topic in has_owners)))
        owned_now = None if hidden else sum(counts.values())
        rows.append(GroupRow(group, members, owned_now, tuple(topics), bool(has_offsets)))
        concerned[group] = sorted({*has_offsets, *has_owners})
    refused = [f"{node}; nodes below it are not counted" for node in reader.refused.values()]
    return GroupList(tuple(rows), tuple(refused)), concerned


class _Reader:
    """Reads nodes, and goes on where a node may not be read.

    Attributes:
        refused: Path -> why it may not be read.
    """

    def __init__(self, port: ZooKeeperPort) -> None:
        self.refused: dict[str, RefusedNode] = {}
        self._port = port

    def read(self, requests: Sequence[GetChildren | GetData]) -> list[Any]:
        """Return the values, None for nodes that do not exist or may not be read."""
        values = read_each(self._port, requests, READ_TIMEOUT_S)
        self.refused.update({value.path: value for value in values if isinstance(value, RefusedNode)})
        return [None if isinstance(value, RefusedNode) else value for value in values]

    def listings(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names below each node; none for nodes that do not exist or may not be read."""
        values = self.read([GetChildren(path) for path in paths])
        return [[] if value is None else value[0] for value in values]

    def names(self, path: str) -> list[str]:
        """Return the sorted names below a node."""
        [value] = self.read([GetChildren(path)])
        return [] if value is None else sorted(value[0])


class _Strict(_Reader):
    """Reads nodes, and raises where a node may not be read."""

    def read(self, requests: Sequence[GetChildren | GetData]) -> list[Any]:
        return read_all(self._port, requests)


def _read_below(reader: _Reader, root: str) -> dict[Name, Any]:
    """Return data and stat of all nodes two levels below: (topic, partition's name) -> (data, stat)."""
    topics = reader.names(root)
    listings = reader.read([GetChildren(f"{root}/{topic}") for topic in topics])
    names = [
        (topic, name)
        for topic, listing in zip(topics, listings, strict=True)
        if listing is not None
        for name in listing[0]
    ]
    values = reader.read([GetData(f"{root}/{topic}/{name}") for topic, name in names])
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def read_entry_faults(cluster: Cluster, nodes: GroupNodes) -> GroupNodes:
    """Return the nodes with what is wrong at the stored positions of Kafka 0.7, as far as a glance shows it.

    Args:
        nodes: With the ends of the logs.
    """
    positions: dict[TopicPartition, int] = {}
    for topic, name in nodes.offsets if nodes.generation.has_broker_nodes else ():
        end, position = nodes.log_ends.get((topic, name)), nodes.offset_in_zookeeper((topic, name))
        if isinstance(end, int) and position is not None and position < end:
            positions[TopicPartition(topic, name)] = position
    found = find_entry_faults(cluster, positions, GLANCE)
    return dataclasses.replace(nodes, entry_faults={
        (name.topic, str(name.partition)): fault for name, fault in found.items()
        if fault.fault_is is not FaultIs.NOT_LOOKED_AT
    })  # fmt: skip


def read_log_ends(cluster: Cluster, nodes: GroupNodes) -> GroupNodes:
    """Return the nodes with the ends of the logs of their topics, as the brokers report them."""
    found = cluster.log_ends(listed_partitions(nodes.topics, nodes.topics_07), [LATEST])
    ends = {
        (name.topic, str(name.partition)): offsets if isinstance(offsets, str) else offsets[0]
        for name, offsets in found.items()
    }
    return dataclasses.replace(
        nodes, log_ends={name: "the broker reports no offset" if end is None else end for name, end in ends.items()}
    )


class _ReaderOfGroups:
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


def read_many_groups(port: ZooKeeperPort, cluster: Cluster, groups: Sequence[str], deadline: float) -> list[GroupNodes]:
    """Return the nodes of groups, without the ends of logs and the offsets in Kafka.

    Args:
        cluster: Whose generation it is.
        groups: Names of groups.
        deadline: On the clock `time.monotonic`.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer in time.
    """
    reader = _ReaderOfGroups(port, deadline)
    refused: dict[str, RefusedNode] = {}
    [known] = reader.listings([znodes.TOPICS], refused)
    there = reader.read([Exists(znodes.group_path(group)) for group in groups])
    ids = reader.listings([znodes.ids_path(group) for group in groups], refused)
    paths = [znodes.registration_path(at, name) for at, names in zip(groups, ids, strict=True) for name in names]
    registrations = _read_data(reader, paths, refused)
    owners = _read_below_all(reader, [f"{znodes.group_path(group)}/owners" for group in groups], refused)
    offsets = _read_below_all(reader, [f"{znodes.group_path(group)}/offsets" for group in groups], refused)
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
    reader: _ReaderOfGroups, paths: Sequence[str], refused: dict[str, RefusedNode]
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


def _read_below_all(
    reader: _ReaderOfGroups, roots: Sequence[str], refused: dict[str, RefusedNode]
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
    values = _ReaderOfGroups(port, deadline).read([GetData(znodes.topic_path(topic)) for topic in topics])
    if refused is not None:
        refused.update({value.path: value for value in values if isinstance(value, RefusedNode)})
    return {topic: value[0] if isinstance(value, tuple) else None for topic, value in zip(topics, values, strict=True)}
