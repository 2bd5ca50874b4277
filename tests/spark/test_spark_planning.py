"""Which ranges the tasks of a query read, and what is said about offsets that logs do not have."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.errors import DataLoss, OptionRefused
from zkconsumer.spark.options.options import OffsetSpec
from zkconsumer.spark.reading.bounds import MAX_TASKS, LogEnds, PlannedRange, SplitLimits, plan_ranges, resolve_bounds

B = Broker(1, "b1", 9092)
P0, P1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
EARLIEST, LATEST = OffsetSpec("earliest", "startingOffsets"), OffsetSpec("latest", "endingOffsets")
GROUP = OffsetSpec("group", "startingOffsets")

NAMES = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 20))
WANTED = st.dictionaries(NAMES, st.tuples(st.integers(0, 2**40), st.integers(-5, 10**6)), max_size=8)
LIMITS = st.builds(
    SplitLimits,
    st.none() | st.integers(1, 200),
    st.none() | st.integers(20_000, 10**7),
    st.none() | st.integers(1_000_000, 10**9),
)


def planned(wanted: dict[TopicPartition, tuple[int, int]], limits: SplitLimits) -> list[PlannedRange]:
    """The ranges for partition -> (start, size), of messages of a hundred bytes."""
    starts = {name: start for name, (start, _) in wanted.items()}
    ends = {name: start + size for name, (start, size) in wanted.items()}
    return plan_ranges(starts, ends, dict.fromkeys(wanted, B), limits, dict.fromkeys(wanted, 100.0))


@given(WANTED, LIMITS)
def test_ranges_cover_what_is_wanted_without_gap_or_overlap(
    wanted: dict[TopicPartition, tuple[int, int]], limits: SplitLimits
) -> None:
    ranges = planned(wanted, limits)
    assert all(each.start < each.end and each.leader == B for each in ranges)
    covered = {name: list(parts) for name, parts in groupby(ranges, key=lambda each: each.name)}
    assert sorted(covered) == sorted(name for name, (_, size) in wanted.items() if size > 0)
    for name, parts in covered.items():
        assert (parts[0].start, parts[-1].end) == (wanted[name][0], sum(wanted[name]))
        assert all(left.end == right.start for left, right in pairwise(parts))
        sizes = [part.end - part.start for part in parts]
        assert max(sizes) - min(sizes) <= 1


@given(WANTED, LIMITS)
def test_limits_are_kept(wanted: dict[TopicPartition, tuple[int, int]], limits: SplitLimits) -> None:
    ranges = planned(wanted, limits)
    sizes = [each.end - each.start for each in ranges]
    if limits.min_partitions is not None:
        assert len(ranges) >= min(limits.min_partitions, sum(sizes))
    if limits.max_records is not None:
        assert max(sizes, default=0) <= limits.max_records
    if limits.max_bytes is not None:
        assert max(sizes, default=0) * 100 <= limits.max_bytes + 100


@given(WANTED, LIMITS)
def test_the_same_plan_comes_out_whatever_the_order(
    wanted: dict[TopicPartition, tuple[int, int]], limits: SplitLimits
) -> None:
    assert planned(wanted, limits) == planned(dict(reversed(wanted.items())), limits)


def test_without_limits_each_partition_is_one_task() -> None:
    ranges = planned({P0: (5, 10), P1: (0, 0)}, SplitLimits())
    assert [(each.partition, each.start, each.end) for each in ranges] == [(0, 5, 15)]


def test_the_largest_partition_is_split_first() -> None:
    ranges = planned({P0: (0, 10), P1: (0, 1000)}, SplitLimits(min_partitions=4))
    assert [each.partition for each in ranges] == [0, 1, 1, 1]


def test_a_partition_of_unknown_message_size_is_not_split_by_bytes() -> None:
    assert len(plan_ranges({P0: 0}, {P0: 10**9}, {}, SplitLimits(max_bytes=1), {})) == 1


def test_too_many_tasks_are_refused_with_the_option() -> None:
    with pytest.raises(OptionRefused, match="maxRecordsPerPartition: it would create 1000000 tasks"):
        planned({P0: (0, 10**6)}, SplitLimits(max_records=1))
    with pytest.raises(OptionRefused, match="maxBytesPerPartition"):
        planned({P0: (0, 10**6)}, SplitLimits(max_bytes=1))
    with pytest.raises(OptionRefused, match="minPartitions"):
        planned({P0: (0, 10**6)}, SplitLimits(min_partitions=MAX_TASKS + 1))


# -- where to begin and to end -----------------------------------------------------------------------------------------


def log(earliest: int, latest: int) -> LogEnds:
    return LogEnds(earliest, latest, B)


def test_the_whole_log_by_default() -> None:
    bounds = resolve_bounds(EARLIEST, LATEST, {P0: log(5, 50), P1: log(0, 0)}, {}, fail_on_data_loss=True)
    assert (bounds.starts, bounds.ends, bounds.losses) == ({P0: 5, P1: 0}, {P0: 50, P1: 0}, ())


def test_the_offsets_of_the_group_and_the_earliest_where_it_has_none() -> None:
    bounds = resolve_bounds(GROUP, LATEST, {P0: log(5, 50), P1: log(3, 9)}, {P0: 20}, fail_on_data_loss=True)
    assert bounds.starts == {P0: 20, P1: 3}


def each(option: str, *offsets: int) -> OffsetSpec:
    return OffsetSpec("each", option, dict(zip((P0, P1), offsets, strict=False)))


def test_minus_two_and_minus_one_are_both_ends() -> None:
    ends = {P0: log(5, 50), P1: log(3, 9)}
    bounds = resolve_bounds(each("startingOffsets", 7, -2), each("endingOffsets", -1, 8), ends, {}, True)
    assert (bounds.starts, bounds.ends) == ({P0: 7, P1: 3}, {P0: 50, P1: 8})


@pytest.mark.parametrize(
    ("start", "end", "lost"),
    [(2, 50, (2, 5)), (60, 60, (50, 60)), (10, 70, (50, 70)), (2, 4, (2, 4))],
)
def test_offsets_that_the_log_does_not_have_are_lost_data(start: int, end: int, lost: tuple[int, int]) -> None:
    wanted = each("startingOffsets", start), each("endingOffsets", end)
    with pytest.raises(DataLoss, match=r"clicks/0: .* the log has 5 to 50"):
        resolve_bounds(*wanted, {P0: log(5, 50)}, {}, fail_on_data_loss=True)
    bounds = resolve_bounds(*wanted, {P0: log(5, 50)}, {}, fail_on_data_loss=False)
    assert (bounds.losses[0].first, bounds.losses[0].behind) == lost
    assert 5 <= bounds.starts[P0] <= bounds.ends[P0] <= 50


def test_retention_that_overtook_the_group_is_lost_data() -> None:
    with pytest.raises(DataLoss, match="3 offsets from 2 to 4 are not in the log"):
        resolve_bounds(GROUP, LATEST, {P0: log(5, 50)}, {P0: 2}, fail_on_data_loss=True)


def test_json_has_to_name_every_partition_and_no_other() -> None:
    with pytest.raises(OptionRefused, match="startingOffsets: it omits clicks/1"):
        resolve_bounds(each("startingOffsets", 7), LATEST, {P0: log(0, 9), P1: log(0, 9)}, {}, True)
    with pytest.raises(OptionRefused, match="endingOffsets: it names clicks/1, not among"):
        resolve_bounds(EARLIEST, each("endingOffsets", 7, 7), {P0: log(0, 9)}, {}, True)


def test_an_end_before_the_begin_is_refused() -> None:
    with pytest.raises(OptionRefused, match="ends at 6, before it starts at 7"):
        resolve_bounds(each("startingOffsets", 7), each("endingOffsets", 6), {P0: log(0, 9)}, {}, True)


OFFSETS = st.integers(0, 100)


@given(OFFSETS, OFFSETS, OFFSETS, OFFSETS)
def test_whatever_is_wanted_is_read_or_told_as_lost(earliest: int, latest: int, start: int, end: int) -> None:
    earliest, latest = sorted((earliest, latest))
    start, end = sorted((start, end))
    wanted = each("startingOffsets", start), each("endingOffsets", end)
    bounds = resolve_bounds(*wanted, {P0: log(earliest, latest)}, {}, fail_on_data_loss=False)
    read = set(range(bounds.starts[P0], bounds.ends[P0]))
    lost = {offset for loss in bounds.losses for offset in range(loss.first, loss.behind)}
    assert set(range(start, end)) <= read | lost
    assert read <= set(range(earliest, latest)) & set(range(start, end))
    assert not read & lost
