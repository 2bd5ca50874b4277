"""Rates and the time to catch up follow from what was read before, within a window and a bounded memory."""

from __future__ import annotations

import pytest

from zkconsumer.admin.groups.group_report import PartitionRow
from zkconsumer.admin.lag_report import Rates, RateWindow, catch_up_s

KEY = ("g", "t")


def rows(*numbers: tuple[int | None, int | None]) -> list[tuple[str, PartitionRow]]:
    """A row for each (offset, end)."""
    return [("g", PartitionRow("t", at, offset, end, None, None)) for at, (offset, end) in enumerate(numbers)]


def test_the_first_round_has_no_rates_and_the_second_one_has() -> None:
    window = RateWindow()
    assert window.add(0.0, rows((0, 10), (5, 10))) == {}
    assert window.add(10.0, rows((50, 20), (5, 30))) == {KEY: Rates(5.0, 3.0)}


def test_a_minute_between_commits_does_not_show() -> None:
    """A member that commits 600 messages once a minute reads 10 a second, whenever one looks."""
    window = RateWindow()
    found = [window.add(at, rows(((at // 60) * 600, 10 * at))).get(KEY, Rates()).consumed_per_s
             for at in range(0, 600, 10)]  # fmt: skip
    late = [rate for rate in found[24:] if rate is not None]
    assert len(late) == 36
    assert all(4.0 <= rate <= 12.0 for rate in late)
    assert sum(late) / len(late) == pytest.approx(9.5, abs=1.5)


def test_what_goes_back_has_no_rate() -> None:
    window = RateWindow()
    window.add(0.0, rows((50, 100), (0, 0)))
    assert window.add(10.0, rows((0, 100), (10, 10))) == {KEY: Rates(1.0, 1.0)}
    assert window.add(11.0, rows((0, 5), (None, 3))) == {}


def test_the_memory_is_bounded() -> None:
    window = RateWindow()
    for second in range(5000):
        window.add(float(second), rows((second, second)))
    assert len(window._rounds) <= 10
    assert window._rounds[-1].at - window._rounds[0].at <= 140


@pytest.mark.parametrize(
    ("lag", "consumed", "produced", "expected"),
    [(0, None, None, 0.0), (100, 20.0, 10.0, 10.0), (100, 10.0, 10.0, None), (5, None, 1.0, None), (5, 1.0, 2.0, None)],
)
def test_the_time_to_catch_up(lag: int, consumed: float | None, produced: float | None, expected: float | None) -> None:
    assert catch_up_s(lag, consumed, produced) == expected
