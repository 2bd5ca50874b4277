"""Totals and rates of what was fetched of a partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.fetching.fetch_state import WINDOW_S, FetchMeter


def test_totals_are_of_all_time() -> None:
    meter = FetchMeter(100.0)
    meter.add(100.0, 5, 500)
    meter.add(9999.0, 1, 10)
    assert (meter.messages, meter.size_bytes) == (6, 510)


def test_a_steady_rate_is_measured_from_the_first_seconds_on() -> None:
    meter = FetchMeter(0.0)
    for tenth in range(1, 1000):
        meter.add(tenth / 10, 20, 2000)
        if tenth > 20:
            messages_per_s, bytes_per_s = meter.rates(tenth / 10)
            assert messages_per_s == pytest.approx(200, rel=0.05)
            assert bytes_per_s == pytest.approx(20_000, rel=0.05)


def test_the_first_chunk_alone_is_no_enormous_rate() -> None:
    meter = FetchMeter(0.0)
    meter.add(0.001, 1000, 1000)
    assert meter.rates(0.001) == (1000.0, 1000.0)


def test_a_rate_that_ends_is_forgotten_within_two_windows() -> None:
    meter = FetchMeter(0.0)
    for second in range(30):
        meter.add(float(second), 10, 10)
    assert meter.rates(29.0)[0] > 5
    assert meter.rates(29.0 + 2 * WINDOW_S) == (0.0, 0.0)


def test_reading_a_rate_changes_nothing() -> None:
    meter = FetchMeter(0.0)
    meter.add(1.0, 10, 10)
    before = meter.rates(5.0)
    meter.rates(500.0)
    assert meter.rates(5.0) == before


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), max_size=50), st.floats(0, 100))
def test_no_rate_is_negative_or_above_what_came(chunks: list[tuple[float, int]], later_s: float) -> None:
    meter, now = FetchMeter(0.0), 0.0
    for wait_s, messages in chunks:
        now += wait_s
        meter.add(now, messages, messages)
        assert 0 <= meter.rates(now)[0] <= meter.messages
    assert 0 <= meter.rates(now + later_s)[0] <= meter.messages
