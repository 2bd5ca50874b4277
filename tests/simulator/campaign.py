"""Runs many seeds in several processes and sums up their outcomes."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulator.coverage import Coverage, counting
from tests.simulator.drawing import draw_plan
from tests.simulator.java_member import JavaMember
from tests.simulator.plan import Plan
from tests.simulator.profiles import profile_of
from tests.simulator.run import simulate
from tests.simulator.shrink import shrink
from zkconsumer.testing.history.checks import Finding

__all__ = ["Campaign", "Outcome", "run_seed", "run_seeds", "shrink_seed"]

_TOGETHER = 8
"""Seeds that a process takes at a time."""


@dataclass(slots=True)
class Outcome:
    """The outcome of one seed: `findings` is empty when all went well."""

    seed: int
    findings: list[Finding]
    steps: int
    coverage: Coverage


@dataclass(slots=True)
class Campaign:
    """The outcomes of many seeds.

    Attributes:
        seeds: how many were run.
        steps: events of all their schedules.
        failed: outcomes with findings, in the order in which they came.
    """

    members: str
    profile: str
    generation: str = "0.8"
    seeds: int = 0
    steps: int = 0
    failed: list[Outcome] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    begun_s: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Add one outcome."""
        self.seeds += 1
        self.steps += outcome.steps
        self.coverage.add(outcome.coverage)
        if outcome.findings:
            self.failed.append(outcome)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun_s


def run_plan(plan: Plan, seed: int) -> tuple[list[Finding], int]:
    """Findings and steps of one run; an exception of the simulation itself is a finding, too."""
    try:
        run = simulate(plan, seed, JavaMember)
    except Exception:  # noqa: BLE001 - one bad seed must not end a campaign of thousands
        return [Finding("exception", traceback.format_exc())], 0
    return run.findings, run.steps


def run_seed(seed: int, members: str, profile: str, generation: str = "0.8") -> Outcome:
    """Run one seed."""
    coverage = Coverage()
    plan = draw_plan(seed, members, profile_of(profile, seed), generation)
    with counting(coverage):
        findings, steps = run_plan(plan, seed)
    coverage.kinds.update(step.kind for step in plan.steps)
    return Outcome(seed, findings, steps, coverage)


def _run(job: tuple[int, str, str, str]) -> Outcome:
    return run_seed(*job)


def run_seeds(seeds: range, members: str, profile: str, jobs: int, generation: str = "0.8") -> Iterator[Outcome]:
    """The outcomes of many seeds, as they come; closing the iterator ends the processes."""
    work = [(seed, members, profile, generation) for seed in seeds]
    if jobs == 1:
        yield from map(_run, work)
        return
    # Spawned, not forked: the caller may have threads, of a progress bar for instance.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_run, work, chunksize=_TOGETHER)


def shrink_seed(outcome: Outcome, members: str, profile: str, generation: str = "0.8") -> list[int]:
    """Numbers of the steps of a failed seed's plan that are enough for the first of its findings."""
    wanted = outcome.findings[0].check
    plan = draw_plan(outcome.seed, members, profile_of(profile, outcome.seed), generation)

    def fails(tried: Plan) -> bool:
        return any(finding.check == wanted for finding in run_plan(tried, outcome.seed)[0])

    return shrink(plan, fails)
