"""Checks of histories of Kafka 0.7: messages that share an entry, and positions that count bytes."""

from __future__ import annotations

import pytest
from histories import GroupStory, history_findings

from zkconsumer.testing.history.checks import count_allowed_repeats, figures_of
from zkconsumer.testing.history.events import Entries, Entry
from zkconsumer.testing.history.limits import Limits

PLACE = ("t", 0)


def three_entries() -> Entries:
    """From 0 to 40 an entry of three messages, from 40 to 60 one of one, from 60 to 90 one of two."""
    entries = Entries()
    entries.add(PLACE, 0, 3, 40)
    entries.add(PLACE, 40, 1, 60)
    entries.add(PLACE, 60, 2, 90)
    return entries


LIMITS = Limits(entries=three_entries(), drain_s=1.0, reset_to_end=False)


def story() -> GroupStory:
    return GroupStory().acked(0, 1, 2, 40, 60, 61)


def test_messages_of_an_entry_follow_each_other_and_the_next_entry_follows_its_end() -> None:
    entries = three_entries()
    assert entries.of(PLACE, 1) == Entry(0, 2, 40)
    assert [entries.behind(PLACE, offset) for offset in (0, 1, 2, 40, 61)] == [1, 2, 40, 60, 90]
    assert entries.behind(("other", 0), 5) == 6, "without entries each message is one"


def test_positions_within_an_entry_are_known_with_the_start_of_the_entry() -> None:
    entries = three_entries()
    assert [position for position in range(-1, 92) if not entries.is_inside(PLACE, position)] == [
        -1, 0, 40, 60, 90, 91,
    ]  # fmt: skip
    assert [entries.start_of(PLACE, position) for position in (0, 1, 39, 40, 75, 90, 500)] == [0, 0, 0, 40, 60, 90, 500]
    assert not entries.is_inside(("other", 0), 5)


@pytest.mark.parametrize("messages", [0, 41])
def test_an_entry_has_a_message_and_no_more_of_them_than_bytes(messages: int) -> None:
    with pytest.raises(ValueError, match="entry of"):
        Entries().add(PLACE, 0, messages, 40)


def test_entries_are_added_in_their_order() -> None:
    entries = three_entries()
    with pytest.raises(ValueError, match="from 80 to 120, after 90"):
        entries.add(PLACE, 80, 1, 120)


def test_whole_entries_that_are_done_and_committed_are_clean() -> None:
    told = story().own("a", 0).deliver("a", 0, 1, 2).store("a", 40).deliver("a", 40, 60, 61).store("a", 90)
    assert history_findings(told, LIMITS) == []


def test_a_commit_behind_an_entry_that_is_not_done_is_early() -> None:
    told = story().own("a", 0).deliver("a", 0, 1).store("a", 40).deliver("a", 2, 40, 60, 61)
    assert history_findings(told, LIMITS) == ["early commit"]


def test_a_commit_within_an_entry_is_named() -> None:
    told = story().own("a", 0).deliver("a", 0, 1).store("a", 2).deliver("a", 2, 40, 60, 61)
    assert history_findings(told, LIMITS) == ["commit within an entry"]


def test_a_position_that_an_operator_has_set_may_be_stored_again() -> None:
    told = story().own("a", 0).deliver("a", 0, 1, 2).set_by_operator(7).store("a", 7).deliver("a", 40, 60, 61)
    assert history_findings(told, LIMITS) == []


def test_what_is_done_of_an_entry_that_a_drain_cuts_off_may_come_again_and_is_counted() -> None:
    told = story().own("a", 0).deliver("a", 0).wait(0.6).deliver("a", 1).wait(0.6)
    told.hand_over("a", 0).own("b", 0).deliver("b", 0, 1, 2, 40, 60, 61)
    assert history_findings(told, LIMITS) == []
    assert count_allowed_repeats(told.events, LIMITS) == 2


def test_an_entry_that_is_cut_off_before_the_drain_is_over_must_not_come_again() -> None:
    told = story().own("a", 0).deliver("a", 0, 1)
    told.hand_over("a", 0).own("b", 0).deliver("b", 0, 1, 2, 40, 60, 61)
    assert history_findings(told, LIMITS) == ["repeated"]


def test_an_entry_that_is_done_as_a_whole_must_not_come_again_however_long_it_took() -> None:
    told = story().own("a", 0).deliver("a", 0).wait(2.0).deliver("a", 1, 2)
    told.wait(0.2).hand_over("a", 40).own("b", 0).deliver("b", 0, 1, 2, 40, 60, 61)
    assert history_findings(told, LIMITS) == ["repeated"]


def test_the_rest_of_an_entry_that_is_left_out_is_lost() -> None:
    told = story().own("a", 0).deliver("a", 0).hand_over("a", 40).own("b", 40).deliver("b", 40, 60, 61)
    assert "lost" in history_findings(told, LIMITS)


