"""Sets stored offsets of a group to a target, exports them as lines, and imports such lines.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets, UpdateOffsetsInZK (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rebalance import znodes
from rebalance.errors import UnreadableNode
from rebalance.requests import GetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.errors import NotFound, OffsetsNotSet
from zkconsumer.admin.group_nodes import read_offsets
from zkconsumer.admin.offset_changes import OffsetChange, PartitionName, plan_changes
from zkconsumer.admin.offset_lines import OffsetLine, format_line, parse_lines
from zkconsumer.admin.offset_target import OffsetTarget
from zkconsumer.admin.phrases import count_of, nearest
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_reads import children, read_all

__all__ = ["ExportedOffsets", "export_offsets", "lines_of", "plan_target", "topic_partitions"]

_SHOWN = 3
_SHOWN_LINES = 5


def topic_partitions(port: ZooKeeperPort, topic: str, chosen: Sequence[int]) -> list[TopicPartition]:
    """Return the chosen partitions of a topic, all of them when none is chosen.

    Raises:
        NotFound: There is no such topic or partition.
    """
    [node] = read_all(port, [GetData(znodes.topic_path(topic))])
    if node is None:
        raise NotFound(f"there is no topic {topic!r}", nearest(topic, children(port, znodes.TOPICS) or [], "topic"))
    known = znodes.parse_topic(topic, node[0])
    missing = sorted(set(chosen) - set(known))
    if missing:
        raise NotFound(
            f"topic {topic!r} has no partition {', '.join(map(str, missing))}", f"it has {', '.join(map(str, known))}"
        )
    return [TopicPartition(topic, number) for number in sorted(set(chosen) or known)]


def plan_target(
    port: ZooKeeperPort,
    cluster: Cluster,
    group: str,
    names: Sequence[TopicPartition],
    target: OffsetTarget,
    force: bool,
) -> list[OffsetChange]:
    """Return the changes that set the offsets of some partitions to a target.

    Args:
        force: Do not ask whether the log has an offset that was given as a number.

    Raises:
        OffsetsNotSet: A log does not have the target, or is not known.
    """
    needs_logs = target.offset is None or not force
    logs = cluster.log_ends(names, target.times_ms) if needs_logs else {}
    wanted: list[tuple[PartitionName, int]] = []
    refused: list[str] = []
    for name in names:
        try:
            offset = target.resolve(logs.get(name, ""), force)
        except ValueError as error:
            refused.append(f"{name.topic}-{name.partition}: {error}")
        else:
            wanted.append(((group, name.topic, str(name.partition)), offset))
    if refused:
        more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise OffsetsNotSet(
            f"no offset was set: {target.text} cannot be set for {'; '.join(refused[:_SHOWN])}{more}",
            "give --force to set it all the same" if target.offset is not None else "try again once a broker leads it",
        )
    return plan_changes(port, wanted)


@dataclass(frozen=True)
class ExportedOffsets:
    """The stored offsets of some groups.

    Attributes:
        lines: By group, topic and partition.
        problems: Offsets that cannot be read and were left out, a sentence each.
    """

    lines: tuple[OffsetLine, ...]
    problems: tuple[str, ...]

    def to_text(self) -> str:
        """Return them in the form of Kafka's ExportZkOffsets, one a line."""
        return "".join(f"{format_line(line)}\n" for line in self.lines)


def export_offsets(port: ZooKeeperPort, zookeeper: str, groups: Sequence[str]) -> ExportedOffsets:
    """Return the stored offsets of groups, of all groups when none is named.

    Raises:
        NotFound: There is no such group.
    """
    known = children(port, znodes.CONSUMERS) or []
    for group in groups:
        if group not in known:
            remedy = nearest(group, known, "group")
            raise NotFound(f"group {group!r} does not exist in ZooKeeper at {zookeeper}", remedy)
    lines: list[OffsetLine] = []
    problems: list[str] = []
    for group in list(dict.fromkeys(groups)) or known:
        found = read_offsets(port, group)
        for topic, name in sorted(found, key=lambda at: (at[0], not at[1].isdigit(), at[1].zfill(19))):
            try:
                offset = znodes.parse_offset(znodes.offset_path(group, topic, name), found[topic, name])
            except UnreadableNode as error:
                problems.append(str(error))
            else:
                lines.append(OffsetLine(group, topic, name, offset))
    return ExportedOffsets(tuple(lines), tuple(problems))


def lines_of(text: str, source: str) -> list[OffsetLine]:
    """Return the offsets in a text of lines.

    Args:
        source: Where the text comes from, for the message of the error.

    Raises:
        OffsetsNotSet: A line cannot be used, or there is none.
    """
    lines, problems = parse_lines(text)
    if problems:
        shown = "; ".join(problems[:_SHOWN_LINES])
        more = f"; and {len(problems) - _SHOWN_LINES} more" if len(problems) > _SHOWN_LINES else ""
        raise OffsetsNotSet(
            f"no offset was set: {source} has {count_of(len(problems), 'line')} that cannot be used: {shown}{more}",
            "each must be /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, once",
        )
    if not lines:
        raise OffsetsNotSet(f"{source} holds no offsets")
    return lines
