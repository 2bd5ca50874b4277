"""Operators, Java members and topics created again explain much in a history; violations next to them are found."""

from __future__ import annotations

import pytest
from histories import GroupStory, history_findings

from zkconsumer.testing.history.limits import OPERATOR, Limits

JAVA = Limits(unfenced=frozenset({"j"}))
T, REBORN = ("t", 0), ("t~1", 0)


def half_read() -> GroupStory:
    """`a` has 0 to 3 of ten messages, and has committed that."""
    return GroupStory().acked(*range(10)).own("a", 0).deliver("a", 0, 1, 2, 3).store("a", 4)


# -- operators: skipped messages ---------------------------------------------------------------------------------------


def test_a_raised_offset_passes_over_messages_from_the_next_claim_on() -> None:
    story = half_read().set_by_operator(8).add("killed", "a").add("owner_gone", "a", by="expired")
    assert history_findings(story.own("b", 8).deliver("b", 8, 9)) == []


def test_a_raised_offset_does_not_excuse_its_present_owner() -> None:
    assert history_findings(half_read().set_by_operator(8).deliver("a", 6, 7, 8, 9)) == ["lost", "skipped"]


def test_a_raised_offset_does_not_excuse_who_begins_elsewhere() -> None:
    story = half_read().set_by_operator(8).add("killed", "a").add("owner_gone", "a", by="expired")
    assert history_findings(story.own("b", 6).deliver("b", 6, 7, 8, 9)) == ["lost", "skipped"]


def test_an_offset_beyond_the_log_does_not_excuse_what_is_lost_for_ever_after() -> None:
    limits = Limits(reset_to_end=False)

    def story() -> GroupStory:
        story = half_read().set_by_operator(100_000).add("killed", "a").add("owner_gone", "a", by="expired")
        return story.own("b", 100_000).add("reset", "b", 0)

    assert history_findings(story().deliver("b", *range(10)), limits) == []
    assert history_findings(story().deliver("b", 0, 1, 2, 3, 4, 9), limits) == ["lost", "skipped"]


def test_a_reset_passes_over_messages_only_if_it_goes_to_the_end() -> None:
    story = half_read().add("reset", "a", 8).deliver("a", 8, 9)
    assert history_findings(story, Limits(reset_to_end=True)) == []
    assert history_findings(story, Limits(reset_to_end=False)) == ["lost", "skipped"]


def test_retention_excuses_what_it_has_dropped_and_no_more() -> None:
    dropped = half_read().add("log_start", offset=6).add("reset", "a", 6)
    assert history_findings(dropped.deliver("a", 6, 7, 8, 9)) == []
    dropped = half_read().add("log_start", offset=6).add("reset", "a", 6)
    assert history_findings(dropped.deliver("a", 6, 9)) == ["lost", "skipped"]


# -- operators: repeated messages --------------------------------------------------------------------------------------


def test_a_lowered_offset_brings_messages_again_once() -> None:
    story = half_read().hand_over("a", 4).set_by_operator(1).own("b", 1).deliver("b", 1, 2, 3, 4).hand_over("b", 5)
    assert history_findings(story.own("a", 5).deliver("a", *range(5, 10))) == []


def test_a_lowered_offset_does_not_excuse_a_repetition_long_after() -> None:
    story = half_read().hand_over("a", 4).set_by_operator(1).own("b", 1).deliver("b", 1, 2, 3, 4).hand_over("b", 5)
    assert history_findings(story.own("a", 3).deliver("a", *range(3, 10))) == ["repeated"]


def test_a_lowered_offset_does_not_excuse_who_begins_before_it() -> None:
    story = half_read().hand_over("a", 4).set_by_operator(2).own("b", 1).deliver("b", *range(1, 10))
    assert history_findings(story) == ["repeated"]


def test_a_lowered_offset_that_was_written_over_excuses_nothing() -> None:
    story = half_read().set_by_operator(1).store("a", 4).hand_over("a", 4).own("b", 2).deliver("b", *range(2, 10))
    assert history_findings(story) == ["repeated"]


def test_a_deleted_offset_brings_everything_again_once() -> None:
    def story() -> GroupStory:
        story = half_read().hand_over("a", 4).set_by_operator(-1).add("claimed", "b").store("b", 0)
        return story.add("assigned", "b", 0).deliver("b", 0, 1, 2, 3, 4).hand_over("b", 5)

    assert history_findings(story().own("a", 5).deliver("a", *range(5, 10))) == []
    assert history_findings(story().own("a", 2).deliver("a", *range(2, 10))) == ["repeated"]


# -- Java members ------------------------------------------------------------------------------------------------------


