"""Where record batches of Kafka 0.7 are cut: between entries, unless an entry is larger, or not whole in the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka07_decoding import PARTITION

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.kafka07.requests import encode_message_set


def batch_of(counts: Sequence[int], first: int = 0, last: int = 0) -> Any:
    """Return a batch of compressed entries with so many messages each, without some of the first and the last one."""
    data = b"".join(encode_message_set([b"x"] * count, "snappy" if count > 1 else "none") for count in counts)
    [batch] = KAFKA07.decode_columns(data, "t", PARTITION, 0, columns=KAFKA07.columns)
    return batch.slice(first, batch.num_rows - first - last)


def cuts(batch: Any, max_rows: int | None) -> list[tuple[int, int]]:
    return list(KAFKA07.cuts(batch, max_rows))


@pytest.mark.parametrize(
    ("counts", "max_rows", "expected"),
    [
        ([1, 1, 1, 1, 1], None, [(0, 5)]),
        ([1, 1, 1, 1, 1], 2, [(0, 2), (2, 4), (4, 5)]),
        ([3, 3, 3], None, [(0, 9)]),
        ([3, 3, 3], 9, [(0, 9)]),
        ([3, 3, 3], 8, [(0, 6), (6, 9)]),
        ([3, 3, 3], 3, [(0, 3), (3, 6), (6, 9)]),
        ([3, 3, 3], 2, [(0, 2), (2, 3), (3, 5), (5, 6), (6, 8), (8, 9)]),
        ([1, 5, 1, 1], 3, [(0, 1), (1, 4), (4, 6), (6, 8)]),
        ([5, 1], 1, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]),
    ],
)
def test_a_batch_is_cut_between_entries_and_within_those_that_are_too_large(
    counts: list[int], max_rows: int | None, expected: list[tuple[int, int]]
) -> None:
    assert cuts(batch_of(counts), max_rows) == expected


@pytest.mark.parametrize(
    ("first", "last", "max_rows", "expected"),
    [
        (1, 0, None, [(0, 2), (2, 5)]),  # the rest of the first entry is a part of its own
        (1, 0, 4, [(0, 2), (2, 5)]),
        (1, 0, 1, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        (2, 0, 4, [(0, 1), (1, 4)]),
        (0, 1, None, [(0, 3), (3, 5)]),  # what is there of the last one, too
        (0, 1, 4, [(0, 3), (3, 5)]),
        (0, 1, 1, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        (4, 1, None, [(0, 1)]),
        (0, 4, None, [(0, 2)]),
        (0, 4, 1, [(0, 1), (1, 2)]),
    ],
)
def test_entries_that_are_not_whole_in_a_batch_have_parts_of_their_own(
    first: int, last: int, max_rows: int | None, expected: list[tuple[int, int]]
) -> None:
    assert cuts(batch_of([3, 3], first, last), max_rows) == expected


@given(
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=12), max_rows=st.none() | st.integers(1, 12),
    first=st.integers(0, 6), last=st.integers(0, 6),
)  # fmt: skip
def test_parts_follow_each_other_and_hold_as_many_whole_entries_as_fit(
    counts: list[int], max_rows: int | None, first: int, last: int
) -> None:
    total = sum(counts)
    first = min(first, total - 1)
    batch = batch_of(counts, first, min(last, total - 1 - first))
    found = cuts(batch, max_rows)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == batch.num_rows
    starts = batch.column("offset").to_pylist()
    ends = [
        row + 1 for row, (start, behind) in enumerate(zip(starts, batch.column("next_offset").to_pylist(), strict=True))
        if behind > start
    ]  # fmt: skip
    for start, end in found:
        assert start < end <= (batch.num_rows if max_rows is None else start + max_rows)
        if end not in ends:  # within an entry that is alone in the part
            assert len(set(starts[start:end])) == 1
        elif len(set(starts[start:end])) > 1:
            assert batch.column("entry_index")[start].as_py() == 0
