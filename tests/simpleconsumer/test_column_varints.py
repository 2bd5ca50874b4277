"""Varints and records of many places at once, against those that are read one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from batch_columns import arrays_from, by_columns, by_messages
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.kafka011 import columns
from simpleconsumer.kafka011.column_areas import PADDING
from simpleconsumer.kafka011.column_varints import Heads, Varints, uniform_heads
from simpleconsumer.kafka011.columns import decode_columns
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka011.varints import encode_varint

short = st.integers(-64, 63)
middling = st.integers(-8192, 8191)
any_32 = st.integers(-(2**31), 2**31 - 1)
kinds = st.lists(st.sampled_from([short, short, middling, middling, any_32]), min_size=1, max_size=8)


def heads_of(rows: Sequence[Sequence[int]]) -> tuple[Heads, Any]:
    """Return the heads of rows of varints, with the byte 7 behind the first one of each, and where each row ends."""
    pieces = [b"".join((encode_varint(row[0]), b"\x07", *map(encode_varint, row[1:]))) for row in rows]
    ends = np.cumsum([len(piece) for piece in pieces])
    stretch = np.frombuffer(bytearray(b"".join([*pieces, bytes(PADDING)])), np.uint8)
    starts = np.append(0, ends[:-1])
    return Heads(Varints(stretch), stretch, starts), ends


@given(data=st.data(), number=st.integers(1, 40))
def test_varints_behind_each_other_are_read_as_they_were_encoded(data: st.DataObject, number: int) -> None:
    columns_of = data.draw(kinds)
    rows = [[data.draw(kind) for kind in columns_of] for _ in range(number)]
    heads, ends = heads_of(rows)
    found = [heads.read()]
    heads.skip_byte()
    found += [heads.read() for _ in columns_of[1:]]
    assert np.stack(found, axis=1).tolist() == rows
    assert heads.at.tolist() == ends.tolist()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (100, 60, 100), (100, -60, 100), (70, 8191, 0), (1, 200, 64)])
@pytest.mark.parametrize("middle", [0, 63])
def test_heads_whose_varints_have_the_same_sizes_are_uniform(sizes: tuple[int, int, int], middle: int) -> None:
    length, stamp, value = sizes
    rows = [[length + number % 3, stamp - number % 3, middle, -1, value + number % 2] for number in range(9)]
    heads, ends = heads_of(rows)
    found = uniform_heads(heads.gathered())
    assert found is not None
    read = (found.length, found.stamp, found.delta, np.full(9, -1), found.value_length)
    assert np.stack(read, axis=1).tolist() == rows
    assert (np.append(0, ends[:-1]) + found.value_at).tolist() == ends.tolist()


ODD = {
    "a longer length": [64, 0, 0, -1, 5],
    "a longer time": [9, 64, 0, -1, 5],
    "a longer offset": [9, 0, 64, -1, 5],
    "a key": [9, 0, 0, 0, 5],
    "a longer value": [9, 0, 0, -1, 64],
    "a negative length": [-9, 0, 0, -1, 5],
    "a negative offset": [9, 0, -2, -1, 5],
    "a null value": [9, 0, 0, -1, -1],
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("place", [0, 1, 4])
def test_heads_are_not_uniform_if_one_differs(what: str, place: int) -> None:
    rows = [[9, 0, 0, -1, 5] for _ in range(5)]
    rows[place] = ODD[what]
    heads, _ = heads_of(rows)
    assert uniform_heads(heads.gathered()) is None


def test_sizes_that_add_up_to_equal_ones_are_walked() -> None:
    values = [b"v" * size for size in (10, 12, 8, 10)]
    data = b"".join(encode_record_batch(values, first_offset=first) for first in range(5, 25, 4))
    with arrays_from(1):
        assert by_columns(data) == by_messages(data)
        [batch] = decode_columns(data, "t", 0)
    assert batch.column("value").to_pylist() == values * 5


@pytest.mark.parametrize("limit", [100, 1000, 5000])
def test_the_bytes_of_a_batch_are_those_of_records_without_the_heads(limit: int) -> None:
    record_bytes = 8
    data = b"".join(encode_record_batch([b"v"], first_offset=first) for first in range(1000))
    with arrays_from(1):
        sizes = [batch.num_rows for batch in decode_columns(data, "t", 0, max_batch_bytes=limit)]
    assert sum(sizes) == 1000
    assert max(sizes) <= limit // record_bytes
    assert sizes[0] >= limit // record_bytes // 5  # three times the bytes are looked at, of which heads take most


def test_one_record_of_another_size_does_not_slow_down_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"v" * 100] * 200
    values[150] = b"w" * 99
    data = b"".join(encode_record_batch(values[at : at + 50], first_offset=at) for at in range(0, 200, 50))

    def refuse(*_: object) -> None:
        raise AssertionError("it was read one by one")

    monkeypatch.setattr(columns, "Rows", refuse)
    [batch] = decode_columns(data, "t", 0)
    assert batch.column("value").to_pylist() == values
