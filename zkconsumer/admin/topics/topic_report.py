"""Reports topics from their nodes in ZooKeeper: leaders, replicas, in-sync replicas, and problems.

Pure. A partition is leaderless when no registered broker leads it, and under-replicated when fewer replicas are in sync
than it should have. In Kafka 0.7 the broker in the name of a partition leads it, and there are no replicas.

Source: kafka.admin.TopicCommand (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rebalance.errors import RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.znodes_07 import broker_and_number
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.values import JsonValue
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer.cluster.registry import Topic07

_LEADER_HIDDEN = "its leader is not known"


@dataclass(frozen=True)
class TopicNodes:
    """The nodes that were read.

    Attributes:
        brokers: Ids of the brokers that are registered.
        topics: Topic -> data of its node.
        states: Partition -> data of its state node, None without one.
        log_offsets: Partition -> earliest and latest offset, or why they are not known.
        refused: Path -> why it may not be read, of nodes of topics and states.
        topics_07: Those of the topics that are of Kafka 0.7; they have no states.
    """

    brokers: Collection[int]
    topics: Mapping[str, bytes]
    states: Mapping[TopicPartition, bytes | None] = field(default_factory=dict)
    log_offsets: Mapping[TopicPartition, LogOffsets] = field(default_factory=dict)
    refused: Mapping[str, RefusedNode] = field(default_factory=dict)
    topics_07: Mapping[str, Topic07] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicPartitionRow:
    """One partition; None stands for what does not exist or is not known.

    Attributes:
        partition: Its number; in Kafka 0.7 its name, `broker-partition`.
        leader: The id of a registered broker; None also if it may not be read (`leader_is_hidden`).
        replicas: Ids of the brokers that store it, the preferred leader first; none in Kafka 0.7.
        isr: Ids of the brokers that are in sync; None in Kafka 0.7.
        earliest: Offset of the oldest message that is kept.
        latest: Offset that the next message will get.
        problems: The problems, a clause each.
    """

    topic: str
    partition: int | str
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...] | None
    earliest: int | None
    latest: int | None
    problems: tuple[str, ...] = ()

    @property
    def leader_is_hidden(self) -> bool:
        """True if ZooKeeper does not let this client read which broker leads the partition."""
        return any(problem.startswith(_LEADER_HIDDEN) for problem in self.problems)


@dataclass(frozen=True)
class TopicReport(JsonValue):
    """The partitions of some topics.

    Attributes:
        partitions: By topic and number.
        problems: The problems of topics and partitions, as sentences.
    """

    partitions: tuple[TopicPartitionRow, ...]
    problems: tuple[str, ...]


def topic_report(nodes: TopicNodes) -> TopicReport:
    """Return the report about the nodes."""
    rows: list[TopicPartitionRow] = []
    problems = [str(node) for path, node in sorted(nodes.refused.items()) if path.rpartition("/")[0] == znodes.TOPICS]
    for topic, data in sorted(nodes.topics.items()):
        if topic in nodes.topics_07:
            rows += _rows_07(nodes, topic, problems)
            continue
        try:
            replicas = znodes.parse_replicas(topic, data)
        except UnreadableNode as error:
            problems.append(f"{topic}: {error}")
            continue
        rows += [_row(nodes, TopicPartition(topic, number), kept) for number, kept in replicas.items()]
    problems += [f"{row.topic}-{row.partition}: {problem}" for row in rows for problem in row.problems]
    return TopicReport(tuple(rows), tuple(problems))


def _rows_07(nodes: TopicNodes, topic: str, problems: list[str]) -> list[TopicPartitionRow]:
    found = nodes.topics_07[topic]
    problems += [f"{topic}: {problem}" for problem in found.problems]
    if not found.partitions and not found.problems:
        problems.append(f"{topic}: no broker that has it is registered; its partitions return with their brokers")
    rows = []
    for partition in found.partitions:
        broker, _ = broker_and_number(partition)
        wrong: list[str] = []
        leader = broker if broker in nodes.brokers else None
        if leader is None:
            wrong.append(f"leaderless: broker {broker} has it, and is not registered")
        earliest, latest = _log_offsets(nodes, TopicPartition(topic, partition), leader, wrong)
        rows.append(TopicPartitionRow(topic, partition, leader, (), None, earliest, latest, tuple(wrong)))
    return rows


def _row(nodes: TopicNodes, name: TopicPartition, replicas: tuple[int, ...]) -> TopicPartitionRow:
    problems: list[str] = []
    leader, isr = _state(nodes, name, problems)
    if isr is not None and leader is not None and set(replicas) - set(isr):
        lacking = sorted(set(replicas) - set(isr))
        problems.append(f"under-replicated: {', '.join(map(str, lacking))} of its replicas are not in sync")
    earliest, latest = _log_offsets(nodes, name, leader, problems)
    return TopicPartitionRow(name.topic, int(name.partition), leader, replicas, isr, earliest, latest, tuple(problems))


def _log_offsets(
    nodes: TopicNodes, name: TopicPartition, leader: int | None, problems: list[str]
) -> tuple[int | None, int | None]:
    """Return start and end of a log, each None if not known."""
    offsets = nodes.log_offsets.get(name)
    if isinstance(offsets, tuple):
        return offsets[0], offsets[1]
    if leader is not None and offsets is not None:
        problems.append(f"offsets unknown: {offsets}")
    return None, None


def _state(nodes: TopicNodes, name: TopicPartition, problems: list[str]) -> tuple[int | None, tuple[int, ...] | None]:
    """Return leader and in-sync replicas, each None if not known."""
    path = znodes.partition_state_path(name.topic, int(name.partition))
    if path in nodes.refused:
        problems.append(f"{_LEADER_HIDDEN}: {nodes.refused[path]}")
        return None, None
    data = nodes.states.get(name)
    if data is None:
        problems.append("leaderless: it has no state yet")
        return None, None
    try:
        state = znodes.parse_partition_state(path, data)
    except UnreadableNode as error:
        problems.append(f"its state cannot be read: {error}")
        return None, None
    if state.leader < 0:
        problems.append("leaderless: no in-sync replica is alive")
        return None, state.isr
    if state.leader not in nodes.brokers:
        problems.append(f"leaderless: its leader, broker {state.leader}, is not registered")
        return None, state.isr
    return state.leader, state.isr
