"""Record batches as columns: what `decode_messages` yields of them, whatever is in them and is wrong with them."""

from __future__ import annotations

import golden_batches
import pyarrow as pa
import pytest
from batch_columns import COLUMNS, by_columns, by_messages, rows_of
from batch_decoding import message_of
from decoding import MEBIBYTE, PATHS, decoding_by
from hypothesis import given
from hypothesis import strategies as st
from test_damaged_batches import LONG_VARINT, record, sealed, transaction
from test_record_batch_properties import Row, as_messages, batch_of, codecs, few_headers, fields, stamps

from simpleconsumer.kafka011.columns import decode_columns
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.types import AbortedTransaction, Message


def many(first: int, count: int, codec: str = "none", headers: bool = False) -> bytes:
    """Return a batch of records of many lengths, with keys and nulls here and there."""
    rows = []
    for number in range(first, first + count):
        key = None if number % 3 else b"k" * (number % 70)
        value = None if number % 11 == 0 else b"v%d" % number * (number % 40)
        has = (("h", b"1" * (number % 80)), ("g", None)) if headers and number % 2 else ()
        rows.append(message_of(number, key, value, 10**12 + number * number, has))
    return encode_record_batch(rows, codec, offsets=range(first, first + count))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("batch_bytes", [1, 1000, MEBIBYTE])
def test_columns_hold_what_messages_do(codec: str, headers: bool, batch_bytes: int) -> None:
    data = many(0, 300, codec, headers) + many(300, 5, codec, headers) + many(400, 300, codec, headers)
    expected = by_messages(data)
    assert len(expected) == 605
    assert by_columns(data, batch_bytes=batch_bytes) == expected
    with decoding_by("kernel"):
        assert by_columns(data, batch_bytes=batch_bytes) == expected


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("size", [1, 50, 62, 63, 64, 100, 8190, 8191, 8192])
@pytest.mark.parametrize("odd", [None, 0, 20, 64, 69])
def test_records_of_equal_sizes_are_found_and_those_that_only_seem_so(codec: str, size: int, odd: int | None) -> None:
    values = [bytes(size)] * 70
    if odd is not None:
        values[odd], values[(odd + 9) % 70] = bytes(size + 3), bytes(max(0, size - 3))
    data = b"".join(encode_record_batch(values, codec, first_offset=first) for first in (0, 70, 200))
    assert by_columns(data) == by_messages(data)


@pytest.mark.parametrize("start", [0, 1, 150, 299, 300, 304, 350, 699, 700])
@pytest.mark.parametrize("end", [None, 0, 1, 151, 300, 305, 352, 399, 400, 401, 700, 800])
def test_a_range_is_exact(start: int, end: int | None) -> None:
    data = many(0, 300) + many(300, 5) + many(400, 300, "gzip")
    expected = by_messages(data, start, end)
    for batch_bytes in (2000, MEBIBYTE):
        for path in PATHS:
            with decoding_by(path):
                assert by_columns(data, start, end, batch_bytes) == expected


def test_nothing_behind_the_end_is_looked_at() -> None:
    bad = bytearray(many(300, 5))
    bad[-1] ^= 1
    for behind in (b"\xff" * 40, bytes(bad)):
        assert by_columns(many(0, 300) + behind, 0, 300) == by_messages(many(0, 300))


def test_headers_are_lists_as_spark_has_them_and_null_where_there_are_none() -> None:
    rows = [message_of(0, None, b"a", 1), message_of(1, None, b"b", 1, (("h", b"1"), ("h", None)))]
    data = encode_record_batch([*rows * 30])
    for names in (("headers",), ("headers", "offset")):
        [batch] = decode_columns(data, "t", 0, columns=names)
        assert batch.schema.field("headers").type == pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        two = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
        assert batch.column("headers").to_pylist() == [None, two] * 30
    [batch] = decode_columns(data[:0] + encode_record_batch([b"v"] * 40), "t", 0, columns=("headers",))
    assert batch.column("headers").null_count == 40


