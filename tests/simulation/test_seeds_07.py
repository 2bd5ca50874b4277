"""Some hundreds of seeds of Kafka 0.7: groups of ours, and with a model of Java 0.7.2, have a clean history.

More of them: `python -m tests.simulator --generation 0.7 --members mixed --seeds 10000`.
"""

from __future__ import annotations

import os

import pytest
from test_seeds_of_batches import TakesBatches

from simpleconsumer.types import Message
from tests.simulator import member
from tests.simulator.application import SteppedStream
from tests.simulator.campaign import Outcome, run_seeds
from tests.simulator.drawing import draw_plan
from tests.simulator.faults import KINDS
from tests.simulator.profiles import PROFILES

JOBS = min(2, os.cpu_count() or 1)
SEEDS = {"all": 100, "membership": 30, "handovers": 30, "topics": 30, "hands": 30}
NOT_IN_07 = {"leader", "delete topic", "damaged offset", "manager moved", "manager dead", "manager slow",
             "offset in kafka set"}  # fmt: skip


def failures(outcomes: list[Outcome], members: str, profile: str) -> list[str]:
    replay = f"python -m tests.simulator --generation 0.7 --members {members} --profile {profile} --trace --seed"
    return [f"{replay} {outcome.seed}\n    {outcome.findings[0]}" for outcome in outcomes if outcome.findings]


@pytest.mark.parametrize("members", ["ours", "mixed"])
@pytest.mark.parametrize("profile", SEEDS)
def test_a_group_of_07_comes_through(profile: str, members: str) -> None:
    outcomes = list(run_seeds(range(SEEDS[profile]), members, profile, JOBS, "0.7"))
    assert len(outcomes) == SEEDS[profile]
    failed = failures(outcomes, members, profile)
    assert not failed, "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("members", ["ours", "mixed"])
@pytest.mark.parametrize("profile", ["all", *PROFILES])
def test_a_group_of_07_comes_through_thousands(profile: str, members: str) -> None:
    failed = failures(list(run_seeds(range(1000, 2000), members, profile, JOBS, "0.7")), members, profile)
    assert not failed, "\n".join(failed[:10])


def test_plans_of_07_have_what_happens_there_and_nothing_else() -> None:
    plans = [draw_plan(seed, "ours", profile, "0.7") for profile in PROFILES.values() for seed in range(100)]
    drawn = {step.kind for plan in plans for step in plan.steps}
    assert drawn == set(KINDS) - NOT_IN_07
    assert {plan.generation for plan in plans} == {"0.7"}
    assert {member.strategy for plan in plans for member in plan.members} == {"range"}
    words = {step.word for plan in plans for step in plan.steps if step.kind == "offset set"}
    assert "inside" in words
    mixed = [draw_plan(seed, "mixed", PROFILES["hands"], "0.7") for seed in range(300)]
    assert "inside" not in {step.word for plan in mixed for step in plan.steps}, "Java reads garbage from there"


class TakesBatches07(TakesBatches):
    """Works on up to five messages at a time, some of an entry or of several ones."""

    def _messages(self, batch: object) -> list[Message]:
        """The messages of a batch; the value of each ends in its offset in the history."""
        rows = batch.record_batch.column("value").to_pylist()  # type: ignore[attr-defined]
        offsets = [int(value.rpartition(b"/")[2]) for value in rows]
        return [Message(batch.topic, batch.partition, offset, offset + 1, None, value)  # type: ignore[attr-defined]
                for offset, value in zip(offsets, rows, strict=True)]  # fmt: skip

    def _take(self, stream: SteppedStream) -> list[Message]:
        if self._taken % 7 == 3:
            return [next(stream)]
        batch = next(stream.batches(max_messages=1 + self._taken % 5))
        self.taken.append(len(batch))
        return self._messages(batch)


@pytest.mark.parametrize("profile", ["everything", "handovers"])
def test_a_group_of_07_that_takes_batches_comes_through(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    TakesBatches.taken = []
    monkeypatch.setattr(member, "Application", TakesBatches07)
    failed = failures(list(run_seeds(range(40), "ours", profile, 1, "0.7")), "ours", profile)
    assert not failed, "\n".join(failed)
    assert max(TakesBatches.taken) > 1