def test_a_position_that_an_operator_sets_within_an_entry_is_read_from_the_start_of_that_entry() -> None:
    told = story().own("a", 0).deliver("a", 0, 1, 2, 40).hand_over("a", 60).set_by_operator(75).own("b", 75)
    skipped = story().own("a", 0).deliver("a", 0, 1, 2, 40).hand_over("a", 60).set_by_operator(75).own("b", 75)
    told.add("reset", "b", 60).deliver("b", 60, 61).store("b", 90)
    assert history_findings(told, LIMITS) == []
    skipped.add("reset", "b", 90).store("b", 90)
    assert history_findings(skipped, LIMITS) == ["lost"]


# -- entries that a history shows -----------------------------------------------------------------------------------

NAME = ("t", "0-1")


def seen() -> GroupStory:
    """The same entries, of a partition of Kafka 0.7; another producer has appended one from 60 to 70, which is not."""
    return GroupStory().acked(0, 1, 2, 40, 70, 71, place=NAME)


def test_messages_whose_offsets_follow_each_other_are_of_one_entry() -> None:
    told = seen().acked(0, 1, place=PLACE).add("commit", "a", 500, place=NAME)
    entries = Entries.of_history(told.events)
    assert [entries.of(NAME, offset)[:2] for offset in (1, 2, 40, 70)] == [(0, 2), (0, 2), (40, 40), (70, 71)]
    assert [entries.behind(NAME, offset) for offset in (0, 2, 40, 70)] == [1, 40, 70, 71]
    assert entries.behind(NAME, 71) > 500, "where the last entry ends is not known"
    assert entries.behind(PLACE, 1) == 2, "partitions with numbers are of later generations"
    assert Entries.of_history([]).is_empty


def test_messages_that_were_delivered_alone_count_as_well() -> None:
    entries = Entries.of_history(seen().deliver("a", 60, place=NAME).events)
    assert entries.behind(NAME, 40) == 60


def test_a_position_counts_as_within_an_entry_only_if_that_is_sure() -> None:
    entries = Entries.of_history(seen().acked(*range(200, 230), 300, place=NAME).events)
    inside = [position for position in range(-1, 350) if entries.is_inside(NAME, position)]
    heads = [*range(1, 9), *range(41, 49), *range(71, 79)]
    assert inside == [*heads, *range(201, 230), *range(301, 309)], "the smallest entry takes nine bytes"
    assert [entries.start_of(NAME, position) for position in (3, 9, 60, 215, 230)] == [0, 9, 60, 200, 230]


def test_messages_are_counted_up_to_a_position() -> None:
    entries = Entries.of_history(seen().events)
    counts = {-1: 0, 0: 0, 1: 1, 2: 2, 3: 3, 39: 3, 40: 3, 41: 4, 70: 4, 71: 5, 72: 6, 500: 6}
    assert {position: entries.number_of(NAME, position) for position in counts} == counts
    assert entries.number_of(PLACE, 17) == 17


def by_name(told: GroupStory) -> list[str]:
    """The kinds of what the checks find without the entries of the simulation."""
    return history_findings(told, Limits(drain_s=1.0, reset_to_end=False))


def test_the_checks_know_the_entries_that_a_history_shows() -> None:
    def told(*, stored: int, again: int) -> GroupStory:
        story = seen().own("a", 0, NAME).deliver("a", 0, place=NAME).wait(0.6).deliver("a", 1, place=NAME).wait(0.6)
        story.hand_over("a", stored, NAME).own("b", stored, NAME)
        return story.deliver("b", *range(again, 3), 40, 70, 71, place=NAME).store("b", 99, NAME)

    assert by_name(told(stored=0, again=0)) == []
    assert count_allowed_repeats(told(stored=0, again=0).events, Limits(drain_s=1.0)) == 2
    assert by_name(told(stored=2, again=2)) == ["commit within an entry"]
    early = seen().own("a", 0, NAME).deliver("a", 0, 1, place=NAME).store("a", 40, NAME)
    assert by_name(early.deliver("a", 2, 40, 70, 71, place=NAME)) == ["early commit"]
    whole = seen().own("a", 0, NAME).deliver("a", 0, 1, 2, place=NAME).wait(2.0).hand_over("a", 40, NAME)
    whole.own("b", 0, NAME).deliver("b", 0, 1, 2, 40, 70, 71, place=NAME)
    assert by_name(whole) == ["repeated"]


def test_figures_count_messages_and_no_bytes() -> None:
    told = seen().store("a", 70, NAME).store("b", 40, NAME).store("b", 70, NAME).store("a", 0, NAME)
    figures = figures_of(told.events)
    assert (figures.acked, figures.lost, figures.put_back) == (6, 6, 1 + 4)
