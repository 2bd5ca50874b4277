"""A plan: the members, the topics, and the steps that happen to them. Pure values, JSON in and out.

Steps are independent of each other: each says how long it lasts, and one whose target is not there does
nothing. So any of them can be taken away, and what is left is a plan again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from tests.simulator.actor import MemberSpec

__all__ = ["GROUP", "Plan", "Step", "format_plan", "parse_plan"]

GROUP: Final = "g"
"""The name of the group in every simulation."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    Attributes:
        at_s: when, in seconds from the start of the run.
        kind: what, see `tests.simulator.faults.KINDS`.
        target: to whom: a member's name or a topic.
        number: of a partition, or of a server.
        for_s: how long.
        amount: how many, how much: what the kind makes of it.
        word: a variant of the kind.
        when: not at `at_s`, but as soon after it as a member of ours is in this state of one of the two machines, see
            `tests.simulator.waiting_steps`; never, if none comes into it.
    """

    at_s: float
    kind: str
    target: str = ""
    number: int = 0
    for_s: float = 0.0
    amount: int = 0
    word: str = ""
    when: str = ""

    def __str__(self) -> str:
        parts = [
            self.kind,
            self.target,
            f"number {self.number}" if self.number else "",
            self.word,
            f"by {self.amount}" if self.amount else "",
            f"for {self.for_s:g} s" if self.for_s else "",
            f"when {self.when}" if self.when else "",
        ]
        return f"{self.at_s:.3f} {' '.join(part for part in parts if part)}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All of one run but its random numbers.

    Attributes:
        members: all that ever take part; a step `join` brings each into the group. One that is listed twice
            comes back as the other.
        topics: (topic, partitions) as they are at the start.
        steps: in any order.
        servers: how many ZooKeeper servers there are.
        tick_s: their tick.
        message_every_s: between two messages of a partition, on average.
        faults_s: how long things happen; after it everything is healed.
        generation: of Kafka: 0.7 or 0.8.
    """

    members: tuple[MemberSpec, ...]
    topics: tuple[tuple[str, int], ...]
    steps: tuple[Step, ...]
    servers: int = 1
    tick_s: float = 1.0
    message_every_s: float = 0.3
    faults_s: float = 20.0
    generation: str = "0.8"


def format_plan(plan: Plan) -> str:
    """The plan as JSON, a line for each member and each step; what has its default is left out."""
    head = {name: value for name, value in _given(plan).items() if name not in ("members", "steps")}
    lines = [f'"{name}":{json.dumps(value)}' for name, value in head.items()]
    for name, entries in (("members", plan.members), ("steps", plan.steps)):
        rows = ",\n  ".join(json.dumps(_given(entry)) for entry in entries)
        lines.append(f'"{name}":[\n  {rows}]' if rows else f'"{name}":[]')
    return "{" + ",\n ".join(lines) + "}"


def _given(entry: Plan | MemberSpec | Step) -> dict[str, Any]:
    defaults = {each.name: each.default for each in fields(entry)}
    return {name: value for name, value in asdict(entry).items() if value != defaults[name]}


def parse_plan(text: str) -> Plan:
    """The plan in a text that `format_plan` wrote.

    Raises:
        ValueError: no JSON object, or a field that is unknown or missing.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"not a plan: {text[:200]!r}")
    members = tuple(
        _built(MemberSpec, {**each, "topics": _pairs(each.get("topics", ()))}) for each in values.pop("members", ())
    )
    steps = tuple(_built(Step, each) for each in values.pop("steps", ()))
    return _built(Plan, {**values, "topics": _pairs(values.get("topics", ())), "members": members, "steps": steps})


def _pairs(rows: Any) -> tuple[tuple[str, int], ...]:
    return tuple((str(name), int(count)) for name, count in rows)


_T = TypeVar("_T", Plan, MemberSpec, Step)


def _built(kind: type[_T], values: Mapping[str, Any]) -> _T:
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error
