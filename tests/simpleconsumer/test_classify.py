"""What each answer to a fetch means for one partition."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.dialect_types import FetchResult, Outcome
from simpleconsumer.errors import broker_error
from simpleconsumer.kafka08.classify import classify
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.types import FetchedPartition
from tests.fetching.feeding import message_set

LIMIT = 1_000_000
SIZE = 1000


def answered(message_set: bytes = b"", code: int = 0) -> FetchedPartition:
    return FetchedPartition("t", 0, code, 100, message_set)


# -- fetch results -----------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("G6")
def test_whole_entries_make_a_chunk_and_a_cut_off_tail_is_left_out() -> None:
    whole = message_set(5, 8)
    result = classify(answered(whole + message_set(8, 9)[:-1]), 5, SIZE, LIMIT)
    assert (result.outcome, result.valid_bytes, result.next_offset) == (Outcome.CHUNK, len(whole), 8)


def test_a_compressed_set_counts_by_its_wrapper() -> None:
    result = classify(answered(message_set(0, 10, "gzip")), 3, SIZE, LIMIT)
    assert (result.outcome, result.next_offset) == (Outcome.CHUNK, 10)


def test_no_bytes_mean_no_messages_yet() -> None:
    assert classify(answered(), 5, SIZE, LIMIT).outcome is Outcome.NOTHING


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
    result = classify(answered(code=code), 5, SIZE, LIMIT)
    row = broker_error(code)
    assert (result.outcome, result.reason) == (outcome, f"{row.name} (code {code}): {row.meaning}")


def entry_head(offset: int, size_bytes: int) -> bytes:
    """The beginning of an entry that takes `size_bytes` in all."""
    return struct.pack(">qi", offset, size_bytes - 12).ljust(SIZE, b"x")


def test_a_message_larger_than_the_fetch_is_asked_for_with_its_own_size() -> None:
    result = classify(answered(entry_head(5, 4321)), 5, SIZE, LIMIT)
    assert (result.outcome, result.size_bytes) == (Outcome.GROW, 4321)


def test_twelve_bytes_of_a_message_are_enough_to_know_its_size() -> None:
    result = classify(answered(entry_head(5, 4321)[:12]), 5, SIZE, LIMIT)
    assert (result.outcome, result.size_bytes) == (Outcome.GROW, 4321)
    result = classify(answered(entry_head(5, LIMIT + 1)[:12]), 5, SIZE, LIMIT)
    assert (result.outcome, result.size_bytes) == (Outcome.TOO_LARGE, LIMIT + 1)


def test_a_message_whose_size_is_not_among_the_bytes_is_asked_for_with_twice_the_size() -> None:
    result = classify(answered(b"\0" * 11), 5, 11, LIMIT)
    assert (result.outcome, result.size_bytes) == (Outcome.GROW, 22)
    assert "the message at 5 does not fit into 11 bytes: its size is not within the 11 bytes" in result.reason


def test_a_message_whose_size_is_not_even_among_the_most_bytes_is_given_up() -> None:
    result = classify(answered(b"\0" * 11), 5, LIMIT, LIMIT)
    assert (result.outcome, result.offset, result.next_offset) == (Outcome.TOO_LARGE, 5, 6)


def test_a_message_larger_than_the_limit_is_given_up_by_name() -> None:
    result = classify(answered(entry_head(7, LIMIT + 1)), 5, SIZE, LIMIT)
    assert (result.outcome, result.offset, result.next_offset) == (Outcome.TOO_LARGE, 7, 8)
    assert str(LIMIT + 1) in result.reason
    assert f"limit is {LIMIT}" in result.reason


def test_a_message_of_exactly_the_limit_is_fetched() -> None:
    result = classify(answered(entry_head(7, LIMIT)), 5, SIZE, LIMIT)
    assert (result.outcome, result.size_bytes) == (Outcome.GROW, LIMIT)


def test_a_log_that_ends_in_a_cut_off_entry_is_broken_not_too_large() -> None:
    for size_bytes in (900, SIZE):
        result = classify(answered(entry_head(5, size_bytes)[:500]), 5, SIZE, LIMIT)
        assert result.outcome is Outcome.BROKEN
        assert result.reason == f"500 bytes came of an entry of {size_bytes}"


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_an_impossible_size_is_broken(size: int) -> None:
    result = classify(answered(struct.pack(">qi", 5, size) + b"x" * 50), 5, SIZE, LIMIT)
    assert result.outcome is Outcome.BROKEN
    assert str(size) in result.reason


@given(st.binary(max_size=200), st.integers(1, 300), st.integers(1, 400))
def test_any_bytes_get_a_result_with_progress(data: bytes, asked: int, extra: int) -> None:
    result = classify(answered(data[:asked]), 5, asked, asked + extra)
    if result.outcome is Outcome.GROW:
        assert asked < result.size_bytes <= asked + extra
    elif result.outcome is Outcome.CHUNK:
        assert 0 < result.valid_bytes <= asked
    else:
        assert result.outcome in (Outcome.NOTHING, Outcome.BROKEN, Outcome.TOO_LARGE)


# -- damaged offsets ---------------------------------------------------------------------------------------------------


def entries_at(*offsets: int) -> bytes:
    return b"".join(encode_message(offset, None, b"value", 0) for offset in offsets)


def classified(*offsets: int, position: int = 5, asked_bytes: int = LIMIT) -> FetchResult:
    return classify(answered(entries_at(*offsets)), position, asked_bytes, LIMIT)


@pytest.mark.parametrize("found", [-1, -(2**63), 2**63 - 1, 100, 3])
def test_a_damaged_last_offset_moves_the_position_behind_its_entry_only(found: int) -> None:
    result = classified(5, 6, found)
    assert (result.outcome, result.next_offset) == (Outcome.CHUNK, 8)
    assert result.valid_bytes == len(entries_at(5, 6, 7))


def test_a_last_offset_behind_a_hole_is_fetched_again() -> None:
    result = classified(5, 6, 70)
    assert (result.outcome, result.valid_bytes, result.next_offset) == (Outcome.CHUNK, len(entries_at(5, 6)), 7)
    assert classified(70, position=7).next_offset == 71


def test_a_message_that_comes_alone_behind_a_hole_is_fetched_with_the_one_behind_it() -> None:
    alone = classified(70, position=7, asked_bytes=1000)
    assert (alone.outcome, alone.size_bytes) == (Outcome.GROW, 2000)
    assert alone.reason.startswith("the first entry does not have the offset 7;")
    assert classified(70, position=70, asked_bytes=1000).next_offset == 71
    assert classified(99, position=7, asked_bytes=1000).next_offset == 100  # the log ends with it
    cut_off = entries_at(70) + entries_at(71)[:12]
    assert classify(answered(cut_off), 7, 1000, LIMIT).next_offset == 71
    in_the_way = entries_at(70) + entries_at(8)[:12]
    assert classify(answered(in_the_way), 7, 1000, LIMIT).outcome is Outcome.GROW
    assert classify(answered(entries_at(70)), 7, 1000, LIMIT, version=2).next_offset == 71


def classified_cut(offsets: list[int], position: int, asked: int) -> FetchResult:
    """The result on plain entries of a log that ends at 100, of which as many bytes came as were asked for."""
    data = b"".join(encode_message(offset, None, b"v", 0) for offset in offsets)[:asked]
    assert len(data) == asked
    return classify(FetchedPartition("t", 0, 0, 100, data), position, asked, LIMIT)


@pytest.mark.parametrize("found", [2**63 - 2, 100, 99, 60])
def test_an_older_entry_whose_offset_is_too_high_costs_none_of_those_behind_it(found: int) -> None:
    """A broker finds the entry of offset 39 for later offsets, too; with small fetches it comes alone, or with one."""
    size = len(encode_message(0, None, b"v", 0))
    for asked in (size, size + 12, 2 * size, 2 * size + 12):
        assert classified_cut([found, 40, 41, 42], 40, asked).outcome is Outcome.GROW
    result = classified_cut([found, 40, 41, 42], 40, 3 * size)
    assert (result.outcome, result.next_offset) == (Outcome.CHUNK, 42)


def test_an_older_entry_with_the_offset_asked_for_does_not_take_its_place() -> None:
    size = len(encode_message(0, None, b"v", 0))
    for asked in (size + 12, 2 * size, 3 * size):
        assert classified_cut([40, 38, 39, 40], 40, asked).outcome is Outcome.GROW
    assert classified_cut([40, 38, 39, 40, 41], 40, 5 * size).next_offset == 42


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("bit", [5, 12, 20])
@pytest.mark.parametrize("before", [0, 2])
def test_a_wrapper_whose_offset_is_too_high_at_the_end_of_a_fetch_skips_nothing(
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
    result = classify(FetchedPartition("t", 0, 0, 2**30, data), 0, len(data), LIMIT)
    if before:
        assert (result.outcome, result.next_offset) == (Outcome.CHUNK, 10 * before)
        assert result.valid_bytes == len(whole) - len(rows[-1])
    else:
        assert result.outcome is Outcome.GROW


def test_a_wrapper_with_a_later_one_behind_it_is_trusted() -> None:
    data = message_set(0, 10, "gzip") + message_set(10, 20, "gzip")
    whole = len(message_set(0, 10, "gzip"))
    result = classify(FetchedPartition("t", 0, 0, 1000, data[: whole + 12]), 0, whole + 12, LIMIT)
    assert (result.outcome, result.next_offset, result.valid_bytes) == (Outcome.CHUNK, 10, whole)


def test_a_set_that_leaves_out_the_offset_asked_for_begins_with_a_damaged_one() -> None:
    result = classified(4, 6, 7)
    assert (result.outcome, result.offset, result.next_offset) == (Outcome.DAMAGED, 5, 6)
    assert "offset 5 was requested, 4 came first" in result.reason


def test_a_broker_that_begins_far_before_the_position_is_asked_for_more() -> None:
    """It has found an entry that says too much, and its bytes end before the position."""
    reason = "offset 60 was requested, and messages below 53 came"
    result = classified(2**63 - 1, 50, 51, 52, position=60, asked_bytes=1000)
    assert (result.outcome, result.size_bytes, result.reason) == (Outcome.GROW, 2000, reason)
    result = classified(2**63 - 1, 50, 51, 52, position=60)
    assert (result.outcome, result.reason) == (Outcome.BACK_OFF, reason)


def test_messages_that_end_right_before_the_position_are_no_progress() -> None:
    result = classified(3, 4, position=5, asked_bytes=1000)
    assert (result.outcome, result.size_bytes) == (Outcome.GROW, 2000)
    assert classified(3, 4, position=5).outcome is Outcome.BACK_OFF


@pytest.mark.parametrize("last", [2**63 - 2, 2**63 - 1])
def test_no_position_leaves_64_bits(last: int) -> None:
    answer = FetchedPartition("t", 0, 0, -1, entries_at(*range(last - 9, last + 1)))
    assert classify(answer, last - 9, LIMIT, LIMIT).next_offset == 2**63 - 1


def test_what_has_no_place_below_the_high_watermark_is_not_there_yet() -> None:
    assert classified(100, 101, position=100).outcome is Outcome.NOTHING
    assert classified(98, 99, 100, position=98).next_offset == 100


@pytest.mark.parametrize("found", [-7, 3, 100, 2**63 - 1])
def test_a_message_too_large_whose_offset_is_damaged_is_given_up_at_the_position(found: int) -> None:
    result = classify(answered(entry_head(found, LIMIT + 1)), 5, SIZE, LIMIT)
    assert (result.outcome, result.offset, result.next_offset) == (Outcome.TOO_LARGE, 5, 6)


@pytest.mark.parametrize(("high_watermark", "offset"), [(-1, 7), (8, 7), (7, 0), (0, 0)])
def test_the_offset_of_a_message_too_large_is_believed_below_the_high_watermark_if_there_is_one(
    high_watermark: int, offset: int
) -> None:
    answer = FetchedPartition("t", 0, 0, high_watermark, entry_head(7, LIMIT + 1))
    result = classify(answer, 0, SIZE, LIMIT)
    assert (result.outcome, result.offset, result.next_offset) == (Outcome.TOO_LARGE, offset, offset + 1)