def test_a_java_member_may_have_read_its_offset_just_before_the_last_commit_of_another() -> None:
    story = half_read().wait(2.0).deliver("a", 4, 5).hand_over("a", 6).add("claimed", "j")
    assert history_findings(story.deliver("j", *range(4, 10)), JAVA) == []


def test_it_has_not_read_an_offset_of_long_before() -> None:
    story = half_read().wait(2.0).deliver("a", 4, 5).hand_over("a", 6).wait(2.0).add("claimed", "j")
    assert history_findings(story.deliver("j", *range(4, 10)), JAVA) == ["repeated"]


def test_an_offset_that_a_java_zombie_put_back_brings_messages_again_once() -> None:
    story = half_read().store("j", 2).add("killed", "a").add("owner_gone", "a", by="expired")
    story.own("b", 2).deliver("b", 2, 3, 4).hand_over("b", 5)
    assert history_findings(story.own("c", 5).deliver("c", *range(5, 10)), JAVA) == []
    assert history_findings(story.hand_over("c", 10).own("b", 8).deliver("b", 8, 9), JAVA) == ["repeated"]


def test_a_java_zombie_that_put_an_offset_back_goes_on_from_there_write_by_write() -> None:
    def story(*writes: int) -> GroupStory:
        story = half_read().store("j", 1).deliver("a", 4, 5).wait(3.0)
        for offset in writes:
            story.store("j", offset)
        story.add("revoked", "a").add("owner_gone", "a", by="released")
        return story.own("b", 3).deliver("b", *range(3, 10))

    assert history_findings(story(2, 3), JAVA) == []
    assert history_findings(story(), JAVA) == ["repeated"]
    # Above all that was stored before, it puts nothing back.
    assert history_findings(story(5), JAVA) == ["repeated"]


def test_a_java_member_that_finds_the_node_of_its_former_self_begins_without_a_claim() -> None:
    def story(*offsets: int) -> GroupStory:
        story = GroupStory().acked(*range(10)).add("claimed", "j").deliver("j", 0, 1, 2, 3).store("j", 4).wait(9.0)
        return story.set_by_operator(7).deliver("j.2", *offsets)

    limits = Limits(unfenced=frozenset({"j", "j.2"}))
    assert history_findings(story(7, 8, 9), limits) == []
    assert history_findings(story(4, 5, 6, 9), limits) == ["lost", "skipped"]


def test_only_java_members_put_offsets_back() -> None:
    story = half_read().store("a", 2)
    assert "offset went back" in history_findings(story, JAVA)
    story = half_read().store("j", 2)
    assert "offset went back" not in history_findings(story, JAVA)


# -- offsets that fall -------------------------------------------------------------------------------------------------


def falling(*offsets: int, place: tuple[str, int] = T) -> GroupStory:
    """`a` commits one after the other."""
    story = GroupStory().own("a", 0, place)
    for offset in offsets:
        story.add("offset_node", "a", offset, place=place)
    return story


def test_after_a_reset_an_offset_falls_to_where_that_went_and_no_lower() -> None:
    def story(offset: int) -> GroupStory:
        return falling(900).add("reset", "a", 20).add("offset_node", "a", offset)

    assert "offset went back" not in history_findings(story(20))
    assert "offset went back" in history_findings(story(19))
    assert "offset went back" in history_findings(falling(900, 20).add("reset", "a", 900).add("offset_node", "a", 19))


def test_a_commit_from_before_a_reset_may_be_written_after_it_and_before_the_next_one() -> None:
    def story(*stored: int) -> list[str]:
        told = GroupStory().acked(*range(4)).own("a", 921).add("reset", "a", 0)
        for offset in stored:
            told.add("commit", "a", offset)
        return history_findings(told.deliver("a", 0, 1, 2, 3))

    assert story(921) == story(921, 0) == []
    assert story(920) == story(0, 921) == ["early commit"]


def test_a_commit_from_before_a_reset_may_be_lowered_by_who_wrote_it_if_the_log_is_shorter() -> None:
    def story(late: int, lower_by: str = "a") -> GroupStory:
        story = falling(500).add("reset", "a", 0).add("acked", offset=20)
        return story.add("offset_node", "a", late).add("offset_node", lower_by, 10)

    assert "offset went back" not in history_findings(story(900))
    assert "offset went back" in history_findings(story(21))
    assert "offset went back" in history_findings(story(900, lower_by="b"))
    assert "offset went back" in history_findings(falling(500, 900, 10))
    again = story(900).add("offset_node", "a", 9)
    assert "offset went back" in history_findings(again)


