"""What is counted as a rebalance, and what is counted of one."""

from __future__ import annotations

import threading

from rebalance.episodes import Episodes, RebalanceFigures
from rebalance.tally import Tally


def test_a_rebalance_takes_from_the_first_sign_until_all_is_settled() -> None:
    episodes = Episodes()
    episodes.began(10.0)
    assert episodes.is_under_way
    episodes.taken()
    episodes.released()
    episodes.began(11.0)  # another change before the end
    episodes.ended(12.5)
    assert not episodes.is_under_way
    assert episodes.figures == RebalanceFigures(1, 2.5, 2.5, 2.5, taken=1, released=1)


def test_a_look_that_moves_nothing_is_not_counted() -> None:
    episodes = Episodes()
    episodes.began(10.0)
    episodes.ended(11.0)
    episodes.ended(12.0)
    assert episodes.figures == RebalanceFigures()


def test_the_longest_and_the_last_are_told_apart() -> None:
    episodes = Episodes()
    for began, took_s in ((0.0, 3.0), (10.0, 1.0)):
        episodes.began(began)
        episodes.lost()
        episodes.ended(began + took_s)
    assert episodes.figures == RebalanceFigures(2, 1.0, 3.0, 4.0, lost=2)


def test_counts_of_many_threads_are_all_there() -> None:
    tally = Tally()

    def count() -> None:
        for _ in range(2000):
            tally.add("requests", "fetch")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    tally.add("requests", "absent", 0)
    assert tally.counts("requests") == {"fetch": 8000}
    assert tally.counts("others") == {}
