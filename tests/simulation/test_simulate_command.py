"""`python -m tests.simulator`: many seeds, a failure that can be replayed, and a plan without what it does not need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.simulator import campaign, command
from tests.simulator.actor import MemberSpec
from tests.simulator.command import simulate_command
from tests.simulator.drawing import draw_plan
from tests.simulator.plan import Plan, Step, format_plan
from tests.simulator.plan_file import read_plan
from tests.simulator.profiles import PROFILES, profile_of
from tests.simulator.shrink import only_steps, shrink

PLAN = Plan((MemberSpec("a", topics=(("t", 1),)),), (("t", 1),), tuple(Step(float(at), "join", "a") for at in range(9)))


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(simulate_command, arguments, prog_name="python -m tests.simulator")


def needs(*wanted: int) -> Callable[[Plan], bool]:
    """Fails with these steps, by their time."""
    return lambda plan: {float(each) for each in wanted} <= {step.at_s for step in plan.steps}


@pytest.mark.parametrize("wanted", [(), (0,), (8,), (2, 7), (0, 3, 4, 8), tuple(range(9))])
def test_a_plan_is_shrunk_to_what_it_needs_to_fail(wanted: tuple[int, ...]) -> None:
    assert shrink(PLAN, needs(*wanted)) == list(wanted)


def test_shrinking_ends_after_so_many_runs_with_what_still_fails() -> None:
    runs = []

    def fails(plan: Plan) -> bool:
        runs.append(plan)
        return needs(1, 6)(plan)

    kept = shrink(PLAN, fails, most_runs=4)
    assert len(runs) == 4
    assert {1, 6} <= set(kept)


def test_a_step_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="step 9: the plan has 9 steps"):
        only_steps(PLAN, [0, 9])


def test_some_seeds_in_two_processes_are_clean() -> None:
    ran = simulate("--seeds", "20", "--jobs", "2")
    assert ran.exit_code == 0, ran.output
    assert "20 seeds of ours, all: 0 failed" in ran.output
    assert "That is a failure only from 10,000 seeds on." in ran.output


def test_rows_that_enough_seeds_have_not_reached_are_a_failure_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_COMPLETE", {"ours": 3})
    ran = simulate("--seeds", "3")
    assert ran.exit_code == 1
    assert "3 seeds of ours, all: 0 failed" in ran.output
    assert "fault: wipe" in ran.output
    assert "group: Leave while settling" in ran.output


def test_rows_are_asked_for_only_where_every_profile_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_COMPLETE", {"ours": 2})
    ran = simulate("--seeds", "2", "--profile", "membership")
    assert ran.exit_code == 0, ran.output
    assert "not reached" not in ran.output


def test_a_seed_chooses_its_profile_by_its_number() -> None:
    profiles = [profile_of("all", seed) for seed in range(9)]
    assert profiles[1] is PROFILES["moments"]
    assert profiles[3] is PROFILES["stuck"]
    assert profiles[6] is PROFILES["blocked"]
    assert profiles[7] is PROFILES["scenes"]
    assert profiles[8] is PROFILES["ends"]
    assert profile_of("all", 9 * 1000 + 3) is PROFILES["stuck"]
    assert profile_of("hands", 3) is PROFILES["hands"]
    assert draw_plan(3, "ours", profile_of("all", 3)) == draw_plan(3, "ours", PROFILES["stuck"])


def test_a_seed_is_replayed_with_its_plan_its_trace_and_the_nodes_at_the_end() -> None:
    ran = simulate("--seed", "3", "--trace")
    assert ran.exit_code == 0, ran.output
    assert "=== deliver t" in ran.output
    assert "create owners/" in ran.output
    assert "/consumers/g/offsets/" in ran.output
    assert '"steps":[' in ran.output
    assert "seed 3 is clean" in ran.output
    assert simulate("--seed", "3", "--trace").output == ran.output


def test_a_failing_seed_tells_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Plan, seed: int) -> tuple[list[campaign.Finding], int]:
        crashes = [step for step in plan.steps if step.kind == "crash"]
        return ([campaign.Finding("lost", "a crash is taken for a loss")] if crashes else []), 1

    monkeypatch.setattr(campaign, "run_plan", broken)
    ran = simulate("--seeds", "200", "--most-failures", "1")
    assert ran.exit_code == 1
    assert "a crash is taken for a loss" in ran.output
    assert "Of its steps 1 are enough" in ran.output
    assert "python -m tests.simulator --members ours --profile all --seed " in ran.output
    assert "--keep " in ran.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--trace"], "--keep and --trace go with --seed or --plan"),
        (["--seed", "3", "--keep", "1,x"], "'1,x' is not numbers with commas between them"),
        (["--seed", "3", "--keep", "99"], "step 99: the plan has"),
        (["--members", "scala"], "'scala' is not one of 'ours', 'java', 'mixed'"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: list[str], sentence: str) -> None:
    ran = simulate(*arguments)
    assert ran.exit_code == 2
    assert sentence in ran.output


# -- plans that people have written ----------------------------------------------------------------------------------


def test_a_plan_of_a_file_is_run_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "scene.json"
    path.write_text(format_plan(draw_plan(5)), encoding="utf-8")
    ran = simulate("--plan", str(path), "--seed", "5", "--trace")
    assert ran.exit_code == 0, ran.output
    assert "seed 5 is clean" in ran.output
    assert ran.output == simulate("--profile", "everything", "--seed", "5", "--trace").output
    assert "=== deliver" not in simulate("--plan", str(path)).output


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_printed_can_be_read_again(profile: str) -> None:
    for seed in range(20):
        plan = draw_plan(seed, "mixed", PROFILES[profile])
        assert read_plan(format_plan(plan)) == plan


def changed(**values: Any) -> str:
    """A plan that is right, but for these fields."""
    return json.dumps({**json.loads(format_plan(PLAN)), **values})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[1]", "a plan is an object with members, topics and steps, not [1]"),
        (changed(members=[]), "members: at least one is needed"),
        (changed(topics=[]), "topics: at least one is needed"),
        (changed(topics=[["t"]]), 'topics[0]: a name and a number above 0 are needed, as ["t", 2], not ["t"]'),
        (changed(steps=4), "steps: a list is needed, not 4"),
        (changed(steps=["join a"]), 'steps[0]: an object is needed, not "join a"'),
        (changed(steps=[{"at_s": 1.0}]), "steps[0].kind is missing"),
        (changed(steps=[{"at_s": "1", "kind": "join"}]), 'steps[0].at_s: a number is needed, not "1"'),
        (changed(steps=[{"at_s": 1, "kind": "joyn"}]), "steps[0].kind: 'joyn' is not one of join, leave, crash"),
        (changed(steps=[{"at_s": 1, "kind": "join", "when": "x"}]), "steps[0].when: 'x' is not one of '', dis"),
        (changed(steps=[{"at_s": 1, "kind": "join", "who": "a"}]), "steps[0].who: there is no such field"),
        (changed(servers=0), "servers: 0 is less than 1"),
        (changed(servers=True), "servers: a whole number is needed, not true"),
        (changed(members=[{"name": "a"}]), "members[0]: either topics or a whitelist is needed"),
        (changed(members=[{"name": "a", "whitelist": "t.*", "kind": "scala"}]), "members[0].kind: 'scala' is not"),
    ],
)
def test_a_mistake_in_a_plan_is_named_by_its_place(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "scene.json"
    path.write_text(text, encoding="utf-8")
    ran = simulate("--plan", str(path))
    assert ran.exit_code == 2
    assert f"{path}: {sentence}" in ran.output.replace("\n", " ")
