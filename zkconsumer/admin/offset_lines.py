"""Formats and parses stored offsets as lines of text: `/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`.

Pure. Kafka's own tools write these lines. Java's reader stops at the first empty line and takes whatever stands around
the colon; this one skips empty lines and names every other line that it cannot use by its number, so that no line is
left out unnoticed.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rebalance import znodes

__all__ = ["OffsetLine", "format_line", "parse_lines"]

_NAME = r"(?!\.\.?/)([^/\s\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)"
"""A part of a path as ZooKeeper accepts it; Kafka 0.7 had no rule of its own for the names of groups."""
_LINE = re.compile(rf"/consumers/{_NAME}/offsets/{_NAME}/([0-9]{{1,9}}(?:-[0-9]{{1,9}})?):([0-9]{{1,19}})")
_EXCERPT_CHARS = 80


class OffsetLine(NamedTuple):
    """One stored offset.

    Attributes:
        group: The group.
        topic: The topic.
        partition: The name of its node (`broker-partition` in Kafka 0.7).
        offset: The next offset to be read.
        store: Where it is stored, `zookeeper` or `kafka`; a line of text does not say so.
    """

    group: str
    topic: str
    partition: str
    offset: int
    store: str = "zookeeper"


def format_line(line: OffsetLine) -> str:
    """Return the line, without a line end.

    >>> format_line(OffsetLine("billing", "clicks", "0", 42))
    '/consumers/billing/offsets/clicks/0:42'
    """
    return f"{znodes.offset_path(line.group, line.topic, line.partition)}:{line.offset}"


def parse_lines(text: str) -> tuple[list[OffsetLine], list[str]]:
    """Return the offsets, and a clause about each line that cannot be used.

    >>> parse_lines("/consumers/g/offsets/t/0:42\\nnonsense\\n")
    ([OffsetLine(group='g', topic='t', partition='0', offset=42, store='zookeeper')], ["line 2: 'nonsense'"])
    """
    lines: list[OffsetLine] = []
    problems: list[str] = []
    numbers: dict[tuple[str, str, str], int] = {}
    for number, raw in enumerate(text.split("\n"), 1):
        content = raw.strip()
        if not content:
            continue
        found = _LINE.fullmatch(content)
        if found is None or int(found[4]) > znodes.MAX_OFFSET:
            problems.append(f"line {number}: {content[:_EXCERPT_CHARS]!r}")
            continue
        line = OffsetLine(found[1], found[2], found[3], int(found[4]))
        first = numbers.setdefault(line[:3], number)
        if first != number:
            problems.append(f"line {number}: the same partition as line {first}")
            continue
        lines.append(line)
    return lines, problems
