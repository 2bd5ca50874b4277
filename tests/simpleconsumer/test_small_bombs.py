"""Answers below every limit that would cost much: memory stays near the limits, and time grows with the bytes."""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import pytest
from batch_columns import Found, by_columns, by_messages
from column_decoding import found_by_columns, found_by_messages
from decoding import MEBIBYTE, memory_growth_below
from kafka07_decoding import decode_all as decode_all_07

from simpleconsumer import codecs
from simpleconsumer.codecs import crc32c
from simpleconsumer.errors import MessageTooLarge
from simpleconsumer.kafka011.records import encode_varint
from simpleconsumer.kafka07.requests import encode_entry
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.types import AbortedTransaction, Buffer

ROWS_AND_COLUMNS = pytest.mark.parametrize("found_in", [by_messages, by_columns], ids=["rows", "columns"])
NO_HEADERS = b"\0"
EMPTY_HEADER = b"\0\1"
"""A key of no bytes, and no value."""
WRONG_HEADERS = b"\2\1\1"
"""One header, without a key."""
IS_TRANSACTIONAL, IS_CONTROL = 16, 32


def record(delta: int, headers: bytes = NO_HEADERS, key: bytes = b"") -> bytes:
    body = b"\0\0" + encode_varint(delta) + encode_varint(len(key)) + key + encode_varint(1) + b"v" + headers
    return encode_varint(len(body)) + body


def batch(
    records: Sequence[bytes], base: int = 0, *, codec: str = "none", attributes: int = 0, producer: int = -1
) -> bytes:
    number, data = codecs.BATCH_CODECS[codec], b"".join(records)
    head = struct.pack(">hiqqqhii", number | attributes, len(records) - 1, 1, 1, producer, 0, -1, len(records))
    body = head + (codecs.compress(number, data) if number else data)
    return struct.pack(">qi", base, 9 + len(body)) + struct.pack(">ibI", 0, 2, crc32c(body)) + body


def headers(count: int) -> bytes:
    return encode_varint(count) + EMPTY_HEADER * count


USUAL_S = 0.05
"""CPU seconds of a usual machine for 20,000 small gzip members."""


@cache
def slowness() -> float:
    """How many times as long as a usual machine this one takes to inflate small members, at least 1."""
    packed = gzip.compress(b"x" * 40, 1)
    started = time.process_time()
    kept = [bytes(codecs.decompress(codecs.GZIP, packed, 1000)) for _ in range(20_000)]
    assert len(kept) == 20_000
    return max(1.0, (time.process_time() - started) / USUAL_S)


@contextmanager
def seconds_below(limit_s: float) -> Iterator[None]:
    """Fail when this thread was busy for longer; limits are many times what is needed."""
    limit_s *= slowness()
    started = time.process_time()
    yield
    assert time.process_time() - started < limit_s


# Headers


@ROWS_AND_COLUMNS
def test_a_record_of_millions_of_headers_is_an_error_and_those_behind_it_are_read(found_in: object) -> None:
    """Ten million of them are 2 kB of zstd, and were a gigabyte of memory."""
    data = batch([record(0), record(1, headers(10_000_000)), record(2)], codec="zstd")
    assert len(data) < 4096
    with memory_growth_below(80 * MEBIBYTE), seconds_below(5):
        found: Found = found_in(data, limit=64 * MEBIBYTE)  # type: ignore[operator]
    assert [row[2] for row in (found[0], found[2])] == [0, 2]
    assert found[1] == (
        MessageTooLarge,
        "t/0 at 1: record 1 of the batch: 10000000 headers, and 4194304 more may be in its batch (decoded.max.bytes)",
    )


@pytest.mark.parametrize("each", [5, 64, 65])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_headers_of_all_records_of_a_batch_count_together_in_rows_as_in_columns(each: int, codec: str) -> None:
    """With a limit of a mebibyte there may be 65536; up to 64 in a record are read as arrays."""
    count = 65536 // each + 10
    data = batch([record(number, headers(each)) for number in range(count)], codec=codec)
    data += batch([record(number, headers(each)) for number in range(100)], count)
    rows = by_messages(data)
    errors = [row for row in rows if row[0] is MessageTooLarge]
    assert len(errors) == count - 65536 // each
    assert len(rows) == count + 100
    for batch_bytes in (5000, MEBIBYTE):
        assert by_columns(data, batch_bytes=batch_bytes) == rows


