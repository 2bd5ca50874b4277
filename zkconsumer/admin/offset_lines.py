"""Formats and parses stored offsets as lines of text: `/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`.

Where the stores differ, the line has the offset in ZooKeeper, and a comment behind the first empty line that in Kafka:
`# kafka /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`. A comment `# store NAME` says that all lines are of one
store. Java's reader does not get there.

Pure. Kafka's own tools write these lines. Java's reader stops at the first empty line and takes whatever stands around
the colon; this one skips empty lines and names every other line that it cannot use by its number, so that no line is
left out unnoticed.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rebalance import znodes

__all__ = ["OffsetLine", "format_line", "format_lines", "parse_lines", "parse_store"]

_NAME = r"(?!\.\.?/)([^/\s\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)"
"""A part of a path as ZooKeeper accepts it; Kafka 0.7 had no rule of its own for the names of groups."""
_LINE = re.compile(rf"/consumers/{_NAME}/offsets/{_NAME}/([0-9]{{1,9}}(?:-[0-9]{{1,9}})?):([0-9]{{1,19}})")
_EXCERPT_CHARS = 80
_KAFKA = "# kafka "
_STORE = "# store "


class OffsetLine(NamedTuple):
    """One stored offset.

    Attributes:
        group: The group.
        topic: The topic.
        partition: The name of its node (`broker-partition` in Kafka 0.7).
        offset: The next offset to be read.
        store: Where it is stored, `zookeeper` or `kafka`; a line of text does not say so, a comment does.
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


def format_lines(lines: Sequence[OffsetLine], store: str | None) -> str:
    """Return the lines as a file that Java's tool can read, with comments at its end where the store matters.

    >>> print(format_lines([OffsetLine("g", "t", "0", 5), OffsetLine("g", "t", "0", 300, "kafka")], None), end="")
    /consumers/g/offsets/t/0:5
    <BLANKLINE>
    # kafka /consumers/g/offsets/t/0:300

    Args:
        store: The store of all lines; None: a partition with two lines has a second offset, that in Kafka.
    """
    seen: set[tuple[str, str, str]] = set()
    shown: list[str] = []
    comments = [] if store is None else [f"{_STORE}{store}"]
    for line in lines:
        if line[:3] in seen:
            comments.append(f"# {line.store} {format_line(line)}")
        else:
            shown.append(format_line(line))
        seen.add(line[:3])
    return "".join(f"{each}\n" for each in [*shown, *(["", *comments] if shown and comments else [])])


def parse_store(text: str) -> str | None:
    """Return the store that a comment says all lines are of; None without one.

    >>> parse_store("/consumers/g/offsets/t/0:5\\n\\n# store kafka\\n")
    'kafka'
    """
    for raw in text.split("\n"):
        if raw.strip() in (f"{_STORE}zookeeper", f"{_STORE}kafka"):
            return raw.strip().removeprefix(_STORE)
    return None


def parse_lines(text: str) -> tuple[list[OffsetLine], list[str]]:
    """Return the offsets, and a clause about each line that cannot be used.

    >>> parse_lines("/consumers/g/offsets/t/0:42\\nnonsense\\n")
    ([OffsetLine(group='g', topic='t', partition='0', offset=42, store='zookeeper')], ["line 2: 'nonsense'"])
    """
    lines: list[OffsetLine] = []
    problems: list[str] = []
    numbers: dict[tuple[str, str, str, bool], int] = {}
    for number, raw in enumerate(text.split("\n"), 1):
        content = raw.strip()
        if not content or content in (f"{_STORE}zookeeper", f"{_STORE}kafka"):
            continue
        in_kafka = content.startswith(_KAFKA)
        found = _LINE.fullmatch(content.removeprefix(_KAFKA))
        if found is None or int(found[4]) > znodes.MAX_OFFSET:
            problems.append(f"line {number}: {content[:_EXCERPT_CHARS]!r}")
            continue
        line = OffsetLine(found[1], found[2], found[3], int(found[4]), "kafka" if in_kafka else "zookeeper")
        first = numbers.setdefault((*line[:3], in_kafka), number)
        if first != number:
            problems.append(f"line {number}: the same partition as line {first}")
            continue
        lines.append(line)
    return lines, problems
