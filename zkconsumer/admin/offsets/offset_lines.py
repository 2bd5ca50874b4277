"""Formats and parses stored offsets as lines of text: `/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`.

Comments after the first empty line hold the offsets in Kafka. Java's reader does not get there.
- `# kafka /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`: Kafka has this offset, and the line has that in ZooKeeper.
- `# kafka only /consumers/GROUP/offsets/TOPIC/PARTITION`: the offset of the line is Kafka's, and ZooKeeper has none.
- `# store NAME`: all lines are of one store.

Pure. Kafka's own tools write these lines. Java's reader stops at the first empty line and takes whatever stands around
the colon; this one skips empty lines and names every other line that it cannot use by its number, so that no line is
left out unnoticed.

Source: kafka.tools.ExportZkOffsets, ImportZkOffsets (0.8.2.2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from rebalance.zookeeper import znodes

_NAME = re.compile(r"(?!\.\.?$)(?! )([^/\s\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]| )+(?<! )")
"""A part of a path as ZooKeeper accepts it; Kafka 0.7 and brokers that coordinate have no rule for names of groups.

Blanks at its ends are more often a slip of the hand than a name.
"""
_LINE = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([^/:]*):(.*)")
_PARTITION = re.compile(r"(0|[1-9][0-9]{0,8})|(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]{0,8})")
"""Without leading zeros: another name would be a second node next to that of the partition.

Ids of brokers of Kafka 0.7 have up to ten digits.
"""
_FORM = "it does not have the form of an offset"
_EXCERPT_CHARS = 80
_OFFSET_DIGITS = 19
_BOM = "\ufeff"
_KAFKA = "# kafka "
_KAFKA_ONLY = "# kafka only "
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


def format_lines(lines: Sequence[OffsetLine], store: str | None, in_both: Collection[tuple[str, str, str]] = ()) -> str:
    """Return the lines as a file that Java's tool can read, with comments at its end where the store matters.

    >>> print(format_lines([OffsetLine("g", "t", "0", 5), OffsetLine("g", "t", "0", 300, "kafka"),
    ...                     OffsetLine("g", "t", "1", 7, "kafka")], None), end="")
    /consumers/g/offsets/t/0:5
    /consumers/g/offsets/t/1:7
    <BLANKLINE>
    # kafka /consumers/g/offsets/t/0:300
    # kafka only /consumers/g/offsets/t/1

    Args:
        store: The store of all lines; None: a partition with two lines has a second offset, that in Kafka.
        in_both: Group, topic and partition of lines whose offset both stores have.
    """
    seen: set[tuple[str, str, str]] = set()
    shown: list[str] = []
    comments = [] if store is None else [f"{_STORE}{store}"]
    for line in lines:
        if line[:3] in seen:
            comments.append(f"{_KAFKA}{format_line(line)}")
        else:
            shown.append(format_line(line))
            if store is None and line.store == "kafka":
                comments.append(f"{_KAFKA_ONLY}{znodes.offset_path(*line[:3])}")
            elif line[:3] in in_both:
                comments.append(f"{_KAFKA}{format_line(line)}")
        seen.add(line[:3])
    return "".join(f"{each}\n" for each in [*shown, *(["", *comments] if shown and comments else [])])


def parse_store(text: str) -> str | None:
    """Return the store that a comment says all lines are of; None without one.

    >>> parse_store("/consumers/g/offsets/t/0:5\\n\\n# store kafka\\n")
    'kafka'
    """
    for raw in text.removeprefix(_BOM).split("\n"):
        if raw.strip() in (f"{_STORE}zookeeper", f"{_STORE}kafka"):
            return raw.strip().removeprefix(_STORE)
    return None


def fault_of(content: str) -> str | None:
    """Return why a line cannot be used, a clause; None if it can.

    >>> fault_of("/consumers/g/offsets/t/1:x")
    "the offset 'x' is not a number from 0 to 9223372036854775807"
    """
    found = _LINE.fullmatch(content)
    if found is None:
        return _FORM
    group, topic, partition, offset = found.groups()
    for fault in (fault_of_group(group), _fault_of_name("topic", topic)):
        if fault is not None:
            return fault
    if _PARTITION.fullmatch(partition) is None:
        return (f"the partition {partition!r} is neither a number from 0 to 999999999 without leading zeros, nor a "
                "name of Kafka 0.7 such as 0-3")  # fmt: skip
    if not (offset.isascii() and offset.isdigit()) or len(offset) > _OFFSET_DIGITS or int(offset) > znodes.MAX_OFFSET:
        return f"the offset {offset[:_EXCERPT_CHARS]!r} is not a number from 0 to {znodes.MAX_OFFSET}"
    return None


def fault_of_group(group: str) -> str | None:
    """Return why no line can be about a group, a clause; None if one can. Brokers take every text as a name.

    >>> fault_of_group("a/b")
    "the group 'a/b' has characters that are not allowed in a name"
    """
    return _fault_of_name("group", group)


def _fault_of_name(what: str, name: str) -> str | None:
    return None if _NAME.fullmatch(name) else f"the {what} {name!r} has characters that are not allowed in a name"


def parse_lines(text: str) -> tuple[list[OffsetLine], list[str]]:
    """Return the offsets, and a clause about each line that cannot be used.

    >>> parse_lines("/consumers/g/offsets/t/0:42\\n\\n# kafka only /consumers/g/offsets/t/0\\n")
    ([OffsetLine(group='g', topic='t', partition='0', offset=42, store='kafka')], [])
    """
    lines: list[OffsetLine] = []
    problems: list[str] = []
    numbers: dict[tuple[str, str, str, bool], int] = {}
    only: dict[str, int] = {}
    for number, raw in enumerate(text.removeprefix(_BOM).split("\n"), 1):
        content = raw.strip()
        if not content or content in (f"{_STORE}zookeeper", f"{_STORE}kafka"):
            continue
        if content.startswith(_KAFKA_ONLY):
            only[content.removeprefix(_KAFKA_ONLY)] = number
            continue
        in_kafka = content.startswith(_KAFKA)
        content = content.removeprefix(_KAFKA)
        fault = fault_of(content)
        found = _LINE.fullmatch(content)
        if fault is not None or found is None:
            problems.append(f"line {number}: {raw.strip()[:_EXCERPT_CHARS]!r}: {fault}")
            continue
        line = OffsetLine(found[1], found[2], found[3], int(found[4]), "kafka" if in_kafka else "zookeeper")
        first = numbers.setdefault((*line[:3], in_kafka), number)
        if first != number:
            problems.append(f"line {number}: the same partition as line {first}")
            continue
        lines.append(line)
    return _with_stores(lines, only, problems), problems


def _with_stores(lines: list[OffsetLine], only: dict[str, int], problems: list[str]) -> list[OffsetLine]:
    """Return the lines with their stores, by the comments about offsets that Kafka alone has."""
    left = dict(only)
    found: list[OffsetLine] = []
    for line in lines:
        path = znodes.offset_path(*line[:3])
        left.pop(path, None)
        found.append(line._replace(store="kafka") if path in only else line)
    problems += [f"line {number}: no line has an offset for {path[:_EXCERPT_CHARS]!r}"
                 for path, number in left.items()]  # fmt: skip
    return found
