"""The simulation is itself tested: each bug that is planted into the production code is found within 1,000 seeds.

Those that take longer than a few seeds: `pytest -m slow tests/simulation/test_seeded_bugs.py`.
"""

from __future__ import annotations

import pytest
from seeded_bugs import BUGS
from seeded_bugs_07 import BUGS_07

from tests.simulator.campaign import run_seed

SEEDS = 1000
FIRST = {
    "unanswered commit sets back": 102, "claims at once what was let go of": 148, "any node is mine": 100,
    "unknown offset counts as none": 68, "unanswered commit counts as stored": 67, "offset before claim": 67,
    "lease from receipt": 46, "watch after read": 42, "0.7 begun entry not finished": 23,
    "closed registration counts as none": 37, "refused offsets not read again": 28,
    "a drain is named as another order": 19, "a drain shows an order": 19, "no fence": 31,
    "leaves in the time of a session": 23, "blocked claim not watched": 30, "only the first store is written": 29,
    "kafka commit after release": 2909, "late create dropped": 2251,
    "outlives its session": 26, "lease as long as the session": 20, "0.7 stored offset of another log counts": 383,
}  # fmt: skip
"""The seeds with which to start where the first to find a bug is a late one: that one, when this was written."""

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
        first = FIRST.get(name, 0)
        seeds = range(first, first + SEEDS)
        found = next((seed for seed in seeds if run_seed(seed, *kind).findings), None)
    assert found is not None, f"{name!r} was not found by {SEEDS} seeds of {' '.join(kind)}"
