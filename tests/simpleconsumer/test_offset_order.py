"""Which offsets are damaged, the offsets that replace them, and how far a fetched set may be trusted."""

from __future__ import annotations

import struct

import pytest
from decoding import decode_all
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import BrokenFraming, DamagedOffset
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.kafka08.offset_order import (
    begins_again,
    begins_below,
    end_in_order,
    is_sole_trusted,
    most_in,
    trusted_end,
    walk_entries,
)

HUGE = 2**63 - 1
ENTRY = len(encode_message(0, None, b"v", 0))
EACH_KIND = pytest.mark.parametrize(("magic", "key"), [(0, None), (0, b"key"), (1, None), (1, b"key")])


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


def complaints(data: bytes, asked: int = 0, high_watermark: int | None = None) -> list[str]:
    """What the errors say."""
    return [str(error) for error in decode_all(data, asked, high_watermark=high_watermark)[1]]


def relative(wrapper_offset: int, *offsets: int, key: bytes | None = None) -> bytes:
    """A wrapper of magic 1 with these offsets inside, as they stand there."""
    inside = b"".join(encode_message(offset, key, b"v", 1) for offset in offsets)
    return encode_wrapper(inside, "gzip", 1, wrapper_offset)


def trusted(data: bytes, asked: int = 0, high_watermark: int = 1000) -> tuple[int, int]:
    walk = walk_entries(data)
    return trusted_end(data, 0, walk.tail, walk.end, asked, high_watermark)


# -- single entries ----------------------------------------------------------------------------------------------------


@EACH_KIND
@pytest.mark.parametrize("count", [3, 500])
@pytest.mark.parametrize("found", [-1, -(2**63), HUGE, 2**40, 1000, 20, 12, 10, 5, 0])
def test_one_damaged_offset_costs_its_own_message(found: int, count: int, magic: int, key: bytes | None) -> None:
    offsets = [10, found, 12, *range(13, 10 + count)]
    data = b"".join(encode_message(offset, key, b"v", magic) for offset in offsets)
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
    assert decoded(plain(3), 0, 0) == ([], [0])
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


def test_an_older_entry_with_the_offset_asked_for_is_skipped() -> None:
    """The log has grown up to what it says."""
    assert decoded(plain(33, 3, 4, *range(5, 40)), 33, 40) == ([*range(33, 40)], [])
    assert decoded(plain(33, 34, 35), 33, 40) == ([33, 34, 35], [])


def test_the_least_offset_is_0() -> None:
    assert decoded(plain(0), 0, 1000) == ([0], [])
    assert decoded(plain(-1), 0, 1000) == ([], [0])


def test_only_a_whole_visible_entry_behind_an_entry_is_evidence_about_it() -> None:
    assert decoded(plain(10, 500, 12), 10, 1000) == ([10, 12], [11])
    assert decoded(plain(10, 500, 12)[:-1], 10, 1000) == ([10, 500], [])
    smallest = encode_message(12, None, None, 0)
    assert decoded(plain(10, 500) + smallest, 10, 1000) == ([10, 12], [11])
    messages, errors = decode_all(plain(10, 500) + struct.pack(">qi", 12, 13) + bytes(13), 10, high_watermark=1000)
    assert ([m.offset for m in messages], [type(error) for error in errors]) == ([10, 500], [BrokenFraming])


@EACH_KIND
def test_an_entry_at_the_end_of_the_log_hides_none_behind_it(magic: int, key: bytes | None) -> None:
    data = b"".join(encode_message(offset, key, b"v", magic) for offset in (10, 15, 20, 13, 14))
    assert decoded(data, 10, 20) == ([10, 13, 14], [11, 12])


def test_the_offset_that_was_asked_for_is_believed_unless_two_behind_it_say_that_it_is_one_of_before() -> None:
    assert decoded(plain(10, 9, 11, 12), 10, 1000)[0] == [10, 11, 12]
    assert decoded(plain(10, 8, 9, 11, 12), 10, 1000)[0] == [11, 12]


