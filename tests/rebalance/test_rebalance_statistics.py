"""What is counted as a rebalance, and what is counted of one."""

from __future__ import annotations

import threading

from rebalance.rebalance_statistics import Counters, RebalanceFigures, RebalanceStatistics


def test_a_rebalance_takes_from_the_first_sign_until_all_is_settled() -> None:
    rebalance_statistics = RebalanceStatistics()
    rebalance_statistics.started(10.0)
    assert rebalance_statistics.is_under_way
    rebalance_statistics.taken()
    rebalance_statistics.released()
    rebalance_statistics.started(11.0)  # another change before the end
    rebalance_statistics.ended(12.5)
    assert not rebalance_statistics.is_under_way
    assert rebalance_statistics.figures == RebalanceFigures(1, 2.5, 2.5, 2.5, taken=1, released=1)


def test_a_look_that_moves_nothing_is_not_counted() -> None:
    rebalance_statistics = RebalanceStatistics()
    rebalance_statistics.started(10.0)
    rebalance_statistics.ended(11.0)
    rebalance_statistics.ended(12.0)
    assert rebalance_statistics.figures == RebalanceFigures()


def test_the_longest_and_the_last_are_told_apart() -> None:
    rebalance_statistics = RebalanceStatistics()
    for began, took_s in ((0.0, 3.0), (10.0, 1.0)):
        rebalance_statistics.started(began)
        rebalance_statistics.lost()
        rebalance_statistics.ended(began + took_s)
    assert rebalance_statistics.figures == RebalanceFigures(2, 1.0, 3.0, 4.0, lost=2)


def test_counts_of_many_threads_are_all_there() -> None:
    counters = Counters()

    def count() -> None:
        for _ in range(2000):
            counters.add("requests", "fetch")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    counters.add("requests", "absent", 0)
    assert counters.counts("requests") == {"fetch": 8000}
    assert counters.counts("others") == {}
