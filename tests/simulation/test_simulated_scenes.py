"""Failures that seeds have found, each as a plan of its own: they must not happen again, whatever the seed."""

from __future__ import annotations

from tests.simulator import MemberSpec, Plan, Step, simulate

T = (("t", 1),)


def assert_clean(plan: Plan, seeds: int = 10) -> None:
    """No dice make a finding of this plan."""
    for seed in range(seeds):
        findings = simulate(plan, seed).findings
        assert not findings, f"seed {seed}: {findings[0]}"


def test_who_leaves_while_a_partition_drains_commits_where_the_drain_ends() -> None:
    """It committed its start offset, and what it had done since came again elsewhere."""
    by_hand = MemberSpec("c", topics=T, auto_commit_s=0.0, commit_every=6, work_s=0.01)
    other = MemberSpec("a", topics=T, auto_commit_s=0.5, work_s=0.01)
    stuck, joins, leaves = Step(3.0, "stuck", "c", for_s=1.5), Step(3.6, "join", "a"), Step(3.4, "leave", "c")
    assert_clean(
        Plan(
            (other, by_hand),
            (("t", 4),),
            (Step(0.1, "join", "c"), stuck, joins, leaves),
            message_every_s=0.15,
            faults_s=8.0,
        )
    )


def test_of_a_topic_that_is_created_anew_the_listener_hears_as_lost_before_it_is_assigned_again() -> None:
    """It was assigned twice: an application that opens something for each partition had it open twice."""
    member = MemberSpec("a", topics=T, auto_commit_s=0.5, work_s=0.01)
    steps = (Step(0.1, "join", "a"), Step(3.9, "cut", "a", for_s=1.5), Step(4.0, "delete topic", "t", for_s=0.7))
    plan = Plan((member,), (("t", 2),), steps, message_every_s=0.15, faults_s=8.0)
    assert_clean(plan)
    history = simulate(plan, 0).history
    told = [event.kind for event in history if event.kind in ("assigned", "revoked", "lost") and event.partition == 0]
    assert told == ["assigned", "lost", "assigned"]


def test_a_session_that_is_ended_from_outside_leaves_its_lease_and_makes_no_two_owners_of_it() -> None:
    """It counted as that when a leader was found in between, and a listener was called for its partition."""
    pair = tuple(MemberSpec(name, topics=T, session_s=4.0, auto_commit_s=0.0, work_s=0.1) for name in "ab")
    steps = (Step(0.1, "leader", "t", for_s=7.5), Step(0.2, "join", "a"), Step(1.0, "join", "b"),
             Step(6.0, "old requests", "a", for_s=3.0))  # fmt: skip
    assert_clean(Plan(pair, (("t", 1),), steps, tick_s=2.0, message_every_s=0.5, faults_s=13.0))


def test_a_backlog_takes_the_time_that_the_work_on_it_takes() -> None:
    """One stream of a Java member was not through with five partitions when its time was up."""
    java = MemberSpec("a", "java", whitelist="t.*", auto_commit_s=2.0, work_s=0.6)
    steps = (Step(0.5, "grow", "t", amount=4), Step(14.0, "join", "a"))
    assert_clean(Plan((java,), (("t", 1),), steps, message_every_s=0.25, faults_s=15.0), seeds=5)


def test_a_registration_that_was_queued_under_an_ended_session_lets_no_queued_commit_through() -> None:
    """It was made under the next session, at the version of the ended one, and a commit of the ended one passed."""
    member = MemberSpec("a", topics=T, session_s=10.0, auto_commit_s=0.0, commit_every=1, work_s=0.01)
    steps = (Step(0.1, "join", "a"), Step(1.0, "lost request", "a", word="create"),
             Step(1.5, "hold up", "a", for_s=6.0, word="moving"), Step(6.0, "unregistered", "a"))  # fmt: skip
    assert_clean(Plan((member,), (("t", 3),), steps, servers=3, message_every_s=0.3, faults_s=12.0))
