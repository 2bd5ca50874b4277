"""Some hundreds of seeds: groups of our members come through every kind of fault with a clean history.

More of them: `python -m tests.simulator --seeds 10000 --jobs 2`.
"""

from __future__ import annotations

import os

import pytest

from tests.simulator.campaign import run_seeds
from tests.simulator.drawing import PROFILES

SEEDS = {"everything": 60} | {name: 12 for name in PROFILES if name != "everything"}
JOBS = min(2, os.cpu_count() or 1)
"""Of the thousands; for some seeds a process costs more than it brings."""


@pytest.mark.catalogue("C1", "L1")
@pytest.mark.parametrize("profile", SEEDS)
def test_a_group_comes_through(profile: str) -> None:
    outcomes = list(run_seeds(range(SEEDS[profile]), "ours", profile, jobs=1))
    assert len(outcomes) == SEEDS[profile]
    failed = [
        f"python -m tests.simulator --profile {profile} --seed {outcome.seed} --trace\n    {outcome.findings[0]}"
        for outcome in outcomes if outcome.findings
    ]  # fmt: skip
    assert not failed, "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_a_group_comes_through_thousands(profile: str) -> None:
    failed = [outcome for outcome in run_seeds(range(1000, 4000), "ours", profile, JOBS) if outcome.findings]
    assert not failed, "\n".join(f"{outcome.seed}: {outcome.findings[0]}" for outcome in failed[:10])
