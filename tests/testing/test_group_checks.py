"""Histories that the checks of groups must reject, each next to one that is just acceptable."""

from __future__ import annotations

import pytest
from histories import GroupStory, group_findings

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.limits import NS, OPERATOR, Limits, Trouble

JAVA = Limits(unfenced=frozenset({"j"}))


# -- nodes of others ---------------------------------------------------------------------------------------------------


def test_who_deletes_anothers_node_touches_it() -> None:
    assert group_findings(GroupStory().add("touched", "a", 0, by="b")) == ["foreign node touched"]
    assert group_findings(GroupStory().add("touched", "a", 0, by=OPERATOR)) == ["foreign node touched"]


def test_java_members_delete_by_path_and_cannot_be_helped() -> None:
    assert group_findings(GroupStory().add("touched", "j", -1, by="a"), JAVA) == []


def robbed(wait_s: float, version: int = 0) -> GroupStory:
    """An operator deletes the node of `a`, `b` claims, and `a` deletes the node of `b`."""
    story = GroupStory().own("a", 0).add("owner_gone", "a", by=OPERATOR).add("claimed", "b")
    return story.wait(wait_s).add("touched", "a", version, by="b").add("lost", "a")


def test_who_was_robbed_by_a_hand_may_hit_the_next_node_for_a_moment() -> None:
    limits = Limits(told_late_s=4.0)
    assert group_findings(robbed(3.0), limits) == []
    assert group_findings(robbed(5.0), limits) == ["foreign node touched"]
    assert group_findings(robbed(3.0, version=-1), limits) == ["foreign node touched"], "it asked for any version"


def test_who_was_robbed_in_a_trouble_may_learn_of_it_late() -> None:
    def limits(end_s: float, member: str) -> Limits:
        return Limits(told_late_s=1.0, troubles=(Trouble(0, int(end_s * NS), member),))

    assert group_findings(robbed(5.0), limits(4.5, "a")) == []
    assert group_findings(robbed(5.0), limits(4.5, "")) == []
    assert group_findings(robbed(5.0), limits(4.5, "b")) == ["foreign node touched"], "the trouble of another one"
    assert group_findings(robbed(5.0), limits(2.0, "a")) == ["foreign node touched"], "it was over long before"


def test_who_has_claimed_again_has_no_excuse() -> None:
    story = GroupStory().add("claimed", "a").add("owner_gone", "a", by=OPERATOR).add("claimed", "a")
    assert group_findings(story.add("touched", "a", 0, by="b"), Limits(told_late_s=4.0)) == ["foreign node touched"]


# -- the patience of Java members --------------------------------------------------------------------------------------


def kept_from(holders: list[str], at: tuple[str, int] = ("t", 0), error: str = "") -> GroupStory:
    """A Java member tries once for each holder, two seconds apart, and gives up."""
    story = GroupStory()
    present = ""
    for holder in holders:
        if holder != present:
            if present:
                story.add("owner_gone", present, by="released", place=at)
            if holder:
                story.add("claimed", holder, place=at)
        present = holder
        story.add("blocked_try", "j", by=f"g_{holder}-0", place=at).wait(2.0)
    return story.add("gave_up", "j", by=error)


def test_a_partition_that_ours_keep_from_a_java_member_through_all_its_tries() -> None:
    assert group_findings(kept_from(["a", "a", "a", "a"]), JAVA) == ["java retries exhausted"]


def test_it_helps_nothing_that_ours_took_turns_in_keeping_it() -> None:
    assert group_findings(kept_from(["a", "a", "b", "b"]), JAVA) == ["java retries exhausted"]


def test_letting_go_between_two_tries_and_claiming_again_is_keeping_it() -> None:
    story = GroupStory().add("claimed", "a")
    for _ in range(4):
        story.add("blocked_try", "j", by="g_a-0").add("owner_gone", "a", by="released").add("claimed", "a").wait(2.0)
    assert group_findings(story.add("gave_up", "j"), JAVA) == ["java retries exhausted"]


@pytest.mark.parametrize("holders", [["k", "k", "k", "k"], ["k", "k", "a", "a"], ["", "", "", ""]])
def test_a_partition_that_others_kept_from_it(holders: list[str]) -> None:
    assert group_findings(kept_from(holders), Limits(unfenced=frozenset({"j", "k"}))) == []


