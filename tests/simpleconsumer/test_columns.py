"""Record batches: the contents of their columns, where they start and end, how large they are, what they cost."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from decoding import MEBIBYTE, memory_growth_below

from simpleconsumer.column_rows import COLUMNS
from simpleconsumer.columns import decode_columns
from simpleconsumer.errors import (
    BrokenFraming,
    CrcMismatch,
    DamagedOffset,
    MessageError,
    MessageTooLarge,
)
from simpleconsumer.kafka08 import columns
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.types import Message

BOTH = pytest.mark.parametrize("count", [3, 300], ids=["one by one", "together"])


def decode(data: bytes, start: int = 0, **settings: Any) -> pa.Table:
    batches = list(decode_columns(data, "t", 0, start, **settings))
    assert all(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, schema=pa.schema(COLUMNS.items())) if "columns" not in settings else batches


def rows_of(table: Any, *names: str) -> list[Any]:
    return list(zip(*[table.column(name).to_pylist() for name in names], strict=True))


# Columns


@BOTH
def test_columns_are_what_messages_hold_with_null_for_none(count: int) -> None:
    rows = [(b"key", b"value"), (None, b""), (b"", None)] * (count // 3)
    table = decode(encode_message_set(rows, first_offset=7))
    assert table.schema == pa.schema(
        [("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64()),
         ("timestamp_ms", pa.int64()), ("timestamp_type", pa.int32())]
    )  # fmt: skip
    assert rows_of(table, "key", "value") == rows
    assert table.column("offset").to_pylist() == list(range(7, 7 + count))
    assert set(rows_of(table, "timestamp_ms", "timestamp_type")) == {(None, -1)}


@BOTH
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_type_of_a_timestamp_says_who_set_it(count: int, codec: str) -> None:
    stamped = [Message("t", 0, 0, 0, None, b"v", stamp) for stamp in (5, None, 6)] * (count // 3)
    created = decode(encode_message_set(stamped, codec, 1))
    assert rows_of(created, "timestamp_ms", "timestamp_type") == [(5, 0), (None, -1), (6, 0)] * (count // 3)
    appended = decode(encode_message_set(stamped, codec, 1, log_append_time_ms=99))
    assert rows_of(appended, "timestamp_ms", "timestamp_type") == [(99, 1)] * count


def test_wrappers_of_both_kinds_of_time_and_of_none_read_together_keep_their_own() -> None:
    sets = [
        encode_message_set([b"v"] * 50, "gzip", 1, first_offset=0, timestamp_ms=7),
        encode_message_set([b"v"] * 50, "snappy", 1, first_offset=50, timestamp_ms=7, log_append_time_ms=9),
        encode_message_set([b"v"] * 50, "gzip", 0, first_offset=100),
        encode_message_set([b"v"] * 50, "none", 1, first_offset=150, timestamp_ms=8),
        encode_message_set([b"v"] * 50, "none", 1, first_offset=200, timestamp_ms=8, log_append_time_ms=6),
    ]
    [batch] = decode_columns(b"".join(sets), "t", 0)
    expected = [*[(7, 0)] * 50, *[(9, 1)] * 50, *[(None, -1)] * 50, *[(8, 0)] * 50, *[(6, 1)] * 50]
    assert rows_of(batch, "timestamp_ms", "timestamp_type") == expected
    assert batch.column("offset").to_pylist() == list(range(250))


@BOTH
def test_only_the_columns_asked_for_come_in_that_order(count: int) -> None:
    data = encode_message_set([(b"k", b"v")] * count, magic=1)
    for names in (["value"], ["offset", "key"], ["timestamp_type", "timestamp_ms", "value"]):
        for batch in decode_columns(data, "t", 0, columns=names):
            assert batch.schema.names == names


@pytest.mark.parametrize("names", [[], ["values"], ["key", "key"], "value"])
def test_columns_that_there_are_not_are_refused_at_once(names: Any) -> None:
    some = "some of key, value, offset, timestamp_ms, timestamp_type, headers, each once"
    with pytest.raises(ValueError, match=some):
        decode_columns(b"", "t", 0, columns=names)


# Where it begins and ends


@BOTH
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_range_of_offsets_is_what_it_says(count: int, codec: str) -> None:
    data = encode_message_set([b"v"] * count, codec, offsets=range(0, 2 * count, 2))  # compacted: only even ones
    for start, end in ((0, None), (3, None), (2, 4), (1, 5), (0, 2 * count), (2 * count, None), (0, 0), (4, 2)):
        found = decode(data, start, end_offset=end).column("offset").to_pylist()
        assert found == [n for n in range(0, 2 * count, 2) if start <= n < (2 * count if end is None else end)]


@BOTH
def test_behind_the_last_message_asked_for_nothing_is_looked_at(count: int) -> None:
    data = encode_message_set([b"v"] * count) + b"\xff" * 40
    assert decode(data, end_offset=count).num_rows == count
    with pytest.raises(BrokenFraming):
        decode(data)
    for start in (count, count + 1):
        assert list(decode_columns(b"\xff" * 40 * count, "t", 0, start, end_offset=count)) == []


def test_no_messages_are_no_batches() -> None:
    cut = encode_message_set([bytes(100)])[:-1]
    assert list(decode_columns(b"", "t", 0)) == list(decode_columns(cut, "t", 0)) == []
    empty = [encode_wrapper(b"", "gzip", 0, offset) for offset in range(40)]
    for count in (1, 2, 40):
        assert list(decode_columns(b"".join(empty[:count]), "t", 0)) == []


# Together


@pytest.fixture
def read_alone(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that were not read as arrays."""
    found: list[Any] = []
    read = columns.next_entry

    def noted(*given: Any) -> Any:
        entry = read(*given)
        found.extend([entry] if entry is not None else [])
        return entry

    monkeypatch.setattr(columns, "next_entry", noted)
    return found


