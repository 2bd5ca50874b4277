"""Record batches of Kafka 0.7: where each one ends, which entries are read as arrays, and what is read after errors.

A plain message of 90 bytes takes 100 in a set, as a row counts it.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka07_decoding import PARTITION, decode_all

from simpleconsumer.column_rows import LARGEST_BATCH_BYTES
from simpleconsumer.errors import BrokenFraming, CrcMismatch, MessageError
from simpleconsumer.kafka07 import columns
from simpleconsumer.kafka07.columns import decode_columns
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set, encode_wrapper

NAMES = ("value", "offset", "entry_index", "next_offset")
PLAIN = encode_message_set([b"x" * 90])
OLD = encode_message_set([b"o"], magic=0)
EMPTY = encode_wrapper(b"", "gzip")
Row = tuple[Any, ...]


def packed(count: int, behind: bytes = b"") -> bytes:
    """An entry of so many messages of 100 bytes each."""
    return encode_wrapper(encode_message_set([b"%090d" % number for number in range(count)]) + behind, "gzip")


def damaged(entry: bytes) -> bytes:
    """The entry with another last byte."""
    return entry[:-1] + bytes([entry[-1] ^ 1])


def rows_of(batch: Any) -> list[Row]:
    return list(zip(*(batch.column(name).to_pylist() for name in NAMES), strict=True))


def batches_of(data: bytes, **more: Any) -> tuple[list[int], list[Row], list[MessageError | BrokenFraming]]:
    """The number of rows of each batch, all rows, and all errors, going on behind each of those."""
    counts: list[int] = []
    rows: list[Row] = []
    errors: list[MessageError | BrokenFraming] = []
    resume = None
    while True:
        try:
            for batch in decode_columns(data, "t", PARTITION, resume=resume, **more):
                counts.append(batch.num_rows)
                rows += rows_of(batch)
            return counts, rows, errors
        except MessageError as error:
            resume = error.resume
            errors.append(error)
        except BrokenFraming as error:
            return counts, rows, [*errors, error]


def expected_of(data: bytes) -> tuple[list[Row], list[str]]:
    """Rows and errors as messages are read one by one."""
    messages, errors = decode_all(data)
    return [(each.value, each.offset, each.index, each.next_offset) for each in messages], list(map(str, errors))


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the entries that are not read as arrays."""
    reads: list[int] = []
    real = columns.next_entry

    def counted(*args: Any) -> Any:
        reads.append(1)
        return real(*args)

    monkeypatch.setattr(columns, "next_entry", counted)
    return reads


# -- where batches end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "limit", "counts"),
    [
        (packed(3) + packed(4), 5000, [7]),
        (packed(2) + packed(2) + packed(2), 200, [2, 2, 2]),
        (PLAIN + packed(2), 200, [2, 1]),
        (PLAIN + packed(40) + PLAIN, 400, [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2]),
        (OLD + packed(2) + packed(1), 5000, [4]),
        (OLD + packed(2), 200, [2, 1]),
        (OLD + packed(9), 200, [2, 2, 2, 2, 2]),
        (EMPTY + packed(40), 1000, [10, 10, 10, 10]),
    ],
    ids=[
        "entries that fit are joined", "entries of the whole size", "an entry that does not fit is cut",
        "a large entry beside small ones", "two magics, all within the limit", "two magics, by size",
        "two magics, and a large entry", "a large entry behind an empty one",
    ],
)  # fmt: skip
def test_where_batches_end(data: bytes, limit: int, counts: list[int]) -> None:
    found, rows, errors = batches_of(data, max_batch_bytes=limit)
    assert (rows, errors) == (expected_of(data)[0], [])
    assert found == counts


