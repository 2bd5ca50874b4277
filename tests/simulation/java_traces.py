"""Traces of scenes as text: kept in files, compared with what the model does.

The file of a scene, `traces/<scene>.txt`:

    == title of a part
    -- name of a member
    one line an entry, see `zkconsumer.testing.proxy.zookeeper_trace`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from itertools import groupby
from pathlib import Path

__all__ = ["FOLDER", "Trace", "difference", "format_scene", "is_merge", "normalised", "parse_scene", "recorded"]

FOLDER = Path(__file__).with_name("traces")

Trace = dict[str, dict[str, list[str]]]
"""Part -> member -> lines."""

_LISTED = ("get /brokers/ids/", "get /consumers/g/ids/")


def format_scene(comment: str, trace: Trace) -> str:
    """The text of a file."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for part, members in trace.items():
        lines += ["", f"== {part}"]
        for member, said in members.items():
            lines += [f"-- {member}", *said]
    return "\n".join(lines) + "\n"


def parse_scene(text: str) -> Trace:
    """What `format_scene` wrote."""
    trace: Trace = {}
    part: dict[str, list[str]] = {}
    said: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            part = trace[line[3:]] = {}
        elif line.startswith("-- "):
            said = part[line[3:]] = []
        elif line and not line.startswith("#"):
            said.append(line)
    return trace


def recorded(scene: str) -> Trace:
    """The content of the file of a scene."""
    return parse_scene((FOLDER / f"{scene}.txt").read_text(encoding="utf-8"))


def difference(real: Trace, model: Trace) -> str:
    """The lines that only one of two traces has, with the lines around them; empty if they are equal."""
    real_lines, model_lines = (format_scene("", trace).splitlines() for trace in (real, model))
    return "\n".join(unified_diff(real_lines, model_lines, "recorded", "model", lineterm="", n=4))


def normalised(lines: Sequence[str]) -> list[str]:
    """Lines without what is open: the order in which a server lists children, and what comes after `close`.

    Nodes that are read one after the other, because their parent's children were listed, stand in order of their names.
    """
    if "close -> ok" in lines:
        lines = lines[: lines.index("close -> ok") + 1]
    ordered: list[str] = []
    for listed, group in groupby(lines, key=lambda line: next((each for each in _LISTED if line.startswith(each)), "")):
        together = list(group)
        ordered += sorted(together) if listed else together
    return ordered


def is_merge(lines: Sequence[str], threads: Mapping[str, Sequence[str]]) -> str:
    """Whether the lines are what some threads said, each in its order and nothing else; a sentence if they are not."""
    queues = list(threads.values())
    reached = {tuple(0 for _ in queues)}
    for number, line in enumerate(lines):
        reached_next = {
            (*at[:index], at[index] + 1, *at[index + 1 :])
            for at in reached
            for index, queue in enumerate(queues)
            if at[index] < len(queue) and queue[at[index]] == line
        }
        if not reached_next:
            return f"line {number + 1}, {line!r}, comes next from no thread: {_heads(threads, max(reached))}"
        reached = reached_next
    if tuple(map(len, queues)) not in reached:
        return f"after {len(lines)} lines the threads say more: {_heads(threads, max(reached))}"
    return ""


def _heads(threads: Mapping[str, Sequence[str]], at: Iterable[int]) -> str:
    heads = {name: queue[index] for (name, queue), index in zip(threads.items(), at, strict=True) if index < len(queue)}
    return "; ".join(f"{name}: {head!r}" for name, head in heads.items()) or "they are at their ends"
