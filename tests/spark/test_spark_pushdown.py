"""What the filters of a query leave of a plan, and which of them Spark still evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.reading.bounds import SplitLimits, plan_ranges
from zkconsumer.spark.reading.pushdown import MAX_SPANS, push_filters
from zkconsumer.spark.streaming.stream_offsets import ALL_OFFSETS, NO_OFFSETS, at_most, common, others, spans_of

if not hasattr(datasource, "Filter"):
    pytest.skip("Spark 4.0 has no filters", allow_module_level=True)

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)  # fmt: skip

Row = dict[str, Any]
STARTS = {TopicPartition(topic, partition): partition for topic in ("a", "ab", "b") for partition in range(3)}
ENDS = {name: 12 + int(name.partition) for name in STARTS}
ROWS: list[Row] = [
    {"topic": name.topic, "partition": int(name.partition), "offset": offset, "value": None if offset % 3 else offset}
    for name, start in STARTS.items() for offset in range(start, ENDS[name])
]  # fmt: skip


def read(filters: Sequence[Any], limits: SplitLimits = SplitLimits()) -> tuple[list[Row], list[Any]]:  # noqa: B008
    """The rows of the ranges that are planned, and the filters that are left to Spark."""
    pushed, rest = push_filters(filters)
    names = [name for name in STARTS if pushed.accepts(name)]
    ranges = plan_ranges({n: STARTS[n] for n in names}, {n: ENDS[n] for n in names}, {}, limits, {}, pushed.offsets)
    places = [(each.topic, each.partition, offset) for each in ranges for offset in range(each.start, each.end)]
    assert len(places) == len(set(places))
    return [row for row in ROWS if (row["topic"], row["partition"], row["offset"]) in places], rest


def evaluate(condition: Any, row: Row) -> bool | None:
    """What SQL makes of a filter, with null for what is not known."""
    if isinstance(condition, Not):
        inner = evaluate(condition.child, row)
        return None if inner is None else not inner
    found = row[condition.attribute[0]] if len(condition.attribute) == 1 else None
    if isinstance(condition, (IsNull, IsNotNull)):
        return (found is None) == isinstance(condition, IsNull)
    if isinstance(condition, EqualNullSafe):
        return bool(found == condition.value)
    if isinstance(condition, In):
        if found is None:
            return None
        return True if found in condition.value else None if None in condition.value else False
    if found is None or condition.value is None:
        return None
    match condition:
        case EqualTo():
            return bool(found == condition.value)
        case GreaterThan():
            return bool(found > condition.value)
        case GreaterThanOrEqual():
            return bool(found >= condition.value)
        case LessThan():
            return bool(found < condition.value)
        case LessThanOrEqual():
            return bool(found <= condition.value)
        case StringStartsWith():
            return str(found).startswith(condition.value)
        case StringEndsWith():
            return str(found).endswith(condition.value)
        case StringContains():
            return condition.value in str(found)
    raise AssertionError(condition)


def passing(filters: Sequence[Any], rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if all(evaluate(each, row) is True for each in filters)]


def filters_on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    path = st.just((column,))
    compared = [
        st.builds(kind, path, values | st.none())
        for kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ]
    return st.one_of(
        *compared, st.builds(In, path, st.lists(values | st.none(), max_size=4)), st.builds(IsNull, path),
        st.builds(IsNotNull, path),
    )  # fmt: skip


TEXTS = st.sampled_from(["", "a", "ab", "b", "c", "B"])
SEARCHES = [st.builds(kind, st.just(("topic",)), TEXTS) for kind in (StringStartsWith, StringEndsWith, StringContains)]
PLAIN = st.one_of(
    filters_on("topic", TEXTS), *SEARCHES, filters_on("partition", st.integers(-1, 4)),
    filters_on("offset", st.integers(-2, 16)), filters_on("offset", st.floats(0, 16)),
    filters_on("value", st.integers(0, 12)),
)  # fmt: skip
FILTERS = st.lists(PLAIN | st.builds(Not, PLAIN), max_size=5)
LIMITS = st.builds(SplitLimits, st.none() | st.integers(1, 20), st.none() | st.integers(1, 5))


@given(FILTERS, LIMITS)
def test_the_query_gets_the_rows_that_it_gets_when_all_is_read(filters: list[Any], limits: SplitLimits) -> None:
    planned, rest = read(filters, limits)
    assert passing(rest, planned) == passing(filters, ROWS)
    assert all(any(each is given for given in filters) for each in rest)


@given(st.lists(st.lists(st.tuples(st.integers(-3, 20), st.integers(-3, 20)), max_size=6), min_size=2, max_size=2))
def test_spans_are_sets_of_offsets(pairs: list[list[tuple[int, int]]]) -> None:
    left, right = map(spans_of, pairs)
    members = [{n for n in range(25) if any(start <= n < end for start, end in each)} for each in (left, right)]
    assert members == [{n for start, end in each for n in range(max(start, 0), end)} for each in pairs]
    assert spans_of(left) == left
    assert common(left, right) == spans_of((n, n + 1) for n in members[0] & members[1])
    assert common(others(left), ((0, 25),)) == spans_of((n, n + 1) for n in set(range(25)) - members[0])
    for count in (1, 2, 5):
        fewer = at_most(left, count)
        assert len(fewer) == min(len(left), count)
        assert common(fewer, left) == left
        assert [fewer[0][0], fewer[-1][1]] == [left[0][0], left[-1][1]] if left else fewer == NO_OFFSETS


def test_what_spark_makes_of_a_range_of_one_partition_is_taken_whole() -> None:
    filters = [
        IsNotNull(("offset",)), IsNotNull(("topic",)), GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 8),
        In(("partition",), [0, 2]), EqualTo(("topic",), "a"),
    ]  # fmt: skip
    planned, rest = read(filters)
    assert rest == []
    assert {(row["topic"], row["partition"], row["offset"]) for row in planned} == {
        ("a", partition, offset) for partition in (0, 2) for offset in (5, 6, 7)
    }


def test_offsets_that_are_far_apart_are_ranges_of_their_own() -> None:
    pushed, rest = push_filters([In(("offset",), [7, 10**12, 8])])
    assert (pushed.offsets, rest) == (((7, 9), (10**12, 10**12 + 1)), [])
    pushed, rest = push_filters([Not(EqualTo(("offset",), 9)), LessThanOrEqual(("offset",), 20)])
    assert (pushed.offsets, rest) == (((0, 9), (10, 21)), [])


def test_too_many_ranges_become_fewer_and_spark_leaves_out_the_rest() -> None:
    scattered = In(("offset",), [n * 10 + (1000 if n > 40 else 0) for n in range(60)])
    topic = EqualTo(("topic",), "a")
    pushed, rest = push_filters([topic, scattered])
    assert rest == [scattered]
    assert len(pushed.offsets) == MAX_SPANS
    assert common(pushed.offsets, ((401, 1410),)) == NO_OFFSETS  # the widest gap stays


def test_where_rows_may_lie_behind_their_range_there_is_one_range_and_spark_looks_again() -> None:
    offsets, partition = In(("offset",), [5, 90]), EqualTo(("partition",), 1)
    pushed, rest = push_filters([offsets, partition], offsets_are_exact=False)
    assert (pushed.offsets, rest) == (((5, 91),), [offsets])


def test_filters_that_contradict_each_other_leave_nothing() -> None:
    for filters in (
        [EqualTo(("offset",), 5), GreaterThan(("offset",), 5)],
        [EqualTo(("partition",), 0), EqualTo(("partition",), 1)],
        [EqualTo(("topic",), "a"), StringStartsWith(("topic",), "b")],
        [IsNull(("topic",))],
        [In(("partition",), [])],
    ):
        assert read(filters) == ([], [])


@pytest.mark.parametrize(
    "odd",
    [
        EqualTo(("offset",), None), EqualTo(("offset",), 5.0), EqualTo(("offset",), True), EqualTo(("offset",), "5"),
        EqualTo(("topic",), 5), In(("offset",), [1, None]), Not(In(("offset",), [1, None])), In(("topic",), ["a", 1]),
        EqualTo(("offset", "of"), 5), EqualTo(("value",), b"x"), StringStartsWith(("offset",), "1"),
        EqualTo(("Topic",), "a"), EqualTo((), 1), GreaterThan(("timestamp",), 1), object(),
    ],
    ids=lambda odd: "an object" if type(odd) is object else repr(odd),
)  # fmt: skip
def test_what_is_not_understood_narrows_nothing_and_goes_back(odd: Any) -> None:
    pushed, rest = push_filters([odd])
    assert rest == [odd]
    assert pushed.offsets == ALL_OFFSETS
    assert all(pushed.accepts(name) for name in STARTS)
