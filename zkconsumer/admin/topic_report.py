"""Topics as their nodes in ZooKeeper tell them: who leads which partition, who keeps it, and what is wrong.

Pure. A partition is leaderless when no registered broker leads it, and under-replicated when fewer replicas are in sync
than it should have.

Source: kafka.admin.TopicCommand (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rebalance import znodes
from rebalance.errors import UnreadableNode
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.log_ends import LogOffsets

__all__ = ["TopicNodes", "TopicPartitionRow", "TopicReport", "topic_report"]


@dataclass(frozen=True)
class TopicNodes:
    """What was read.

    Attributes:
        brokers: ids of the brokers that are registered.
        topics: topic -> data of its node.
        states: partition -> data of its state node, `None` without one.
        log_offsets: partition -> earliest and latest offset, or why they are not known.
    """

    brokers: Collection[int]
    topics: Mapping[str, bytes]
    states: Mapping[TopicPartition, bytes | None] = field(default_factory=dict)
    log_offsets: Mapping[TopicPartition, LogOffsets] = field(default_factory=dict)

    def partitions(self) -> list[TopicPartition]:
        """All partitions that the nodes list."""
        found = []
        for topic, data in sorted(self.topics.items()):
            try:
                found += [TopicPartition(topic, number) for number in znodes.parse_replicas(topic, data)]
            except UnreadableNode:
                pass  # the report names it
        return found


@dataclass(frozen=True)
class TopicPartitionRow:
    """One partition; `None` where there is nothing or it is not known."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...] | None
    earliest: int | None
    latest: int | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicReport:
    """All of it; `problems` are those of the partitions, and those of whole topics, as sentences."""

    partitions: tuple[TopicPartitionRow, ...]
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists with the same names."""
        return asdict(self)


def topic_report(nodes: TopicNodes) -> TopicReport:
    """What the nodes say."""
    rows: list[TopicPartitionRow] = []
    problems: list[str] = []
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
    """Leader and in-sync replicas."""
    data = nodes.states.get(name)
    if data is None:
        problems.append("leaderless: it has no state yet")
        return None, None
    try:
        state = znodes.parse_partition_state(znodes.partition_state_path(name.topic, int(name.partition)), data)
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
