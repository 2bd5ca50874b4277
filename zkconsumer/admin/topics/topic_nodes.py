"""Reads the nodes of topics in ZooKeeper, their partitions, and the bounds of their logs from the brokers.

Reads what decides whether a topic can be created, grown or deleted: the brokers, their racks, and the controller.

Reports topics from the metadata of brokers, for clusters of which no ZooKeeper is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rebalance.errors import RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData, ZooKeeperPort
from rebalance.zookeeper.znodes import parse_lenient
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import PartitionMetadata, TopicPartition
from zkconsumer.admin.topics.topic_report import TopicNodes, TopicPartitionRow, TopicReport
from zkconsumer.admin.values import NotFound, TopicRefused, nearest
from zkconsumer.cluster.cluster import Cluster, metadata_reader
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer.cluster.registry import Topic07, read_topics_07
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, children, read_all, read_each
from zkconsumer.config.connection_settings import config_without_group


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
    """Return topic -> data of its node, for topics that exist and may be read.

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


CONTROLLER: Final = "/controller"
DELETIONS: Final = "/admin/delete_topics"
REASSIGNMENT: Final = "/admin/reassign_partitions"
CONFIG_CHANGES: Final = "/config/changes"
"""Brokers from 0.8.1 on create it when they start; those of 0.8.0 know no settings of topics."""


@dataclass(frozen=True)
class TopicBrokers:
    """The brokers of a cluster, as far as the administration of topics needs them.

    Attributes:
        racks: Broker id -> its rack, None if it names none; of all registered brokers, whatever their listeners.
        registration_version: That of the oldest broker; 1 up to 0.8.2, 2 in 0.9, 3 in 0.10.0, 4 up to 2.6, then 5.
        controller: Id of the broker that is the controller; None without one.
        has_settings: The brokers know settings of topics: they are not of 0.8.0.
        can_delete: The brokers know how to delete topics: they are not of 0.8.0.
    """

    racks: Mapping[int, str | None]
    registration_version: int
    controller: int | None
    has_settings: bool
    can_delete: bool


def json_fields(data: bytes | None) -> dict[str, object]:
    """Return the fields of a node that holds a JSON object; none of any other node."""
    try:
        value = parse_lenient(data or b"")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def read_brokers(port: ZooKeeperPort) -> TopicBrokers:
    """Return the brokers of a cluster.

    Raises:
        TopicRefused: The controller is one of KRaft, to which nodes in ZooKeeper mean nothing.
        ZooKeeperSilent: ZooKeeper does not answer.
        AccessRefused: One of the nodes may not be read.
    """
    listing, controller, changes, deletions = read_all(
        port, [GetChildren(znodes.BROKERS), GetData(CONTROLLER), Exists(CONFIG_CHANGES), Exists(DELETIONS)]
    )
    ids = znodes.broker_ids(listing[0] if listing is not None else ())
    values = read_all(port, [GetData(znodes.broker_path(each)) for each in ids])
    fields = {each: json_fields(value[0]) for each, value in zip(ids, values, strict=True) if value is not None}
    return TopicBrokers(
        {each: None if found.get("rack") is None else str(found["rack"]) for each, found in fields.items()},
        min((_number(found.get("version"), 1) for found in fields.values()), default=1),
        None if controller is None else _controller(json_fields(controller[0])),
        changes is not None,
        deletions is not None,
    )


def _controller(fields: Mapping[str, object]) -> int | None:
    if _number(fields.get("kraftControllerEpoch"), -1) >= 0:
        raise TopicRefused(
            "this cluster is migrating from ZooKeeper to KRaft: its controller does not read topics from ZooKeeper",
            "give --bootstrap-server instead of --zookeeper (BrokerAdmin instead of Admin)",
        )
    number = _number(fields.get("brokerid"), -1)
    return number if number >= 0 else None


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def is_reassigned(topic: str, topic_data: bytes, reassignment: bytes | None) -> bool:
    """Return whether partitions of a topic are on the way to other brokers.

    Args:
        topic: Its name.
        topic_data: Data of its node, where brokers from 2.4 on say so.
        reassignment: Data of the node of all reassignments, None without one.
    """
    fields = json_fields(topic_data)
    listed = json_fields(reassignment).get("partitions")
    entries = listed if isinstance(listed, list) else []
    return bool(fields.get("adding_replicas") or fields.get("removing_replicas")) or any(
        isinstance(entry, dict) and entry.get("topic") == topic for entry in entries
    )


_ANSWER_S = 5.0
"""Longest wait for one answer of a broker."""


def topics_of_brokers(
    brokers: str, names: Sequence[str], properties: Mapping[str, object], client_id: str
) -> TopicReport:
    """Return the partitions of topics, of all topics when none is named: leaders, replicas, offsets, problems.

    Args:
        brokers: Some of the cluster's, as `bootstrap.servers`.
        properties: Settings of the consumer by their names in Kafka.
        client_id: The name under which brokers log and count the requests.

    Raises:
        NotFound: There is no such topic.
        BrokersSilent: No broker answers.
        ConfigError: A property has a value that is not allowed.
    """
    config = config_without_group(None, {**properties, "bootstrap.servers": brokers}, client_id)
    reader = metadata_reader(config, _ANSWER_S)
    assert reader is not None
    known = reader.topics()
    for name in names:
        if name not in known:
            raise NotFound(f"topic {name!r} does not exist {config.where}", nearest(name, known, "topic"))
    found = reader.existing_topics(list(dict.fromkeys(names)) or known)
    alive = {broker.id for broker in reader.brokers()}
    wanted = [TopicPartition(name, row.partition) for name, topic in sorted(found.items()) for row in topic.partitions]
    cluster = Cluster(reader, config.client_id, _ANSWER_S, security=config.security)
    ends = cluster.log_ends(wanted, [EARLIEST, LATEST])
    rows = [
        _row(name, row, alive, ends.get(TopicPartition(name, row.partition)))
        for name, topic in sorted(found.items())
        for row in sorted(topic.partitions, key=lambda row: row.partition)
    ]
    problems = [f"{row.topic}-{row.partition}: {problem}" for row in rows for problem in row.problems]
    return TopicReport(tuple(rows), tuple(problems))


def _row(topic: str, row: PartitionMetadata, alive: set[int], offsets: LogOffsets | None) -> TopicPartitionRow:
    problems: list[str] = []
    leader = row.leader
    if leader is None:
        problems.append("leaderless: no in-sync replica is alive")
    elif leader not in alive:
        problems.append(f"leaderless: its leader, broker {leader}, is not alive")
        leader = None
    lacking = sorted(set(row.replicas) - set(row.isr))
    if lacking and leader is not None:
        problems.append(f"under-replicated: {', '.join(map(str, lacking))} of its replicas are not in sync")
    earliest, latest = offsets if isinstance(offsets, tuple) else (None, None)
    if isinstance(offsets, str) and leader is not None:
        problems.append(f"offsets unknown: {offsets}")
    return TopicPartitionRow(topic, row.partition, leader, row.replicas, row.isr, earliest, latest, tuple(problems))
