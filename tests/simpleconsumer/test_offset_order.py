"""Which offsets are damaged, where their entries belong, and how far a fetched set may be trusted."""

from __future__ import annotations

import struct

import pytest
from decoding import decode_all
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import DamagedOffset
from simpleconsumer.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.offset_order import begins_below, trusted_end
from simpleconsumer.shallow import walk_entries

HUGE = 2**63 - 1
ENTRY = len(encode_message(0, None, b"v", 0))


def plain(*offsets: int) -> bytes:
    return b"".join(encode_message(offset, None, b"v", 0) for offset in offsets)


def wrapper(first: int, last: int, says: int | None = None, magic: int = 0) -> bytes:
    """A wrapper of the messages from first to last; `says` is its own offset, that of the last one if it is right."""
    inside = encode_message_set([b"v"] * (last - first + 1), magic=magic, first_offset=0 if magic else first)
    return encode_wrapper(inside, "gzip", magic, last if says is None else says)


def decoded(data: bytes, asked: int = 0, high_watermark: int | None = None) -> tuple[list[int], list[int]]:
    """The offsets of the messages, and those that errors name."""
    messages, errors = decode_all(data, asked, high_watermark=high_watermark)
    assert all(isinstance(error, DamagedOffset) for error in errors)
    return [m.offset for m in messages], [error.offset for error in errors if isinstance(error, DamagedOffset)]


def trusted(data: bytes, asked: int = 0, high_watermark: int = 1000) -> tuple[int, int]:
    walk = walk_entries(data)
    return trusted_end(data, 0, walk.tail, walk.end, asked, high_watermark)


# -- single entries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("count", [3, 500])
@pytest.mark.parametrize("found", [-1, -(2**63), HUGE, 2**40, 1000, 20, 12, 10, 5, 0])
def test_one_damaged_offset_costs_its_own_message(found: int, count: int, magic: int) -> None:
    offsets = [10, found, 12, *range(13, 10 + count)]
    data = b"".join(encode_message(offset, None, b"v", magic) for offset in offsets)
    expected = [10, *range(12, 10 + count)] if count > 3 else [10, 12]
    assert decoded(data, 10, 1000) == (expected, [11])


def test_offsets_with_holes_are_in_order() -> None:
    offsets = [3, 4, 9, 10, 500, 501, 999]
    assert decoded(plain(*offsets), 0, 1000) == (offsets, [])


@pytest.mark.parametrize("high_watermark", [None, -1])
def test_without_a_high_watermark_64_bits_are_the_limit(high_watermark: int | None) -> None:
    assert decoded(plain(10, 11, 2**60), 10, high_watermark) == ([10, 11, 2**60], [])
    assert decoded(plain(10, 11, HUGE), 10, high_watermark) == ([10, 11], [12])


def test_an_offset_at_the_high_watermark_is_damaged() -> None:
    assert decoded(plain(10, 11, 20), 10, 20) == ([10, 11], [12])
    assert decoded(plain(10, 11, 19), 10, 20) == ([10, 11, 19], [])


def test_several_in_a_row_take_the_places_that_are_free() -> None:
    assert decoded(plain(10, HUGE, -5, 3, 14, 15), 10, 1000) == ([10, 14, 15], [11, 12, 13])


def test_the_first_of_a_set_takes_the_offset_that_was_asked_for() -> None:
    assert decoded(plain(HUGE), 10, 1000) == ([], [10])
    assert decoded(plain(HUGE, 11, 12), 10, 1000) == ([11, 12], [10])
    assert decoded(plain(500, 11, 12), 10, 1000) == ([11, 12], [10])
    assert decoded(plain(10, 11), 10, 1000) == ([10, 11], [])


def test_one_that_was_reported_before_is_not_reported_again() -> None:
    """A broker that looks for a later offset finds it again, as what it says is larger."""
    assert decoded(plain(HUGE, 7, 8, 9, 10, 11), 10, 1000) == ([10, 11], [])
    assert decoded(plain(HUGE, 10, 11), 10, 1000) == ([10, 11], [])
    for found in (HUGE, 400):
        assert decoded(plain(found, *range(201, 500)), 350, 500) == ([*range(350, 500)], [])


