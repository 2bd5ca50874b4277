"""Removes the steps that a plan does not need to fail. Pure except for the runs it asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tests.simulator.plan import Plan

__all__ = ["MOST_RUNS", "only_steps", "shrink"]

MOST_RUNS: Final = 200
"""Runs that are tried at most: what is left then is small enough to be read."""


def only_steps(plan: Plan, numbers: Sequence[int]) -> Plan:
    """The plan with these of its steps, counted from 0.

    Raises:
        ValueError: there is no such step.
    """
    for number in numbers:
        if not 0 <= number < len(plan.steps):
            raise ValueError(f"step {number}: the plan has {len(plan.steps)} steps, counted from 0")
    return replace(plan, steps=tuple(plan.steps[number] for number in numbers))


def shrink(plan: Plan, fails: Callable[[Plan], bool], most_runs: int = MOST_RUNS) -> list[int]:
    """Numbers of the steps that are enough for the plan to fail, in their order.

    Takes away halves, then quarters, and so on down to single steps, as long as what is left still fails.

    Args:
        plan: fails.
        fails: runs a plan.
        most_runs: after so many the best one so far is returned.
    """
    kept = list(range(len(plan.steps)))
    runs = 0
    size = max(1, len(kept) // 2)
    while kept:
        at = 0
        was = len(kept)
        while at < len(kept):
            if runs >= most_runs:
                return kept
            without = kept[:at] + kept[at + size :]
            runs += 1
            if fails(only_steps(plan, without)):
                kept = without
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(kept) == was:
            break
    return kept
