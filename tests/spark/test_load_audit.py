"""What is published has to be what was asked for."""

from __future__ import annotations

import functools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import OffsetSpan, OffsetSums, PartitionCounts, audit
from zkconsumer.spark.load.failures import AuditFailed
from zkconsumer.spark.load.manifest import LoadedPartition

T0 = TopicPartition("t", 0)
ASKED = {T0: OffsetSpan(10, 20)}
FULL = PartitionCounts(10, 10, 10, 19, 10, 700)


def test_all_that_was_asked_for_is_there() -> None:
    assert audit(ASKED, {T0: FULL}, ()) == (LoadedPartition("t", 0, 10, 20, 10, 700),)


def test_bad_messages_count_as_brought() -> None:
    counted = {T0: PartitionCounts(10, 10, 10, 19, 8, 700)}
    assert audit(ASKED, counted, ()) == (LoadedPartition("t", 0, 10, 20, 8, 700, bad=2),)


def test_a_wrapper_that_cannot_be_read_is_one_row_for_all_that_was_in_it() -> None:
    [loaded] = audit(ASKED, {T0: PartitionCounts(6, 6, 10, 19, 5, 70)}, ())
    assert (loaded.bad, loaded.missing) == (1, 4)


def test_a_compacted_log_may_miss_some_or_all() -> None:
    [loaded] = audit(ASKED, {T0: PartitionCounts(4, 4, 12, 18, 4, 70)}, {"t"})
    assert loaded.missing == 6
    [loaded] = audit(ASKED, {}, {"t"})
    assert loaded == LoadedPartition("t", 0, 10, 20, 0, 0, 0, 10)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({}, "t/0: 10 of the offsets 10 to 19 are missing"),
        ({T0: PartitionCounts(9, 9, 10, 19, 9, 1)}, "t/0: 1 of the offsets"),
        ({T0: PartitionCounts(11, 10, 10, 19, 11, 1)}, "t/0: 11 rows with 10 different offsets"),
        ({T0: PartitionCounts(10, 10, 9, 18, 10, 1)}, "t/0: offsets 9 to 18 were written, 10 to 19 were requested"),
        ({T0: FULL, TopicPartition("u", 3): PartitionCounts(2, 2, 0, 1, 2, 1)}, "u/3: 2 rows that were not requested"),
    ],
)
def test_whatever_differs_is_named(found: dict[TopicPartition, PartitionCounts], sentence: str) -> None:
    with pytest.raises(AuditFailed, match=sentence):
        audit(ASKED, found, ())


def test_a_repeated_offset_is_a_fault_of_compacted_topics_too() -> None:
    with pytest.raises(AuditFailed, match="different offsets"):
        audit(ASKED, {T0: PartitionCounts(5, 4, 10, 19, 5, 1)}, {"t"})


@given(st.integers(0, 2**62), st.integers(1, 200))
def test_the_sums_of_a_span_are_those_of_its_offsets(start: int, count: int) -> None:
    offsets = range(start, start + count)
    assert OffsetSums.of(OffsetSpan(start, start + count)) == (
        count, start, offsets[-1], sum(offsets), functools.reduce(operator.xor, offsets),
    )  # fmt: skip


def test_offsets_with_the_same_sum_are_told_apart() -> None:
    # 1, 5 and 6 twice in place of 2, 3 and 7: the same sum, even of the squares.
    offsets = [0, 1, 1, 4, 5, 5, 6, 6, 8]
    found = OffsetSums(9, 0, 8, sum(offsets), functools.reduce(operator.xor, offsets))
    whole = OffsetSums.of(OffsetSpan(0, 9))
    assert found.total == whole.total
    assert found != whole