def test_one_of_before_that_says_to_be_the_one_asked_for_is_passed_over() -> None:
    """The log has grown up to what it says."""
    assert decoded(plain(33, 3, 4, *range(5, 40)), 33, 40) == ([*range(33, 40)], [])
    assert decoded(plain(33, 34, 35), 33, 40) == ([33, 34, 35], [])


def test_going_on_behind_a_damaged_offset_skips_no_message() -> None:
    messages, [error] = decode_all(plain(10, HUGE, 12, 13), 10)
    assert isinstance(error, DamagedOffset)
    assert error.next_offset == 12
    assert [m.next_offset for m in messages] == [11, 13, 14]


@given(
    holes=st.lists(st.integers(1, 3), min_size=3, max_size=120),
    which=st.integers(0, 10**6),
    bit=st.integers(0, 63),
    magic=st.sampled_from([0, 1]),
)
def test_any_flipped_bit_costs_one_message_at_most(holes: list[int], which: int, bit: int, magic: int) -> None:
    offsets = [10 + sum(holes[:n]) for n in range(len(holes))]
    which = which % (len(offsets) - 1)  # what the last one says cannot be told from a hole
    data = bytearray(b"".join(encode_message(offset, None, b"%d" % offset, magic) for offset in offsets))
    start = sum(len(encode_message(offset, None, b"%d" % offset, magic)) for offset in offsets[:which])
    data[start + 7 - bit // 8] ^= 1 << bit % 8
    messages, errors = decode_all(data, 10, high_watermark=offsets[-1] + 1)
    others = [offset for offset in offsets if offset != offsets[which]]
    right = [m.offset for m in messages if m.value == b"%d" % m.offset]
    found = int.from_bytes(data[start : start + 8], signed=True)
    if which == 0 and 0 <= found < 10:
        assert (right, errors) == (others, [])  # it lies below what was asked for
    elif len(messages) == len(offsets):
        assert (right, errors) == (others, [])  # it fits into a hole
    else:
        [error] = errors
        assert isinstance(error, DamagedOffset)
        if which and (offsets[which - 2] if which > 1 else 9) < found <= offsets[which - 1]:
            return  # it fits into a hole before the one before: either of the two may be the damaged one
        assert right == others
        before = offsets[which - 1] if which else 9
        assert before < error.offset < error.next_offset <= offsets[which + 1]


# -- wrappers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("says", [-1, HUGE, 5000, 9, 0])
def test_a_wrapper_of_damaged_offset_is_one_error(says: int, magic: int) -> None:
    data = wrapper(0, 9, magic=magic) + wrapper(10, 19, says, magic) + wrapper(20, 29, magic=magic)
    assert decoded(data, 0, 1000) == ([*range(10), *range(20, 30)], [10])


@pytest.mark.parametrize("says", [12, 25])
def test_a_wrapper_of_magic_0_whose_offset_may_be_right_costs_nothing(says: int) -> None:
    """What is inside stands under its checksum, and has offsets of its own."""
    data = wrapper(0, 9) + wrapper(10, 19, says) + wrapper(20, 29)
    assert decoded(data, 0, 1000) == ([*range(30)], [])


def test_messages_of_a_wrapper_whose_offsets_go_back_are_damaged() -> None:
    inside = plain(10, 11, 5, 13)
    assert decoded(encode_wrapper(inside, "gzip", 0, 13), 10, 1000) == ([10, 11, 13], [12])
    relative = b"".join(encode_message(offset, None, b"v", 1) for offset in (0, 1, -7, 3))
    assert decoded(encode_wrapper(relative, "gzip", 1, 13), 10, 1000) == ([10, 11, 13], [12])


def test_messages_of_a_wrapper_above_its_offset_are_damaged() -> None:
    relative = b"".join(encode_message(offset, None, b"v", 1) for offset in (0, 50, 2))
    assert decoded(encode_wrapper(relative, "gzip", 1, 12), 10, 1000) == ([10, 12], [11])


def test_what_a_first_wrapper_holds_below_the_position_is_passed_over() -> None:
    assert decoded(wrapper(0, 9) + plain(10), 7, 1000) == ([7, 8, 9, 10], [])
    assert decoded(wrapper(0, 9, magic=1) + plain(10), 7, 1000) == ([7, 8, 9, 10], [])


# -- how far a set may be trusted --------------------------------------------------------------------------------------


def test_a_set_in_order_is_trusted_to_its_end() -> None:
    for data in (plain(*range(10, 14)), plain(*range(10, 900)), wrapper(10, 19) + wrapper(20, 29)):
        walk = walk_entries(data)
        [last] = struct.unpack_from(">q", data, walk.last)
        assert trusted(data, 10) == (len(data), last + 1)


@pytest.mark.parametrize("found", [-3, HUGE, 2**33, 10, 2])
@pytest.mark.parametrize("count", [3, 300])
def test_a_last_entry_of_damaged_offset_counts_for_one_place(found: int, count: int) -> None:
    data = plain(*range(10, 10 + count), found)
    assert trusted(data, 10) == (len(data), 11 + count)


@pytest.mark.parametrize("found", [700, 16])
def test_a_last_entry_behind_a_hole_is_fetched_again_as_the_first(found: int) -> None:
    assert trusted(plain(10, 11, 12, found), 10) == (3 * ENTRY, 13)
    assert trusted(plain(found), 13) == (ENTRY, found + 1)
    assert trusted(plain(found, 14, 15), 13) == (3 * ENTRY, 16)


def test_a_last_entry_behind_a_hole_at_the_end_of_the_log_is_the_last_one() -> None:
    assert trusted(plain(10, 11, 999), 10) == (3 * ENTRY, 1000)


def test_a_hole_that_damaged_entries_fill_is_none() -> None:
    assert trusted(plain(10, HUGE, 12), 10) == (3 * ENTRY, 13)


def test_the_hole_before_a_wrapper_is_explained_by_what_it_holds() -> None:
    data = wrapper(10, 19) + wrapper(20, 119)
    assert trusted(data, 10) == (len(data), 120)
    far = wrapper(10, 19) + wrapper(20, 29, says=29 + 2**20)
    assert trusted(far, 10, 2**30) == (len(wrapper(10, 19)), 20)


def test_what_has_no_place_below_the_high_watermark_is_left_out() -> None:
    assert trusted(plain(10, 11, 12, 13), 10, 12) == (2 * ENTRY, 12)
    assert trusted(plain(10, 11, HUGE), 10, 12) == (2 * ENTRY, 12)
    assert trusted(plain(HUGE), 12, 12) == (0, 12)
    assert trusted(plain(0), 0, 0) == (0, 0)
    assert trusted(plain(*range(500, 900)), 10, 10) == (0, 10)
    assert trusted(plain(*range(10, 400)), 10, 20) == (10 * ENTRY, 20)


@pytest.mark.parametrize(
    ("offsets", "is_below"),
    [
        ((8, 11, 12), True), ((0, 11, 12), True), ((8, 8, 11), True), ((8, 10, 11), False), ((8, 9, 10), False),
        ((8, 9, 11), False), ((10, 11), False), ((8,), True),
    ],
)  # fmt: skip
def test_a_set_that_begins_below_and_leaves_out_the_offset_asked_for(offsets: tuple[int, ...], is_below: bool) -> None:
    assert begins_below(plain(*offsets), 10) is is_below


def test_a_set_that_may_go_on_or_holds_offsets_of_its_own_does_not_begin_below() -> None:
    assert not begins_below(plain(8, 9)[:-1], 10)
    assert not begins_below(wrapper(10, 19, says=8) + wrapper(20, 29), 10)
    assert begins_below(wrapper(10, 19, says=8, magic=1) + wrapper(20, 29, magic=1), 10)