def draining_again(*due: str, order: str = "") -> GroupStory:
    """`a` has the partition that is due to `j` through two spans of three seconds, with changes of `due` in between."""
    story = GroupStory().add("due", "a", by=order).add("claimed", "a").add("due", "j", by=order)
    story.add("blocked_try", "j", by="g_a-0").wait(3.0)
    for member in due:
        story.add("due", member, by=order)
    return story.add("blocked_try", "j", by="g_a-0").wait(3.0).add("blocked_try", "j", by="g_a-0").add("gave_up", "j")


@pytest.mark.parametrize("order", ["", "1.0"])
def test_a_partition_that_was_its_holders_again_in_between_is_waited_for_anew(order: str) -> None:
    assert group_findings(draining_again("a", "j", order=order), JAVA) == []


@pytest.mark.parametrize("due", [(), ("b", "j"), ("", "j"), ("a",)])
def test_only_a_time_that_was_its_holders_and_is_over_counts(due: tuple[str, ...]) -> None:
    assert group_findings(draining_again(*due), JAVA) == ["java retries exhausted"]


def test_a_holder_that_keeps_what_was_its_own_in_between_is_blamed_for_the_time_after_that() -> None:
    story = draining_again("a", "j")
    story.events.pop()
    story.wait(2.0).add("blocked_try", "j", by="g_a-0")
    assert group_findings(story.add("gave_up", "j"), JAVA) == ["java retries exhausted"]


def test_a_try_that_failed_long_before_says_nothing_of_the_last_one() -> None:
    story = kept_from(["a", "a", "a"])
    story.events.pop()
    for _ in range(4):
        story.add("blocked_try", "j", by="stranger", place=("t", 1)).wait(2.0)
    assert group_findings(story.add("gave_up", "j"), JAVA) == []


def test_tries_that_ended_in_an_exception_are_not_the_holders_fault() -> None:
    assert group_findings(kept_from(["a", "a", "a", "a"], error="NumberFormatException"), JAVA) == []


def test_a_holder_that_died_is_not_blamed_for_the_node_it_left() -> None:
    story = GroupStory().add("claimed", "a").add("killed", "a")
    for _ in range(4):
        story.add("blocked_try", "j", by="g_a-0").wait(2.0)
    assert group_findings(story.add("gave_up", "j"), JAVA) == []


@pytest.mark.parametrize(
    ("begin_s", "end_s", "member", "expected"),
    [
        (0.0, 8.0, "a", []),
        (5.0, 6.0, "j", []),
        (5.0, 6.0, "", []),
        (0.0, 8.0, "b", ["java retries exhausted"]),
        (0.0, 1.0, "a", ["java retries exhausted"]),  # five seconds are enough for a member that is well again
        (9.0, 12.0, "a", ["java retries exhausted"]),
    ],
)
def test_trouble_excuses_a_holder_only_at_the_time(
    begin_s: float, end_s: float, member: str, expected: list[str]
) -> None:
    trouble = Trouble(int(begin_s * NS), int(end_s * NS), member)
    limits = Limits(unfenced=frozenset({"j"}), troubles=(trouble,))
    assert group_findings(kept_from(["a", "a", "a", "a"]), limits) == expected


# -- requests ----------------------------------------------------------------------------------------------------------


def asking(*counts: int, what: str = "reads") -> GroupStory:
    """So many requests in one second after the other."""
    story = GroupStory()
    for count in counts:
        story.add("requests", "a", count, by=what).wait(0.999)
    return story


def test_a_second_with_too_many_requests() -> None:
    limits = Limits(requests_a_second=50)
    assert group_findings(asking(50, 50), limits) == []
    assert group_findings(asking(51), limits) == ["too many requests"]


def a_second(connections: int, reads: int) -> GroupStory:
    """A second in which a member was connected so often, and asked for so much."""
    story = GroupStory()
    story.events.append(Event(NS, "connected", "a", offset=connections))
    story.events.append(Event(NS, "requests", "a", offset=reads, id="reads"))
    return story


