"""Exports stored offsets of groups as lines, and reads such lines.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import ZooKeeperPort
from zkconsumer.admin.errors import OffsetsNotSet
from zkconsumer.admin.groups.group_nodes import group_not_found
from zkconsumer.admin.groups.group_report import unled_clause
from zkconsumer.admin.groups.group_state import Name
from zkconsumer.admin.offsets.group_offsets import StoredOffsets, read_stored_offsets
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.admin.offsets.offset_lines import OffsetLine, fault_of, format_line, format_lines, parse_lines
from zkconsumer.admin.offsets.store_choice import BOTH, KAFKA, ZOOKEEPER
from zkconsumer.admin.phrases import count_of
from zkconsumer.admin.values import JsonValue, typed
from zkconsumer.cluster.zookeeper_reads import children
from zkconsumer_error import first_few

__all__ = ["ExportedOffsets", "export_offsets", "lines_of"]

@dataclass(frozen=True)
class ExportedOffsets(JsonValue):
    """The stored offsets of some groups.

    Attributes:
        lines: By group, topic and partition, each with the store that it comes from; where the stores differ, that in
            ZooKeeper and behind it that in Kafka.
        problems: Offsets that cannot be read and were left out, a sentence each.
        notes: What is worth knowing, a sentence each: offsets that differ between the stores.
        store: The one store that was exported; None: both.
        in_both: Group, topic and partition of the lines whose offset is that of both stores.
    """

    lines: tuple[OffsetLine, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    store: str | None = None
    in_both: frozenset[tuple[str, str, str]] = frozenset()

    def to_text(self) -> str:
        """Return them in the form of Kafka's ExportZkOffsets, one a line, and behind them comments about the stores."""
        return format_lines(self.lines, self.store, self.in_both)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer offsets export --json`."""
        offsets = typed([line._asdict() for line in self.lines])
        return {"offsets": offsets, "problems": list(self.problems), "notes": list(self.notes)}

    def counts(self) -> Counter[str]:
        """Return store -> number of lines that come from it."""
        return Counter(line.store for line in self.lines)


def export_offsets(
    port: ZooKeeperPort, in_kafka: OffsetsInKafka, zookeeper: str, groups: Sequence[str], store: str | None
) -> ExportedOffsets:
    """Return the stored offsets of groups, of all groups of ZooKeeper when none is named.

    Args:
        zookeeper: The connection string, for the message of an error.
        store: Offsets of that store alone; None or `both`: of each partition ZooKeeper's if there is one, else Kafka's;
            both where they differ.

    Raises:
        NotFound: There is no such group.
    """
    stores = (ZOOKEEPER, KAFKA) if store in (None, BOTH) else (str(store),)
    chosen = groups or children(port, znodes.CONSUMERS) or []
    stored = read_stored_offsets(port, in_kafka, chosen, store)
    lines: list[OffsetLine] = []
    problems: list[str] = []
    notes: list[str] = []
    unled: set[Name] = set()
    for group, found in stored.items():
        if groups and found.is_empty:
            raise group_not_found(port, zookeeper, group, found.kafka_unknown)
        if found.kafka_unknown is not None:
            problems.append(f"offsets in Kafka of group {group!r}: {found.kafka_unknown}")
        unled |= found.kafka_unled
        lines += _lines(found, stores, problems)
        differing = [name for name in found.names() if found.differs(name)] if len(stores) > 1 else []
        if differing:
            (topic, name), more = differing[0], len(differing) - 1
            notes.append(
                f"group {group!r}: {count_of(len(differing), 'offset')} of ZooKeeper differ from Kafka's, such as "
                f"{topic}-{name}" if more else
                f"group {group!r}: the offset of {topic}-{name} in ZooKeeper differs from Kafka's"
            )  # fmt: skip
    clause = unled_clause(unled)
    if clause is not None:
        problems.append(f"offsets that groups may have in Kafka for topics without leaders: {clause}")
    notes += _refused_by_import(lines)
    return ExportedOffsets(
        tuple(lines), tuple(problems), tuple(notes), stores[0] if len(stores) == 1 else None,
        frozenset(line[:3] for line in lines if len(stores) > 1 and line.store == ZOOKEEPER
                  and stored[line.group].kafka.get(line[1:3]) == line.offset),
    )  # fmt: skip


def _refused_by_import(lines: Sequence[OffsetLine]) -> list[str]:
    """Return a sentence about the lines that an import refuses: ZooKeeper holds nodes with any name."""
    faults = [(text, fault) for line in lines if (fault := fault_of(text := format_line(line))) is not None]
    if not faults:
        return []
    text, fault = faults[0]
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return [f"an import refuses {text!r} ({fault}){more}; delete such lines before you import"]


def _lines(found: StoredOffsets, stores: Collection[str], problems: list[str]) -> list[OffsetLine]:
    lines: list[OffsetLine] = []
    for topic, name in found.names():
        for store in stores:
            try:
                offset = found.offset(store, (topic, name))
            except UnreadableNode as error:
                problems.append(str(error))
                break
            if offset is not None:
                lines.append(OffsetLine(found.group, topic, name, offset, store))
                if store == ZOOKEEPER and len(stores) > 1 and found.differs((topic, name)):
                    continue
                break
    return lines


def lines_of(text: str, source: str) -> list[OffsetLine]:
    """Return the offsets in a text of lines.

    Args:
        source: Where the text comes from, for the message of the error.

    Raises:
        OffsetsNotSet: A line cannot be used, or there is none.
    """
    lines, problems = parse_lines(text)
    if problems:
        shown = first_few(*problems, between="; ", rest="; and {} more")
        raise OffsetsNotSet(
            f"no offset was set: {source} has {count_of(len(problems), 'line')} that cannot be used: {shown}",
            "correct or delete these lines; each must be /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, once",
        )
    if not lines:
        raise OffsetsNotSet(f"{source} holds no offsets")
    return lines
