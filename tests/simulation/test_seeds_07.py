"""Some hundreds of seeds of Kafka 0.7: groups of ours, and with a model of Java 0.7.2, have a clean history.

More of them: `python -m tests.simulator --generation 0.7 --members mixed --seeds 10000`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from seeded_bugs_07 import BUGS_07
from test_seeds_of_batches import TakesBatches

from simpleconsumer import codecs
from simpleconsumer.types import Message
from tests.simulator import member
from tests.simulator.application import SteppedStream
from tests.simulator.campaign import Outcome, run_seeds
from tests.simulator.drawing import draw_plan
from tests.simulator.faults import KINDS
from tests.simulator.profiles import PROFILES
from tests.simulator.run import simulate
from zkconsumer.testing.history.checks import check_history, count_allowed_repeats
from zkconsumer.testing.history.events import Entries

JOBS = min(2, os.cpu_count() or 1)
SEEDS = {"all": 25, "membership": 15, "handovers": 10, "topics": 15, "hands": 15}
NOT_IN_07 = {"leader", "delete topic", "damaged offset", "manager moved", "manager dead", "manager slow",
             "offset in kafka set"}  # fmt: skip


def failures(outcomes: list[Outcome], members: str, profile: str) -> list[str]:
    replay = f"python -m tests.simulator --generation 0.7 --members {members} --profile {profile} --trace --seed"
    return [f"{replay} {outcome.seed}\n    {outcome.findings[0]}" for outcome in outcomes if outcome.findings]


@pytest.mark.parametrize("members", ["ours", "mixed"])
@pytest.mark.parametrize("profile", SEEDS)
def test_a_group_of_07_comes_through(profile: str, members: str) -> None:
    outcomes = list(run_seeds(range(SEEDS[profile]), members, profile, 1, "0.7"))
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
    mixed = [draw_plan(seed, "mixed", PROFILES["hands"], "0.7") for seed in range(300)]
    for drawn_for in (plans, mixed):
        assert "inside" in {step.word for plan in drawn_for for step in plan.steps if step.kind == "offset set"}


def test_positions_are_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed gives the same run: what isal writes as gzip differs by a byte now and then."""

    def compress(*of: object, **settings: object) -> bytes:
        raise AssertionError("the production code has compressed an entry")

    monkeypatch.setattr(codecs, "compress", compress)
    run = simulate(draw_plan(0, "ours", PROFILES["topics"], "0.7"), 0)
    found = {run.limits.entries.of(event.place, event.offset) for event in run.history if event.kind == "acked"}
    assert any(entry.first < entry.last for entry in found), "there are entries of several messages"


@pytest.mark.parametrize("members", ["ours", "mixed"])
def test_a_history_shows_the_entries_that_the_simulation_has_written(members: str) -> None:
    """The checks of the test kit find the entries in the history; those of the simulation know them. Both agree."""
    for seed in range(5):
        run = simulate(draw_plan(seed, members, PROFILES["hands"], "0.7"), seed)
        known, shown = run.limits.entries, Entries.of_history(run.history)
        ends = {event.place: event.offset for event in run.history if event.kind == "acked"}
        for event in run.history:
            if event.kind in ("acked", "deliver"):
                assert shown.of(event.place, event.offset)[:2] == known.of(event.place, event.offset)[:2]
                if event.offset != ends[event.place]:
                    assert shown.behind(event.place, event.offset) == known.behind(event.place, event.offset)
            elif event.kind == "commit" and shown.is_inside(event.place, event.offset):
                assert known.is_inside(event.place, event.offset)
        untold = replace(run.limits, entries=Entries())
        assert check_history(run.history, untold) == []
        assert count_allowed_repeats(run.history, untold) == count_allowed_repeats(run.history, run.limits)


@pytest.mark.parametrize("name", ["0.7 next message committed", "0.7 begun entry counts as done"])
def test_without_the_entries_of_the_simulation_a_planted_bug_is_found_as_well(name: str) -> None:
    bug = BUGS_07[name]
    with bug.planted():
        run = simulate(draw_plan(0, bug.members, PROFILES[bug.profile], "0.7"), 0)
    untold = [finding.check for finding in check_history(run.history, replace(run.limits, entries=Entries()))]
    assert set(untold) & {"commit within an entry", "early commit"}


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
    failed = failures(list(run_seeds(range(20), "ours", profile, 1, "0.7")), "ours", profile)
    assert not failed, "\n".join(failed)
    assert max(TakesBatches.taken) > 1
