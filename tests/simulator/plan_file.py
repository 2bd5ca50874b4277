"""Reads plans that people have written, as JSON, and names the place of every mistake. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

from tests.simulator.actor import MemberSpec
from tests.simulator.faults import KINDS
from tests.simulator.plan import Plan, Step
from tests.simulator.waiting_steps import PASSING_STATES

__all__ = ["read_plan"]

_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "str": ((str,), "a text"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
}

_T = TypeVar("_T", Plan, MemberSpec, Step)


def read_plan(text: str) -> Plan:
    """The plan in a text.

    Raises:
        ValueError: it is not JSON, or no plan: which field of which entry is wrong, and what could stand there.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"a plan is an object with members, topics and steps, not {_shown(values)}")
    members = tuple(_built(MemberSpec, each, place) for place, each in _entries(values, "members"))
    steps = tuple(_built(Step, each, place) for place, each in _entries(values, "steps"))
    plan = _built(Plan, {**values, "members": members, "steps": steps}, "")
    _check(plan)
    return plan


def _entries(values: Mapping[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    entries = values.get(name, [])
    if not isinstance(entries, list):
        raise ValueError(f"{name}: a list is needed, not {_shown(entries)}")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ValueError(f"{name}[{number}]: an object is needed, not {_shown(entry)}")
    return [(f"{name}[{number}].", entry) for number, entry in enumerate(entries)]


def _built(kind: type[_T], values: Mapping[str, Any], place: str) -> _T:
    known = {each.name: each for each in fields(kind)}
    for name in values:
        if name not in known:
            raise ValueError(f"{place}{name}: there is no such field; there are {', '.join(known)}")
    for name, each in known.items():
        if name not in values and each.default is MISSING:
            raise ValueError(f"{place}{name} is missing")
    return kind(**{name: _value(value, str(known[name].type), place + name) for name, value in values.items()})


def _value(value: Any, type_name: str, place: str) -> Any:
    if place.endswith("topics"):
        return _pairs(value, place)
    if type_name not in _TYPES:
        return value  # members and steps, built before
    types, words = _TYPES[type_name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError(f"{place}: {words} is needed, not {_shown(value)}")
    return value


def _pairs(rows: Any, place: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(rows, list):
        raise ValueError(f'{place}: a list of pairs is needed, as [["t", 2]], not {_shown(rows)}')
    for number, row in enumerate(rows):
        is_pair = isinstance(row, list) and list(map(type, row)) == [str, int]
        if not is_pair or row[1] < 1:
            wanted = 'a name and a number above 0 are needed, as ["t", 2]'
            raise ValueError(f"{place}[{number}]: {wanted}, not {_shown(row)}")
    return tuple((name, count) for name, count in rows)


def _check(plan: Plan) -> None:
    if not plan.members:
        raise ValueError("members: at least one is needed")
    if not plan.topics:
        raise ValueError("topics: at least one is needed")
    for name, value, least in (
        ("servers", plan.servers, 1),
        ("tick_s", plan.tick_s, 0.1),
        ("message_every_s", plan.message_every_s, 0.001),
        ("faults_s", plan.faults_s, 0.0),
    ):
        if value < least:
            raise ValueError(f"{name}: {value} is less than {least}")
    _one_of(plan.generation, ("0.7", "0.8"), "generation")
    for number, member in enumerate(plan.members):
        _one_of(member.kind, ("ours", "java"), f"members[{number}].kind")
        _one_of(member.strategy, (plan.members[0].strategy,), f"members[{number}].strategy")
        _one_of(member.strategy, ("range", "roundrobin"), f"members[{number}].strategy")
        _one_of(
            member.order,
            ("", "auto", "0.8", "1.0") if member.kind == "ours" else ("", "0.8", "1.0"),
            f"members[{number}].order",
        )
        if bool(member.topics) == bool(member.whitelist):
            raise ValueError(f"members[{number}]: either topics or a whitelist is needed")
    for number, step in enumerate(plan.steps):
        _one_of(step.kind, tuple(KINDS), f"steps[{number}].kind")
        _one_of(step.when, ("", *PASSING_STATES), f"steps[{number}].when")
        if step.at_s < 0 or step.for_s < 0:
            raise ValueError(f"steps[{number}]: at_s and for_s cannot be below 0")


def _one_of(value: str, known: tuple[str, ...], place: str) -> None:
    if value not in known:
        raise ValueError(f"{place}: {value!r} is not one of {', '.join(word or repr(word) for word in known)}")


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]