def test_one_entry_from_the_offset_asked_for_on_or_two_below_it_are_evidence_about_the_first() -> None:
    assert decoded(plain(500, 10), 10, 1000) == ([10], [])
    assert decoded(plain(500, 9), 10, 1000) == ([500], [501])
    for below in ((9, 8), (9, 9)):
        assert decoded(plain(500, *below), 10, 1000) == ([500], [501, 502])
    assert decoded(plain(500, 8, 9), 10, 1000) == ([], [])
    assert decoded(plain(500, 9, 11), 10, 1000) == ([11], [])


@pytest.mark.parametrize(
    ("offsets", "complaint"),
    [
        ((0, 1, -20, 3), "t/0 at 12: offset -10 is negative"),
        ((0, 1, 1, 3), "t/0 at 12: offset 11 is not above 11, the offset of the entry before"),
        ((0, 50, 2, 3), "t/0 at 11: offset 60 is above 13, the offset of its wrapper"),
        ((0, 2, 1, 3), "t/0 at 10: offset 12 is not below 11, the offset of a later entry"),
    ],
)
def test_errors_name_offsets_as_the_log_counts_them_within_wrappers_too(
    offsets: tuple[int, ...], complaint: str
) -> None:
    assert complaints(relative(13, *offsets), 10, 1000) == [complaint]
    if "wrapper" not in complaint:
        outside = plain(*(10 + offset for offset in offsets))
        assert complaints(outside, 10, 1000) == [complaint]


def test_the_error_of_an_offset_beyond_the_log_names_its_end() -> None:
    assert complaints(plain(10, 20), 10, 20) == ["t/0 at 11: offset 20 is not below 20, where the log ends"]


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
    compacted = encode_wrapper(plain(10, 12, 14, 16), "gzip", 0, says)
    assert decoded(compacted, 0, 1000) == ([10, 12, 14, 16], [])
    assert decoded(compacted + plain(40, 41), 0, 1000) == ([10, 12, 14, 16, 40, 41], [])


def test_messages_of_a_wrapper_of_magic_0_above_those_behind_it_are_damaged() -> None:
    data = encode_wrapper(plain(10, 12, 25), "gzip", 0, 13) + plain(20, 21)
    assert decoded(data, 10, 1000) == ([10, 12, 20, 21], [13])


def test_the_first_of_a_wrapper_takes_the_place_behind_the_entry_before_it() -> None:
    for last in (5, 8, 9):
        data = encode_message(last, None, b"v", 1) + relative(12, 50, 1, 2)
        assert decoded(data, last, 1000) == ([last, 11, 12], [last + 1])


def test_messages_of_a_wrapper_whose_offsets_go_back_are_damaged() -> None:
    inside = plain(10, 11, 5, 13)
    assert decoded(encode_wrapper(inside, "gzip", 0, 13), 10, 1000) == ([10, 11, 13], [12])
    relative = b"".join(encode_message(offset, None, b"v", 1) for offset in (0, 1, -7, 3))
    assert decoded(encode_wrapper(relative, "gzip", 1, 13), 10, 1000) == ([10, 11, 13], [12])


def test_messages_of_a_wrapper_above_its_offset_are_damaged() -> None:
    relative = b"".join(encode_message(offset, None, b"v", 1) for offset in (0, 50, 2))
    assert decoded(encode_wrapper(relative, "gzip", 1, 12), 10, 1000) == ([10, 12], [11])


@pytest.mark.parametrize(
    ("offsets", "asked", "expected"),
    [
        ((-1, 1), 100, ([100, 102, 103], [101])),
        ((50, 1, 2), 100, ([100, 102, 103, 104], [101])),
        ((50, 51, 2), 100, ([100, 103, 104], [101, 102])),
        ((50, 51, 2), 102, ([103, 104], [102, 102])),
    ],
)
def test_offsets_of_a_wrapper_in_a_wrapper_count_from_those_around_it(
    offsets: tuple[int, ...], asked: int, expected: tuple[list[int], list[int]]
) -> None:
    count = len(offsets)
    inside = encode_message(0, None, b"v", 1) + relative(count, *offsets) + encode_message(count + 1, None, b"v", 1)
    assert decoded(encode_wrapper(inside, "gzip", 1, 101 + count), asked, 1000) == expected


