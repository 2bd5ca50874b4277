"""Tests of the history checks: good histories pass, each bad one is found by the check that it is made for."""

from __future__ import annotations

import random

import pytest
from histories import GroupStory
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.testing.history.checks import Limits, check_history, count_allowed_repeats
from zkconsumer.testing.history.events import KINDS, Event, format_event, id_of, ownerships, parse_event

MS = 1_000_000


class Story:
    """Builds a history: each step is a millisecond later than the one before."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.events: list[Event] = []

    def _add(self, kind: str, **fields: object) -> Story:
        self.now_ms += 1
        place = {} if kind == "killed" else {"topic": "t", "partition": 0}
        self.events.append(Event(self.now_ms * MS, kind, **{**place, **fields}))  # type: ignore[arg-type]
        return self

    def wait(self, seconds: float) -> Story:
        self.now_ms += int(seconds * 1000)
        return self

    def acked(self, *offsets: int) -> Story:
        for offset in offsets:
            self._add("acked", offset=offset, id=f"m{offset}")
        return self

    def deliver(self, member: str, *offsets: int, done: bool = True) -> Story:
        for offset in offsets:
            self._add("deliver", member=member, offset=offset, id=f"m{offset}")
            if done:
                self._add("done", member=member, offset=offset)
        return self

    def __getattr__(self, kind: str) -> object:
        if kind not in KINDS:
            raise AttributeError(kind)

        def step(member: str = "", offset: int = -1) -> Story:
            return self._add(kind, member=member, offset=offset)

        return step


def found(story: Story, limits: Limits | None = None) -> list[str]:
    return [finding.check for finding in check_history(story.events, limits)]


def good() -> Story:
    """A owns and delivers 0..2, hands over in order to B, which is killed; A takes over again."""
    story = Story().acked(0, 1, 2, 3, 4, 5)
    story.assigned("a", 0).deliver("a", 0, 1, 2).commit("a", 3).offset_node(offset=3).revoked("a").owner_gone("a")
    story.assigned("b", 3).deliver("b", 3, 4).killed("b").owner_gone("b")
    return story.assigned("a", 3).deliver("a", 3, 4, 5).commit("a", 6).offset_node(offset=6)


def test_a_good_history_has_no_findings() -> None:
    assert found(good()) == []
    assert count_allowed_repeats(good().events) == 2  # 3 and 4, delivered just before the kill


def test_the_order_in_which_events_are_given_does_not_matter() -> None:
    events = good().events
    random.Random(7).shuffle(events)
    assert check_history(events) == []


def test_a_message_nobody_got_is_lost() -> None:
    assert found(Story().acked(0, 1).assigned("a", 0).deliver("a", 0)) == ["lost"]


def test_messages_before_the_begin_of_the_group_may_be_missing() -> None:
    story = Story().acked(0, 1, 2).assigned("a", 2).deliver("a", 2)
    assert found(story) == ["lost", "lost", "skipped"]
    assert found(story, Limits(begin={("t", 0): 2})) == []


def test_a_gap_inside_an_ownership_is_a_skip() -> None:
    story = Story().acked(0, 1, 2).assigned("a", 0).deliver("a", 0, 2).revoked("a")
    story.assigned("b", 1).deliver("b", 1)
    assert "skipped" in found(story)
    assert "lost" not in found(story)


def test_a_hole_that_no_producer_knows_is_no_skip() -> None:
    assert found(Story().acked(0, 7).assigned("a", 0).deliver("a", 0, 7)) == []


def test_a_new_owner_that_starts_too_high_skips() -> None:
    story = Story().acked(0, 1, 2, 3).assigned("a", 0).deliver("a", 0).revoked("a").assigned("b", 2)
    checks = found(story.deliver("b", 2, 3))
    assert checks == ["lost", "skipped"]


def test_a_repeat_after_an_orderly_handover_is_not_allowed() -> None:
    story = Story().acked(0, 1).assigned("a", 0).deliver("a", 0, 1).revoked("a").assigned("b", 1).deliver("b", 1)
    assert found(story) == ["repeated"]


@pytest.mark.parametrize("end", ["lost", "killed"])
def test_a_repeat_is_allowed_only_shortly_before_an_ungraceful_end(end: str) -> None:
    def story(wait_s: float) -> Story:
        story = Story().acked(0).assigned("a", 0).deliver("a", 0).wait(wait_s)
        getattr(story, end)("a")
        return story.assigned("b", 0).deliver("b", 0)

    assert found(story(1.9)) == []
    assert found(story(2.1)) == ["repeated"]
    assert found(story(2.1), Limits(repeat_before_end_s=3)) == []


def test_a_vanished_owner_node_explains_repeats_of_a_member_that_tells_nothing() -> None:
    java = Story().acked(0).deliver("j", 0, done=False).owner_gone("j").assigned("b", 0).deliver("b", 0)
    assert found(java) == []
    silent = Story().acked(0).deliver("j", 0, done=False).assigned("b", 0).deliver("b", 0)
    assert found(silent) == ["repeated"]


def test_a_repeat_inside_one_ownership_is_never_allowed() -> None:
    story = Story().acked(0, 1).assigned("a", 0).deliver("a", 0, 1, 1).killed("a")
    assert found(story) == ["repeated", "out of order"]


def test_steps_back_are_out_of_order() -> None:
    story = Story().acked(0, 1).assigned("a", 0).deliver("a", 1, 0)
    assert "out of order" in found(story)


def test_a_java_member_may_step_back_where_nothing_was_announced() -> None:
    story = Story().acked(0, 1).deliver("j", 0, 1, done=False).owner_gone("j").deliver("j", 0, 1, done=False)
    assert "out of order" not in found(story)


def test_two_overlapping_ownerships_are_two_owners() -> None:
    story = Story().acked(0, 1).assigned("a", 0).deliver("a", 0).assigned("b", 1).deliver("b", 1).revoked("a")
    assert found(story) == ["two owners"]


def test_an_owner_whose_node_was_gone_does_not_overlap_with_its_successor() -> None:
    story = Story().acked(0, 1).assigned("a", 0).deliver("a", 0).owner_gone("a").assigned("b", 1).deliver("b", 1)
    assert found(story.lost("a")) == []


def test_taking_turns_without_a_new_assignment_is_two_owners_and_a_zombie() -> None:
    story = Story().acked(0, 1, 2).assigned("a", 0).deliver("a", 0).owner_gone("a")
    story.assigned("b", 1).deliver("b", 1).wait(1).deliver("a", 2)
    checks = found(story)
    assert "two owners" in checks
    assert "zombie" in checks


@pytest.mark.parametrize("what", ["deliver", "commit"])
@pytest.mark.parametrize(("late_s", "expected"), [(0.02, []), (0.2, ["zombie"])])
def test_a_zombie_acts_after_its_owner_node_is_gone(what: str, late_s: float, expected: list[str]) -> None:
    story = Story().acked(0).assigned("a", 0)
    if what == "commit":
        story.deliver("a", 0)
    story.owner_gone("a").wait(late_s)
    story = story.deliver("a", 0) if what == "deliver" else story.commit("a", 1)
    assert found(story) == expected


def test_a_member_assigned_anew_is_no_zombie() -> None:
    story = Story().acked(0).assigned("a", 0).owner_gone("a").lost("a").wait(1).assigned("a", 0).deliver("a", 0)
    assert found(story) == []


def test_a_falling_offset_node_is_reported_with_both_values() -> None:
    story = Story().offset_node(offset=9).offset_node(offset=9).offset_node(offset=4)
    assert [finding.check for finding in check_history(story.events)] == ["offset went back"]
    assert "fell from 9 to 4" in str(check_history(story.events)[0])


def test_committing_the_message_in_hand_is_an_early_commit() -> None:
    story = Story().acked(0).assigned("a", 0).deliver("a", 0, done=False).commit("a", 1)
    assert found(story) == ["early commit"]
    story = Story().acked(0).assigned("a", 0).deliver("a", 0).commit("a", 1)
    assert found(story) == []


def test_committing_what_never_came_is_an_early_commit() -> None:
    assert found(Story().assigned("a", 5).commit("a", 6)) == ["early commit"]
    assert found(Story().assigned("a", 5).commit("a", 5)) == []


def test_a_partition_that_stands_still_is_an_orphan() -> None:
    limits = Limits(orphan_s=5)
    slow = Story().acked(0, 1).assigned("a", 0).deliver("a", 0).wait(6).deliver("a", 1)
    assert found(slow, limits) == ["orphan"]
    assert found(slow) == []
    idle = Story().acked(0).assigned("a", 0).deliver("a", 0).wait(60).acked(1).deliver("a", 1)
    assert found(idle, limits) == []
    never = Story().acked(0).wait(6).offset_node(offset=0)
    assert found(never, limits) == ["lost", "orphan"]
    early = Story().assigned("a", 0).deliver("a", 0).acked(0).wait(60).offset_node(offset=0)
    assert found(early, limits) == []


def test_ownerships_know_how_they_ended() -> None:
    first, second, third = ownerships(good().events)
    assert (first.member, first.graceful, len(first.deliveries)) == ("a", True, 3)
    assert (second.member, second.graceful) == ("b", False)
    assert second.end is not None
    assert second.end.kind == "killed"
    assert third.end is None


def test_a_zombie_ends_nobodys_ownership() -> None:
    story = GroupStory().add("owner_gone", "b", by="ended").deliver("a", 0).deliver("b", 0).deliver("a", 1)
    assert [(each.member, len(each.deliveries)) for each in ownerships(story.events)] == [("a", 2), ("b", 1)]
    story = GroupStory().deliver("a", 0).deliver("b", 0).deliver("a", 1)
    assert [each.member for each in ownerships(story.events)] == ["a", "b", "a"]


def test_the_end_of_a_session_ends_what_its_member_never_announced() -> None:
    """A Java member may go on with the owner node of an earlier process, which is not seen to be its own."""
    [owned] = ownerships(GroupStory().deliver("a", 0).add("unregistered", "a", by="expired").events)
    assert owned.gone_by == "expired"
    [owned] = ownerships(GroupStory().own("a", 0).deliver("a", 0).add("unregistered", "a", by="expired").events)
    assert owned.gone_by == ""
    [owned] = ownerships(GroupStory().deliver("a", 0).add("unregistered", "a", by="closed").events)
    assert owned.gone_by == ""


events = st.builds(
    Event,
    st.integers(0, 2**63),
    st.sampled_from(sorted(KINDS)),
    st.text(max_size=8),
    st.text(max_size=8),
    st.integers(-1, 2**31),
    st.integers(-1, 2**63),
    st.text(max_size=8),
)


@given(events)
def test_an_event_survives_its_line(event: Event) -> None:
    line = format_event(event)
    assert "\n" not in line
    assert parse_event(line) == event


@given(st.lists(events, max_size=20))
def test_no_history_breaks_the_checks(history: list[Event]) -> None:
    check_history(history, Limits(orphan_s=1))


@pytest.mark.parametrize(
    "line",
    ["[]", "{}", '{"time_ns":1,"kind":"eaten"}', '{"time_ns":"1","kind":"done"}', '{"time_ns":1,"kind":"done","x":1}'],
)
def test_a_broken_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse_event(line)


# -- ids of messages


@given(st.binary(max_size=300))
def test_the_id_of_a_message_is_its_value_escaped_where_it_is_not_ascii(value: bytes) -> None:
    assert id_of(value) == value.decode("ascii", "backslashreplace")


def test_the_id_of_a_large_value_is_short_and_differs_with_each_byte_and_with_the_size() -> None:
    """A load of binary values of 1 MB wrote 2.5 MB of text for each."""
    value = bytes(range(256)) * 4096
    shown = id_of(value)
    assert shown.startswith(value[:64].decode("ascii", "backslashreplace"))
    assert (len(shown) < 500, f"{len(value)} bytes" in shown) == (True, True)
    others = [value[:-1], value[:-1] + b"x", value + b"\0", bytes(4096), bytes(4097)]
    assert len({shown, *map(id_of, others)}) == 6
    assert (id_of(None), id_of(bytes(2)), len(id_of(b"a" * 4096))) == ("", "\0\0", 4096)
