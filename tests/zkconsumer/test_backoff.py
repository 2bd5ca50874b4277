"""The waits between attempts."""

from __future__ import annotations

import pytest

from zkconsumer.backoff import Backoff


def test_each_wait_is_longer_than_the_one_before_by_a_factor_up_to_the_limit() -> None:
    backoff = Backoff(0.1, 1.0, 1.5)
    assert [backoff.wait_s(failures) for failures in range(4)] == pytest.approx([0.1, 0.15, 0.225, 0.3375])
    assert backoff.wait_s(100) == 1.0


def test_any_number_of_failures_has_a_wait() -> None:
    assert Backoff(0.1, 7.0).wait_s(10**9) == 7.0


@pytest.mark.parametrize(("first_ms", "first_s"), [(0, 0.02), (200, 0.2), (19, 0.02), (21, 0.021)])
def test_a_configured_wait_is_never_so_short_that_attempts_become_a_loop(first_ms: int, first_s: float) -> None:
    assert Backoff.of_ms(first_ms, 10.0).wait_s(0) == pytest.approx(first_s)