def test_in_a_log_that_has_taken_the_place_of_another_a_late_commit_is_behind_all_that_came_of_it() -> None:
    limits = Limits(reborn=frozenset({"t~1"}))

    def story(late: int) -> list[str]:
        told = GroupStory().acked(*range(900), place=REBORN).own("a", 0, REBORN).add("reset", "a", 0, place=REBORN)
        told.deliver("a", *range(40), place=REBORN)
        told.add("offset_node", "a", late, place=REBORN).add("offset_node", "a", 30, place=REBORN)
        return history_findings(told.deliver("a", *range(40, 900), place=REBORN), limits)

    assert story(804) == []
    assert story(40) == ["offset went back"]


def test_a_topic_that_was_created_anew_is_begun_once_more_at_its_start_and_goes_on_from_there() -> None:
    limits = Limits(reborn=frozenset({"t~1"}))
    first_position = falling(7, 0, 3, place=REBORN)
    assert "offset went back" not in history_findings(first_position, limits)
    begun = falling(7, place=REBORN).add("assigned", "a", 0, place=REBORN).add("offset_node", "a", 3, place=REBORN)
    assert "offset went back" not in history_findings(begun, limits)
    assert "offset went back" in history_findings(begun.add("offset_node", "a", 2, place=REBORN), limits)
    assert "offset went back" in history_findings(falling(7, 3, place=REBORN), limits)


def test_of_a_topic_that_was_created_anew_messages_come_again_when_it_is_noticed_late_and_not_for_ever() -> None:
    limits = Limits(reborn=frozenset({"t~1"}))
    story = GroupStory().add("claimed", "a", place=REBORN).acked(0, 1, 2, place=REBORN)
    story.add("assigned", "a", 0, place=REBORN)
    for begun in range(3):
        assert history_findings(story, limits)[:1] == (["lost"] if not begun else [])
        story.deliver("a", 0, 1, 2, place=REBORN).add("lost", "a", place=REBORN)
        story.add("assigned", "a", 0, place=REBORN)
    assert history_findings(story, limits) == ["repeated"]


def test_so_do_messages_of_such_a_topic_whose_first_ones_retention_has_taken() -> None:
    def story(start: int) -> list[str]:
        told = GroupStory().add("claimed", "a", place=REBORN).acked(0, 1, 2, 3, place=REBORN)
        told.add("assigned", "a", 0, place=REBORN).deliver("a", 0, 1, 2, 3, place=REBORN)
        told.add("log_start", offset=2, place=REBORN).add("lost", "a", place=REBORN)
        told.add("assigned", "a", start, place=REBORN)
        return history_findings(told.deliver("a", *range(start, 4), place=REBORN), Limits(reborn=frozenset({"t~1"})))

    assert "repeated" not in story(2)
    assert "repeated" in story(1)


def test_a_session_that_ends_before_its_first_commit_is_no_beginning_of_a_topic_that_was_created_anew() -> None:
    limits = Limits(reborn=frozenset({"t~1"}))
    story = GroupStory().add("claimed", "a", place=REBORN).acked(0, 1, 2, place=REBORN)
    for _ in range(3):
        story.add("claimed", "a", place=REBORN).add("assigned", "a", 0, place=REBORN)
        story.deliver("a", 0, 1, 2, place=REBORN).add("owner_gone", "a", by="ended", place=REBORN)
        story.add("lost", "a", place=REBORN)
    assert "repeated" not in history_findings(story, limits)


@pytest.mark.parametrize("by", [OPERATOR, "ended"])
def test_a_member_that_remembers_its_own_work_does_not_do_it_again_whoever_ended_its_part(by: str) -> None:
    story = GroupStory().acked(0, 1).own("a", 0).deliver("a", 0, 1).add("owner_gone", "a", by=by).add("lost", "a")
    assert history_findings(story.own("a", 0).deliver("a", 0, 1)) == ["repeated"]


def test_a_later_node_of_a_member_is_not_that_of_an_ownership_whose_node_a_hand_has_deleted() -> None:
    story = GroupStory().own("a", 0).deliver("a", 0).add("owner_gone", "a", by=OPERATOR)
    story.own("b", 1).add("revoked", "a").deliver("b", 1).add("lost", "b").add("owner_gone", "b", by="ended")
    story.add("claimed", "a").add("owner_gone", "a", by=OPERATOR)
    assert "two owners" not in history_findings(story)


def test_an_offset_may_fall_before_the_start_of_the_log_and_not_from_behind_it() -> None:
    trimmed = GroupStory().own("a", 0).add("log_start", offset=31).add("offset_node", "a", 11)
    assert "offset went back" not in history_findings(trimmed.add("offset_node", "a", 10))
    trimmed.add("offset_node", "a", 32)
    assert "offset went back" in history_findings(trimmed.add("offset_node", "a", 30))


# -- commits without a fence -------------------------------------------------------------------------------------------


