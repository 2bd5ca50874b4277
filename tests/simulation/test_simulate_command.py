"""`zkconsumer-simulate`: many seeds, a failure that can be replayed, and a plan without what it does not need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from zkconsumer.testing.simulation import campaign
from zkconsumer.testing.simulation.actor import MemberSpec
from zkconsumer.testing.simulation.command import simulate_command
from zkconsumer.testing.simulation.plan import Plan, Step
from zkconsumer.testing.simulation.shrink import only_steps, shrink

PLAN = Plan((MemberSpec("a", topics=(("t", 1),)),), (("t", 1),), tuple(Step(float(at), "join", "a") for at in range(9)))


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(simulate_command, arguments, prog_name="zkconsumer-simulate")


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
    assert "20 seeds of ours, everything: 0 failed" in ran.output


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
    assert "zkconsumer-simulate --members ours --profile everything --seed " in ran.output
    assert "--keep " in ran.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--trace"], "--keep and --trace go with --seed"),
        (["--seed", "3", "--keep", "1,x"], "'1,x' is not numbers with commas between them"),
        (["--seed", "3", "--keep", "99"], "step 99: the plan has"),
        (["--members", "scala"], "'scala' is not one of 'ours', 'java', 'mixed'"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: list[str], sentence: str) -> None:
    ran = simulate(*arguments)
    assert ran.exit_code == 2
    assert sentence in ran.output
