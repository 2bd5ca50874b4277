"""What seeds have found, each as a plan written by hand: it must not happen again, whatever the dice say."""

from __future__ import annotations

from zkconsumer.testing.simulation import MemberSpec, Plan, Step, simulate

T = (("t", 1),)


def assert_clean(plan: Plan, seeds: int = 20) -> None:
    """No dice make a finding of this plan."""
    for seed in range(seeds):
        findings = simulate(plan, seed).findings
        assert not findings, f"seed {seed}: {findings[0]}"


def test_who_leaves_while_a_partition_drains_commits_where_the_drain_ends() -> None:
    """It committed where it had begun, and what it had done since came again elsewhere."""
    by_hand = MemberSpec("c", topics=T, auto_commit_s=0.0, commit_every=6, work_s=0.01)
    other = MemberSpec("a", topics=T, auto_commit_s=0.5, work_s=0.01)
    stuck, joins, leaves = Step(3.0, "stuck", "c", for_s=1.5), Step(3.6, "join", "a"), Step(3.4, "leave", "c")
    assert_clean(Plan((other, by_hand), (("t", 4),), (Step(0.1, "join", "c"), stuck, joins, leaves),
                      message_every_s=0.15, faults_s=8.0))


def test_of_a_topic_that_is_created_anew_the_listener_hears_as_lost_before_it_is_assigned_again() -> None:
    """It was assigned twice: whoever opens something for each partition had it open twice."""
    member = MemberSpec("a", topics=T, auto_commit_s=0.5, work_s=0.01)
    steps = (Step(0.1, "join", "a"), Step(3.9, "cut", "a", for_s=1.5), Step(4.0, "delete topic", "t", for_s=0.7))
    plan = Plan((member,), (("t", 2),), steps, message_every_s=0.15, faults_s=8.0)
    assert_clean(plan)
    history = simulate(plan, 0).history
    told = [event.kind for event in history if event.kind in ("assigned", "revoked", "lost") and event.partition == 0]
    assert told == ["assigned", "lost", "assigned"]
