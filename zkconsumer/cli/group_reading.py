"""Reads a group's nodes from ZooKeeper, and the ends of its logs from the brokers."""

from __future__ import annotations

import dataclasses
from typing import Any

from rebalance import znodes
from rebalance.errors import UnreadableNode
from rebalance.requests import GetChildren, GetData, ZooKeeperPort
from simpleconsumer.consumer import LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.cli.failures import CliError, nearest
from zkconsumer.cli.group_report import GroupNodes, Name, concerned_topics
from zkconsumer.cli.log_offsets import read_log_offsets
from zkconsumer.cli.zookeeper_access import ask_all, children

__all__ = ["read_group", "read_log_ends", "read_offsets", "read_owners"]

_CLIENT_ID = "zkconsumer-describe"


def read_group(port: ZooKeeperPort, zookeeper: str, group: str) -> GroupNodes:
    """The nodes of a group, without the ends of its logs.

    Raises:
        CliError: there is no such group.
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    if children(port, znodes.group_path(group)) is None:
        raise CliError(f"group {group!r} does not exist in ZooKeeper at {zookeeper}", _other_groups(port, group))
    consumers = children(port, znodes.ids_path(group)) or []
    registrations = ask_all(port, [GetData(znodes.registration_path(group, name)) for name in consumers])
    owners = _read_below(port, f"{znodes.group_path(group)}/owners")
    offsets = _read_below(port, f"{znodes.group_path(group)}/offsets")
    nodes = GroupNodes(
        group,
        # One that left between the listing and the read is no member any more.
        {name: value[0] for name, value in zip(consumers, registrations, strict=True) if value is not None},
        {name: (data, stat.ephemeral_owner) for name, (data, stat) in owners.items()},
        {name: data for name, (data, _) in offsets.items()},
        tuple(children(port, znodes.TOPICS) or ()),
        sessions={
            name: value[1].ephemeral_owner
            for name, value in zip(consumers, registrations, strict=True) if value is not None
        },
    )
    topics = concerned_topics(nodes)
    values = ask_all(port, [GetData(znodes.topic_path(topic)) for topic in topics])
    data = {topic: None if value is None else value[0] for topic, value in zip(topics, values, strict=True)}
    return dataclasses.replace(nodes, topics=data)


def read_owners(port: ZooKeeperPort, group: str) -> dict[Name, str]:
    """(topic, partition's name) -> thread id of its owner; empty for a group that is not there."""
    nodes = _read_below(port, f"{znodes.group_path(group)}/owners")
    return {name: znodes.parse_owner(data) for name, (data, _) in nodes.items()}


def read_offsets(port: ZooKeeperPort, group: str) -> dict[Name, bytes]:
    """(topic, partition's name) -> data of its offset node; empty for a group that is not there."""
    return {name: data for name, (data, _) in _read_below(port, f"{znodes.group_path(group)}/offsets").items()}


def _other_groups(port: ZooKeeperPort, group: str) -> str:
    groups = children(port, znodes.CONSUMERS) or []
    return nearest(group, groups, "group")


def _read_below(port: ZooKeeperPort, root: str) -> dict[Name, Any]:
    """(topic, partition's name) -> (data, stat) of all nodes two levels below."""
    topics = children(port, root) or []
    listings = ask_all(port, [GetChildren(f"{root}/{topic}") for topic in topics])
    names = [
        (topic, name)
        for topic, listing in zip(topics, listings, strict=True)
        if listing is not None
        for name in listing[0]
    ]
    values = ask_all(port, [GetData(f"{root}/{topic}/{name}") for topic, name in names])
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def read_log_ends(port: ZooKeeperPort, zookeeper: str, nodes: GroupNodes) -> GroupNodes:
    """The same nodes with the ends of the logs of `nodes.topics`."""
    found = read_log_offsets(port, zookeeper, _partitions(nodes), [LATEST], _CLIENT_ID)
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