def test_header_keys_that_are_no_utf8_are_read_as_messages_have_them() -> None:
    area = b"".join(record(delta, b"\x01\x02v\x02\x02\xff\x00") for delta in range(50))
    data = sealed(area, 50, 49)
    assert by_columns(data) == by_messages(data)
    assert by_columns(data)[0][-1] == (("\ufffd", b""),)


@pytest.mark.parametrize("append", [None, 17, 2**40])
def test_the_type_of_timestamps_is_told(append: int | None) -> None:
    sent: list[Message] = as_messages([(None, b"v", stamp, ()) for stamp in (5, None, 7)] * 20)
    for path in PATHS:
        with decoding_by(path):
            data = encode_record_batch(sent, log_append_time_ms=append)
            [batch] = decode_columns(data, "t", 0, columns=("timestamp_ms", "timestamp_type"))
            expected = [(5, 0), (None, -1), (7, 0)] if append is None else [(append, 1)] * 3
            assert rows_of(batch) == expected * 20


@pytest.mark.parametrize("answer", golden_batches.answers(), ids=lambda each: f"{each.version}-{each.name}")
def test_real_answers_are_the_same_in_columns(answer: golden_batches.GoldenAnswer) -> None:
    for path in PATHS:
        with decoding_by(path):
            assert by_columns(answer.record_set, aborted=answer.aborted) == by_messages(
                answer.record_set, aborted=answer.aborted
            )


rows = st.lists(st.tuples(fields, fields, stamps, few_headers), max_size=40)
batches = st.lists(st.tuples(rows, codecs, st.integers(0, 3), st.none() | st.integers(0, 2**40)), max_size=6)


starts = st.integers(0, 100)


@given(batches=batches, start=starts, length=st.none() | starts, path=st.sampled_from(PATHS))
def test_any_batches_are_the_same_in_columns(
    batches: list[tuple[list[Row], str, int, int | None]], start: int, length: int | None, path: str
) -> None:
    data, offset = b"", 0
    for some, codec, hole, append in batches:
        data += encode_record_batch(
            as_messages(some), codec, offsets=range(offset, offset + len(some)), log_append_time_ms=append,
            last_offset=offset + len(some) + hole,
        )  # fmt: skip
        offset += len(some) + hole + 1
    end = None if length is None else start + length
    expected = by_messages(data, start, end)
    with decoding_by(path):
        for batch_bytes in (100, MEBIBYTE):
            assert by_columns(data, start, end, batch_bytes) == expected


# What is wrong


def test_a_flipped_bit_anywhere_gives_the_same_messages_and_errors() -> None:
    data = many(0, 8) + many(8, 8, "gzip", headers=True) + many(16, 8)
    with decoding_by("kernel"):
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 1 << position % 8
            expected = by_messages(bytes(damaged), 2, high_watermark=24)
            assert by_columns(bytes(damaged), 2, high_watermark=24) == expected, position


def test_a_set_cut_anywhere_gives_the_same_messages() -> None:
    data = many(0, 8) + many(8, 8, "snappy") + many(16, 8)
    with decoding_by("kernel"):
        for end in range(len(data)):
            assert by_columns(data[:end]) == by_messages(data[:end]), end