@pytest.mark.parametrize("key", [None, b"key"])
def test_messages_above_the_offset_of_their_wrapper_are_damaged_though_they_follow_on_the_one_before(
    key: bytes | None,
) -> None:
    assert decoded(relative(11, 0, 1, 2, 1, key=key), 10, 1000) == ([10, 11], [12, 13])
    assert decoded(relative(13, 0, 2, 2, 3, key=key), 10, 1000) == ([10, 12, 13], [11])


def test_behind_a_wrapper_one_entry_is_evidence_beyond_64_messages_a_byte_and_two_are_anywhere() -> None:
    most = 64 * (len(wrapper(10, 19)) - 12)
    before, behind = wrapper(0, 9), plain(20)
    assert decoded(before + wrapper(10, 19, 10 + most) + behind, 0, 10**6) == ([*range(20), 20], [])
    assert decoded(before + wrapper(10, 19, 11 + most) + behind, 0, 10**6) == ([*range(10), 20], [10])
    assert decoded(before + wrapper(10, 19, 40) + plain(20, 21), 0, 10**6) == ([*range(10), 20, 21], [10])


def test_what_a_first_wrapper_holds_below_the_position_is_passed_over() -> None:
    assert decoded(wrapper(0, 9) + plain(10), 7, 1000) == ([7, 8, 9, 10], [])
    assert decoded(wrapper(0, 9, magic=1) + plain(10), 7, 1000) == ([7, 8, 9, 10], [])


# -- how far a set may be trusted --------------------------------------------------------------------------------------


def test_a_set_in_order_is_trusted_to_its_end() -> None:
    for data in (plain(*range(10, 14)), plain(*range(10, 900)), wrapper(10, 19) + wrapper(20, 29)):
        walk = walk_entries(data)
        [last] = struct.unpack_from(">q", data, walk.last)
        assert trusted(data, 10) == (len(data), last + 1)


@pytest.mark.parametrize(
    ("offsets", "high_watermark", "behind"),
    [
        ((10, 11, 12), 1000, 13), ((10, 11, 12), 13, 13), ((10, 11, 12), 12, None), ((10, 11, 12), -1, 13),
        ((10, 11, 13), 1000, None), ((9, 11, 12), 1000, None), ((0,), 1, 1), ((0,), 0, None), ((1,), 1, None),
        ((-1,), 1000, None), ((-1, 0), 1000, None), ((HUGE - 1,), -1, HUGE), ((HUGE,), -1, None),
        (tuple(range(10, 900)), 1000, 900),
    ],
)  # fmt: skip
def test_the_end_of_a_set_whose_last_entries_follow_one_on_the_other_below_the_high_watermark(
    offsets: tuple[int, ...], high_watermark: int, behind: int | None
) -> None:
    data = plain(*offsets)
    assert end_in_order(data, walk_entries(data), high_watermark) == behind


@pytest.mark.parametrize(
    ("offset", "high_watermark", "is_trusted", "is_trusted_where_more_may_follow"),
    [
        (10, 1000, True, True), (9, 1000, True, True), (11, 1000, False, False), (11, 13, False, False),
        (11, 12, True, False), (11, -1, True, False),
    ],
)  # fmt: skip
def test_a_plain_entry_alone_is_trusted_at_the_offset_asked_for_and_at_the_end_of_the_log(
    offset: int, high_watermark: int, is_trusted: bool, is_trusted_where_more_may_follow: bool
) -> None:
    assert is_sole_trusted(plain(offset), ENTRY, 10, high_watermark, is_cut=False) is is_trusted
    assert is_sole_trusted(plain(offset), ENTRY, 10, high_watermark, is_cut=True) is is_trusted_where_more_may_follow