ROWS: dict[str, list[Any]] = {
    "of one size": [b"%03d" % n for n in range(200)],
    "of many sizes": [b"%d" % n * (n % 7) for n in range(200)],
    "with keys": [(b"key %03d" % n, b"%03d" % n) for n in range(200)],
    "with keys of one byte": [(b"%d" % (n % 10), b"%03d" % n) for n in range(200)],
    "with keys of many sizes": [(b"%d" % n * (n % 5), b"%d" % n * (n % 7)) for n in range(200)],
    "with nulls": [(None if n % 2 else b"", None if n % 3 else b"") for n in range(200)],
    "with null and empty keys": [(None if n % 2 else b"", b"value") for n in range(200)],
    "without any bytes": [None] * 200,
    "empty": [b""] * 200,
}


@pytest.mark.compiled
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "gzip, small"])
@pytest.mark.parametrize("holes", [1, 3])
@pytest.mark.parametrize("batch_bytes", [2500, MEBIBYTE])
def test_right_messages_are_all_read_as_arrays(
    read_alone: list[Any], rows: str, magic: int, codec: str, holes: int, batch_bytes: int
) -> None:
    expected = [row if isinstance(row, tuple) else (None, row) for row in ROWS[rows]]
    offsets = range(1000, 1000 + 200 * holes, holes)
    size = 10 if codec == "gzip, small" else 200
    data = b"".join(
        encode_message_set(ROWS[rows][at : at + size], codec.partition(",")[0], magic, offsets=offsets[at : at + size])
        for at in range(0, 200, size)
    )
    table = decode(data, max_batch_bytes=batch_bytes)
    assert rows_of(table, "key", "value") == expected
    assert table.column("offset").to_pylist() == list(offsets)
    # The last message of a set or of a wrapper, if nothing shows that the hole before it is right.
    assert len(read_alone) <= (0 if holes == 1 else 200 // size)


@pytest.mark.compiled
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_with_the_smallest_messages_between_them_are_read_as_arrays(read_alone: list[Any], magic: int) -> None:
    data = b"".join(
        encode_message_set([b"v"] * 9, "gzip", magic, first_offset=at) + encode_message(at + 9, None, None)
        for at in range(0, 200, 10)
    )
    assert decode(data).column("offset").to_pylist() == list(range(200))
    assert read_alone == []


@pytest.mark.compiled
def test_what_has_to_be_read_one_by_one_does_not_slow_down_what_is_behind_it(read_alone: list[Any]) -> None:
    nested = encode_wrapper(encode_message_set([b"v"] * 10, "gzip", first_offset=100), "gzip", 0, 109)
    data = encode_message_set([b"v"] * 100) + nested + encode_message_set([b"v"] * 2000, first_offset=110)
    assert decode(data, max_batch_bytes=5000).column("offset").to_pylist() == list(range(2110))
    assert len(read_alone) < 300


@pytest.mark.compiled
def test_a_wrapper_larger_than_a_batch_is_read_as_arrays(read_alone: list[Any]) -> None:
    values = [random.Random(n).randbytes(20) for n in range(2000)]
    table = decode(encode_message_set(values, "gzip"), max_batch_bytes=10_000)
    assert table.column("value").to_pylist() == values
    assert len(read_alone) < 40


@pytest.mark.compiled
def test_messages_of_both_magics_are_read_as_arrays_too(read_alone: list[Any]) -> None:
    data = b"".join(encode_message(n, None, b"%d" % n, n % 2, timestamp_ms=n) for n in range(200))
    table = decode(data)
    assert rows_of(table, "value", "timestamp_ms") == [(b"%d" % n, n if n % 2 else None) for n in range(200)]
    assert read_alone == []


def test_a_wrong_checksum_among_messages_that_are_all_the_same_is_noticed() -> None:
    data = bytearray(encode_message_set([b"value"] * 100))
    data[50 * 31 + 12] ^= 1
    with pytest.raises(CrcMismatch, match="t/0 at 50: the CRC is"):
        list(decode_columns(data, "t", 0))


# What is wrong


def test_what_comes_before_an_error_is_yielded_and_resume_goes_on_behind_it() -> None:
    data = bytearray(encode_message_set([b"value"] * 1000))
    data[500 * 31 + 30] ^= 1
    decoding = decode_columns(data, "t", 0)
    assert next(decoding).column("offset").to_pylist() == list(range(500))
    with pytest.raises(CrcMismatch, match="t/0 at 500: the CRC is") as caught:
        next(decoding)
    rest = pa.Table.from_batches(decode_columns(data, "t", 0, resume=caught.value.resume))
    assert rest.column("offset").to_pylist() == list(range(501, 1000))


def test_a_set_in_which_every_message_is_wrong_takes_no_square_of_its_length() -> None:
    count, looked_at = 3000, 0
    data = bytearray(encode_message_set([b"value"] * count))
    data[30::31] = b"x" * count
    real = columns.next_entry

    def counted(*given: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return real(*given)

    resume, errors = None, 0
    columns.next_entry = counted
    try:
        while True:
            try:
                assert list(decode_columns(data, "t", 0, resume=resume)) == []
                break
            except MessageError as error:
                resume, errors = error.resume, errors + 1
    finally:
        columns.next_entry = real
    assert errors == count
    assert looked_at < 3 * count


def test_behind_an_error_batches_soon_have_their_size_again() -> None:
    data = bytearray(encode_message_set([bytes(5000)] * 400))
    data[5025] ^= 1
    with pytest.raises(CrcMismatch) as caught:
        list(decode_columns(data, "t", 0))
    sizes = [batch.num_rows for batch in decode_columns(data, "t", 0, resume=caught.value.resume)]
    assert sum(sizes) == 399
    assert len(sizes) < 15


def test_an_offset_that_no_column_holds_is_damaged_and_the_rest_is_read() -> None:
    inside = encode_message(2**63 - 1, None, b"far", 1) + encode_message(-5, None, b"last", 1)
    data = encode_wrapper(inside, "gzip", 1, 2**62) + encode_message_set([b"after"] * 50, first_offset=2**62 + 1)
    far = 2**63 - 1 + 2**62 + 5
    with pytest.raises(DamagedOffset, match=f"offset {far} is above {2**62}, the offset of its wrapper") as caught:
        list(decode_columns(data, "t", 0))
    rest = pa.Table.from_batches(decode_columns(data, "t", 0, resume=caught.value.resume))
    assert rest.column("value").to_pylist() == [b"last", *[b"after"] * 50]


def test_a_wrapper_above_the_limit_costs_itself() -> None:
    data = encode_message_set([bytes(3 * MEBIBYTE)], "gzip") + encode_message_set([b"x"] * 50, first_offset=1)
    with pytest.raises(MessageTooLarge) as caught:
        list(decode_columns(data, "t", 0, max_decoded_bytes=MEBIBYTE))
    [batch] = decode_columns(data, "t", 0, max_decoded_bytes=MEBIBYTE, resume=caught.value.resume)
    assert batch.num_rows == 50


# How large batches are, and what they cost


def test_batches_are_about_as_large_as_asked_for() -> None:
    data = encode_message_set([bytes(100)] * 5000)
    for limit in (2000, 50_000, MEBIBYTE):
        sizes = [batch.num_rows * 126 for batch in decode_columns(data, "t", 0, max_batch_bytes=limit)]
        assert max(sizes) <= limit
        assert min(sizes[:-1], default=limit) > limit - 126
        assert sum(sizes) == len(data)


def test_small_wrappers_share_a_batch_and_a_large_one_makes_many() -> None:
    small = b"".join(encode_message_set([bytes(100)] * 10, "gzip", first_offset=n) for n in range(0, 1000, 10))
    assert [batch.num_rows for batch in decode_columns(small, "t", 0)] == [1000]
    for limit, rows in ((5000, 39), (5040, 40)):
        sizes = [batch.num_rows for batch in decode_columns(small, "t", 0, max_batch_bytes=limit)]
        assert (set(sizes[:-1]), sum(sizes)) == ({rows}, 1000)
    large, more = (encode_message_set([bytes(100)] * 1000, "gzip", first_offset=first) for first in (0, 1000))
    sizes = [batch.num_rows for batch in decode_columns(large + more, "t", 0, max_batch_bytes=12_600)]
    assert sizes == [100] * 20


def test_batches_of_messages_that_are_read_one_by_one_are_as_large_as_asked_for_too() -> None:
    def seven(first: int, depth: int) -> bytes:
        data = encode_message_set([bytes(100)] * 7, first_offset=first)
        for _ in range(depth):
            data = encode_wrapper(data, "gzip", 0, first + 6)
        return data

    data = seven(0, 2) + seven(7, 1) + seven(14, 2) + seven(21, 1)
    assert [batch.num_rows for batch in decode_columns(data, "t", 0, max_batch_bytes=7 * 126)] == [7] * 4
    assert [batch.num_rows for batch in decode_columns(data, "t", 0)] == [28]


def test_a_message_larger_than_a_batch_is_one_by_itself() -> None:
    data = encode_message_set([b"a", bytes(5000), b"b"])
    assert [batch.num_rows for batch in decode_columns(data, "t", 0, max_batch_bytes=1000)] == [1, 1, 1]


@pytest.mark.parametrize("size", [0, -1, 256 * MEBIBYTE + 1, 2**40])
def test_sizes_that_cannot_be_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"max_batch_bytes is {size}; it must be from 1 to {256 * MEBIBYTE}"):
        decode_columns(b"", "t", 0, max_batch_bytes=size)


@pytest.mark.parametrize("size", [1, 256 * MEBIBYTE])
def test_the_smallest_and_the_largest_size_are_possible(size: int) -> None:
    assert decode(encode_message_set([b"v"] * 100), max_batch_bytes=size).num_rows == 100


def test_memory_is_bounded_by_the_wrapper_and_the_batch() -> None:
    data = encode_message_set([bytes(1000)] * 40_000, "gzip")
    with memory_growth_below(100 * MEBIBYTE):
        assert sum(batch.num_rows for batch in decode_columns(data, "t", 0)) == 40_000


def test_a_batch_outlives_the_buffer_it_came_from() -> None:
    buffer = bytearray(encode_message_set([b"v%03d" % n for n in range(200)]))
    [batch] = decode_columns(buffer, "t", 0)
    buffer[:] = bytes(len(buffer))
    assert batch.column("value").to_pylist() == [b"v%03d" % n for n in range(200)]
    del buffer[:]  # nothing holds it


# The checksum of all in one