def test_without_a_fence_a_commit_from_before_a_reset_does_not_see_what_an_operator_has_set() -> None:
    def story(late: int) -> list[str]:
        told = GroupStory().acked(*range(60)).own("a", 0).deliver("a", *range(40)).store("a", 36)
        told.add("log_start", offset=52).add("reset", "a", 52).set_by_operator(100_036).store("a", late)
        return history_findings(told.deliver("a", *range(52, 60)), UNFENCED)

    assert story(40) == []
    assert story(35) == ["offset went back"]


UNFENCED = Limits(unfenced=frozenset({"j"}), commits_fenced=False, told_late_s=5.0)


def taken_from(loser: str, by: str) -> GroupStory:
    """`a` has taken the partition at 4 from a member whose session has ended, and has come to 6."""
    story = GroupStory().acked(*range(10)).own(loser, 0).deliver(loser, 0, 1, 2, 3).store(loser, 4)
    return story.add("owner_gone", loser, by=by).own("a", 4).deliver("a", 4, 5).store("a", 6)


@pytest.mark.parametrize(("loser", "by"), [("j", "expired"), ("j", "ended"), ("b", "ended"), ("b", OPERATOR)])
def test_an_owner_stores_its_position_over_that_of_a_member_that_has_lost_the_partition(loser: str, by: str) -> None:
    crossed = taken_from(loser, by).deliver(loser, 4, 5, 6, 7, 8).store(loser, 9)
    assert "offset went back" not in history_findings(crossed.store("a", 6), UNFENCED)
    assert "offset went back" in history_findings(crossed.store("a", 5), UNFENCED), "less than it has stored before"
    fenced = Limits(unfenced=frozenset({"j"}), told_late_s=5.0)
    assert "offset went back" in history_findings(taken_from(loser, by).store(loser, 9).store("a", 6), fenced)


def test_an_owner_that_has_read_the_offset_of_a_java_member_stores_nothing_below_it() -> None:
    story = taken_from("j", "expired").store("j", 9).hand_over("a", 9).own("b", 9)
    assert "offset went back" in history_findings(story.store("b", 8), UNFENCED)
    started_below = taken_from("j", "expired").hand_over("a", 6).store("j", 9).own("b", 6).store("b", 7)
    assert "offset went back" in history_findings(started_below, UNFENCED)


def test_an_owner_stores_its_position_over_an_offset_that_an_operator_has_set_since_it_started() -> None:
    owner = GroupStory().acked(*range(10)).own("a", 4).deliver("a", 4, 5).store("a", 6).set_by_operator(9)
    assert "offset went back" not in history_findings(owner.store("a", 6), UNFENCED)
    assert "offset went back" in history_findings(owner.store("a", 5), UNFENCED), "less than it has stored before"
    left = GroupStory().acked(*range(10)).own("a", 4).deliver("a", 4, 5).set_by_operator(9)
    left.add("revoked", "a").add("owner_gone", "a", by="closed")
    assert "offset went back" not in history_findings(left.store("a", 6), UNFENCED), "it was on its way"
    started_there = GroupStory().acked(*range(10)).set_by_operator(9).own("a", 9)
    assert "offset went back" in history_findings(started_there.store("a", 6), UNFENCED)
    fenced = Limits(told_late_s=5.0)
    assert "offset went back" in history_findings(GroupStory().own("a", 4).set_by_operator(9).store("a", 6), fenced)


@pytest.mark.parametrize(
    ("by", "expected"),
    [("ended", []), (OPERATOR, []), ("released", ["offset went back"]), ("expired", ["offset went back"])],
)
def test_only_a_member_that_cannot_know_that_it_has_lost_a_partition_sets_its_offset_back(
    by: str, expected: list[str]
) -> None:
    story = taken_from("b", by).deliver("a", 6, 7, 8, 9)
    assert history_findings(story.store("b", 4), UNFENCED) == expected
    assert "zombie" in history_findings(story.wait(6.0).store("b", 5), UNFENCED), "and not for long"


def test_what_one_thread_is_done_with_is_not_done_on_another_that_has_it_in_hand_again() -> None:
    """The message of 2 s was in hand at the first release, and ends while another thread works on it again."""
    limits = Limits(drain_s=0.5)

    def story(done_by: str) -> GroupStory:
        story = GroupStory().acked(0).own("a", 0).add("deliver", "a", 0)
        first = story.now_ms
        story.wait(1.0).add("revoked", "a").add("assigned", "a", 0).wait(0.3).add("deliver", "a", 0)
        second = story.now_ms
        story.add("done", "a", 0, str({"first": first, "second": second}[done_by] * 1_000_000))
        return story.wait(1.0).add("revoked", "a").add("assigned", "a", 0).deliver("a", 0)

    assert history_findings(story("first"), limits) == []
    assert history_findings(story("second"), limits) == ["repeated"]