@pytest.mark.parametrize(
    ("behind", "is_trusted"),
    [(plain(12)[:12], True), (plain(12)[:13], True), (plain(12)[:11], False), (plain(11)[:12], False),
     (plain(10)[:12], False)],
)  # fmt: skip
def test_the_head_of_a_later_entry_behind_one_alone_is_proof(behind: bytes, is_trusted: bool) -> None:
    assert is_sole_trusted(plain(11) + behind, ENTRY, 10, 1000, is_cut=True) is is_trusted


def test_a_wrapper_alone_is_trusted_at_the_end_of_a_segment_as_far_as_what_it_holds_may_explain_the_hole() -> None:
    data = wrapper(20, 29)
    most = most_in(data, 0, len(data) - 12)
    assert is_sole_trusted(data, len(data), 29 - most, 10_000, is_cut=False)
    assert not is_sole_trusted(data, len(data), 28 - most, 10_000, is_cut=False)
    assert not is_sole_trusted(data, len(data), 10, 10_000, is_cut=True)


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


# -- an entry that says too much, and is one of before -----------------------------------------------------------------

HEAD = 12


@pytest.mark.parametrize(
    ("data", "does"),
    [
        (plain(100), False),
        (plain(100, 101), False),
        (plain(100, 100), True),
        (plain(100, 7), True),
        (plain(100, 0), True),
        (plain(100, -1), False),
        (plain(100) + plain(7)[:HEAD], True),
        (plain(100) + plain(7)[: HEAD - 1], False),
    ],
    ids=["alone", "in order", "the same", "before", "the first of all", "negative", "a head", "less than a head"],
)
def test_the_second_entry_of_a_set_may_say_to_be_no_later_than_the_first(data: bytes, does: bool) -> None:
    assert begins_again(data) is does


@pytest.mark.parametrize("before", [3, 100])
@pytest.mark.parametrize("behind", [b"", plain(0)[:HEAD], plain(99)[:HEAD], plain(105)[:HEAD], plain(106)[: HEAD - 1]])
def test_a_last_entry_behind_a_hole_of_a_set_that_goes_on_is_fetched_again(behind: bytes, before: int) -> None:
    data = plain(*range(101 - before, 101), 105) + behind
    end = len(plain(105)) * (before + 1)
    assert trusted_end(data, 0, 0, end, 101 - before, 1000, is_cut=True) == (ENTRY * before, 101)


def test_the_head_of_a_later_entry_behind_it_is_proof() -> None:
    data = plain(100, 105) + plain(106)[:HEAD]
    assert trusted_end(data, 0, 0, 2 * ENTRY, 100, 1000, is_cut=True) == (2 * ENTRY, 106)


def test_a_hole_that_damaged_entries_fill_needs_no_proof_and_a_larger_one_does() -> None:
    def end(*offsets: int) -> tuple[int, int]:
        return trusted_end(plain(*offsets), 0, 0, ENTRY * len(offsets), 0, 1000, is_cut=True)

    assert end(0, 1, HUGE, 3) == (4 * ENTRY, 4)
    assert end(0, 1, HUGE, 4) == (2 * ENTRY, 2)
    assert end(0, 1, 3) == (2 * ENTRY, 2)


@pytest.mark.parametrize("last", [0, 1, 5])
def test_of_a_set_whose_last_two_entries_contradict_each_other_both_are_fetched_again(last: int) -> None:
    assert trusted(plain(0, 1, 5, last)) == (2 * ENTRY, 2)


def test_a_last_entry_that_fits_behind_the_one_before_the_last_shows_which_is_damaged() -> None:
    assert trusted(plain(0, 1, 5, 3)) == (4 * ENTRY, 4)
    assert trusted(plain(5, 3)) == (2 * ENTRY, 4)


@pytest.mark.parametrize("last", [-1, HUGE])
def test_a_last_entry_without_evidence_about_the_one_before_it_counts_for_one_place(last: int) -> None:
    assert trusted(plain(0, 1, 5, last)) == (4 * ENTRY, 7)


def test_a_last_entry_that_goes_back_behind_entries_in_order_counts_for_one_place() -> None:
    assert trusted(plain(0, 1, 5, 6, 3)) == (5 * ENTRY, 8)
