"""Reports topics from their nodes in ZooKeeper: leaders, replicas, in-sync replicas, and what is wrong.

Pure. A partition is leaderless when no registered broker leads it, and under-replicated when fewer replicas are in sync
than it should have.

Source: kafka.admin.TopicCommand (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rebalance import znodes
from rebalance.errors import RefusedNode, UnreadableNode
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.values import JsonValue
from zkconsumer.cluster.log_ends import LogOffsets

__all__ = ["TopicNodes", "TopicPartitionRow", "TopicReport", "topic_report"]

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
    """

    brokers: Collection[int]
    topics: Mapping[str, bytes]
    states: Mapping[TopicPartition, bytes | None] = field(default_factory=dict)
    log_offsets: Mapping[TopicPartition, LogOffsets] = field(default_factory=dict)
    refused: Mapping[str, RefusedNode] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicPartitionRow:
    """One partition; None stands for what does not exist or is not known.

    Attributes:
        leader: The id of a registered broker; None also if it may not be read (`leader_is_hidden`).
        replicas: Ids of the brokers that shall have it, the preferred leader first.
        isr: Ids of the brokers that are in sync.
        earliest: Offset of the oldest message that is kept.
        latest: Offset that the next message will get.
        problems: What is wrong, a clause each.
    """

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...] | None
    earliest: int | None
    latest: int | None
    problems: tuple[str, ...] = ()

    @property
    def leader_is_hidden(self) -> bool:
        """True if ZooKeeper does not let us read which broker leads the partition."""
        return any(problem.startswith(_LEADER_HIDDEN) for problem in self.problems)


@dataclass(frozen=True)
class TopicReport(JsonValue):
    """The partitions of some topics.

    Attributes:
        partitions: By topic and number.
        problems: What is wrong with topics and partitions, as sentences.
    """

    partitions: tuple[TopicPartitionRow, ...]
    problems: tuple[str, ...]


def topic_report(nodes: TopicNodes) -> TopicReport:
    """Return the report about the nodes."""
    rows: list[TopicPartitionRow] = []
    problems = [
        str(node) for path, node in sorted(nodes.refused.items()) if path.rpartition("/")[0] == znodes.TOPICS
    ]
    for topic, data in sorted(nodes.topics.items()):
        try:
            replicas = znodes.parse_replicas(topic, data)
        except UnreadableNode as error:
            problems.append(f"{topic}: {error}")
            continue
        rows += [_row(nodes, TopicPartition(topic, number), kept) for number, kept in replicas.items()]
    problems += [f"{row.topic}-{row.partition}: {problem}" for row in rows for problem in row.problems]
    return TopicReport(tuple(rows), tuple(problems))


def _row(nodes: TopicNodes, name: TopicPartition, replicas: tuple[int, ...]) -> TopicPartitionRow:
    problems: list[str] = []
    leader, isr = _state(nodes, name, problems)
    if isr is not None and leader is not None and set(replicas) - set(isr):
        lacking = sorted(set(replicas) - set(isr))
        problems.append(f"under-replicated: {', '.join(map(str, lacking))} of its replicas not in sync")
    earliest = latest = None
    offsets = nodes.log_offsets.get(name)
    if isinstance(offsets, tuple):
        earliest, latest = offsets[0], offsets[1]
    elif leader is not None and offsets is not None:
        problems.append(f"offsets unknown: {offsets}")
    return TopicPartitionRow(name.topic, int(name.partition), leader, replicas, isr, earliest, latest, tuple(problems))


def _state(
    nodes: TopicNodes, name: TopicPartition, problems: list[str]
) -> tuple[int | None, tuple[int, ...] | None]:
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
        problems.append("leaderless: no replica that was in sync is alive")
        return None, state.isr
    if state.leader not in nodes.brokers:
        problems.append(f"leaderless: broker {state.leader} leads it and is not registered")
        return None, state.isr
    return state.leader, state.isr
