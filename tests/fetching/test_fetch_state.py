"""What each answer of a broker means, and what is asked next."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import broker_error
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.types import Broker, FetchedPartition, TopicPartition
from tests.fetching.feeding import message_set
from zkconsumer.backoff import Backoff
from zkconsumer.fetching.byte_shares import Candidate
from zkconsumer.fetching.fetch_state import (
    EMPTY_TRIES,
    FetchState,
    Need,
    Outcome,
    Verdict,
    check_range,
    judge,
    poll_wait_ms,
)

LIMIT = 1_000_000
SIZE = 1000


def answered(message_set: bytes = b"", code: int = 0) -> FetchedPartition:
    return FetchedPartition("t", 0, code, 100, message_set)


def state(offset: int = 5) -> FetchState:
    return FetchState(TopicPartition("t", 0), offset, SIZE)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_whole_entries_make_a_chunk_and_a_cut_off_tail_is_left_out() -> None:
    whole = message_set(5, 8)
    verdict = judge(answered(whole + message_set(8, 9)[:-1]), 5, SIZE, LIMIT)
    assert (verdict.outcome, verdict.valid_bytes, verdict.next_offset) == (Outcome.CHUNK, len(whole), 8)


def test_a_compressed_set_counts_by_its_wrapper() -> None:
    verdict = judge(answered(message_set(0, 10, "gzip")), 3, SIZE, LIMIT)
    assert (verdict.outcome, verdict.next_offset) == (Outcome.CHUNK, 10)


def test_no_bytes_mean_no_messages_yet() -> None:
    assert judge(answered(), 5, SIZE, LIMIT).outcome is Outcome.NOTHING


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (1, Outcome.CHECK_RANGE),
        (3, Outcome.FIND_LEADER),
        (5, Outcome.FIND_LEADER),
        (6, Outcome.FIND_LEADER),
        (2, Outcome.BACK_OFF),
        (-1, Outcome.BACK_OFF),
        (29, Outcome.BACK_OFF),
        (99, Outcome.BACK_OFF),
    ],
)
def test_each_error_code_has_its_outcome_and_is_named(code: int, outcome: Outcome) -> None:
    verdict = judge(answered(code=code), 5, SIZE, LIMIT)
    row = broker_error(code)
    assert (verdict.outcome, verdict.reason) == (outcome, f"{row.name} (code {code}): {row.meaning}")


def entry_head(offset: int, size_bytes: int) -> bytes:
    """The beginning of an entry that takes `size_bytes` in all."""
    return struct.pack(">qi", offset, size_bytes - 12).ljust(SIZE, b"x")


def test_a_message_larger_than_the_fetch_is_asked_for_with_its_own_size() -> None:
    verdict = judge(answered(entry_head(5, 4321)), 5, SIZE, LIMIT)
    assert (verdict.outcome, verdict.size_bytes) == (Outcome.GROW, 4321)


def test_twelve_bytes_of_a_message_are_enough_to_tell_its_size() -> None:
    verdict = judge(answered(entry_head(5, 4321)[:12]), 5, SIZE, LIMIT)
    assert (verdict.outcome, verdict.size_bytes) == (Outcome.GROW, 4321)
    verdict = judge(answered(entry_head(5, LIMIT + 1)[:12]), 5, SIZE, LIMIT)
    assert (verdict.outcome, verdict.size_bytes) == (Outcome.TOO_LARGE, LIMIT + 1)


def test_a_message_whose_size_is_not_among_the_bytes_is_asked_for_with_twice_the_size() -> None:
    verdict = judge(answered(b"\0" * 11), 5, 11, LIMIT)
    assert (verdict.outcome, verdict.size_bytes) == (Outcome.GROW, 22)
    assert "the message at 5 does not fit into 11 bytes: its size is not within the 11 bytes" in verdict.reason


def test_a_message_whose_size_is_not_even_among_the_most_bytes_is_given_up() -> None:
    verdict = judge(answered(b"\0" * 11), 5, LIMIT, LIMIT)
    assert (verdict.outcome, verdict.offset, verdict.next_offset) == (Outcome.TOO_LARGE, 5, 6)


def test_a_message_larger_than_the_limit_is_given_up_by_name() -> None:
    verdict = judge(answered(entry_head(7, LIMIT + 1)), 5, SIZE, LIMIT)
    assert (verdict.outcome, verdict.offset, verdict.next_offset) == (Outcome.TOO_LARGE, 7, 8)
    assert str(LIMIT + 1) in verdict.reason
    assert f"limit is {LIMIT}" in verdict.reason


def test_a_message_of_exactly_the_limit_is_fetched() -> None:
    verdict = judge(answered(entry_head(7, LIMIT)), 5, SIZE, LIMIT)
    assert (verdict.outcome, verdict.size_bytes) == (Outcome.GROW, LIMIT)


def test_a_log_that_ends_in_a_cut_off_entry_is_broken_not_too_large() -> None:
    for size_bytes in (900, SIZE):
        verdict = judge(answered(entry_head(5, size_bytes)[:500]), 5, SIZE, LIMIT)
        assert verdict.outcome is Outcome.BROKEN
        assert verdict.reason == f"500 bytes came of an entry of {size_bytes}"


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_an_impossible_size_is_broken(size: int) -> None:
    verdict = judge(answered(struct.pack(">qi", 5, size) + b"x" * 50), 5, SIZE, LIMIT)
    assert verdict.outcome is Outcome.BROKEN
    assert str(size) in verdict.reason


@given(st.binary(max_size=200), st.integers(1, 300), st.integers(1, 400))
def test_any_bytes_get_a_verdict_that_leads_on(data: bytes, asked: int, extra: int) -> None:
    verdict = judge(answered(data[:asked]), 5, asked, asked + extra)
    if verdict.outcome is Outcome.GROW:
        assert asked < verdict.size_bytes <= asked + extra
    elif verdict.outcome is Outcome.CHUNK:
        assert 0 < verdict.valid_bytes <= asked
    else:
        assert verdict.outcome in (Outcome.NOTHING, Outcome.BROKEN, Outcome.TOO_LARGE)


# -- out of range ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["smallest", "largest"])
@pytest.mark.parametrize("position", [10, 15, 20])
def test_a_position_that_the_leader_has_is_kept(position: int, policy: str) -> None:
    assert check_range(position, 10, 20, policy) == (position, False)


@pytest.mark.parametrize("position", [9, 21])
def test_a_position_outside_is_reset_by_the_policy(position: int) -> None:
    assert check_range(position, 10, 20, "smallest") == (10, True)
    assert check_range(position, 10, 20, "largest") == (20, True)


# -- state -------------------------------------------------------------------------------------------------------------


def test_the_configured_size_is_asked_for_unless_another_is_given() -> None:
    assert state().size_bytes == SIZE
    assert FetchState(TopicPartition("t", 0), 5, SIZE, size_bytes=700).size_bytes == 700


def test_when_it_was_asked_for_and_when_a_good_answer_came_is_kept() -> None:
    one = state()
    assert (one.asked_at < 0, one.answered_at) == (True, None)
    one.asked(7.0)
    one.answered(8.0)
    assert (one.asked_at, one.answered_at) == (7.0, 8.0)
    one.nothing_came(9.0, 77)
    assert (one.answered_at, one.high_watermark) == (9.0, 77)


def test_failures_in_a_row_wait_ever_longer_up_to_a_limit_and_success_forgets_them() -> None:
    one, waits = state(), []
    for _ in range(12):
        one.failed("busy", 100.0, Backoff(0.2, 10.0))
        waits.append(one.retry_at - 100.0)
    assert waits[:3] == pytest.approx([0.2, 0.4, 0.8])
    assert max(waits) == 10.0
    one.answered(200.0, 77)
    one.failed("busy", 300.0, Backoff(0.2, 10.0))
    assert one.retry_at == pytest.approx(300.2)
    assert one.high_watermark == 77


def test_a_new_leader_is_asked_at_once() -> None:
    one = state()
    one.failed("busy", 100.0, Backoff(5.0, 10.0))
    one.led_by(Broker(1, "a", 1))
    assert (one.leader, one.retry_at) == (Broker(1, "a", 1), 0.0)


def test_only_the_first_of_equal_failures_is_news() -> None:
    one, backoff = state(), Backoff(1.0, 10.0)
    assert [one.failed(reason, 0.0, backoff) for reason in ("a", "a", "b", "b")] == [True, False, True, False]
    one.answered(1.0)
    assert one.failed("b", 2.0, backoff)


def test_a_grown_size_lasts_until_the_message_is_there() -> None:
    one = state()
    one.grow(5000)
    assert (one.size_bytes, one.is_single) == (5000, True)
    one.moved_on(6)
    assert (one.offset, one.size_bytes, one.is_single) == (6, SIZE, False)


def test_a_share_that_was_too_small_grows_to_the_configured_size_first() -> None:
    one = state()
    one.grow(SIZE // 2)
    assert (one.size_bytes, one.is_single) == (SIZE, True)


def test_the_size_of_a_message_that_did_not_fit_is_asked_for_until_smaller_ones_come() -> None:
    one = state()
    one.grow(5000)
    assert one.candidate("stream") == Candidate("stream", 5000, 5000, False)
    one.moved_on(6, 5000)
    assert one.candidate("stream") == Candidate("stream", SIZE, 5000, False)
    one.moved_on(7, 700)
    assert one.candidate("stream") == Candidate("stream", SIZE, 700, False)
    one.moved_on(8)
    assert one.candidate("stream") == Candidate("stream", SIZE, 0, False)


def test_a_partition_is_at_its_end_as_the_last_answer_told_and_never_while_a_message_did_not_fit() -> None:
    one = state()
    assert not one.candidate("stream").is_at_end
    one.answered(1.0, one.offset)
    assert one.candidate("stream").is_at_end
    one.grow(5000)
    assert not one.candidate("stream").is_at_end
    one.moved_on(6, 5000)
    one.answered(2.0, 7)
    assert not one.candidate("stream").is_at_end


def test_a_log_that_holds_nothing_yet_is_at_its_end() -> None:
    one = state(0)
    one.answered(1.0, 0)
    assert one.candidate("stream").is_at_end


def test_how_long_there_is_no_room_counts_from_the_first_time_until_it_is_asked_for() -> None:
    one = state()
    assert [one.waits_for_room(now) for now in (5.0, 6.5)] == [0.0, 1.5]
    one.asked(7.0)
    assert one.waits_for_room(8.0) == 0.0


def test_only_a_change_of_leader_asks_for_the_log_end() -> None:
    one = state()
    one.led_by(Broker(1, "a", 1))
    assert one.need is Need.FETCH
    one.led_by(Broker(2, "b", 2))
    assert one.need is Need.END_CHECK


def test_a_start_that_is_looked_for_goes_on_being_looked_for_at_the_next_leader() -> None:
    one = FetchState(TopicPartition("t", 0), 0, SIZE, Need.RESOLVE)
    one.led_by(Broker(1, "a", 1))
    one.led_by(Broker(2, "b", 2))
    assert one.need is Need.RESOLVE


# -- the long poll -----------------------------------------------------------------------------------------------------


def test_the_long_poll_is_short_only_while_a_queue_has_just_run_full() -> None:
    assert poll_wait_ms(100, None) == 100
    assert poll_wait_ms(100, 0.0) == 5
    assert poll_wait_ms(100, 0.04) == 40
    assert poll_wait_ms(100, 3600.0) == 100
    assert poll_wait_ms(10_000, 2.0) == 2000
    assert poll_wait_ms(2, 0.0) == 2


# -- damaged offsets ---------------------------------------------------------------------------------------------------


def entries_at(*offsets: int) -> bytes:
    return b"".join(encode_message(offset, None, b"value", 0) for offset in offsets)


def judged(*offsets: int, position: int = 5, asked_bytes: int = LIMIT) -> Verdict:
    return judge(answered(entries_at(*offsets)), position, asked_bytes, LIMIT)


@pytest.mark.parametrize("found", [-1, -(2**63), 2**63 - 1, 100, 3])
def test_a_damaged_last_offset_moves_the_position_behind_its_entry_only(found: int) -> None:
    verdict = judged(5, 6, found)
    assert (verdict.outcome, verdict.next_offset) == (Outcome.CHUNK, 8)
    assert verdict.valid_bytes == len(entries_at(5, 6, 7))


def test_a_last_offset_behind_a_hole_is_fetched_again() -> None:
    verdict = judged(5, 6, 70)
    assert (verdict.outcome, verdict.valid_bytes, verdict.next_offset) == (Outcome.CHUNK, len(entries_at(5, 6)), 7)
    assert judged(70, position=7).next_offset == 71


def test_a_message_that_comes_alone_behind_a_hole_is_fetched_with_the_one_behind_it() -> None:
    alone = judged(70, position=7, asked_bytes=1000)
    assert (alone.outcome, alone.size_bytes) == (Outcome.GROW, 2000)
    assert alone.reason.startswith("what came first says that it is not the message at 7;")
    assert judged(70, position=70, asked_bytes=1000).next_offset == 71
    assert judged(99, position=7, asked_bytes=1000).next_offset == 100  # the log ends with it
    cut_off = entries_at(70) + entries_at(71)[:12]
    assert judge(answered(cut_off), 7, 1000, LIMIT).next_offset == 71
    in_the_way = entries_at(70) + entries_at(8)[:12]
    assert judge(answered(in_the_way), 7, 1000, LIMIT).outcome is Outcome.GROW
    assert judge(answered(entries_at(70)), 7, 1000, LIMIT, may_be_converted=True).next_offset == 71


def judged_cut(offsets: list[int], position: int, asked: int) -> Verdict:
    """The verdict on plain entries of a log that ends at 100, of which as many bytes came as were asked for."""
    data = b"".join(encode_message(offset, None, b"v", 0) for offset in offsets)[:asked]
    assert len(data) == asked
    return judge(FetchedPartition("t", 0, 0, 100, data), position, asked, LIMIT)


@pytest.mark.parametrize("found", [2**63 - 2, 100, 99, 60])
def test_an_entry_of_before_that_says_too_much_costs_none_of_those_behind_it(found: int) -> None:
    """A broker finds the entry of offset 39 for later offsets, too; with small fetches it comes alone, or with one."""
    size = len(encode_message(0, None, b"v", 0))
    for asked in (size, size + 12, 2 * size, 2 * size + 12):
        assert judged_cut([found, 40, 41, 42], 40, asked).outcome is Outcome.GROW
    verdict = judged_cut([found, 40, 41, 42], 40, 3 * size)
    assert (verdict.outcome, verdict.next_offset) == (Outcome.CHUNK, 42)


def test_an_entry_of_before_that_says_to_be_the_one_asked_for_does_not_take_its_place() -> None:
    size = len(encode_message(0, None, b"v", 0))
    for asked in (size + 12, 2 * size, 3 * size):
        assert judged_cut([40, 38, 39, 40], 40, asked).outcome is Outcome.GROW
    assert judged_cut([40, 38, 39, 40, 41], 40, 5 * size).next_offset == 42


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("bit", [5, 12, 20])
@pytest.mark.parametrize("before", [0, 2])
def test_a_wrapper_that_says_too_much_at_the_end_of_a_fetch_leads_over_nothing(
    before: int, bit: int, magic: int
) -> None:
    """The fetch goes on at the wrapper again, or asks for more to find out."""

    def wrapper(number: int, says: int) -> bytes:
        inside = encode_message_set([b"v"] * 10, magic=magic, first_offset=0 if magic else 10 * number)
        return encode_wrapper(inside, "gzip", magic, says)

    rows = [wrapper(number, 10 * number + 9) for number in range(before)]
    rows.append(wrapper(before, 10 * before + 9 + (1 << bit)))
    whole = b"".join(rows)
    data = whole + wrapper(before + 1, 10 * before + 19)[:40]
    verdict = judge(FetchedPartition("t", 0, 0, 2**30, data), 0, len(data), LIMIT)
    if before:
        assert (verdict.outcome, verdict.next_offset) == (Outcome.CHUNK, 10 * before)
        assert verdict.valid_bytes == len(whole) - len(rows[-1])
    else:
        assert verdict.outcome is Outcome.GROW


def test_a_wrapper_with_a_later_one_behind_it_is_trusted() -> None:
    data = message_set(0, 10, "gzip") + message_set(10, 20, "gzip")
    whole = len(message_set(0, 10, "gzip"))
    verdict = judge(FetchedPartition("t", 0, 0, 1000, data[: whole + 12]), 0, whole + 12, LIMIT)
    assert (verdict.outcome, verdict.next_offset, verdict.valid_bytes) == (Outcome.CHUNK, 10, whole)


def test_a_set_that_leaves_out_the_offset_asked_for_begins_with_a_damaged_one() -> None:
    verdict = judged(4, 6, 7)
    assert (verdict.outcome, verdict.offset, verdict.next_offset) == (Outcome.DAMAGED, 5, 6)
    assert "offset 5 was asked for, 4 came first" in verdict.reason


def test_a_broker_that_begins_far_before_the_position_is_asked_for_more() -> None:
    """It has found an entry that says too much, and its bytes end before the position."""
    reason = "offset 60 was asked for, and messages below 53 came"
    verdict = judged(2**63 - 1, 50, 51, 52, position=60, asked_bytes=1000)
    assert (verdict.outcome, verdict.size_bytes, verdict.reason) == (Outcome.GROW, 2000, reason)
    verdict = judged(2**63 - 1, 50, 51, 52, position=60)
    assert (verdict.outcome, verdict.reason) == (Outcome.BACK_OFF, reason)


def test_messages_that_end_right_before_the_position_are_no_progress() -> None:
    verdict = judged(3, 4, position=5, asked_bytes=1000)
    assert (verdict.outcome, verdict.size_bytes) == (Outcome.GROW, 2000)
    assert judged(3, 4, position=5).outcome is Outcome.BACK_OFF


@pytest.mark.parametrize("last", [2**63 - 2, 2**63 - 1])
def test_no_position_leaves_64_bits(last: int) -> None:
    answer = FetchedPartition("t", 0, 0, -1, entries_at(*range(last - 9, last + 1)))
    assert judge(answer, last - 9, LIMIT, LIMIT).next_offset == 2**63 - 1


def test_what_has_no_place_below_the_high_watermark_is_not_there_yet() -> None:
    assert judged(100, 101, position=100).outcome is Outcome.NOTHING
    assert judged(98, 99, 100, position=98).next_offset == 100


@pytest.mark.parametrize("found", [-7, 3, 100, 2**63 - 1])
def test_a_message_too_large_whose_offset_is_damaged_is_given_up_at_the_position(found: int) -> None:
    verdict = judge(answered(entry_head(found, LIMIT + 1)), 5, SIZE, LIMIT)
    assert (verdict.outcome, verdict.offset, verdict.next_offset) == (Outcome.TOO_LARGE, 5, 6)


@pytest.mark.parametrize(("high_watermark", "offset"), [(-1, 7), (8, 7), (7, 0), (0, 0)])
def test_the_offset_of_a_message_too_large_is_believed_below_the_high_watermark_if_there_is_one(
    high_watermark: int, offset: int
) -> None:
    answer = FetchedPartition("t", 0, 0, high_watermark, entry_head(7, LIMIT + 1))
    verdict = judge(answer, 0, SIZE, LIMIT)
    assert (verdict.outcome, verdict.offset, verdict.next_offset) == (Outcome.TOO_LARGE, offset, offset + 1)


def test_that_nothing_comes_from_a_log_that_goes_on_is_said_once_and_stays_in_the_status() -> None:
    of = state(5)
    said = [of.nothing_came(1.0, 9) for _ in range(EMPTY_TRIES + 2)]
    assert said == [*[False] * (EMPTY_TRIES - 1), True, False, False]
    assert of.error == (
        "nothing comes from offset 5 on, though the log ends at 9: either compaction has taken the rest, "
        "or the broker takes an entry of damaged offset for the end"
    )
    of.moved_on(6)
    of.answered(2.0, 9)
    assert of.error is None
    assert not any(of.nothing_came(3.0, 6) for _ in range(2 * EMPTY_TRIES))
    assert of.error is None


def test_empty_answers_count_in_a_row_from_the_first_one_before_the_end() -> None:
    for interrupt in (lambda of: of.nothing_came(1.0, of.offset), lambda of: of.moved_on(of.offset)):
        of = state(5)
        assert not any(of.nothing_came(1.0, 9) for _ in range(EMPTY_TRIES - 1))
        interrupt(of)
        assert not any(of.nothing_came(2.0, 9) for _ in range(EMPTY_TRIES - 1))
        assert of.error is None
        assert of.nothing_came(3.0, 9)
        assert of.error is not None
