"""What a micro-batch may take of each partition, and when there is enough for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.streaming.stream_offsets import TriggerDelay, admit


def clicks(*numbers: int) -> dict[TopicPartition, int]:
    return {TopicPartition("clicks", partition): number for partition, number in enumerate(numbers)}


def test_without_a_limit_all_is_taken():
    assert admit(clicks(3, 7), clicks(10, 7), None) == clicks(10, 7)


def test_a_limit_that_is_not_reached_changes_nothing():
    assert admit(clicks(3, 7), clicks(10, 9), 9) == clicks(10, 9)


def test_large_lags_get_large_shares():
    assert admit(clicks(0, 0), clicks(1000, 100), 110) == clicks(100, 10)


def test_a_small_lag_is_not_starved_by_a_large_one():
    assert admit(clicks(0, 0, 0), clicks(1_000_000, 1, 1), 10) == clicks(8, 1, 1)


def test_fewer_offsets_than_partitions_go_to_the_largest_lags():
    assert admit(clicks(0, 0, 0), clicks(5, 9, 7), 2) == clicks(0, 1, 1)


def test_partitions_without_a_known_end_or_with_a_lower_one_stay_where_they_are():
    ends = {TopicPartition("clicks", 1): 5}
    assert admit(clicks(3, 7), ends, 100) == clicks(3, 7)


@given(
    lags=st.lists(st.integers(0, 2**62), min_size=1, max_size=20),
    begin=st.integers(0, 2**40),
    limit=st.integers(1, 2**62),
)
def test_the_limit_is_used_up_and_no_end_is_passed(lags: list[int], begin: int, limit: int):
    positions = clicks(*[begin] * len(lags))
    taken = [end - begin for end in admit(positions, clicks(*[begin + lag for lag in lags]), limit).values()]
    assert all(0 <= share <= lag for share, lag in zip(taken, lags, strict=True))
    assert sum(taken) == min(limit, sum(lags))


@given(lags=st.lists(st.integers(0, 500), min_size=1, max_size=6), limit=st.integers(1, 60))
def test_everything_is_read_in_the_end(lags: list[int], limit: int):
    at, ends = clicks(*[0] * len(lags)), clicks(*lags)
    for _ in range(sum(lags) // limit + 1):
        at = admit(at, ends, limit)
    assert at == ends


def test_a_batch_waits_for_enough_offsets_and_no_longer_than_it_may():
    delay = TriggerDelay(10, 60.0)
    assert [delay.must_wait(news, now) for news, now in [
        (1, 100.0),  # nobody knows when the last one was
        (9, 101.0), (10, 102.0),
        (9, 161.9), (9, 162.0),
        (0, 500.0),  # nothing is no batch
        (1, 501.0), (1, 502.0),
    ]] == [False, True, False, True, False, False, False, True]  # fmt: skip
