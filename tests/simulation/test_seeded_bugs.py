"""The simulation is itself tested: each bug that is planted into the production code is found within 1,000 seeds.

Those that take longer than a few seeds: `pytest -m slow tests/simulation/test_seeded_bugs.py`.
"""

from __future__ import annotations

import pytest
from seeded_bugs import BUGS
from seeded_bugs_07 import BUGS_07

from tests.simulator.campaign import run_seed

SEEDS = 1000
SLOW = {
    "kafka commit after release", "order from one look", "order from nodes before the last join",
    "late create dropped", "release by path", "cache not guarded", "change while reading is lost",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in (*BUGS, *BUGS_07)]
)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name] if name in BUGS else BUGS_07[name]
    kind = (bug.members, bug.profile, bug.generation)
    with bug.planted():
        found = next((seed for seed in range(SEEDS) if run_seed(seed, *kind).findings), None)
    assert found is not None, f"{name!r} was not found by {SEEDS} seeds of {' '.join(kind)}"
