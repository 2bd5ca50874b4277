"""What is known of one offset node: where to go on, and what may be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.offsets.offset_records import OffsetRecord, WriteDecision, decide_write, start_position


def test_the_first_claim_starts_at_what_is_stored() -> None:
    assert start_position(OffsetRecord(stored=10, version=3)) == (10, False)
    assert start_position(OffsetRecord()) == (None, False)


def test_zero_is_an_offset_like_any_other() -> None:
    assert start_position(OffsetRecord(stored=0, version=0)) == (0, False)
    assert start_position(OffsetRecord(stored=0, version=0, baseline=0, baseline_version=0, done=0)) == (0, False)


@pytest.mark.parametrize(
    ("stored", "version", "done", "expected"),
    [
        pytest.param(10, 3, 17, (17, False), id="my own uncommitted work counts"),
        pytest.param(30, 5, 17, (30, False), id="somebody else has come further"),
        pytest.param(12, 4, 17, (17, False), id="somebody else has not come as far as I have"),
        pytest.param(4, 4, 17, (4, True), id="lowered by an operator below what I last knew: obeyed"),
        pytest.param(4, 3, 17, (17, False), id="the version did not move: nobody lowered anything"),
        pytest.param(10, 4, 17, (17, False), id="written again as it was: nobody lowered anything"),
        pytest.param(None, None, 17, (17, False), id="deleted: my own work is the best that is known"),
    ],
)
def test_a_later_claim(stored: int | None, version: int | None, done: int, expected: tuple[int | None, bool]) -> None:
    record = OffsetRecord(stored, version, baseline=10, baseline_version=3, done=done)
    assert start_position(record) == expected


def test_what_a_claim_goes_by_is_what_others_are_found_to_have_moved_since() -> None:
    record = OffsetRecord(stored=10, version=3)
    record.taken()
    record.done = 17
    assert start_position(record) == (17, False)
    record.seen(4, 4)
    assert start_position(record) == (4, True)


def test_an_offset_that_this_member_itself_set_back_is_obeyed_over_its_own_work() -> None:
    record = OffsetRecord(stored=10, version=3, baseline=10, baseline_version=3, done=17)
    record.written(4, 4)
    assert start_position(record) == (4, False)
    record.written(20, 5)
    record.done = 25
    assert start_position(record) == (25, False)


def test_an_offset_written_over_because_the_log_does_not_have_it_was_not_set_back_on_purpose() -> None:
    record = OffsetRecord(stored=900, version=3, baseline=900, baseline_version=3)
    record.out_of_range(range(31, 901), 0)
    record.written(0, 4)
    record.done = 7
    assert start_position(record) == (7, False)


def test_an_offset_that_is_written_again_as_it_is_was_not_set_back() -> None:
    record = OffsetRecord(stored=10, version=3, baseline=10, baseline_version=3, done=17)
    record.written(10, 4)
    assert start_position(record) == (17, False)


def test_what_somebody_wrote_since_is_not_void_because_the_position_before_it_was_out_of_range() -> None:
    record = OffsetRecord(stored=900, version=3, baseline=900, baseline_version=3)
    record.seen(950, 4)
    record.out_of_range(range(31, 951), 0)
    assert decide_write(record, 20, may_lower=False) is WriteDecision.HOLD


def void_record(gone: range, stored: int = 100) -> OffsetRecord:
    """Return a record whose offset the log does not have."""
    record = OffsetRecord(stored, 3, baseline=stored, baseline_version=3)
    record.out_of_range(gone, 0)
    return record


def test_an_offset_of_the_log_that_became_shorter_may_be_lowered_although_it_was_written_after_that() -> None:
    record = void_record(range(100, 111))
    for version, position in enumerate((104, 110), 4):
        record.written(position, version)
        assert decide_write(record, 20, may_lower=False) is WriteDecision.WRITE
    record.written(20, 6)
    assert not record.lowered
    assert decide_write(record, 19, may_lower=False) is WriteDecision.HOLD


@pytest.mark.parametrize("position", [111, 2**40])
def test_an_offset_behind_where_the_log_was_left_is_one_of_the_log_as_it_is_now(position: int) -> None:
    record = void_record(range(100, 111))
    record.written(position, 4)
    assert decide_write(record, position - 1, may_lower=False) is WriteDecision.HOLD


def test_an_offset_that_the_log_has_ends_the_leave_to_lower_although_it_is_raised() -> None:
    """The stored one is lower than where reading started: done was more, or the other store had more."""
    record = void_record(range(100_000, 100_003), stored=2)
    record.written(7, 4)
    assert decide_write(record, 6, may_lower=False) is WriteDecision.HOLD


def test_a_second_reset_does_not_forget_what_may_come_of_the_log_before_the_first() -> None:
    record = void_record(range(100, 111))
    record.out_of_range(range(15, 21), 0)
    record.written(104, 4)
    assert decide_write(record, 5, may_lower=False) is WriteDecision.WRITE


def test_a_chosen_start_or_another_incarnation_ends_what_is_known_of_a_log_that_became_shorter() -> None:
    for forget in (lambda record: record.start_at(0), lambda record: record.forget_incarnation(None)):
        record = void_record(range(100, 111))
        forget(record)
        record.written(104, 4)
        assert decide_write(record, 5, may_lower=False) is WriteDecision.HOLD


@pytest.mark.parametrize("again", ["written", "made anew"])
def test_what_was_void_once_says_nothing_of_another_node_that_comes_to_the_same_version(again: str) -> None:
    """Versions begin at 0 again when an offset node is deleted and made anew."""
    record = OffsetRecord()
    record.seen(100, 3, mzxid=7)
    record.baseline, record.baseline_version = 100, 3
    record.out_of_range(range(21, 101), 0)
    record.done = 20
    assert decide_write(record, 20, may_lower=False) is WriteDecision.WRITE
    assert start_position(record) == (20, False)
    if again == "written":
        record.written(20, 4)
        record.seen(None, None)
        for version in range(4):
            record.written(30 + version, version)
    else:
        record.seen(33, 3, mzxid=9)
    assert decide_write(record, 32, may_lower=False) is WriteDecision.HOLD
    assert start_position(record) == (33, False)


def test_an_offset_that_is_void_stays_so_when_it_is_read_again() -> None:
    record = OffsetRecord()
    record.seen(5, 0, mzxid=6)
    record.written(100, 1)
    record.out_of_range(range(21, 101), 0)
    record.seen(100, 1, mzxid=7)
    record.seen(100, 1, mzxid=7)
    assert decide_write(record, 20, may_lower=False) is WriteDecision.WRITE


def test_a_claim_starts_where_reading_went_on_although_nothing_was_stored_since_the_reset() -> None:
    """The log may have the stored offset by now: it has grown, and its messages up to there would be skipped."""
    record = OffsetRecord(stored=900, version=3, baseline=900, baseline_version=3)
    record.out_of_range(range(31, 951), 5)
    record.seen(900, 3)
    assert start_position(record) == (5, False)
    record.taken()
    record.written(940, 4)  # decided before the reset
    assert start_position(record) == (5, False)
    record.written(7, 5)
    assert start_position(record) == (7, False)


def test_a_partition_without_a_stored_offset_starts_again_where_reading_went_on() -> None:
    record = OffsetRecord()
    record.out_of_range(range(31, 901), 30)
    assert start_position(record) == (30, False)


def test_an_offset_that_is_outside_the_log_after_it_was_set_back_on_purpose_is_none_to_start_from() -> None:
    record = OffsetRecord(stored=900, version=3, baseline=900, baseline_version=3)
    record.written(800, 4)
    assert start_position(record) == (800, False)
    record.out_of_range(range(31, 901), 5)
    assert start_position(record) == (5, False)


@pytest.mark.parametrize("end", ["somebody else writes", "chosen", "created anew"])
def test_where_reading_went_on_counts_no_more_when_something_else_says_where_to_start(end: str) -> None:
    record = void_record(range(31, 101))
    if end == "somebody else writes":
        record.seen(100, 4)
        expected: int | None = 100
    elif end == "chosen":
        record.start_at(40)
        expected = 100  # the application chooses again
    else:
        record.forget_incarnation(None)
        expected = 100  # KnownOffsets asks about the incarnation first
    assert start_position(record) == (expected, False)


@pytest.mark.parametrize(
    ("stored", "version", "value", "may_lower", "expected"),
    [
        (None, None, 5, False, WriteDecision.CREATE),
        (None, 2, 5, False, WriteDecision.WRITE),
        (4, 2, 5, False, WriteDecision.WRITE),
        (5, 2, 5, False, WriteDecision.SKIP),
        (6, 2, 5, False, WriteDecision.HOLD),
        (6, 2, 5, True, WriteDecision.WRITE),
        (0, 2, 0, True, WriteDecision.SKIP),
        (2**63 - 2, 2, 2**63 - 1, False, WriteDecision.WRITE),
    ],
)
def test_what_may_be_written(
    stored: int | None, version: int | None, value: int, may_lower: bool, expected: WriteDecision
) -> None:
    assert decide_write(OffsetRecord(stored, version), value, may_lower) is expected


def test_what_was_seen_or_sent_before_the_topic_was_created_anew_is_noticed_is_of_its_earlier_life() -> None:
    record = OffsetRecord(stored=7, version=3, mzxid=50, done=8)
    record.forget_incarnation(under_way=9)
    assert record.done is None
    assert record.is_of_earlier_incarnation(created_zxid=40), "written after the creation by a member that did not know"
    record.seen(9, 4, mzxid=51)
    assert record.is_of_earlier_incarnation(created_zxid=40), "my own commit that was on its way"
    record.seen(2, 4, mzxid=51)
    assert not record.is_of_earlier_incarnation(created_zxid=40), "somebody who has noticed"
    assert record.is_of_earlier_incarnation(created_zxid=52)
    absent = OffsetRecord()
    absent.forget_incarnation(under_way=9)
    absent.seen(9, 0, mzxid=51)
    assert absent.is_of_earlier_incarnation(created_zxid=40)


def test_a_node_that_is_absent_or_of_which_no_creation_is_known_is_of_no_earlier_life() -> None:
    record = OffsetRecord()
    assert not record.is_of_earlier_incarnation(created_zxid=40)
    record.written(7, 0)
    assert not record.is_of_earlier_incarnation(created_zxid=0)
    record.seen(7, 0)
    assert record.mzxid == 0


@given(st.integers(0, 100), st.lists(st.integers(0, 100), max_size=30))
def test_without_leave_to_lower_what_is_stored_never_goes_back(first: int, values: list[int]) -> None:
    record = OffsetRecord(first, 0)
    for value in values:
        before = record.stored or 0
        if decide_write(record, value, may_lower=False) is WriteDecision.WRITE:
            record.written(value, (record.version or 0) + 1)
        assert (record.stored or 0) >= before


# -- a start that the application chose --------------------------------------------------------------------------------


def test_a_chosen_start_below_what_is_stored_may_be_written_over_it_and_nothing_else_may() -> None:
    record = OffsetRecord(stored=10, version=3, baseline=10, baseline_version=3)
    record.start_at(4)
    assert decide_write(record, 4, may_lower=False) is WriteDecision.WRITE
    record.seen(12, 4)  # somebody else wrote meanwhile
    assert decide_write(record, 4, may_lower=False) is WriteDecision.HOLD


@pytest.mark.parametrize("position", [10, 20])
def test_a_chosen_start_at_or_above_what_is_stored_lowers_nothing(position: int) -> None:
    record = OffsetRecord(stored=10, version=3, baseline=10, baseline_version=3)
    record.start_at(position)
    assert decide_write(record, 9, may_lower=False) is WriteDecision.HOLD


def test_a_chosen_start_makes_earlier_work_count_no_more_and_later_work_counts() -> None:
    record = OffsetRecord(stored=10, version=3, baseline=10, baseline_version=3, done=17)
    record.start_at(4)
    assert start_position(record) == (10, False)
    record.done = 7
    assert start_position(record) == (7, False)
    record.written(7, 4)
    record.done = 9
    assert start_position(record) == (9, False)
