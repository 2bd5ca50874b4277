"""Checks of leaves: what a leave reports of a position is compared with what was seen in ZooKeeper."""

from __future__ import annotations

from histories import GroupStory

from zkconsumer.testing.history.groups import check_leaves

REBORN = ("t~1", 0)


def findings(story: GroupStory) -> list[str]:
    return [found.check for found in check_leaves(story.events)]


def test_a_position_that_was_seen_or_was_passed_is_stored() -> None:
    assert findings(GroupStory().add("offset_node", "a", 7).add("said_stored", "a", 7)) == []
    assert findings(GroupStory().add("offset_node", "b", 9).add("said_stored", "a", 7)) == []


def test_a_position_that_nobody_has_seen_is_not_stored() -> None:
    assert findings(GroupStory().add("said_stored", "a", 7)) == ["false store"]
    assert findings(GroupStory().add("offset_node", "a", 6).add("said_stored", "a", 7)) == ["false store"]


def test_of_an_earlier_life_of_the_topic_only_the_very_offset_counts() -> None:
    before = GroupStory().add("offset_node", "a", 7)
    assert findings(before.add("said_stored", "a", 7, place=REBORN)) == []
    assert findings(before.add("said_stored", "a", 6, place=REBORN)) == ["false store"]


def test_a_leave_has_its_time_and_half_a_second() -> None:
    assert findings(GroupStory().add("leaving", "a", by="2").wait(2.4).add("left", "a")) == []
    assert findings(GroupStory().add("leaving", "a", by="2").wait(2.6).add("left", "a")) == ["left late"]
    assert findings(GroupStory().add("leaving", "a", by="2").wait(2.6).add("left", "a", by="paused")) == []
