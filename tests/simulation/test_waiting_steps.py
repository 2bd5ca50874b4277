"""Faults that wait for a state of a member, and the faults that make rare rows of the tables happen."""

from __future__ import annotations

import pytest

from tests.simulator.actor import MemberSpec
from tests.simulator.campaign import run_plan
from tests.simulator.coverage import Coverage, counting
from tests.simulator.plan import Plan, Step
from tests.simulator.run import Run, trace_run

MEMBER = MemberSpec("a", topics=(("t", 2),))
STUCK = MemberSpec("a", topics=(("t", 1),), max_processing_s=2.0)


def played(*steps: Step, member: MemberSpec = MEMBER, faults_s: float = 20.0) -> tuple[Run, list[str]]:
    plan = Plan((member,), (("t", 2),), (Step(0.0, "join", "a"), *steps), faults_s=faults_s)
    run, lines = trace_run(plan, 1)
    assert run.findings == []
    return run, lines


def place_of(lines: list[str], part: str) -> int:
    return next(number for number, line in enumerate(lines) if part in line)


@pytest.mark.parametrize(
    ("when", "moved"),
    [
        ("registering", "g_a: registering after SessionOpened"),
        ("settling", "g_a: settling after SnapshotRead"),
        ("claiming", "g_a t-0: free -> claiming after ClaimsAllowed"),
    ],
)
def test_a_step_is_done_as_soon_as_a_member_is_in_the_state_it_waits_for(when: str, moved: str) -> None:
    _, lines = played(Step(0.0, "end session", "a", when=when))
    done = place_of(lines, f"*** end session a when {when}")
    assert place_of(lines, moved) < done
    seconds = [float(lines[number].split()[0]) for number in (place_of(lines, moved), done)]
    assert seconds[1] - seconds[0] <= 0.011


def test_a_step_of_a_partition_waits_for_the_state_of_that_partition() -> None:
    step = Step(0.0, "owner deleted", "t", 1, when="releasing")
    _, lines = played(step, Step(5.0, "stuck", "a", for_s=6.0), member=STUCK)
    released = place_of(lines, "t-1: draining -> releasing")
    assert released < place_of(lines, "*** owner deleted t number 1 when releasing")


def test_a_step_whose_moment_does_not_come_is_not_done() -> None:
    _, lines = played(Step(5.0, "end session", "a", when="unregistering"), faults_s=8.0)
    assert not any("*** end session" in line for line in lines)


def test_a_member_whose_credentials_are_refused_is_out_and_the_next_one_takes_over() -> None:
    run, lines = played(Step(5.0, "refused", "a"))
    assert any("member g_a has left the group for good: ZooKeeper refused" in line for line in lines)
    assert {event.member for event in run.history if event.kind == "deliver"} == {"a", "a.2"}


def test_a_name_that_another_session_has_is_waited_for_and_given_up() -> None:
    _, lines = played(Step(3.0, "name taken", "a", for_s=14.0, word="ephemeral"))
    assert any("was deleted or belongs to another session; registering again" in line for line in lines)
    assert any("member g_a has left the group for good: " in line for line in lines)


def test_a_session_that_counts_as_moved_is_registered_again_over_the_same_connection() -> None:
    steps = (Step(0.0, "join", "a"), Step(0.0, "moved", "a", for_s=1.0, when="registering"))
    plan = Plan((MEMBER,), (("t", 2),), steps)
    coverage = Coverage()
    with counting(coverage):
        findings = [found for seed in range(6) for found in run_plan(plan, seed)[0]]
    assert findings == []
    assert coverage.rows["group: TimerFired while registering"] > 0


def test_a_member_that_an_operator_unregisters_while_it_gives_up_a_partition_commits_before_it_releases() -> None:
    steps = (Step(0.0, "join", "a"), Step(6.0, "join", "b"), Step(5.9, "unregistered", "a", when="draining"))
    for seed in range(30):
        members = tuple(MemberSpec(name, topics=(("t", 1),), auto_commit_s=2.0) for name in "ab")
        run = trace_run(Plan(members, (("t", 4),), steps), seed)[0]
        assert run.findings == []
        delivered = [(event.place, event.offset) for event in run.history if event.kind == "deliver"]
        assert len(delivered) == len(set(delivered)), seed
