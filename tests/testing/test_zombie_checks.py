"""Zombies are found: members that deliver or commit what is not theirs, whatever else goes on."""

from __future__ import annotations

import pytest
from histories import GroupStory, history_findings

from zkconsumer.testing.history.limits import NS, OPERATOR, Limits, Trouble

LIMITS = Limits(told_late_s=4.0, zombie_slack_s=0.05, unfenced=frozenset({"j"}))


def gone(by: str, wait_s: float, what: str = "deliver") -> GroupStory:
    """The owner node of `a` goes, and after a while `a` delivers or commits."""
    story = GroupStory().acked(0).own("a", 0).deliver("a", 0).add("owner_gone", "a", by=by).wait(wait_s)
    return story.deliver("a", 1).add("lost", "a") if what == "deliver" else story.add("commit", "a", 1)


@pytest.mark.parametrize(
    ("by", "in_time_s", "late_s"),
    [
        ("expired", 0.03, 0.1),  # a server that is a little behind
        ("ended", 3.9, 4.1),  # the lease goes on when the session is ended from outside
        (OPERATOR, 3.9, 4.1),
        ("j", 3.9, 4.1),
        ("b", 0.03, 0.1),
    ],
)
def test_a_delivery_comes_only_so_long_after_the_owner_node_is_gone(by: str, in_time_s: float, late_s: float) -> None:
    assert history_findings(gone(by, in_time_s), LIMITS) == []
    assert history_findings(gone(by, late_s), LIMITS) == ["zombie"]


@pytest.mark.parametrize("by", ["released", "closed"])
@pytest.mark.parametrize("what", ["deliver", "commit"])
def test_who_has_given_a_partition_back_himself_does_nothing_more_with_it(by: str, what: str) -> None:
    blind = Limits(told_late_s=4.0, blind_spots=(Trouble(0, 60 * NS),), troubles=(Trouble(0, 60 * NS),))
    assert history_findings(gone(by, 0.0, what), blind) == ["zombie"]


@pytest.mark.parametrize("by", ["expired", "ended", "b", "released", "closed"])
def test_no_commit_passes_the_fence_of_a_session_that_is_over(by: str) -> None:
    limits = Limits(told_late_s=4.0, troubles=(Trouble(0, 60 * NS),), blind_spots=(Trouble(0, 60 * NS),))
    assert history_findings(gone(by, 0.0, "commit"), limits) == ["zombie"]


@pytest.mark.parametrize("by", [OPERATOR, "j"])
def test_commits_go_on_for_a_while_when_only_the_owner_node_was_taken(by: str) -> None:
    assert history_findings(gone(by, 3.9, "commit"), LIMITS) == []
    assert history_findings(gone(by, 4.1, "commit"), LIMITS) == ["zombie"]


@pytest.mark.parametrize("what", ["deliver", "commit"])
def test_trouble_excuses_who_could_not_hear_of_it_and_not_for_ever(what: str) -> None:
    def limits(end_s: float, member: str = "a") -> Limits:
        return Limits(told_late_s=4.0, troubles=(Trouble(0, int(end_s * NS), member),))

    assert history_findings(gone(OPERATOR, 20.0, what), limits(18.0)) == []
    assert history_findings(gone(OPERATOR, 20.0, what), limits(12.0)) == ["zombie"], "it has been over for long"
    assert history_findings(gone(OPERATOR, 20.0, what), limits(18.0, "b")) == ["zombie"], "another one's"
    assert "zombie" in history_findings(gone("expired", 20.0, what), limits(60.0)), "its lease was out"


def test_blind_servers_excuse_deliveries_only_as_long_as_they_may_be_believed() -> None:
    def limits(end_s: float) -> Limits:
        return Limits(blind_spots=(Trouble(0, int(end_s * NS)),), blind_s=10.0)

    assert history_findings(gone("expired", 9.0), limits(60.0)) == []
    assert history_findings(gone("expired", 11.0), limits(60.0)) == ["zombie"]
    assert history_findings(gone("expired", 9.0), limits(5.0)) == ["zombie"]


def test_who_never_claimed_does_not_deliver_what_a_java_member_holds() -> None:
    story = GroupStory().acked(0).add("claimed", "j").add("assigned", "a", 0).deliver("a", 0)
    assert history_findings(story, LIMITS) == ["zombie"]


def test_where_nobody_sees_claims_nothing_is_said_about_them() -> None:
    assert history_findings(GroupStory().acked(0).add("assigned", "a", 0).deliver("a", 0), LIMITS) == []


def test_java_members_are_not_held_to_it() -> None:
    story = GroupStory().acked(0).add("claimed", "j").add("owner_gone", "j", by="expired").wait(9.0)
    assert history_findings(story.deliver("j", 0).store("j", 1), LIMITS) == []


def test_an_owner_node_outlives_the_topic_that_it_is_about() -> None:
    story = GroupStory().add("claimed", "a").acked(0, place=("t~1", 0))
    story.add("assigned", "a", 0, place=("t~1", 0))
    assert history_findings(story.deliver("a", 0, place=("t~1", 0)), LIMITS) == []
    story.add("owner_gone", "a", by="expired", place=("t~1", 0)).wait(1.0)
    assert "zombie" in history_findings(story.deliver("a", 1, place=("t~1", 0)), LIMITS)


def test_a_session_that_was_ended_from_outside_makes_no_two_owners_while_the_lease_lasts() -> None:
    """Its listener can be called for a partition, and get messages of it, when the next member owns it already."""
    story = GroupStory().acked(0).add("claimed", "a").add("owner_gone", "a", by="ended").own("b", 0).deliver("b", 0)
    story.add("assigned", "a", 0).deliver("a", 0).add("lost", "a").wait(1.0)
    assert history_findings(story, LIMITS) == []
    story.deliver("b", 0)  # which is its last: the other one has not disturbed it
    assert "two owners" not in history_findings(story, LIMITS)


def test_two_that_hold_a_partition_at_once_are_two_owners() -> None:
    story = GroupStory().own("a", 0).add("assigned", "b", 0).add("revoked", "a")
    assert history_findings(story, LIMITS) == ["two owners"]
