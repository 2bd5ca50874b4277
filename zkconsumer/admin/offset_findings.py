"""What is wrong with the stored offsets of a group: no number, or none that the log has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rebalance import znodes
from rebalance.errors import UnreadableNode
from zkconsumer.admin.findings import Finding
from zkconsumer.admin.group_report import GroupNodes, Name
from zkconsumer.admin.verification import partition_number, partitions_of

__all__ = ["LogRange", "offset_findings"]

LogRange = tuple[int, int] | str
"""Begin and end of a log, or why they are not known."""


def offset_findings(nodes: GroupNodes, logs: Mapping[Name, LogRange]) -> Iterator[Finding]:
    """One finding for each offset that a member could not go on from.

    Args:
        logs: (topic, partition's name) -> its log, as it was after the offsets were read; what is missing is not
            compared.
    """
    partitions, _ = partitions_of(nodes)
    for (topic, name), data in sorted(nodes.offsets.items()):
        path = znodes.offset_path(nodes.group, topic, name)
        is_topic_known = znodes.topic_path(topic) not in nodes.refused
        set_it = f"zkconsumer offsets set {nodes.group} --topic {topic} --partition {name} --to earliest --force"
        try:
            offset = znodes.parse_offset(path, data)
        except UnreadableNode as error:
            yield Finding("unreadable-offset", path, f"{topic}-{name}: its stored offset {error.excerpt!r} is none",
                          f"{set_it}, or whoever claims it next begins where auto.offset.reset says; Java members fail "
                          "their rebalance at it")  # fmt: skip
            continue
        is_there = topic in nodes.known_topics and partition_number(name) in partitions.get(topic, (None,))
        if is_topic_known and not is_there:
            yield Finding("stale-offset", path, f"{topic}-{name}: an offset is stored, and there is no such partition",
                          "nothing, unless it comes back: then it is read from that offset", fault=False)  # fmt: skip
            continue
        log = logs.get((topic, name))
        found = None if log is None else _place(offset, log)
        if found is not None:
            kind, what = found
            # A member that reads on commits in a while, and a leader is chosen in a while.
            passing = kind != "offset-beyond-log"
            yield Finding(kind, path, f"{topic}-{name}: {what}", _REMEDIES[kind].format(set_it=set_it), passing)


def _place(offset: int, log: LogRange) -> tuple[str, str] | None:
    """Kind and clause of what is wrong with where an offset lies."""
    if isinstance(log, str):
        return "unknown-log", f"what its log holds is not known: {log}"
    begin, end = log
    if offset > end:
        return "offset-beyond-log", f"its stored offset {offset} is {offset - end} beyond the end of its log"
    if offset < begin:
        return ("offset-before-log",
                f"its stored offset {offset} is {begin - offset} before the begin of its log: that was deleted unread")
    return None


_REMEDIES = {
    "unknown-log": "look at the partition's leader with zkconsumer topics",
    "offset-beyond-log": "{set_it}, or whoever claims it next begins where auto.offset.reset says",
    "offset-before-log": "{set_it}, or whoever claims it next begins where auto.offset.reset says",
}