def test_each_more_connection_within_a_second_reads_everything_again() -> None:
    limits = Limits(requests_a_second=50, requests_a_connection=10)
    assert group_findings(a_second(connections=3, reads=70), limits) == []
    assert group_findings(a_second(connections=3, reads=71), limits) == ["too many requests"]
    assert group_findings(a_second(connections=1, reads=51), limits) == ["too many requests"]


def test_many_seconds_each_of_which_would_pass() -> None:
    limits = Limits(requests_a_second=50, requests_in_ten_s=150)
    assert group_findings(asking(*[15] * 60), limits) == []
    assert group_findings(asking(50, 50, 50, *[0] * 9, 50, 50, 50), limits) == []
    assert group_findings(asking(*[16] * 60), limits) == ["too many requests"]


def test_reads_and_writes_have_budgets_of_their_own() -> None:
    story = asking(*[10] * 10)
    story.events += asking(*[10] * 10, what="writes").events
    assert group_findings(story, Limits(requests_in_ten_s=100)) == []


# -- the listener ------------------------------------------------------------------------------------------------------


def test_calls_in_pairs() -> None:
    story = GroupStory().own("a", 0).hand_over("a", 0).own("a", 0).add("lost", "a").own("b", 0).own("a", 0, ("t", 1))
    assert group_findings(story) == []


def test_a_partition_that_is_assigned_twice() -> None:
    assert group_findings(GroupStory().add("assigned", "a", 0).add("assigned", "a", 5)) == ["unpaired"]


@pytest.mark.parametrize("kind", ["revoked", "lost"])
def test_a_partition_that_goes_without_having_been_assigned(kind: str) -> None:
    assert group_findings(GroupStory().add(kind, "a")) == ["unpaired"]
    assert group_findings(GroupStory().add("assigned", "b").add(kind, "a")) == ["unpaired"]
    assert group_findings(GroupStory().add("assigned", "a").add(kind, "a").add(kind, "a")) == ["unpaired"]


@pytest.mark.parametrize("how", ["released", "closed"])
def test_a_partition_that_is_given_back_without_a_word(how: str) -> None:
    given = GroupStory().own("a", 0).add("owner_gone", "a", by=how)
    assert group_findings(given) == ["unpaired"]
    assert group_findings(given.wait(9.0).add("revoked", "a")) == [], "a listener may be busy"


@pytest.mark.parametrize("how", ["expired", "ended", OPERATOR, "b"])
def test_a_partition_that_is_taken_away_is_told_as_soon_as_that_is_known(how: str) -> None:
    assert group_findings(GroupStory().own("a", 0).add("owner_gone", "a", by=how)) == []


def test_a_process_that_dies_tells_nothing_more() -> None:
    assert group_findings(GroupStory().own("a", 0).add("killed", "a").add("owner_gone", "a", by="expired")) == []
    assert group_findings(GroupStory().own("a", 0).add("owner_gone", "a", by="released").add("killed", "a")) == []
    late = GroupStory().own("a", 0).add("owner_gone", "a", by="released").wait(2.0).add("killed", "a")
    assert group_findings(late) == ["unpaired"]


def test_a_topic_that_is_created_anew_is_the_same_for_the_listener() -> None:
    limits = Limits(reborn=frozenset({"t~1"}))
    reborn = ("t~1", 0)
    story = GroupStory().own("a", 5)
    assert group_findings(story.add("assigned", "a", 0, place=reborn), limits) == ["unpaired"]
    story = GroupStory().own("a", 5).add("lost", "a", place=reborn).add("assigned", "a", 0, place=reborn)
    assert group_findings(story.add("revoked", "a", place=reborn), limits) == []
    assert group_findings(story.add("revoked", "a", place=reborn), limits) == ["unpaired"]


# -- claims of partitions in dispute -----------------------------------------------------------------------------------


def test_claims_are_compared_with_the_rule_only_where_all_orders_agree() -> None:
    limits = Limits(settle_s=0.05)
    hasty = GroupStory().add("due", "a").add("claimed", "a")
    assert group_findings(hasty, limits) == ["hasty claim"]
    assert group_findings(hasty, Limits(settle_s=0.05, disputed=frozenset({("t", 1)}))) == ["hasty claim"]
    assert group_findings(hasty, Limits(settle_s=0.05, disputed=frozenset({("t", 0)}))) == []
    assert group_findings(GroupStory().add("due", "a", by="1.0").add("claimed", "a"), limits) == []