def test_ten_thousand_headers_are_possible_whatever_the_limit() -> None:
    data = batch([record(0, headers(10_000))])
    for found in (by_messages(data, limit=1), by_columns(data, limit=1)):
        assert [row[2] for row in found] == [0]


# Transactions


@ROWS_AND_COLUMNS
@pytest.mark.parametrize("ahead", [0, 4], ids=["all begin at once", "one after the other"])
def test_a_long_list_of_aborted_transactions_takes_no_longer_than_its_length(found_in: object, ahead: int) -> None:
    aborted = [AbortedTransaction(number, number * ahead) for number in range(60_000)]
    marker = struct.pack(">hh", 0, 0)
    data = b"".join(
        batch([record(0, key=marker)], number * 4, attributes=IS_TRANSACTIONAL | IS_CONTROL, producer=number)
        for number in range(10_000)
    )
    with seconds_below(3):
        assert found_in(data, aborted=aborted) == []  # type: ignore[operator]


@ROWS_AND_COLUMNS
def test_errors_beside_a_long_list_of_aborted_transactions_do_not_copy_it(found_in: object) -> None:
    aborted = [AbortedTransaction(number, 0) for number in range(60_000)]
    data = b"".join(
        batch([record(0, WRONG_HEADERS)], number, attributes=IS_TRANSACTIONAL, producer=-7) for number in range(3000)
    )
    with seconds_below(4):
        assert len(found_in(data, aborted=aborted)) == 3000  # type: ignore[operator]


# Errors one behind the other


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_columns_of_wrong_records_take_a_few_times_as_long_as_rows(codec: str) -> None:
    """After each error little is read as arrays, or it would be read again for each error."""
    data = batch([record(number, WRONG_HEADERS if number % 2 else NO_HEADERS) for number in range(10_000)], codec=codec)
    with seconds_below(2.5):
        found = by_columns(data)
    assert found == by_messages(data)


def test_columns_of_batches_of_which_each_second_one_is_wrong() -> None:
    data = b"".join(batch([record(0, WRONG_HEADERS if base % 2 else NO_HEADERS)], base) for base in range(3000))
    with seconds_below(3):
        found = by_columns(data)
    assert found == by_messages(data)


# Wrappers in wrappers


@pytest.mark.parametrize("magic", [0, 1])
def test_columns_of_thousands_of_wrappers_in_a_wrapper(magic: int) -> None:
    inside = b"".join(
        encode_wrapper(encode_message(0 if magic else number, None, b"x", magic), "gzip", magic, number)
        for number in range(15_000)
    )
    data = encode_wrapper(inside, "gzip", magic, 14_999)
    with seconds_below(1.2):
        found = found_by_columns(data, 0, None)
    assert found == found_by_messages(data, 0, None)


def broken_bombs(magic: int | None) -> bytes:
    """Return an entry that holds many small ones, each of which inflates to all that is allowed and then breaks off."""
    bomb = gzip.compress(bytes(48 * MEBIBYTE), 1)[:-4] + b"none"
    if magic is None:
        return encode_entry(gzip.compress(encode_entry(bomb, attributes=1) * 60, 1), attributes=1)
    inside = b"".join(encode_message(number, None, bomb, magic, codecs.GZIP) for number in range(60))
    return encode_wrapper(inside, "lz4", magic, 59)


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_in_a_wrapper_that_break_off_share_its_limit(magic: int) -> None:
    """Each of them was inflated up to the limit, as one that breaks off was not counted."""
    data: Buffer = broken_bombs(magic)
    with seconds_below(2):
        found = found_by_messages(data, 0, None, limit=64 * MEBIBYTE)
    assert len(found) == 60
    assert sum("inflates to more than 0 bytes" in str(row[1]) for row in found) > 50


def test_entries_of_kafka_07_in_an_entry_share_its_limit_too() -> None:
    with seconds_below(2):
        messages, errors = decode_all_07(broken_bombs(None), max_decoded_bytes=64 * MEBIBYTE)
    assert (messages, len(errors)) == ([], 60)
    assert sum("inflates to more than 0 bytes" in str(error) for error in errors) > 50


def test_one_that_breaks_off_leaves_the_rest_of_the_limit_to_the_others() -> None:
    broken = encode_message(1, None, gzip.compress(b"x")[:-4] + b"none", 0, codecs.GZIP)
    inside = encode_message_set([b"a"], "gzip") + broken + encode_message_set([b"c"], "gzip", first_offset=2)
    found = found_by_messages(encode_wrapper(inside, "gzip", 0, 2), 0, None)
    assert [row[1] for row in (found[0], found[2])] == [b"a", b"c"]