@pytest.mark.parametrize("count", [3, 100])
def test_the_end_of_the_range_ends_the_rows_wherever_the_data_start(count: int) -> None:
    data = PLAIN * count
    for base in (0, 10_000):
        for entries in (0, 1, count // 2, count - 1, count):
            _, rows, _ = batches_of(data, start_offset=base, data_offset=base, end_offset=base + 100 * entries)
            assert [row[1] for row in rows] == [base + 100 * number for number in range(entries)]
        _, rows, _ = batches_of(data, start_offset=base, data_offset=base, end_offset=base + 101)
        assert len(rows) == 2


# -- behind errors -----------------------------------------------------------------------------------------------------


def test_behind_an_error_batches_have_their_whole_size() -> None:
    data = damaged(PLAIN) + PLAIN * 1000
    counts, rows, errors = batches_of(data)
    assert counts == [1000]
    assert (len(rows), [type(each) for each in errors]) == (1000, [CrcMismatch])


def test_behind_an_error_in_the_third_level_rows_come_together() -> None:
    inside = encode_wrapper(encode_message_set([b"a"]) + damaged(PLAIN) + PLAIN * 100, "gzip")
    data = encode_wrapper(inside, "gzip") + PLAIN
    counts, rows, errors = batches_of(data)
    assert (rows, list(map(str, errors))) == expected_of(data)
    assert counts == [1, 101]


def test_messages_before_a_large_entry_behind_an_error_are_not_left_out() -> None:
    data = damaged(PLAIN) + OLD + PLAIN + packed(100) + PLAIN
    counts, rows, errors = batches_of(data)
    assert (rows, list(map(str, errors))) == expected_of(data)
    assert counts == [103]


@pytest.mark.parametrize("tail", [b"\xff\xff\xff\xfb" + b"z" * 20, b"\0\0\0\4" + b"z" * 20, b"abc"])
def test_what_is_wrong_at_the_end_of_a_joined_entry_is_raised(tail: bytes) -> None:
    for data in (packed(3) + packed(3, tail), packed(3, tail) + packed(3), PLAIN + packed(3, tail) + PLAIN):
        _, rows, errors = batches_of(data)
        assert (rows, list(map(str, errors))) == expected_of(data)


# -- what is read as arrays --------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_plain_and_compressed_entries_beside_each_other_are_read_as_arrays(one_by_one: list[int]) -> None:
    data = b"".join([PLAIN * 40, packed(40), PLAIN, packed(2), PLAIN * 40])
    counts, rows, _ = batches_of(data)
    assert (counts, rows) == ([123], expected_of(data)[0])
    assert len(one_by_one) <= 7, "two entries, their last messages and ends, and the end of the set"


@pytest.mark.compiled
def test_messages_of_two_magics_are_read_together(one_by_one: list[int]) -> None:
    counts, rows, _ = batches_of(OLD + PLAIN * 1000, max_batch_bytes=10_000)
    assert (len(rows), counts) == (1001, [100] * 10 + [1])
    assert len(one_by_one) <= 1, "the end"


@pytest.mark.compiled
def test_behind_two_magics_in_an_entry_the_rest_of_it_is_read_as_arrays(one_by_one: list[int]) -> None:
    data = encode_wrapper(OLD + PLAIN * 1000, "gzip")
    _, rows, _ = batches_of(data, max_batch_bytes=10_000)
    assert rows == expected_of(data)[0]
    assert len(one_by_one) <= 100 + 4


@pytest.mark.compiled
def test_behind_an_entry_of_which_messages_are_skipped_arrays_are_read(one_by_one: list[int]) -> None:
    entry = packed(3)
    _, rows, _ = batches_of(entry + PLAIN * 1000, start_offset=0, start_index=1)
    assert rows == expected_of(entry + PLAIN * 1000)[0][1:]
    assert len(one_by_one) <= 6


def test_an_entry_that_stands_behind_an_empty_one_has_its_own_position() -> None:
    data = EMPTY + packed(400)
    _, rows, _ = batches_of(data, max_batch_bytes=5000)
    assert {row[1] for row in rows} == {len(EMPTY)}


def test_what_a_later_part_of_an_entry_holds_decides_about_its_end() -> None:
    """Behind the last message are bytes of none, so that message has the end of the entry."""
    data = packed(100, b"abc") + PLAIN
    for limit in (3300, 5000, 10_000):
        _, rows, _ = batches_of(data, max_batch_bytes=limit)
        assert rows == expected_of(data)[0]


def test_an_entry_without_messages_at_the_end_of_a_part_is_looked_for_in_that_part() -> None:
    """Behind the last message of the third part comes nothing, so that message has the end of its entry."""
    inside = encode_message_set([b"%090d" % number for number in range(150)]) + EMPTY
    data = encode_wrapper(inside, "gzip") + PLAIN
    _, rows, _ = batches_of(data, max_batch_bytes=5000)
    assert rows == expected_of(data)[0]
    assert rows[149][3] == len(data) - 100


def test_a_size_of_batches_up_to_the_limit_is_taken() -> None:
    assert len(batches_of(PLAIN, max_batch_bytes=LARGEST_BATCH_BYTES)[1]) == 1
    with pytest.raises(ValueError, match="max_batch_bytes is 268435457; it must be from 1 to 268435456"):
        decode_columns(PLAIN, "t", PARTITION, max_batch_bytes=LARGEST_BATCH_BYTES + 1)


def test_an_unknown_codec_is_raised_where_it_stands() -> None:
    data = packed(2) + encode_entry(b"?", attributes=3) + packed(2)
    _, rows, errors = batches_of(data)
    assert (rows, list(map(str, errors))) == expected_of(data)