@pytest.mark.parametrize(
    "middle",
    [
        record(40, b"\x01\x40v\x00"), record(40, b"\x05\x02v\x00"), record(40, b"\x01\x02v\x01"),
        record(40, b"\x01\x02v\x10ab"), record(40, b"\x01\x02v\x02\x01\x00"), record(40, b"\x01\x02v\x02\x04k\x00"),
        record(40, b"\x01\x02v\x00xyz"), record(40, LONG_VARINT), record(40, b"\xff\xff\xff\xff\x7f\x00\x00"),
        record(39), record(81), record(-1), record(40, size=0), record(40, size=500), record(40, size=-1), b"", b"\xff",
        record(40, stamp=2**63 - 1), record(40, b"\x01\x02v" + b"\x82\x00"), LONG_VARINT,
        record(40, b"\x01\x02v\x82\x01" + b"\x02k\x01" * 65), record(40, b"\x81\x00\x02v\x00"),
        record(40, b"\x81\x80\x80\x80\x80\x00\x02v\x00"), record(40, b"\x01\x82\x80\x80\x80\x80\x00v\x00"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_one_record_of_many_is_found_in_the_same_place(middle: bytes) -> None:
    area = b"".join(record(delta) for delta in range(40)) + middle + b"".join(record(delta) for delta in range(41, 81))
    data = many(0, 10) + sealed(area, 81, 80) + many(100, 40)
    expected = by_messages(data)
    for path in PATHS:
        with decoding_by(path):
            for batch_bytes in (100, 1000, MEBIBYTE):
                assert by_columns(data, batch_bytes=batch_bytes) == expected


@given(
    area=st.binary(max_size=120),
    count=st.integers(-2, 20),
    last=st.integers(-2, 20),
    attributes=st.sampled_from([0, 1, 4, 5, 8, 16, 32]),
    base_time=st.integers(-(2**63), 2**63 - 1),
    batch_bytes=st.sampled_from([10, MEBIBYTE]),
)
def test_any_records_under_a_right_checksum_are_the_same_in_columns(
    area: bytes, count: int, last: int, attributes: int, base_time: int, batch_bytes: int
) -> None:
    data = batch_of(area, count, last, attributes, base_time) + many(100, 40)
    with decoding_by("kernel"):
        assert by_columns(data, batch_bytes=batch_bytes) == by_messages(data)


def test_batches_that_inflate_to_more_than_the_limit_are_the_same_in_columns() -> None:
    data = many(0, 40) + encode_record_batch([bytes(9000)] * 2, "zstd", first_offset=40) + many(42, 40, "lz4")
    for limit in (8000, 20_000):
        expected = by_messages(data, limit=limit)
        assert by_columns(data, limit=limit) == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("names", [COLUMNS, ("headers",), ("value", "headers"), ("value",)])
@pytest.mark.parametrize("damaged", [False, True])
def test_old_entries_among_batches_are_the_same_in_columns(
    magic: int, codec: str, names: tuple[str, ...], damaged: bool
) -> None:
    old = bytearray(encode_message_set([b"old %d" % n for n in range(50)], codec, magic, first_offset=40))
    if damaged:
        old[-1] ^= 1
    data = many(0, 40) + bytes(old) + many(90, 40, "zstd")
    picked = [COLUMNS.index(name) for name in names]
    for start, end in ((0, None), (45, None), (45, 60), (0, 90), (0, 95)):
        rows = by_messages(data, start, end)
        expected = [tuple(row[at] for at in picked) if len(row) == len(COLUMNS) else row for row in rows]
        assert by_columns(data, start, end, names=names) == expected


def test_aborted_transactions_are_left_out() -> None:
    data = (
        transaction(0, 1) + many(1, 40) + transaction(41, 1, is_control=True, commit=False) + transaction(42, 1)
        + many(43, 40)
    )  # fmt: skip
    aborted = [AbortedTransaction(1, 0)]
    assert by_columns(data, aborted=aborted) == by_messages(data, aborted=aborted)
    assert [row[2] for row in by_columns(data, aborted=aborted)] == [*range(1, 41), *range(42, 83)]


def test_what_cannot_be_decoded_is_refused() -> None:
    with pytest.raises(ValueError, match="columns is"):
        decode_columns(b"", "t", 0, columns=("topic",))
    with pytest.raises(ValueError, match="max_batch_bytes is 0"):
        decode_columns(b"", "t", 0, max_batch_bytes=0)
    with pytest.raises(TypeError, match="resume must come from a MessageError, not int"):
        decode_columns(b"", "t", 0, resume=1)
