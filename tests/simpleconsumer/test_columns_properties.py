"""Record batches against `decode_messages`: the same messages, the same errors at the same places, on any bytes."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from column_decoding import found_by_columns, found_by_messages
from decoding import MEBIBYTE, PATHS, decoding_by, entries
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer.columns import decode_columns
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.kafka08.message_set import decode_messages
from simpleconsumer.types import Buffer

fields = st.none() | st.binary(max_size=12) | st.sampled_from([0, 5, 5, 100]).map(bytes)
stamps = st.integers(-1, 2**62) | st.just(-1)
messages = st.tuples(st.sampled_from([0, 0, 1]), st.sampled_from([0, 8, 16]), stamps, fields, fields)
codecs = st.sampled_from(["gzip", "snappy", "lz4"])
Set = tuple[list[Any], str | None, int, int | None]


@st.composite
def sets(draw: st.DrawFn) -> bytes:
    """Return a set of plain messages, of one look or of many, and wrappers between them, some with wrappers inside."""
    data, offset = b"", draw(st.integers(0, 100))
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["mixed", "equal", "wrapper", "wrapper", "nested"]))
        magic = draw(st.sampled_from([0, 1]))
        if kind == "mixed":
            rows = draw(st.lists(messages, max_size=10))
            data += b"".join(
                encode_message(offset + n, key, value, magic, attributes, timestamp_ms=stamp)
                for n, (magic, attributes, stamp, key, value) in enumerate(rows)
            )
            offset += len(rows) + draw(st.integers(0, 3))
            continue
        row, count = draw(messages), draw(st.integers(1, 120 if kind == "equal" else 12))
        first = 0 if magic and kind != "equal" else offset
        inside = encode_message_set([row[3:]] * count, magic=magic, timestamp_ms=row[2], first_offset=first)
        offset += count
        if kind == "nested":
            inside = encode_wrapper(inside, draw(codecs), magic, count - 1 if magic else offset - 1)
        if kind != "equal":
            inside = encode_wrapper(
                inside, draw(codecs), magic, offset - 1, log_append_time_ms=draw(st.none() | stamps) if magic else None
            )
        data += inside
    return data


@st.composite
def damaged_sets(draw: st.DrawFn) -> bytes:
    """Return a set in which some bytes are wrong, an end is cut off, or a size is made up."""
    data = bytearray(draw(sets()))
    heads = [start for start, _, _ in entries(data)]
    for _ in range(draw(st.integers(0, 4))):
        if not data:
            break
        kind, at = draw(st.sampled_from(["flip", "flip", "cut", "size", "offset"])), draw(st.integers(0, len(data) - 1))
        if kind == "cut":
            del data[at:]
            continue
        starts = [start for start in heads if start + 12 <= len(data)]
        if kind == "flip" or not starts:
            data[at] ^= draw(st.sampled_from([1, 0x80, 0xFF]))
            continue
        start = draw(st.sampled_from(starts))
        if kind == "size":
            size = draw(st.sampled_from([-1, 0, 13, 14, 21, 22, 40, 2**31 - 1]) | st.integers(-(2**31), 2**31 - 1))
            data[start + 8 : start + 12] = size.to_bytes(4, "big", signed=True)
        else:
            data[start : start + 8] = draw(st.integers(-(2**63), 2**63 - 1)).to_bytes(8, "big", signed=True)
    return bytes(data)


starts = st.integers(-5, 150) | st.sampled_from([0, 2**63 - 1, -(2**63)])
ends = st.none() | st.integers(0, 250)
batch_sizes = st.sampled_from([MEBIBYTE, 1, 100, 700, 5000])
buffers = st.sampled_from([bytes, bytearray, memoryview])


@given(data=sets(), start=starts, end=ends, batch_bytes=batch_sizes, path=st.sampled_from(PATHS), kind=buffers)
@settings(deadline=None)
def test_right_sets_give_the_same_messages(
    data: bytes, start: int, end: int | None, batch_bytes: int, path: str, kind: type[Buffer]
) -> None:
    with decoding_by(path):
        assert found_by_columns(kind(data), start, end, batch_bytes) == found_by_messages(data, start, end)


@given(data=damaged_sets(), start=starts, end=ends, batch_bytes=batch_sizes, path=st.sampled_from(PATHS))
@settings(deadline=None, max_examples=300)
def test_damaged_sets_give_the_same_messages_and_the_same_errors_at_the_same_places(
    data: bytes, start: int, end: int | None, batch_bytes: int, path: str
) -> None:
    with decoding_by(path):
        assert found_by_columns(data, start, end, batch_bytes) == found_by_messages(data, start, end)


@given(
    inside=damaged_sets(), codec=codecs, magic=st.sampled_from([0, 1]), last=st.sampled_from([999, 10]),
    path=st.sampled_from(PATHS), limit=st.integers(0, 3000), start=st.sampled_from([0, 20, 999, 1010]),
)  # fmt: skip
@settings(deadline=None)
def test_damaged_sets_in_a_wrapper_with_a_right_checksum_too(
    inside: bytes, codec: str, magic: int, last: int, path: str, limit: int, start: int
) -> None:
    after = encode_message_set([b"after"] * 40, magic=magic, first_offset=1000)
    data = encode_wrapper(inside, codec, magic, last) * 2 + after
    with decoding_by(path):
        assert found_by_columns(data, start, None, 500, limit) == found_by_messages(data, start, None, limit)


def under_right_checksum(offset: int, body: bytes) -> bytes:
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


CONTRADICTIONS = [
    "0000 ffffffff 00000003 6162", "0000 ffffffff 00000001 6162", "0000 ffffffff ffffffff 61",
    "0000 ffffffff fffffffe", "0000 fffffffe 00000000", "0000 7fffffff 00000000", "0000 00000004 61616161",
    "0000 00000002 6161 00", "0100 0000000000000001 ffffffff", "0100 ffffffffffffffff fffffffe 00000000",
    "0100 ffffffffffffffff ffffffff fffffffe", "0200 ffffffff 00000000", "0004 ffffffff 00000000",
    "0100 ffffffff 00000000", "0100 00000000 00000000", "0100 ffffffff 00000000 00000000",
]  # fmt: skip


@pytest.mark.parametrize("body", CONTRADICTIONS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_contradict_themselves_under_a_right_checksum_are_wrong_in_the_same_way(
    body: str, magic: int
) -> None:
    good = [encode_message_set([(None, b"v" * n)], magic=magic, first_offset=n) for n in range(20)]
    data = b"".join([*good, under_right_checksum(20, bytes.fromhex(body)), *good])
    with decoding_by("kernel"):
        assert found_by_columns(data, 0, None) == found_by_messages(data, 0, None)
        alone = under_right_checksum(20, bytes.fromhex(body)) * 40
        assert found_by_columns(alone, 0, None) == found_by_messages(alone, 0, None)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 8, 1, 4]), st.binary(max_size=30)), max_size=8))
def test_any_bytes_under_a_right_checksum_give_the_same(rows: list[tuple[int, int, bytes]]) -> None:
    data = b"".join(
        under_right_checksum(offset, bytes((magic, attributes)) + rest)
        for offset, (magic, attributes, rest) in enumerate(rows)
    )
    with decoding_by("kernel"):
        assert found_by_columns(data, 0, None) == found_by_messages(data, 0, None)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("batch_bytes", [500, MEBIBYTE])
def test_wrappers_whose_insides_would_be_one_set_if_they_were_joined_break_off_each_by_itself(
    path: str, batch_bytes: int
) -> None:
    whole = encode_message_set([b"value"] * 100)
    for cut in range(31 * 50, 31 * 52):
        data = encode_wrapper(whole[:cut], "gzip", 0, 49) + encode_wrapper(whole[cut:], "gzip", 0, 99)
        with decoding_by(path):
            assert found_by_columns(data, 0, None, batch_bytes) == found_by_messages(data, 0, None)


@pytest.mark.parametrize("outer", [0, 1])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "among others"])
def test_messages_of_another_magic_than_their_wrapper_are_wrong_in_the_same_way(outer: int, others: int) -> None:
    odd = encode_wrapper(encode_message_set([b"value"] * 40, magic=1 - outer), "gzip", outer, 39)
    first = 0 if outer else 40  # in magic 1 offsets count from the first message of their wrapper
    mixed = encode_message_set([b"a"] * 20, magic=outer, first_offset=first)
    mixed += encode_message_set([b"b"] * 20, magic=1 - outer, first_offset=first + 20)
    data = odd + encode_wrapper(mixed, "snappy", outer, 79)
    data += encode_message_set([b"x"] * 40, "gzip", outer, first_offset=80) * others
    assert found_by_columns(data, 0, None) == found_by_messages(data, 0, None)
    assert len([each for each in found_by_columns(data, 0, None) if len(each) == 2]) == 60


@given(st.binary(max_size=400))
def test_any_bytes_give_the_same(data: bytes) -> None:
    with decoding_by("kernel"):
        assert found_by_columns(data, 0, None) == found_by_messages(data, 0, None)


@given(data=damaged_sets(), start=starts)
@settings(deadline=None)
def test_one_goes_on_where_the_other_stopped(data: bytes, start: int) -> None:
    with decoding_by("kernel"):
        for first, then in ((decode_messages, decode_columns), (decode_columns, decode_messages)):
            try:
                list(first(data, "t", 0, start))
            except MessageError as error:
                offsets = []
                try:
                    for found in then(data, "t", 0, start, resume=error.resume):
                        offsets += [found.offset] if then is decode_messages else found.column("offset").to_pylist()
                except (MessageError, BrokenFraming):
                    pass
                expected = []
                try:
                    for message in decode_messages(data, "t", 0, start, resume=error.resume):
                        expected.append(message.offset)
                except (MessageError, BrokenFraming):
                    pass
                if all(-(2**63) <= offset < 2**63 for offset in expected):
                    assert offsets == expected
            except BrokenFraming:
                pass


def plain(*offsets: int, magic: int = 0) -> bytes:
    return b"".join(encode_message(offset, None, b"%d" % offset, magic) for offset in offsets)


def wrapper(*offsets: int, says: int | None = None, magic: int = 0, inside: int | None = None) -> bytes:
    """A wrapper of a magic, with messages of that or of another one inside."""
    first, of = offsets[0] if magic else 0, magic if inside is None else inside
    entries = b"".join(encode_message(offset - first, None, b"%d" % offset, of) for offset in offsets)
    return encode_wrapper(entries, "gzip", magic, offsets[-1] if says is None else says)


UP, ON = range(50), range(50, 100)


@pytest.mark.parametrize(
    "data",
    [
        plain(*UP, 49, *ON),
        plain(*UP, 20, *ON),
        plain(*UP, *ON, 20),
        plain(*UP, *ON, 500),
        plain(*UP, *ON, 120),
        plain(*UP, 500, *ON),
        plain(*UP, -1, *ON),
        wrapper(*UP) + wrapper(*ON),
        wrapper(*UP) + wrapper(50),
        wrapper(*UP) + wrapper(*ON, 120),
        wrapper(*UP) + wrapper(*ON, 119),
        wrapper(*UP) + wrapper(*ON, 120, says=119),
        wrapper(*UP, 49, *ON) + wrapper(100),
        wrapper(*UP) + wrapper(*ON, says=49),
        wrapper(*UP) + wrapper(*ON, says=48),
        wrapper(*UP) + wrapper(*ON, says=50),
        wrapper(*UP) + wrapper(*ON, says=500),
        wrapper(*UP) + plain(*ON) + wrapper(100, 101, says=99),
        wrapper(*UP) + plain(*ON) + wrapper(100, 101, says=98),
        wrapper(*UP, magic=1) + wrapper(*ON, magic=1),
        wrapper(*UP, magic=1) + wrapper(*ON, says=90, magic=1),
        wrapper(*UP, magic=1) + wrapper(*ON, 120, magic=1),
        wrapper(*UP) + wrapper(*ON, says=-1),
        plain(*UP, magic=1) + wrapper(*ON) + plain(100, 101, 500),
        plain(*UP, *ON) + struct.pack(">qi", 100, 0),
        plain(*UP) + wrapper(*ON, inside=1),
        wrapper(*UP) + plain(*ON) + wrapper(100, 101, magic=1, inside=0),
    ],
)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("high_watermark", [None, 90, 120])
def test_what_is_wrong_with_one_of_many_is_found_in_the_same_place(
    data: bytes, path: str, high_watermark: int | None
) -> None:
    expected = found_by_messages(data, 0, None, high_watermark=high_watermark)
    with decoding_by(path):
        for batch_bytes in (MEBIBYTE, 1000):
            found = found_by_columns(data, 0, None, batch_bytes, high_watermark=high_watermark)
            assert found == expected


@pytest.mark.parametrize("found", [5, 500])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_damaged_offset_is_found_wherever_a_batch_ends(found: int, magic: int, is_wrapped: bool) -> None:
    for index in range(10, 30):
        offsets = [*range(10, index), found, *range(index + 1, 40)]
        data = plain(*offsets, magic=magic)
        if is_wrapped:
            data = plain(5) + encode_wrapper(data, "gzip", magic, 39) + plain(*range(40, 50))
        expected = found_by_messages(data, 0, None, high_watermark=1000)
        with decoding_by("kernel"):
            for batch_bytes in (80, 300):
                assert found_by_columns(data, 0, None, batch_bytes, high_watermark=1000) == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("limit", [1000, 1400, 2600, 10_000])
def test_wrappers_in_a_wrapper_count_against_its_limit_and_only_two_deep(magic: int, limit: int) -> None:
    def nested(depth: int) -> bytes:
        data = encode_message_set([bytes(500)] * 2, magic=magic)
        for _ in range(depth):
            data = encode_wrapper(data, "gzip", magic, 1)
        return data

    inside = b"".join(encode_message_set([bytes(500)] * 2, "gzip", magic, first_offset=at) for at in range(0, 8, 2))
    outside = encode_wrapper(inside, "gzip", magic, 7)
    sets = [outside, plain(0) + outside, *map(nested, (2, 3, 4)), nested(3) + plain(*range(2, 90))]
    for data in sets:
        expected = found_by_messages(data, 0, None, limit)
        for path in PATHS:
            with decoding_by(path):
                for batch_bytes in (600, MEBIBYTE):
                    assert found_by_columns(data, 0, None, batch_bytes, limit) == expected
