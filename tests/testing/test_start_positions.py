"""The start of a group: the first position that was stored, even if an operator took the partition away before."""

from __future__ import annotations

from histories import GroupStory, history_findings

from tests.simulator.start_positions import find_start_positions
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.limits import OPERATOR, Limits

T0 = ("t", 0)
OLD, NEW = {T0: 0.0}, {T0: 1.0}
AGAIN = ("t~1", 0)


def taken_away(by: str = OPERATOR) -> GroupStory:
    """Three messages are there when `a` claims; its node is deleted before `a` has stored its start offset."""
    return GroupStory().acked(0, 1, 2).add("claimed", "a").add("owner_gone", "a", by=by)


def findings(story: GroupStory, created_s: dict[Place, float]) -> list[str]:
    return history_findings(story, Limits(begin=find_start_positions(story.events, created_s)))


def test_without_a_stored_offset_the_first_position_of_an_old_partition_is_the_beginning() -> None:
    story = GroupStory().acked(0, 1, 2).add("claimed", "a").store("a", 3)
    assert find_start_positions(story.add("assigned", "a", 3).deliver("a", 3).events, OLD) == {T0: 3}


def test_a_first_position_that_is_stored_after_a_hand_took_the_partition_is_the_beginning() -> None:
    story = taken_away().store("a", 3).acked(3).own("b", 3).deliver("b", 3)
    assert find_start_positions(story.events, OLD) == {T0: 3}
    assert findings(story, OLD) == []


def test_where_the_application_commits_a_member_reads_from_its_first_position_before_anything_is_stored() -> None:
    story = taken_away().add("assigned", "a", 3).acked(3).deliver("a", 3).store("a", 4)
    assert find_start_positions(story.events, OLD) == {T0: 3}
    assert findings(story, OLD) == []


def test_what_comes_after_such_a_beginning_is_not_excused() -> None:
    story = taken_away().store("a", 3).acked(3, 4).own("b", 4).deliver("b", 4)
    assert findings(story, OLD) == ["lost", "skipped"]


def test_a_partition_that_came_later_begins_at_its_start_whoever_took_it() -> None:
    story = GroupStory().add("assigned", "a", 0, place=("t", 1)).wait(2)
    story.acked(0, 1, 2).add("claimed", "a").add("owner_gone", "a", by=OPERATOR).store("a", 3)
    assert findings(story.acked(3).own("b", 3).deliver("b", 3), NEW) == ["lost", "skipped"]


def test_what_a_member_stores_behind_a_stored_offset_is_no_beginning() -> None:
    story = taken_away().add("claimed", "b").store("b", 0).store("a", 3).acked(3)
    story.add("owner_gone", "b", by="released").own("c", 3).deliver("c", 3)
    assert findings(story, OLD) == ["lost", "skipped"]


def test_a_session_that_has_ended_stores_no_beginning() -> None:
    story = taken_away(by="ended").store("a", 3).acked(3).own("b", 3).deliver("b", 3)
    assert find_start_positions(story.events, OLD) == {}


def test_once_a_member_delivers_its_commits_are_no_beginnings() -> None:
    story = taken_away().add("claimed", "b").store("b", 0).add("owner_gone", "b", by="released")
    story.add("claimed", "a").deliver("a", 0).set_by_operator(-1).store("a", 3).acked(3)
    assert findings(story.deliver("a", 3), OLD) == ["lost", "skipped"]


def reborn(late: int) -> GroupStory:
    """The topic is created again under `a`, which reads a message of it; then its commit comes, and it dies."""
    return (
        GroupStory()
        .wait(2)
        .acked(0, 1, 2, place=AGAIN)
        .add("reset", "a", 0, place=AGAIN)
        .deliver("a", 0, place=AGAIN)
        .store("a", late, place=AGAIN)
        .add("owner_gone", "a", by="ended", place=AGAIN)
    )


def test_who_claims_just_before_the_topic_is_created_anew_begins_where_the_new_one_ends() -> None:
    story = GroupStory().acked(0).add("claimed", "a").wait(2).acked(0, 1, place=AGAIN).store("a", 2, place=AGAIN)
    story.add("assigned", "a", 2, place=AGAIN).acked(2, place=AGAIN).deliver("a", 2, place=AGAIN)
    assert find_start_positions(story.events, {AGAIN: 1.0}) == {AGAIN: 2}


def test_who_comes_behind_a_deletion_goes_on_from_what_is_stored_of_the_earlier_life() -> None:
    story = GroupStory().acked(0, 1).store("b", 1).wait(2).add("claimed", "a").add("assigned", "a", 1)
    story.acked(0, 1, place=AGAIN).deliver("a", 1, place=AGAIN)
    assert find_start_positions(story.events, {AGAIN: 1.0}) == {AGAIN: 1}
    assert find_start_positions(story.events, {AGAIN: 3.0}) == {}


def test_where_a_commit_of_a_topics_earlier_life_comes_late_a_new_member_begins_there() -> None:
    story = reborn(late=3).own("b", 3, place=AGAIN).acked(3, place=AGAIN).deliver("b", 3, place=AGAIN)
    assert find_start_positions(story.events, {AGAIN: 1.0}) == {AGAIN: 3}


def test_where_a_commit_of_the_new_life_is_stored_nobody_begins() -> None:
    story = reborn(late=1).own("b", 3, place=AGAIN).acked(3, place=AGAIN).deliver("b", 3, place=AGAIN)
    assert find_start_positions(story.events, {AGAIN: 1.0}) == {}


def test_who_was_there_when_the_topic_came_again_does_not_begin_behind_its_start() -> None:
    story = GroupStory().add("assigned", "b", 0, place=("t", 1))
    story.events += reborn(late=3).own("b", 3, place=AGAIN).events
    assert find_start_positions(story.events, {AGAIN: 1.0}) == {}
