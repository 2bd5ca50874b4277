"""Batches of few records: the fast paths, which go from batch to batch, against the path that reads each exactly."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from batch_columns import Found, by_messages
from batch_decoding import decode_simply, message_of
from decoding import decoding_by
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer.codecs import crc32c
from simpleconsumer.kafka011.record_batch import decode_messages
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.types import MAX_INT64, AbortedTransaction, Buffer, Headers

Row = tuple[bytes | None, bytes | None, int | None, Headers]

rows = st.tuples(
    st.sampled_from([None, None, b"", b"k", b"key", b"0123456789" * 7]),
    st.sampled_from([None, b"", b"x", b"v" * 53, b"v" * 54, b"v" * 63, b"v" * 64, bytes(8190), bytes(9000)]),
    st.sampled_from([None, 1000, 1001, 1063, 1064, 10**13, 2**62 + 5]),
    st.sampled_from([(), (), (), (), (("h", b"1"),)]),
)
batches = st.tuples(
    st.lists(rows, min_size=1, max_size=3),
    st.sampled_from([0, 0, 0, 0, 1, 5]),  # offsets that are left out before it
    st.sampled_from([None, None, None, 0, 17]),  # log append time
    st.sampled_from([None, None, BatchProducer(7, 2, 30), BatchProducer(7, 2, 30, is_transactional=True)]),
    st.sampled_from(["none", "none", "none", "none", "gzip"]),
)
singles = st.tuples(st.lists(rows, min_size=1, max_size=1), st.just(0), st.just(None), st.just(None), st.just("none"))
sets = st.lists(batches, max_size=12) | st.lists(batches | singles, max_size=30)
kinds = st.sampled_from([bytes, bytearray, memoryview])


def encoded(some: Sequence[Any], first: int = 3) -> bytes:
    data, offset = bytearray(), first
    for fields, hole, append, producer, codec in some:
        offset += hole
        data += encode_record_batch(
            [message_of(0, *row) for row in fields], codec, first_offset=offset, log_append_time_ms=append,
            **({} if producer is None else {"producer": producer}),
        )  # fmt: skip
        offset += len(fields)
    return bytes(data)


@given(some=sets, kind=kinds, start=st.integers(0, 40))
@settings(deadline=None)
def test_small_batches_decode_like_the_simple_decoder(some: list[Any], kind: type[Buffer], start: int) -> None:
    data = encoded(some)
    expected = [m for m in decode_simply(data) if m.offset >= start]
    assert list(decode_messages(kind(data), "t", 0, start)) == expected


def sealed(data: bytes) -> bytes:
    """Return a set with the right checksum for each batch that is whole."""
    fixed, position = bytearray(data), 0
    while position + 61 <= len(fixed):
        end = position + 12 + struct.unpack_from(">i", fixed, position + 8)[0]
        if not position + 61 <= end <= len(fixed):
            break
        struct.pack_into(">I", fixed, position + 17, crc32c(memoryview(fixed)[position + 21 : end]))
        position = end
    return bytes(fixed)


damages = st.lists(st.tuples(st.integers(0, 2**31), st.integers(1, 255)), max_size=4)
heads = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 72), st.integers(1, 255)), max_size=3)


@given(
    some=sets,
    bytes_wrong=damages,
    heads_wrong=heads,
    is_sealed=st.booleans(),
    cut=st.integers(0, 80),
    start=st.sampled_from([0, 3, 5, 20]),
    high_watermark=st.sampled_from([None, 10, 30]),
    aborted=st.sampled_from([(), (AbortedTransaction(7, 6),), (AbortedTransaction(9, 0),)]),
)
@settings(max_examples=400, deadline=None)
def test_any_damage_gives_the_messages_and_errors_of_the_exact_path(
    some: list[Any], bytes_wrong: list[tuple[int, int]], heads_wrong: list[tuple[int, int, int]], *, is_sealed: bool,
    cut: int, start: int, high_watermark: int | None, aborted: Sequence[AbortedTransaction],
) -> None:  # fmt: skip
    data = bytearray(encoded(some))
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + struct.unpack_from(">i", data, starts[-1] + 8)[0])
    for number, at, mask in heads_wrong:
        position = starts[number % len(starts)] + at
        if position < len(data):
            data[position] ^= mask
    for position, mask in bytes_wrong if data else ():
        data[position % len(data)] ^= mask
    wrong = sealed(bytes(data)) if is_sealed else bytes(data)
    wrong = wrong[: len(wrong) - cut]

    def found() -> Found:
        return by_messages(wrong, start, high_watermark=high_watermark, aborted=aborted)

    with decoding_by("plain"):
        expected = found()
    assert found() == expected


IN_TRANSACTION = BatchProducer(7, 2, 30, is_transactional=True)
ONE: Row = (None, b"value", 1000, ())
KEYED: Row = (b"key", b"value", 1000, ())
SETS = {
    "single records": [([ONE], 0, None, None, "none")] * 5,
    "single records with keys": [([KEYED], 0, None, None, "none")] * 5,
    "single records behind holes": [([ONE], 3, None, None, "none")] * 5,
    "single records in a transaction": [([ONE], 0, None, IN_TRANSACTION, "none")] * 5,
    "single records with log append time": [([KEYED], 0, 17, None, "none")] * 5,
    "pairs": [([ONE, ONE], 0, None, None, "none")] * 4,
    "pairs with keys": [([KEYED, KEYED], 0, 17, IN_TRANSACTION, "none")] * 4,
    "pairs and single records": [([ONE] * count, 0, None, None, "none") for count in (2, 1, 1, 1, 2, 2)],
}


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("kind", SETS)
def test_each_flipped_bit_gives_the_messages_and_errors_of_the_exact_path(kind: str, *, is_sealed: bool) -> None:
    data = encoded(SETS[kind])
    for position in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[position] ^= 1 << bit
            damaged = sealed(bytes(wrong)) if is_sealed else bytes(wrong)
            with decoding_by("plain"):
                expected = by_messages(damaged, high_watermark=60)
            assert by_messages(damaged, high_watermark=60) == expected, (position, bit)


@pytest.mark.parametrize("kind", SETS)
def test_each_cut_each_start_and_each_aborted_transaction_are_those_of_the_exact_path(kind: str) -> None:
    data = encoded(SETS[kind])
    each: list[dict[str, Any]] = [{"data": data[:cut]} for cut in range(len(data))]
    each += [{"data": data, "start": start} for start in range(25)]
    each += [{"data": data, "aborted": (AbortedTransaction(7, first),)} for first in range(25)]
    each += [{"data": data, "high_watermark": end} for end in range(25)]
    for arguments in each:
        with decoding_by("plain"):
            expected = by_messages(**arguments)
        assert by_messages(**arguments) == expected, arguments


def test_a_batch_whose_size_or_time_cannot_be_is_read_exactly() -> None:
    pair = encoded([([ONE, ONE], 0, None, None, "none")])
    late = encode_record_batch([message_of(0, None, b"a", MAX_INT64)] * 2, first_offset=5)
    above = bytearray(late)
    above[-6] = 2  # the difference of the second time: +1
    short = struct.pack(">qiibIhiqqqhii", 5, 30, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    for behind in (late, bytes(above), short, short + pair):
        data = sealed(pair + behind)
        with decoding_by("plain"):
            expected = by_messages(data)
        assert by_messages(data) == expected


def test_a_time_of_two_bytes_behind_one_of_one_is_not_taken_for_a_hole() -> None:
    value = b"v" * 53
    turns = [(b"ab", value, 1000, ()), (b"", value, 1000, ())]
    some = [(b"", value, 1000, ()), (None, value, 1256, ()), (None, value, 1000, ())]
    data = encoded([(turns, 0, None, None, "none"), (some, 0, None, None, "none")])
    assert list(decode_messages(data, "t", 0)) == decode_simply(data)


# Singles


def test_offsets_end_before_the_largest_one() -> None:
    offsets = (10, 11, 2**62 + 1, MAX_INT64 - 2, MAX_INT64 - 1, MAX_INT64, 5)
    data = b"".join(encode_record_batch([b"v"], first_offset=offset) for offset in offsets)
    with decoding_by("plain"):
        expected = by_messages(data)
    assert by_messages(data) == expected
    assert sum(isinstance(each[0], type) for each in expected) == 2  # the last two are wrong
