"""The figures of a history."""

from __future__ import annotations

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.checks import Figures, figures_of

NS = 1_000_000_000


def at(seconds: float, kind: str, member: str = "", offset: int = -1, partition: int = 0) -> Event:
    return Event(int(seconds * NS), kind, member, "t", partition, offset)


def test_nothing_happened() -> None:
    assert figures_of([]) == Figures(0, 0, 0, 0, 0, 0.0, None)


def test_lost_and_repeated_are_counted_and_who_repeated() -> None:
    history = [at(0, "acked", offset=n) for n in range(4)]
    history += [at(1, "deliver", "a", 0), at(1, "deliver", "a", 1), at(2, "deliver", "a", 1), at(3, "deliver", "b", 1)]
    figures = figures_of(history)
    assert (figures.acked, figures.lost, figures.repeated, figures.repeated_by_same) == (4, 2, 2, 1)


def test_offset_nodes_that_fall_are_summed_up() -> None:
    history = [at(second, "offset_node", offset=value) for second, value in enumerate([5, 9, 4, 6, 5, -1, 7])]
    assert figures_of(history).put_back == 5 + 1


def test_the_longest_gap_is_that_of_a_partition_with_messages_to_deliver() -> None:
    history = [at(1, "acked", offset=0), at(1.5, "deliver", "a", 0)]
    history += [at(9, "acked", offset=1), at(9.25, "deliver", "a", 1)]
    history += [at(2, "acked", offset=0, partition=1), at(5, "deliver", "b", 0, partition=1)]
    figures = figures_of(history)
    assert (figures.longest_gap_s, figures.gap_place) == (3.0, ("t", 1))
    assert figures_of(history, since_ns=4 * NS).longest_gap_s == 1.0


def test_a_message_that_nobody_got_is_a_gap_to_the_end() -> None:
    assert figures_of([at(1, "acked", offset=0), at(4, "acked", offset=1)]).longest_gap_s == 3.0
